/* The reference's layer and parts against numbers worked out by hand. */
#include "reference.h"
#include "reference_block.h"

#include <criterion/criterion.h>
#include <math.h>

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

Test(reference_parts, heads)
{
    const mha_heads_desc desc = { .batch = 1, .heads = 2, .len = 3, .dim = 2 };
    const float merged[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    const float split[] = { 1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12 };
    double got[12];
    reference_split_heads(&desc, merged, got);
    for (size_t i = 0; i < 12; i++)
        cr_expect_eq(got[i], split[i], "split: element %zu", i);
    reference_merge_heads(&desc, split, got);
    for (size_t i = 0; i < 12; i++)
        cr_expect_eq(got[i], merged[i], "merge: element %zu", i);
}

/* [1 2 3; 4 5 6] [1 0; 0 1; 1 1] = [4 5; 10 11], with each operand stored either way. */
Test(reference_parts, gemm)
{
    const float a[2][6] = { { 1, 2, 3, 4, 5, 6 }, { 1, 4, 2, 5, 3, 6 } };
    const float b[2][6] = { { 1, 0, 0, 1, 1, 1 }, { 1, 0, 1, 0, 1, 1 } };
    double out[8];
    for (unsigned flags = 0; flags < 4; flags++) {
        const mha_gemm_desc plain = { .m = 2, .n = 2, .k = 3, .flags = flags };
        reference_gemm_args args = {
            .a = a[flags & MHA_GEMM_TRANSPOSE_A ? 1 : 0],
            .b = b[flags & MHA_GEMM_TRANSPOSE_B ? 1 : 0],
            .c = (float[]){ NAN, NAN, NAN, NAN },
            .out = out,
        };
        reference_gemm(&plain, &args);
        expect_near("plain", out, (double[]){ 4, 5, 10, 11 }, 4);

        mha_gemm_desc full = plain;
        full.alpha = 2;
        full.beta = -1;
        args.c = (float[]){ 1, 2, 3, 4 };
        reference_gemm(&full, &args);
        expect_near("alpha and beta", out, (double[]){ 7, 8, 17, 18 }, 4);

        full.k = 0;
        reference_gemm(&full, &args);
        expect_near("k 0", out, (double[]){ -1, -2, -3, -4 }, 4);
    }
}

Test(reference_parts, gemm_of_a_batch)
{
    const mha_gemm_desc desc = { .m = 9, .n = 2, .k = 1, .batch = 2, .flags = MHA_GEMM_BIAS };
    double out[4];
    reference_gemm(&desc, &(reference_gemm_args){
                              .m = 1,
                              .a = (float[]){ 2, 3 },
                              .b = (float[]){ 5, 7 },
                              .b_shared = true,
                              .bias = (float[]){ 100, 200 },
                              .out = out,
                          });
    expect_near("shared b", out, (double[]){ 110, 214, 115, 221 }, 4);
}

/* One key, so that the output is the projected value, projected: (1 2 3) [1 0; 0 1; 1 1] + (10 20)
 * = (14 25), one channel for each of two heads, and 14 * 1 + 25 * 2 + 0.5 = 64.5. */
Test(reference_parts, layer_projects_and_merges)
{
    const float value_in_out[] = { 1, 0, 0, 1, 1, 1 };
    const float value_out_in[] = { 1, 0, 1, 0, 1, 1 };
    const unsigned layouts[] = { 0, MHA_LAYER_OUT_IN };
    for (size_t i = 0; i < 2; i++) {
        mha_layer_desc desc = {
            .attention = { .batch = 1, .heads = 2, .query_len = 1, .key_len = 1 },
            .model_width = 2,
            .value_width = 3,
            .output_width = 1,
            .flags = MHA_LAYER_BIAS_VALUE | MHA_LAYER_BIAS_OUTPUT | layouts[i],
        };
        const reference_layer_weights weights = {
            .query = (float[]){ 1, 0, 0, 1 },
            .key = (float[]){ 1, 0, 0, 1 },
            .value = layouts[i] ? value_out_in : value_in_out,
            .output = (float[]){ 1, 2 },
            .bias_value = (float[]){ 10, 20 },
            .bias_output = (float[]){ 0.5f },
        };
        double output[2];
        const reference_args args = {
            .query = (float[]){ 1, 1 },
            .key = (float[]){ 1, 1 },
            .value = (float[]){ 1, 2, 3 },
            .output = output,
        };
        reference_layer(&desc, &weights, &args);
        expect_near("projected", output, (double[]){ 64.5 }, 1);

        desc.flags = MHA_LAYER_BIAS_VALUE | MHA_LAYER_MERGED_OUTPUT | layouts[i];
        desc.output_width = 0;
        reference_layer(&desc, &weights, &args);
        expect_near("merged", output, (double[]){ 14, 25 }, 2);
    }
}

/* Query 1 * 2 + 1 = 3; keys 0 and ln 3 / 3 times 1, plus a bias that shifts both scores. */
Test(reference_parts, layer_attends_with_projected_queries_and_keys)
{
    const mha_layer_desc desc = {
        .attention = { .batch = 1,
                       .heads = 1,
                       .query_len = 1,
                       .key_len = 3,
                       .head_dim = 1,
                       .uses = MHA_USES_KEY_LENGTHS },
        .flags = MHA_LAYER_BIAS_QUERY | MHA_LAYER_BIAS_KEY,
    };
    double output[1], probs[3], lse[1];
    const reference_layer_weights weights = {
        .query = (float[]){ 2 },
        .key = (float[]){ 1 },
        .value = (float[]){ -1 },
        .output = (float[]){ 2 },
        .bias_query = (float[]){ 1 },
        .bias_key = (float[]){ 1 },
    };
    const reference_args args = {
        .query = (float[]){ 1 },
        .key = (float[]){ 0, (float)LN3 / 3, NAN },
        .value = (float[]){ 4, 8, NAN },
        .key_lengths = (int32_t[]){ 2 },
        .output = output,
        .probs = probs,
        .lse = lse,
    };
    reference_layer(&desc, &weights, &args);
    expect_near("probs", probs, (double[]){ 0.25, 0.75, 0 }, 3);
    expect_near("lse", lse, (double[]){ 3 + log(4) }, 1);
    expect_near("output", output, (double[]){ -14 }, 1);
}

Test(reference_parts, layer_widths)
{
    const mha_layer_desc from_width = reference_layer_resolve(
        &(mha_layer_desc){ .attention = { .heads = 4 }, .query_width = 32, .key_width = 20 });
    cr_expect_eq(from_width.model_width, 32);
    cr_expect_eq(from_width.attention.head_dim, 8);
    cr_expect_eq(from_width.attention.value_dim, 8);
    cr_expect_eq(from_width.attention.kv_heads, 4);
    cr_expect_eq(from_width.value_width, 20);
    cr_expect_eq(from_width.output_width, 32);

    const mha_layer_desc from_dim = reference_layer_resolve(
        &(mha_layer_desc){ .attention = { .heads = 4, .head_dim = 3, .value_dim = 5 },
                           .flags = MHA_LAYER_MERGED_OUTPUT });
    cr_expect_eq(from_dim.model_width, 12);
    cr_expect_eq(from_dim.query_width, 12);
    cr_expect_eq(from_dim.key_width, 12);
    cr_expect_eq(from_dim.output_width, 20);
}

/* A quarter turn makes (a, b) into (-b, a), a half turn into (-a, -b); what is behind stays. */
Test(reference_parts, rotary)
{
    const float input[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    const float cosines[] = { 0, -1, 1, 1 }, sines[] = { 1, 0, 0, 0 };
    mha_rotary_desc desc = {
        .batch = 1, .heads = 1, .len = 2, .dim = 5, .rotary_dim = 4, .positions = 2
    };
    double got[10];
    reference_rotary_args args = { .input = input, .cos = cosines, .sin = sines, .output = got };
    reference_rotary(&desc, &args);
    expect_near("halves", got, (double[]){ -3, -2, 1, -4, 5, 6, 7, 8, 9, 10 }, 10);

    desc.pairs = MHA_ROTARY_INTERLEAVED;
    reference_rotary(&desc, &args);
    expect_near("interleaved", got, (double[]){ -2, 1, -3, -4, 5, 6, 7, 8, 9, 10 }, 10);

    args.position_ids = (int32_t[]){ 7, -1 };
    reference_rotary(&desc, &args);
    expect_near("ids, clamped", got, (double[]){ 1, 2, 3, 4, 5, -7, 6, -8, -9, 10 }, 10);

    args.position_ids = NULL;
    args.offsets = (int32_t[]){ -1 };
    reference_rotary(&desc, &args);
    expect_near("offsets, clamped", got, (double[]){ -2, 1, -3, -4, 5, -7, 6, -8, -9, 10 }, 10);
}

/* Without positions each batch has table rows of its own; the heads share them. */
Test(reference_parts, rotary_rows)
{
    const mha_rotary_desc desc = { .batch = 2, .heads = 2, .len = 3, .dim = 2 };
    const float input[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    const float cosines[] = { 1, 0 }, sines[] = { 0, -1 };
    double got[8];
    reference_rotary(&desc,
                     &(reference_rotary_args){
                         .len = 1, .input = input, .cos = cosines, .sin = sines, .output = got });
    expect_near("own rows", got, (double[]){ 1, 2, 3, 4, 6, -5, 8, -7 }, 8);
}

/* Rows (1 3) and (5 5): means 2 and 5, variances 1 and 0; with an epsilon of 3, 1 / sqrt(4) and
 * 1 / sqrt(3). The RMS norm of (1 7) divides by sqrt(25), that of (0 0) by 1 / sqrt(1e-5). */
Test(reference_parts, norm)
{
    const mha_norm_desc layer = { .rows = 2, .width = 2, .epsilon = 3 };
    double output[4], sum[4], mean[2], inv_std[2];
    reference_norm_args args = { .input = (float[]){ 1, 3, 5, 5 },
                                 .output = output,
                                 .sum = sum,
                                 .mean = mean,
                                 .inv_std = inv_std };
    reference_norm(&layer, &args);
    expect_near("output", output, (double[]){ -0.5, 0.5, 0, 0 }, 4);
    expect_near("mean", mean, (double[]){ 2, 5 }, 2);
    expect_near("inv_std", inv_std, (double[]){ 0.5, 1 / sqrt(3) }, 2);

    args.input = (float[]){ 1, 1, 1, 1 };
    args.residual = (float[]){ 0, 1, 4, 3 };
    args.input_bias = (float[]){ 0, 1 };
    args.weight = (float[]){ 2, 4 };
    args.bias = (float[]){ 10, 20 };
    reference_norm(&layer, &args);
    expect_near("sum", sum, (double[]){ 1, 3, 5, 5 }, 4);
    expect_near("with all", output, (double[]){ 9, 22, 10, 20 }, 4);

    const mha_norm_desc rms = { .rows = 9, .width = 2, .kind = MHA_NORM_RMS };
    args = (reference_norm_args){ .rows = 2, .input = (float[]){ 1, 7, 0, 0 }, .output = output };
    args.inv_std = inv_std;
    reference_norm(&rms, &args);
    expect_near("RMS", output, (double[]){ 0.2, 1.4, 0, 0 }, 4);
    expect_near("RMS inv_std", inv_std, (double[]){ 0.2, sqrt(1e5) }, 2);
}

/* Values of tables: Phi(1) = 0.841344746, Phi(-2) = 0.022750132; 1 / (1 + e^-ln 3) = 3 / 4. */
Test(reference_parts, activation)
{
    const float x[] = { 1, -2, 0, INFINITY, -INFINITY };
    double got[5];
    reference_activation_args args = { .input = x, .output = got };
    mha_activation_desc desc = { .rows = 1, .width = 5, .kind = MHA_ACTIVATION_GELU };
    reference_activation(&desc, &args);
    expect_near("gelu", got, (double[]){ 0.841344746, -0.045500264, 0, INFINITY, 0 }, 5);
    desc.kind = MHA_ACTIVATION_GELU_TANH;
    reference_activation(&desc, &args);
    expect_near("tanh", got, (double[]){ 0.841191990, -0.045402306, 0, INFINITY, 0 }, 5);
    desc.kind = MHA_ACTIVATION_RELU;
    reference_activation(&desc, &args);
    expect_near("relu", got, (double[]){ 1, 0, 0, INFINITY, 0 }, 5);
    desc.kind = MHA_ACTIVATION_SILU;
    args.input = (float[]){ (float)LN3, -(float)LN3, -1000, INFINITY, -INFINITY };
    reference_activation(&desc, &args);
    expect_near("silu", got, (double[]){ LN3 * 3 / 4, -LN3 / 4, 0, INFINITY, 0 }, 5);
    desc.alpha = -2;
    args.gate = (float[]){ 2, 3, 4, 5, 6 };
    reference_activation(&desc, &args);
    expect_near("gated, alpha -2", got, (double[]){ 0.2 * LN3, -2.7 * LN3, -4000, 0, -INFINITY },
                5);
}
