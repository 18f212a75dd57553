/* The reference's first keys, ALiBi, sinks and shown scores against numbers worked out by hand. */
#include "reference.h"

#include <criterion/criterion.h>
#include <math.h>

#define LN3 1.0986122886681098

/* One query, three keys. */
typedef struct wide_case {
    const char *name;
    uint64_t uses;
    mha_diagonal diagonal;
    float softcap;
    mha_scores_stage stage;
    float keys[3];
    int32_t start;
    double probs[3], scores[3], lse;
} wide_case;

static const wide_case cases[] = {
    { .name = "sink", /* as heavy as the three keys together */
      .uses = MHA_USES_SINKS,
      .stage = MHA_SCORES_BIASED,
      .probs = { 1.0 / 6, 1.0 / 6, 1.0 / 6 },
      .lse = 1.791759469228055 },
    { .name = "ALiBi from the first key",
      .uses = MHA_USES_ALIBI,
      .diagonal = MHA_TOP_LEFT,
      .stage = MHA_SCORES_BIASED,
      .probs = { 9.0 / 13, 3.0 / 13, 1.0 / 13 },
      .scores = { 0, -LN3, -2 * LN3 },
      .lse = 0.3677247801253174 },
    { .name = "ALiBi from the last key, its scores before it",
      .uses = MHA_USES_ALIBI,
      .diagonal = MHA_BOTTOM_RIGHT,
      .stage = MHA_SCORES_CAPPED,
      .probs = { 1.0 / 13, 3.0 / 13, 9.0 / 13 },
      .lse = 0.3677247801253174 },
    { .name = "start",
      .uses = MHA_USES_KEY_STARTS,
      .stage = MHA_SCORES_BIASED,
      .start = 1,
      .probs = { 0, 0.5, 0.5 },
      .scores = { -INFINITY, 0, 0 },
      .lse = 0.6931471805599453 },
    { .name = "start past the keys, and a sink",
      .uses = MHA_USES_KEY_STARTS | MHA_USES_SINKS,
      .stage = MHA_SCORES_SCALED,
      .keys = { 1, 2, 3 },
      .start = 7,
      .scores = { 2, 4, 6 },
      .lse = LN3 },
    { .name = "softcap",
      .softcap = 2,
      .stage = MHA_SCORES_CAPPED,
      .keys = { -1, 0, 1 },
      .probs = { 0.0375576, 0.1722700, 0.7901725 },
      .scores = { -1.523188311911530, 0, 1.523188311911530 },
      .lse = 1.7586924 },
};

static void expect_near(const char *name, const char *what, const double *got, const double *want,
                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        cr_expect(got[i] == want[i] || fabs(got[i] - want[i]) <= 1e-5, "%s: %s[%zu] is %g, not %g",
                  name, what, i, got[i], want[i]);
}

Test(reference_wide, by_hand)
{
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        const wide_case *c = &cases[n];
        const mha_attention_desc desc = { .batch = 1,
                                          .heads = 1,
                                          .query_len = 1,
                                          .key_len = 3,
                                          .head_dim = 1,
                                          .scale = 2,
                                          .softcap = c->softcap,
                                          .uses = c->uses,
                                          .diagonal = c->diagonal,
                                          .scores_stage = c->stage };
        double probs[3], scores[3], output[1], lse[1];
        const float value[] = { 4, 8, 12 };
        const reference_args args = {
            .query = (float[]){ 1 },
            .key = c->keys,
            .value = value,
            .key_starts = &c->start,
            .slopes = (float[]){ (float)LN3 },
            .sinks = (float[]){ (float)LN3 },
            .output = output,
            .probs = probs,
            .scores = scores,
            .lse = lse,
        };
        reference_attention(&desc, &args);
        const double want = c->probs[0] * 4 + c->probs[1] * 8 + c->probs[2] * 12;
        expect_near(c->name, "probs", probs, c->probs, 3);
        expect_near(c->name, "scores", scores, c->scores, 3);
        expect_near(c->name, "lse", lse, &c->lse, 1);
        expect_near(c->name, "output", output, &want, 1);
    }
}
