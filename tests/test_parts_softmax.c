/* The public softmax with what came after the article: first keys, ALiBi, sinks, biases of half
 * types, and the scores shown at each stage. */
#include "attention_place.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static const uint64_t sets_of_uses[] = {
    MHA_USES_SCORES,
    MHA_USES_KEY_STARTS,
    MHA_USES_ALIBI,
    MHA_USES_SINKS,
    MHA_USES_BIAS,
    MHA_USES_KEY_STARTS | MHA_USES_KEY_LENGTHS | MHA_USES_SCORES,
    MHA_USES_ALIBI | MHA_USES_CAUSAL | MHA_USES_KEY_LENGTHS | MHA_USES_SCORES,
    MHA_USES_SINKS | MHA_USES_MASK | MHA_USES_SCORES,
    MHA_USES_BIAS | MHA_USES_ALIBI | MHA_USES_SINKS | MHA_USES_KEY_STARTS | MHA_USES_SCORES,
};

enum {
    SETS = sizeof sets_of_uses / sizeof sets_of_uses[0]
};

static attention_case pick_case(uint64_t seed, uint64_t uses)
{
    static const size_t sizes[] = { 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65 };
    static const mha_type bias_types[] = { MHA_TYPE_DEFAULT, MHA_FLOAT16, MHA_BFLOAT16 };
    const size_t num = sizeof sizes / sizeof sizes[0];
    attention_case c = { .seed = seed * 16 };
    c.query_len = sizes[compare_pick(seed, 0, num)];
    c.key_len = sizes[compare_pick(seed, 1, num)];
    c.desc = (mha_attention_desc){
        ATTENTION_SIZES(1 + compare_pick(seed, 2, 3), 1 + compare_pick(seed, 3, 3), c.query_len, 65,
                        1),
        .scale = 1,
        .uses = uses | MHA_USES_PROBS | MHA_USES_LSE,
        .softcap = compare_pick(seed, 4, 3) ? 0 : 1.5f,
        .scores_stage = (mha_scores_stage)compare_pick(seed, 5, 3),
    };
    if (uses & MHA_USES_ALIBI)
        c.desc.diagonal = compare_pick(seed, 6, 2) ? MHA_TOP_LEFT : MHA_BOTTOM_RIGHT;
    if (uses & MHA_USES_BIAS) {
        c.desc.bias_type = bias_types[compare_pick(seed, 7, 3)];
        c.desc.bias_broadcast = (unsigned)compare_pick(seed, 8, 16);
    }
    c.fill = compare_pick(seed, 9, 3) ? FILL_NORMAL : (fill_kind)compare_pick(seed, 10, FILL_KINDS);
    c.lengths_on_device = compare_pick(seed, 11, 2);
    c.slopes_per_batch = compare_pick(seed, 12, 2);
    c.layout = compare_pick(seed, 13, 2) ? LAYOUT_GAPS : LAYOUT_PACKED;
    return c;
}

static size_t count_of(const attention_data *data)
{
    return data->desc.batch * data->desc.heads * data->query_len * data->key_len;
}

/* NaN where a query does not look, for the caller to free. */
static float *fill_scores(attention_data *data)
{
    float *scores = malloc(count_of(data) * sizeof *scores);
    cr_assert(scores);
    fill_floats(scores, count_of(data), data->given.seed + 1, data->given.fill);
    attention_data_see(data);
    for (size_t i = 0; i < count_of(data); i++)
        scores[i] = data->seen[i] ? scores[i] : NAN;
    return scores;
}

static void expect(attention_data *data, const float *scores)
{
    const reference_args args = {
        .query_len = data->query_len,
        .key_len = data->key_len,
        .bias = data->bias,
        .mask = data->mask,
        .key_lengths = data->key_lengths,
        .key_starts = data->key_starts,
        .slopes = data->slopes,
        .slopes_per_batch = data->given.slopes_per_batch,
        .sinks = data->sinks,
        .probs = data->want_probs,
        .scores = data->want_scores,
        .lse = data->want_lse,
    };
    reference_softmax(&data->desc, &args, scores);
}

/* The probs take the scores' place, or lie beside them. */
static void run(device *d, attention_data *data, const float *scores, bool in_place)
{
    const attention_case *c = &data->given;
    const size_t shape[4] = { data->desc.batch, data->desc.heads, data->query_len, data->key_len };
    const device_tensor to = device_output(d, shape, NULL, sizeof(float));
    device_tensor from = to;
    if (in_place)
        device_write(d, &to, scores);
    else
        from = device_input(d, shape, NULL, sizeof(float), scores);
    attention_tensors tensors = { .args = { .query_len = c->query_len, .key_len = c->key_len } };
    attention_place_options(d, data, &tensors);
    tensors.args.probs = device_arg(&to);
    const mha_tensor source = device_arg(&from);

    mha_softmax *softmax = NULL;
    cr_assert_eq(mha_softmax_create(&softmax, d->context, &c->desc), MHA_OK, "%s: %s", data->name,
                 d->sentence);
    const mha_call call = device_call(d, mha_softmax_workspace(softmax));
    cr_assert_eq(mha_softmax_enqueue(softmax, &source, &tensors.args, &call), MHA_OK, "%s: %s",
                 data->name, d->sentence);
    mha_softmax_destroy(&softmax);
    device_read(d, &to, data->probs);
    device_read(d, &tensors.lse, data->lse);
    if (data->desc.uses & MHA_USES_SCORES)
        device_read(d, &tensors.scores, data->scores);
    device_expect_guards(d, data->name);
    device_forget(d);
}

static void check(device *d, const attention_case *c, bool in_place, compare_worst *worst)
{
    attention_data *data = attention_data_new(c);
    float *scores = fill_scores(data);
    const size_t *bias = data->bias_shape;
    double largest = compare_largest(scores, count_of(data)) + data->desc.softcap;
    expect(data, scores);
    run(d, data, scores, in_place);
    if (c->desc.uses & MHA_USES_BIAS)
        largest += compare_largest(data->bias, bias[0] * bias[1] * bias[2] * bias[3]);
    if (c->desc.uses & MHA_USES_ALIBI)
        largest += compare_largest(data->slopes, c->desc.batch * c->desc.heads) *
                   (double)(data->query_len + data->key_len);
    attention_compare_softmax(data, reference_limit(1, largest), worst);
    free(scores);
    attention_data_free(data);
}

Test(parts_softmax, wide_rules)
{
    enum {
        CASES = 6 * SETS
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (uint64_t n = 0; n < CASES; n++) {
        const attention_case c = pick_case(900 + n, sets_of_uses[n % SETS]);
        check(&d, &c, n / SETS % 2, &worst);
    }
    compare_log("softmax with wide rules", CASES, &worst);
    device_close(&d);
}

/* Dropout multiplies what the softmax gives without it: by 0, or by what the share says. */
static void check_dropout(device *d, float share, const reference_args *choice)
{
    enum {
        BATCH = 2,
        HEADS = 3,
        QUERIES = 5,
        KEYS = 67,
        ROWS = BATCH * HEADS * QUERIES
    };
    static float scores[ROWS * KEYS], probs[2][ROWS * KEYS], lse[2][ROWS];
    fill_floats(scores, ROWS * KEYS, 5, FILL_NORMAL);
    const size_t shape[4] = { BATCH, HEADS, QUERIES, KEYS };
    const device_tensor from = device_input(d, shape, NULL, sizeof(float), scores);
    const mha_tensor source = device_arg(&from);
    for (int drops = 0; drops < 2; drops++) {
        const device_tensor to = device_output(d, shape, NULL, sizeof(float));
        const device_tensor sums =
            device_output(d, (size_t[]){ BATCH, HEADS, QUERIES, 1 }, NULL, sizeof(float));
        mha_attention_args args = { .probs = device_arg(&to), .lse = device_arg(&sums) };
        mha_attention_desc desc = { ATTENTION_SIZES(BATCH, HEADS, QUERIES, KEYS, 1),
                                    .uses = MHA_USES_LSE | MHA_USES_CAUSAL,
                                    .diagonal = MHA_BOTTOM_RIGHT };
        if (drops) {
            desc.uses |= MHA_USES_DROPOUT;
            desc.dropout_p = share;
            args.dropout_seed = choice->dropout_seed;
            args.dropout_offset = choice->dropout_offset;
        }
        mha_softmax *softmax = NULL;
        cr_assert_eq(mha_softmax_create(&softmax, d->context, &desc), MHA_OK, "%s", d->sentence);
        const mha_call call = device_call(d, mha_softmax_workspace(softmax));
        cr_assert_eq(mha_softmax_enqueue(softmax, &source, &args, &call), MHA_OK, "%s",
                     d->sentence);
        mha_softmax_destroy(&softmax);
        device_read(d, &to, probs[drops]);
        device_read(d, &sums, lse[drops]);
    }
    for (size_t n = 0; n < ROWS * KEYS; n++) {
        const size_t g = n / KEYS / QUERIES, i = n / KEYS % QUERIES, j = n % KEYS;
        const double keep = reference_dropout(choice, HEADS, g / HEADS, g % HEADS, i, j);
        compare_one("softmax with dropout", "probs", n, probs[1][n], probs[0][n] * keep,
                    keep * 1e-7, NULL);
    }
    for (size_t n = 0; n < ROWS; n++)
        cr_expect_eq(lse[0][n], lse[1][n], "share %g: lse[%zu]", (double)share, n);
    device_expect_guards(d, "softmax with dropout");
    device_forget(d);
}

Test(parts_softmax, dropout)
{
    static const float shares[] = { 0, 0.1f, 0.5f, 0.9f };
    device d;
    device_open(&d);
    for (size_t n = 0; n < sizeof shares / sizeof shares[0]; n++)
        check_dropout(&d, shares[n],
                      &(reference_args){ .dropout_p = shares[n],
                                         .dropout_seed = 0xfedcba9876543210 + n,
                                         .dropout_offset = n ? 0xffffffff : 0 });
    device_close(&d);
}
