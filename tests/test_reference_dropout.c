/* The reference's dropout against Random123's known answers and numbers worked out by hand. */
#include "reference.h"

#include <Random123/philox.h>
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Random123's kat_vectors for philox4x32-10: the counter as the first of four keys, a query and a
 * head, and what a p drops of the four. x: dropped. */
typedef struct known_answer {
    const char *name;
    size_t quad, i, g;
    uint64_t seed;
    uint32_t offset;
    struct {
        float p;
        const char *dropped;
    } rows[4];
} known_answer;

static const known_answer known_answers[] = {
    /* 6627e8d5 e169c58d bc57ac4c 9b00dbd8 */
    { .name = "all 0",
      .rows = { { 0.3984375f, "...." }, { 0.5f, "x..." }, { 0.625f, "x..x" }, { 0.75f, "x.xx" } } },
    /* 408f276d 41c83b0e a20bc7c6 6d5451fd */
    { .name = "all ones",
      .quad = 0xffffffff,
      .i = 0xffffffff,
      .g = 0xffffffff,
      .seed = UINT64_MAX,
      .offset = 0xffffffff,
      .rows = { { 0.25f, "...." },
                { 0.25390625f, "x..." },
                { 0.375f, "xx.." },
                { 0.5f, "xx.x" } } },
    /* d16cfe09 94fdcceb 5001e420 24126ea1 */
    { .name = "pi",
      .quad = 0x243f6a88,
      .i = 0x85a308d3,
      .g = 0x13198a2e,
      .seed = 0x299f31d0a4093822,
      .offset = 0x03707344,
      .rows = { { 0.125f, "...." }, { 0.25f, "...x" }, { 0.5f, "..xx" }, { 0.625f, ".xxx" } } },
};

Test(reference_dropout, known_answers)
{
    for (size_t k = 0; k < sizeof known_answers / sizeof known_answers[0]; k++) {
        const known_answer *known = &known_answers[k];
        for (size_t r = 0; r < 4; r++) {
            const float p = known->rows[r].p;
            const reference_args args = { .dropout_p = p,
                                          .dropout_seed = known->seed,
                                          .dropout_offset = known->offset };
            for (size_t c = 0; c < 4; c++) {
                const double got =
                    reference_dropout(&args, 1, known->g, 0, known->i, known->quad * 4 + c);
                const double want = known->rows[r].dropped[c] == 'x' ? 0 : 1 / (1 - (double)p);
                cr_expect_eq(got, want, "%s, p %g: key %zu has %g, not %g", known->name, (double)p,
                             c, got, want);
            }
        }
    }
}

/* A word is dropped by the least p above it and by no other: found among the words that a float can
 * name, whose low bits are 0. */
Test(reference_dropout, drops_words_below_the_threshold)
{
    size_t found = 0;
    for (size_t j = 0; j < 8192; j++) {
        const philox4x32_ctr_t counter = { { (uint32_t)(j / 4) } };
        const philox4x32_key_t key = { { 0 } };
        const uint32_t word = philox4x32(counter, key).v[j % 4];
        const float p = (float)(word * 0x1p-32);
        if (word < 1u << 31 || p * 0x1p32 != word)
            continue;
        found++;
        reference_args args = { .dropout_p = p };
        cr_expect_neq(reference_dropout(&args, 1, 0, 0, 0, j), 0, "key %zu", j);
        args.dropout_p = nextafterf(p, 1);
        cr_expect_eq(reference_dropout(&args, 1, 0, 0, 0, j), 0, "key %zu", j);
    }
    cr_expect_gt(found, 0);
}

/* p below 2^-33 is no threshold at all; p just below 1 keeps one word in 2^24. */
Test(reference_dropout, ends_of_p)
{
    reference_args args = { .dropout_p = 0 };
    size_t kept = 0;
    for (size_t j = 0; j < 100; j++) {
        args.dropout_p = 0;
        cr_expect_eq(reference_dropout(&args, 1, 0, 0, 0, j), 1);
        args.dropout_p = 0x1p-34f;
        cr_expect_eq(reference_dropout(&args, 1, 0, 0, 0, j), 1 / (1 - 0x1p-34));
        args.dropout_p = 1 - 0x1p-24f;
        kept += reference_dropout(&args, 1, 0, 0, 0, j) != 0;
    }
    cr_expect_eq(kept, 0);
}

/* All scores are 0, with four keys of five seen. Dropped, as above: the first of them. */
Test(reference_dropout, probs_and_output_but_not_lse)
{
    const mha_attention_desc desc = { .batch = 1,
                                      .heads = 1,
                                      .query_len = 1,
                                      .key_len = 5,
                                      .head_dim = 1,
                                      .scores_stage = MHA_SCORES_BIASED,
                                      .uses = MHA_USES_KEY_LENGTHS };
    double output[1], probs[5], scores[5], lse[1];
    const reference_args args = {
        .query = (float[]){ 0 },
        .key = (float[]){ 1, 2, 3, 4, NAN },
        .value = (float[]){ 1, 2, 4, 8, NAN },
        .key_lengths = (int32_t[]){ 4 },
        .dropout_p = 0.5f,
        .output = output,
        .probs = probs,
        .scores = scores,
        .lse = lse,
    };
    reference_attention(&desc, &args);
    const double want[] = { 0, 0.5, 0.5, 0.5, 0 };
    for (size_t j = 0; j < 5; j++) {
        cr_expect_eq(probs[j], want[j], "key %zu: %g", j, probs[j]);
        cr_expect_eq(scores[j], j < 4 ? 0 : -INFINITY, "key %zu: %g", j, scores[j]);
    }
    cr_expect_eq(output[0], 7, "%g", output[0]);
    cr_expect_float_eq(lse[0], log(4), 1e-15);
}

/* Each prob has the choice of its own batch, head, query and key, whatever the key head. */
Test(reference_dropout, each_prob_by_its_indices)
{
    enum {
        BATCH = 2,
        HEADS = 4,
        QUERIES = 3,
        KEYS = 6,
        COUNT = BATCH * HEADS * QUERIES * KEYS
    };
    const mha_attention_desc desc = { .batch = BATCH,
                                      .heads = HEADS,
                                      .kv_heads = 2,
                                      .query_len = QUERIES,
                                      .key_len = KEYS,
                                      .head_dim = 1 };
    static const float zeros[COUNT];
    double probs[COUNT];
    const reference_args args = { .query = zeros,
                                  .key = zeros,
                                  .value = zeros,
                                  .dropout_p = 0.25f,
                                  .dropout_seed = 0x123456789abcdef,
                                  .dropout_offset = 7,
                                  .probs = probs };
    reference_attention(&desc, &args);
    size_t dropped = 0;
    for (size_t n = 0; n < COUNT; n++) {
        const size_t j = n % KEYS, i = n / KEYS % QUERIES, g = n / KEYS / QUERIES;
        const double keep = reference_dropout(&args, HEADS, g / HEADS, g % HEADS, i, j);
        cr_expect_eq(keep, reference_dropout(&args, 1, g, 0, i, j));
        cr_expect_float_eq(probs[n], keep / KEYS, 1e-15, "element %zu: %g", n, probs[n]);
        dropped += keep == 0;
    }
    cr_expect(dropped > COUNT / 8 && dropped < COUNT / 2, "%zu", dropped);
}
