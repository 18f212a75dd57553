/* The kernel of softmax by itself: each rule alone and all together, in place and not, with NaN at
 * every score that a query does not see. */
#include "attention_place.h"
#include "shape.h"
#include "softmax.h"
#include "stage_run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CAUSAL = MHA_USES_CAUSAL,
    LEFT = MHA_USES_WINDOW_LEFT,
    RIGHT = MHA_USES_WINDOW_RIGHT,
    LENGTHS = MHA_USES_KEY_LENGTHS,
    PER_QUERY = MHA_USES_KEY_LENGTHS_PER_QUERY,
    BIAS = MHA_USES_BIAS,
    MASK = MHA_USES_MASK
};

static const uint64_t rules[] = {
    0,
    CAUSAL,
    LEFT,
    RIGHT,
    LENGTHS,
    PER_QUERY,
    BIAS,
    MASK,
    CAUSAL | LENGTHS,
    LEFT | RIGHT,
    CAUSAL | LEFT | PER_QUERY,
    BIAS | MASK,
    CAUSAL | LEFT | RIGHT | LENGTHS | PER_QUERY | BIAS | MASK,
};

static attention_case pick_case(uint64_t seed, uint64_t uses)
{
    static const size_t sizes[] = { 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65 };
    static const size_t windows[] = { 0, 1, 5, 16, 40, SIZE_MAX };
    const size_t num_sizes = sizeof sizes / sizeof sizes[0];
    const bool diagonal = uses & (CAUSAL | LEFT | RIGHT);
    attention_case c = { .seed = seed * 16, .lengths_on_device = true };
    c.desc = (mha_attention_desc){
        ATTENTION_SIZES(1 + compare_pick(seed, 0, 3), 1 + compare_pick(seed, 1, 3),
                        sizes[compare_pick(seed, 2, num_sizes)],
                        sizes[compare_pick(seed, 3, num_sizes)], 1),
        .scale = 1,
        .uses = uses | MHA_USES_PROBS,
        .softcap = compare_pick(seed, 4, 4) ? 0 : 1.5f,
        .diagonal = diagonal ? (mha_diagonal)(1 + (int)compare_pick(seed, 5, 2)) : 0,
        .window_left = uses & LEFT ? windows[compare_pick(seed, 6, 6)] : 0,
        .window_right = uses & RIGHT ? windows[compare_pick(seed, 7, 6)] : 0,
        .bias_broadcast = uses & BIAS ? (unsigned)compare_pick(seed, 8, 16) : 0,
        .mask_broadcast = uses & MASK ? (unsigned)compare_pick(seed, 9, 16) : 0,
    };
    if (compare_pick(seed, 10, 2))
        c.desc.uses |= MHA_USES_LSE;
    c.fill = (fill_kind)compare_pick(seed, 11, FILL_KINDS);
    c.layout = compare_pick(seed, 12, 2) ? LAYOUT_GAPS : LAYOUT_PACKED;
    return c;
}

/* Scores of the case's fill, NaN where they are not seen; asks the reference. */
static float *make_scores(attention_data *data)
{
    const size_t count = data->desc.batch * data->desc.heads * data->query_len * data->key_len;
    float *scores = malloc((count ? count : 1) * sizeof *scores);
    cr_assert(scores);
    fill_floats(scores, count, data->given.seed + 1, data->given.fill);
    attention_data_see(data);
    for (size_t i = 0; i < count; i++)
        scores[i] = data->seen[i] ? scores[i] : i % 3 ? NAN : INFINITY;
    const reference_args args = {
        .bias = data->bias,
        .mask = data->mask,
        .key_lengths = data->key_lengths,
        .key_lengths_per_query = data->per_query,
        .probs = data->want_probs,
        .lse = data->want_lse,
    };
    reference_softmax(&data->desc, &args, scores);
    return scores;
}

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
        status = mha_bind_options(&run, &bound, "a test", &desc, &options.args);
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
    float *scores = make_scores(data);
    const size_t count = data->desc.batch * data->desc.heads * data->query_len * data->key_len;
    const size_t biases =
        data->bias_shape[0] * data->bias_shape[1] * data->bias_shape[2] * data->bias_shape[3];
    const double largest = compare_largest(scores, count) + c->desc.softcap +
                           (c->desc.uses & BIAS ? compare_largest(data->bias, biases) : 0);
    launch(d, data, scores, in_place);
    attention_compare_softmax(data, reference_limit(1, largest), worst);
    free(scores);
    attention_data_free(data);
}

Test(kernels_softmax, rules)
{
    enum {
        SEEDS = 6,
        RULES = sizeof rules / sizeof rules[0]
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (uint64_t n = 0; n < SEEDS * RULES; n++) {
        const attention_case c = pick_case(600 + n, rules[n % RULES]);
        check_softmax(&d, &c, n % 2, &worst);
    }
    compare_log("kernel of softmax", SEEDS * RULES, &worst);
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
        c.desc.uses = MHA_USES_PROBS | MHA_USES_LSE | PER_QUERY;
        check_softmax(&d, &c, false, &worst);
        check_softmax(&d, &c, true, &worst);
    }
    compare_log("groups of softmax", 2 * sizeof cases / sizeof cases[0], &worst);
    device_close(&d);
}
