/* The reference against numbers worked out by hand, since everything else is compared with it. */
#include "reference.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define MOST_KEYS 5
#define MOST_QUERIES 5
#define LN3 1.0986122886681098

static const double tolerance = 1e-6; /* the inputs are floats */

static bool near(double got, double want)
{
    return isinf(want) ? got == want : fabs(got - want) <= tolerance * fmax(1, fabs(want));
}

static void expect_near(const char *name, const double *got, const double *want, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cr_expect(near(got[i], want[i]), "%s: element %zu is %g, not %g", name, i, got[i], want[i]);
}

Test(reference, two_by_two)
{
    const mha_attention_desc desc = {
        .batch = 1, .heads = 1, .query_len = 2, .key_len = 2, .head_dim = 1, .scale = 1
    };
    double output[2], probs[4], lse[2];
    const reference_args args = {
        .query = (float[]){ 1, 0 },
        .key = (float[]){ 0, (float)LN3 },
        .value = (float[]){ 4, 8 },
        .output = output,
        .probs = probs,
        .lse = lse,
    };
    reference_attention(&desc, &args);
    expect_near("probs", probs, (double[]){ 0.25, 0.75, 0.5, 0.5 }, 4);
    expect_near("output", output, (double[]){ 7, 6 }, 2);
    expect_near("lse", lse, (double[]){ log(4), log(2) }, 2);
}

Test(reference, default_scale_is_by_the_root_of_head_dim)
{
    const mha_attention_desc desc = {
        .batch = 1, .heads = 1, .query_len = 1, .key_len = 2, .head_dim = 4, .value_dim = 1
    };
    double output[1];
    const reference_args args = {
        .query = (float[]){ 1, 1, 0, 0 },
        .key = (float[]){ 0, 0, 9, 9, (float)LN3, (float)LN3, 9, 9 },
        .value = (float[]){ 4, 8 },
        .output = output,
    };
    reference_attention(&desc, &args);
    expect_near("output", output, (double[]){ 7 }, 1);
}

/* Scale 1/2, softcap 2, then the bias: 2 tanh(4/2/2) - 1 and 2 tanh(0) + 0.5. */
Test(reference, scale_then_softcap_then_bias)
{
    const mha_attention_desc desc = {
        .batch = 1,
        .heads = 1,
        .query_len = 1,
        .key_len = 2,
        .head_dim = 1,
        .scale = 0.5f,
        .softcap = 2,
        .uses = MHA_USES_BIAS,
    };
    double probs[2], lse[1];
    const reference_args args = {
        .query = (float[]){ 1 },
        .key = (float[]){ 4, 0 },
        .value = (float[]){ 0, 0 },
        .bias = (float[]){ -1, 0.5f },
        .probs = probs,
        .lse = lse,
    };
    reference_attention(&desc, &args);
    expect_near("probs", probs, (double[]){ 0.50579682, 0.49420318 }, 2);
    expect_near("lse", lse, (double[]){ 1.20480855 }, 1);
}

/* Which keys a query sees. All scores are 0, so that a seen key has the probability of one among
 * the row's seen keys. x: seen. */
typedef struct seen_case {
    const char *name;
    const char *rows[MOST_QUERIES + 1];
    mha_attention_desc desc; /* the lengths follow from the rows */
    int32_t key_length;
    int32_t key_lengths_per_query[MOST_QUERIES];
    float bias[MOST_KEYS];
    unsigned char mask[MOST_QUERIES];
} seen_case;

static const seen_case seen_cases[] = {
    { "no exclusion", { "xxx", "xxx" }, .desc = { .uses = 0 } },
    { "one key", { "x", "x" }, .desc = { .uses = 0 } },
    { "causal top left, 2x5",
      { "x....", "xx..." },
      .desc = { .uses = MHA_USES_CAUSAL, .diagonal = MHA_TOP_LEFT } },
    { "causal bottom right, 2x5",
      { "xxxx.", "xxxxx" },
      .desc = { .uses = MHA_USES_CAUSAL, .diagonal = MHA_BOTTOM_RIGHT } },
    { "causal top left, 5x2",
      { "x.", "xx", "xx", "xx", "xx" },
      .desc = { .uses = MHA_USES_CAUSAL, .diagonal = MHA_TOP_LEFT } },
    { "causal bottom right, 5x2",
      { "..", "..", "..", "x.", "xx" },
      .desc = { .uses = MHA_USES_CAUSAL, .diagonal = MHA_BOTTOM_RIGHT } },
    { "causal top left, 3 of 5 keys",
      { "x....", "xx...", "xxx..", "xxx.." },
      .desc = { .uses = MHA_USES_CAUSAL | MHA_USES_KEY_LENGTHS, .diagonal = MHA_TOP_LEFT },
      .key_length = 3 },
    { "causal bottom right, 3 of 5 keys",
      { "xx...", "xxx.." },
      .desc = { .uses = MHA_USES_CAUSAL | MHA_USES_KEY_LENGTHS, .diagonal = MHA_BOTTOM_RIGHT },
      .key_length = 3 },
    { "the last 2 keys, causal",
      { "x...", "xx..", ".xx.", "..xx" },
      .desc = { .uses = MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT,
                .diagonal = MHA_TOP_LEFT,
                .window_left = 1 } },
    { "left window of 0",
      { "xxx", ".xx", "..x" },
      .desc = { .uses = MHA_USES_WINDOW_LEFT, .diagonal = MHA_TOP_LEFT } },
    { "right window of 1",
      { "xx..", "xxx.", "xxxx" },
      .desc = { .uses = MHA_USES_WINDOW_RIGHT, .diagonal = MHA_TOP_LEFT, .window_right = 1 } },
    { "windows, bottom right",
      { ".xxx.", "..xxx" },
      .desc = { .uses = MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT,
                .diagonal = MHA_BOTTOM_RIGHT,
                .window_left = 2 } },
    { "windows past every end",
      { "xx", "xx", "xx" },
      .desc = { .uses = MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT,
                .diagonal = MHA_TOP_LEFT,
                .window_left = SIZE_MAX,
                .window_right = SIZE_MAX } },
    { "left window that no key is in",
      { "x.", ".x", "..", ".." },
      .desc = { .uses = MHA_USES_WINDOW_LEFT | MHA_USES_CAUSAL, .diagonal = MHA_TOP_LEFT } },
    { "2 of 4 keys",
      { "xx..", "xx.." },
      .desc = { .uses = MHA_USES_KEY_LENGTHS },
      .key_length = 2 },
    { "no keys", { "..", ".." }, .desc = { .uses = MHA_USES_KEY_LENGTHS }, .key_length = 0 },
    { "a length below 0",
      { "..", ".." },
      .desc = { .uses = MHA_USES_KEY_LENGTHS },
      .key_length = -7 },
    { "a length above all",
      { "xx", "xx" },
      .desc = { .uses = MHA_USES_KEY_LENGTHS },
      .key_length = 7 },
    { "a length per query",
      { "xx..", "....", "xxxx", "xxxx", "...." },
      .desc = { .uses = MHA_USES_KEY_LENGTHS_PER_QUERY },
      .key_lengths_per_query = { 2, 0, 4, 9, -1 } },
    { "a length and one per query",
      { "xx..", "xxx.", "x..." },
      .desc = { .uses = MHA_USES_KEY_LENGTHS | MHA_USES_KEY_LENGTHS_PER_QUERY },
      .key_length = 3,
      .key_lengths_per_query = { 2, 4, 1 } },
    { "the diagonal ignores a length per query",
      { "xxx.", "x..." },
      .desc = { .uses = MHA_USES_CAUSAL | MHA_USES_KEY_LENGTHS_PER_QUERY,
                .diagonal = MHA_BOTTOM_RIGHT },
      .key_lengths_per_query = { 4, 1 } },
    { "a bias of -inf excludes, -FLT_MAX does not",
      { "x.x", "x.x" },
      .desc = { .uses = MHA_USES_BIAS,
                .bias_broadcast = MHA_AXIS_BATCH | MHA_AXIS_HEADS | MHA_AXIS_QUERY },
      .bias = { -FLT_MAX, -INFINITY, -FLT_MAX } },
    { "a mask of rows, any byte but 0 allows",
      { "xx", "..", "xx" },
      .desc = { .uses = MHA_USES_MASK, .mask_broadcast = MHA_AXIS_KEY },
      .mask = { 1, 0, 255 } },
};

static bool column_is_seen(const seen_case *c, size_t key)
{
    for (size_t i = 0; c->rows[i]; i++) {
        if (c->rows[i][key] == 'x')
            return true;
    }
    return false;
}

/* Compares one row with "xx.": the values are 1, 2, 3 ... */
static void expect_row(const seen_case *c, size_t i, const double *probs, double lse, double output)
{
    const char *row = c->rows[i];
    const size_t key_len = strlen(row);
    double count = 0;
    double sum = 0;
    for (size_t j = 0; j < key_len; j++) {
        if (row[j] == 'x') {
            count++;
            sum += (double)j + 1;
        }
    }
    const double shift = c->desc.uses & MHA_USES_BIAS ? c->bias[0] : 0;
    for (size_t j = 0; j < key_len; j++) {
        const double want = row[j] == 'x' ? 1 / count : 0;
        cr_expect(near(probs[j], want), "%s: probs[%zu][%zu] is %g, not %g", c->name, i, j,
                  probs[j], want);
    }
    cr_expect(near(lse, log(count) + shift), "%s: lse[%zu] is %g", c->name, i, lse);
    cr_expect(near(output, count > 0 ? sum / count : 0), "%s: output[%zu] is %g", c->name, i,
              output);
}

/* What no query sees holds NaN, which must not reach any row. */
Test(reference, who_sees_whom)
{
    for (size_t n = 0; n < sizeof seen_cases / sizeof seen_cases[0]; n++) {
        const seen_case *c = &seen_cases[n];
        mha_attention_desc desc = c->desc;
        float query[MOST_QUERIES] = { 0 };
        float key[MOST_KEYS], value[MOST_KEYS];
        double output[MOST_QUERIES], lse[MOST_QUERIES], probs[MOST_QUERIES * MOST_KEYS];

        desc.batch = desc.heads = desc.head_dim = 1;
        desc.key_len = strlen(c->rows[0]);
        while (c->rows[desc.query_len])
            desc.query_len++;
        for (size_t j = 0; j < desc.key_len; j++) {
            key[j] = column_is_seen(c, j) ? 5 : NAN;
            value[j] = column_is_seen(c, j) ? (float)(j + 1) : NAN;
        }
        reference_attention(&desc, &(reference_args){
                                       .query = query,
                                       .key = key,
                                       .value = value,
                                       .bias = c->bias,
                                       .mask = c->mask,
                                       .key_lengths = &c->key_length,
                                       .key_lengths_per_query = c->key_lengths_per_query,
                                       .output = output,
                                       .probs = probs,
                                       .lse = lse,
                                   });
        for (size_t i = 0; i < desc.query_len; i++)
            expect_row(c, i, probs + i * desc.key_len, lse[i], output[i]);
    }
}

/* One query sees the NaN and the next one does not. */
Test(reference, nan_stays_with_those_who_see_it)
{
    const mha_attention_desc desc = {
        .batch = 1,
        .heads = 1,
        .query_len = 2,
        .key_len = 2,
        .head_dim = 1,
        .uses = MHA_USES_CAUSAL,
        .diagonal = MHA_TOP_LEFT,
    };
    double output[2];
    reference_attention(&desc, &(reference_args){
                                   .query = (float[]){ 1, 1 },
                                   .key = (float[]){ 1, 1 },
                                   .value = (float[]){ 3, NAN },
                                   .output = output,
                               });
    cr_expect_eq(output[0], 3);
    cr_expect(isnan(output[1]));
}

Test(reference, a_score_of_1e8_does_not_overflow)
{
    const mha_attention_desc desc = {
        .batch = 1, .heads = 1, .query_len = 1, .key_len = 3, .head_dim = 1, .scale = 1
    };
    double probs[3], lse[1];
    reference_attention(&desc, &(reference_args){
                                   .query = (float[]){ 1e4f },
                                   .key = (float[]){ 1e4f, -1e4f, 1e4f },
                                   .value = (float[]){ 0, 0, 0 },
                                   .probs = probs,
                                   .lse = lse,
                               });
    expect_near("probs", probs, (double[]){ 0.5, 0, 0.5 }, 3);
    expect_near("lse", lse, (double[]){ 1e8 }, 1);
}

/* Query heads 0 and 1 read head 0 of keys and values, 2 and 3 read head 1; in batch 1 as well. */
Test(reference, query_heads_share_key_and_value_heads)
{
    const mha_attention_desc desc = {
        .batch = 2, .heads = 4, .kv_heads = 2, .query_len = 1, .key_len = 1, .head_dim = 1
    };
    double output[8];
    reference_attention(&desc, &(reference_args){
                                   .query = (float[8]){ 0 },
                                   .key = (float[4]){ 0 },
                                   .value = (float[]){ 1, 2, 3, 4 },
                                   .output = output,
                               });
    expect_near("output", output, (double[]){ 1, 1, 2, 2, 3, 3, 4, 4 }, 8);
}

/* The lengths of the call are not the desc's: everything is packed at the call's. */
Test(reference, a_call_shorter_than_its_desc)
{
    const mha_attention_desc desc = {
        .batch = 2,
        .heads = 1,
        .query_len = 9,
        .key_len = 9,
        .head_dim = 1,
        .uses = MHA_USES_CAUSAL,
        .diagonal = MHA_BOTTOM_RIGHT,
    };
    double output[2];
    reference_attention(&desc, &(reference_args){
                                   .query_len = 1,
                                   .key_len = 2,
                                   .query = (float[]){ 0, 0 },
                                   .key = (float[4]){ 0 },
                                   .value = (float[]){ 1, 3, 5, 7 },
                                   .output = output,
                               });
    expect_near("output", output, (double[]){ 2, 6 }, 2);
}

/* With two queries of three and two keys of four: the diagonal at the bottom right is that of
 * these, and the third query has no key. */
Test(reference, a_batch_shorter_than_its_call)
{
    const mha_attention_desc desc = {
        .batch = 2,
        .heads = 1,
        .query_len = 3,
        .key_len = 4,
        .head_dim = 1,
        .uses = MHA_USES_CAUSAL | MHA_USES_KEY_LENGTHS,
        .diagonal = MHA_BOTTOM_RIGHT,
    };
    double output[6], lse[6];
    const reference_args args = {
        .query = (float[]){ 0, 0, 0, 0, 0, 0 },
        .key = (float[]){ 0, 0, 0, 0, 0, 0, 0, 0 },
        .value = (float[]){ 2, 4, 6, 8, 2, 4, 6, 8 },
        .query_lengths = (int32_t[]){ 2, 3 },
        .key_lengths = (int32_t[]){ 2, 4 },
        .output = output,
        .lse = lse,
    };
    reference_attention(&desc, &args);
    expect_near("output", output, (double[]){ 2, 3, 0, 3, 4, 5 }, 6);
    expect_near("lse", lse, (double[]){ 0, log(2), -INFINITY, log(2), log(3), log(4) }, 6);
}

/* Every set of broadcast axes: the probs of two keys say which bias was read, since a bias of ln w
 * weighs a key w times. The bias of element n of its packed shape is ln (n + 1). */
Test(reference, bias_broadcast)
{
    enum {
        BATCH = 2,
        HEADS = 3,
        QUERIES = 2,
        KEYS = 2
    };
    for (unsigned axes = 0; axes < 16; axes++) {
        const mha_attention_desc desc = { .batch = BATCH,
                                          .heads = HEADS,
                                          .query_len = QUERIES,
                                          .key_len = KEYS,
                                          .head_dim = 1,
                                          .uses = MHA_USES_BIAS,
                                          .bias_broadcast = axes };
        float bias[BATCH * HEADS * QUERIES * KEYS];
        double lse[BATCH * HEADS * QUERIES];
        for (size_t n = 0; n < sizeof bias / sizeof bias[0]; n++)
            bias[n] = logf((float)n + 1);
        reference_attention(&desc, &(reference_args){
                                       .query = (float[BATCH * HEADS * QUERIES]){ 0 },
                                       .key = (float[BATCH * HEADS * KEYS]){ 0 },
                                       .value = (float[BATCH * HEADS * KEYS]){ 0 },
                                       .bias = bias,
                                       .lse = lse,
                                   });
        /* The last row: its elements are the last ones along every axis that the bias has. */
        const size_t rows = (axes & MHA_AXIS_BATCH ? 1 : BATCH) *
                            (axes & MHA_AXIS_HEADS ? 1 : HEADS) *
                            (axes & MHA_AXIS_QUERY ? 1 : QUERIES);
        const double last = (double)(axes & MHA_AXIS_KEY ? rows : rows * KEYS);
        const double before = axes & MHA_AXIS_KEY ? last : last - 1;
        const double got = exp(lse[BATCH * HEADS * QUERIES - 1]);
        cr_expect(near(got, last + before), "broadcast %u: %g, not %g", axes, got, last + before);
        cr_expect(near(exp(lse[0]), axes & MHA_AXIS_KEY ? 2 : 3), "broadcast %u", axes);
    }
}

Test(reference, softmax_of_scores)
{
    const mha_attention_desc desc = {
        .batch = 1, .heads = 1, .query_len = 2, .key_len = 3, .uses = MHA_USES_KEY_LENGTHS_PER_QUERY
    };
    double probs[6], lse[2];
    const reference_args args = {
        .key_lengths_per_query = (int32_t[]){ 2, 0 },
        .probs = probs,
        .lse = lse,
    };
    reference_softmax(&desc, &args, (float[]){ 1, 1 + (float)LN3, NAN, NAN, NAN, NAN });
    expect_near("probs", probs, (double[]){ 0.25, 0.75, 0, 0, 0, 0 }, 6);
    expect_near("lse", lse, (double[]){ 1 + log(4), -INFINITY }, 2);
}
