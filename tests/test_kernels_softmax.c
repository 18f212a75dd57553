/* The kernel of softmax by itself: each rule alone and all together, in place and not, with NaN at
 * every score that a query does not see. */
#include "attention_place.h"
#include "shape.h"
#include "softmax.h"
#include "softmax_case.h"
#include "stage_run.h"

#include <criterion/criterion.h>
#include <stdlib.h>

/* The stage wants packed probs, wherever the case's layout would have them. */
static void launch(device *d, attention_data *data, const float *scores, bool in_place)
{
    const size_t shape[4] = { data->desc.batch, data->desc.heads, data->query_len, data->key_len };
    device_tensor from, to;
    if (in_place) {
        from = to = device_output(d, shape, NULL, sizeof(float));
        device_write(d, &from, scores);
    } else {
        from = device_input(d, shape, NULL, sizeof(float), scores);
        to = device_output(d, shape, NULL, sizeof(float));
    }
    attention_tensors options = { .args = { .query_len = 0 } };
    attention_place_options(d, data, &options);
    mha_attention_desc desc;
    mha_bound bound = { .query_len = data->query_len, .key_len = data->key_len };
    mha_softmax_stage stage = { .group = 0 };
    const mha_call call = { .queue = d->queue };
    mha_run run = stage_begin(d, &call);
    mha_status status = mha_shape_resolve(d->context, &data->given.desc, "a test", &desc);
    if (!status)
        status = mha_bound_take_options(&run, &bound, "a test", &desc, &options.args);
    if (!status)
        status = mha_softmax_setup(&stage, d->context, &desc);
    if (!status)
        status = mha_softmax_launch(&stage, &run, &desc, &bound, device_buffer(&from), from.offset,
                                    device_buffer(&to), to.offset);
    stage_end(d, &run, status, data->name);
    mha_softmax_release(&stage);
    device_read(d, &to, data->probs);
    if (desc.uses & MHA_USES_LSE)
        device_read(d, &options.lse, data->lse);
    device_expect_guards(d, data->name);
    device_forget(d);
}

static void check_softmax(device *d, const attention_case *c, bool in_place, compare_worst *worst)
{
    attention_data *data = attention_data_new(c);
    float *scores = softmax_case_scores(data);
    launch(d, data, scores, in_place);
    softmax_case_compare(data, scores, worst);
    free(scores);
    attention_data_free(data);
}

Test(kernels_softmax, rules)
{
    enum {
        CASES = 6 * SOFTMAX_RULES
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (uint64_t n = 0; n < CASES; n++) {
        const attention_case c = softmax_case_pick(600 + n, softmax_rules[n % SOFTMAX_RULES]);
        check_softmax(&d, &c, n % 2, &worst);
    }
    compare_log("kernel of softmax", CASES, &worst);
    device_close(&d);
}

/* Work-groups of 1, 64, 128 and 256 items, rows that are no multiple of them, more rows than a grid
 * has groups. */
Test(kernels_softmax, groups)
{
    static const attention_case cases[] = {
        { .desc = { ATTENTION_SIZES(1, 1, 3, 1, 1) } },
        { .desc = { ATTENTION_SIZES(1, 1, 3, 1023, 1) } },
        { .desc = { ATTENTION_SIZES(1, 1, 3, 2049, 1) } },
        { .desc = { ATTENTION_SIZES(2, 1, 3, 4097, 1) } },
        { .desc = { ATTENTION_SIZES(1, 2, 33000, 2, 1) } },
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        attention_case c = cases[n];
        c.lengths_on_device = true;
        c.desc.uses = MHA_USES_PROBS | MHA_USES_LSE | MHA_USES_KEY_LENGTHS_PER_QUERY;
        check_softmax(&d, &c, false, &worst);
        check_softmax(&d, &c, true, &worst);
    }
    compare_log("groups of softmax", 2 * sizeof cases / sizeof cases[0], &worst);
    device_close(&d);
}
