/* The public feed-forward network against the reference. How it refuses is in test_errors_ffn.c. */
#include "ffn_case.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(ffn, .timeout = 600);

enum {
    ALL_FLAGS = 2 * MHA_FFN_OUT_IN - 1,
    KINDS = MHA_ACTIVATION_SILU + 1
};

static const size_t sizes[] = { 1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 100 };

/* Widths and rows by the seed's choice, with each set of flags. */
Test(ffn, cross)
{
    enum {
        SIZES = sizeof sizes / sizeof sizes[0]
    };
    device d;
    compare_worst worst = { 0 };
    size_t cases = 0;
    device_open(&d);
    for (unsigned n = 0; n < 4 * (ALL_FLAGS + 1); n++) {
        const uint64_t seed = 7000 + n;
        const unsigned flags = n % (ALL_FLAGS + 1);
        const size_t rows = sizes[compare_pick(seed, 0, SIZES)];
        ffn_case c = {
            .desc = { .rows = rows + compare_pick(seed, 1, 2) * 5,
                      .width = sizes[compare_pick(seed, 2, SIZES)],
                      .hidden_width = sizes[compare_pick(seed, 3, SIZES)],
                      .output_width =
                          compare_pick(seed, 4, 2) ? sizes[compare_pick(seed, 5, SIZES)] : 0,
                      .activation = (mha_activation_kind)compare_pick(seed, 6, KINDS),
                      .flags = flags & MHA_FFN_GATE ? flags : flags & ~MHA_FFN_BIAS_GATE,
                      .projection = compare_pick(seed, 7, 4) ? MHA_GEMM_KERNEL : MHA_GEMM_CLBLAST,
                      .tiling = (mha_tiling)compare_pick(seed, 8, 3) },
            .rows = rows,
            .gaps = compare_pick(seed, 9, 2),
            .seed = seed,
        };
        ffn_case_check(&d, &c, &worst);
        cases++;
    }
    compare_log("feed-forward", cases, &worst);
    device_close(&d);
}

/* Half types of input, output and weights, with and without a gate; hidden rows and gate in one
 * product and in two; longer sums than a piece of k. */
Test(ffn, half_types)
{
    static const struct {
        mha_type type, output_type, weight_type;
    } mixes[] = {
        { MHA_FLOAT16, MHA_TYPE_DEFAULT, MHA_FLOAT16 },
        { MHA_BFLOAT16, MHA_TYPE_DEFAULT, MHA_BFLOAT16 },
        { MHA_BFLOAT16, MHA_FLOAT32, MHA_TYPE_DEFAULT },
        { MHA_TYPE_DEFAULT, MHA_FLOAT16, MHA_BFLOAT16 },
    };
    static const size_t widths[][3] = { { 17, 33, 0 }, { 64, 96, 31 }, { 300, 1100, 20 } };
    device d;
    compare_worst worst = { 0 };
    size_t cases = 0;
    device_open(&d);
    for (unsigned n = 0; n < 4 * 3 * 2 * 2; n++) {
        const unsigned gate = n / 12 % 2 ? MHA_FFN_GATE | MHA_FFN_BIAS_GATE : 0;
        const ffn_case c = {
            .desc = { .rows = 19,
                      .width = widths[n / 4 % 3][0],
                      .hidden_width = widths[n / 4 % 3][1],
                      .output_width = widths[n / 4 % 3][2],
                      .activation = MHA_ACTIVATION_GELU,
                      .flags = MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_OUTPUT | gate |
                               (n % 2 ? MHA_FFN_OUT_IN : 0),
                      .type = mixes[n % 4].type,
                      .output_type = mixes[n % 4].output_type,
                      .weight_type = mixes[n % 4].weight_type,
                      .projection = n / 24 ? MHA_GEMM_CLBLAST : MHA_GEMM_KERNEL },
            .rows = 17,
            .gaps = n % 3,
            .seed = 300 + n,
        };
        ffn_case_check(&d, &c, &worst);
        cases++;
    }
    compare_log("feed-forward of half types", cases, &worst);
    device_close(&d);
}

/* The article's: four times as wide between, ReLU; and SwiGLU. */
Test(ffn, articles)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    const ffn_case plain = { .desc = { .rows = 40,
                                       .width = 128,
                                       .hidden_width = 512,
                                       .activation = MHA_ACTIVATION_RELU,
                                       .flags = MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_OUTPUT } };
    const ffn_case gated = { .desc = { .rows = 40,
                                       .width = 128,
                                       .hidden_width = 341,
                                       .activation = MHA_ACTIVATION_SILU,
                                       .flags = MHA_FFN_GATE | MHA_FFN_OUT_IN } };
    ffn_case joined = gated; /* hidden rows and gate in one product, on a CPU too */
    joined.desc.hidden_width = 352;
    ffn_case_check(&d, &plain, &worst);
    ffn_case_check(&d, &gated, &worst);
    ffn_case_check(&d, &joined, &worst);
    compare_log("articles", 3, &worst);
    device_close(&d);
}

/* No rows are no work, whatever is given. */
Test(ffn, no_rows)
{
    device d;
    device_open(&d);
    const mha_ffn_desc desc = { .width = 4, .hidden_width = 5, .projection = MHA_GEMM_KERNEL };
    ffn_weights weights = ffn_weights_new(&desc, 1);
    const mha_ffn_weights placed = ffn_weights_place(&d, &weights, false);
    mha_ffn *ffn = NULL;
    cr_assert_eq(mha_ffn_create(&ffn, d.context, &desc), MHA_OK, "%s", d.sentence);
    cr_expect_eq(mha_ffn_workspace(ffn).bytes, 0);
    const mha_call call = { .queue = d.queue };
    cr_assert_eq(mha_ffn_load(ffn, &placed, &call), MHA_OK, "%s", d.sentence);
    cr_expect_eq(mha_ffn_enqueue(ffn, &(mha_ffn_args){ 0 }, &call), MHA_OK, "%s", d.sentence);
    mha_ffn_destroy(&ffn);
    ffn_weights_free(&weights);
    device_close(&d);
}

Test(ffn, explain)
{
    char text[512], part[8];
    device d;
    device_open(&d);
    const mha_ffn_desc desc = { .rows = 3,
                                .width = 4,
                                .hidden_width = 5,
                                .activation = MHA_ACTIVATION_SILU,
                                .flags = MHA_FFN_GATE,
                                .projection = MHA_GEMM_KERNEL };
    mha_ffn *ffn = NULL;
    cr_assert_eq(mha_ffn_create(&ffn, d.context, &desc), MHA_OK, "%s", d.sentence);
    const size_t length = mha_ffn_explain(ffn, text, sizeof text);
    cr_expect_eq(length, strlen(text));
    cr_expect(strstr(text, device_is_cpu(&d) ? "feed-forward gate: the library's"
                                             : "feed-forward hidden, gate: the library's"),
              "%s", text);
    cr_expect(strstr(text, "activation_rows, with the gate"), "%s", text);
    cr_expect_eq(mha_ffn_explain(ffn, part, sizeof part), length);
    cr_expect(!strncmp(part, text, sizeof part - 1) && !part[sizeof part - 1], "%s", part);
    mha_ffn_destroy(&ffn);
    device_close(&d);
}
