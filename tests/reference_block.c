/* What stands beside attention in a transformer block, in double precision. */
#include "reference_block.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Element c of row r of what is normalised. */
static double summed(const reference_norm_args *args, size_t width, size_t r, size_t c)
{
    double s = args->input[r * width + c];
    if (args->residual)
        s += args->residual[r * width + c];
    return args->input_bias ? s + args->input_bias[c] : s;
}

static void normalise_row(const mha_norm_desc *desc, const reference_norm_args *args, size_t r)
{
    const size_t width = desc->width;
    const double epsilon = desc->epsilon != 0 ? desc->epsilon : 1e-5f;
    double mean = 0, squares = 0;
    for (size_t c = 0; desc->kind == MHA_NORM_LAYER && c < width; c++)
        mean += summed(args, width, r, c);
    mean /= (double)width; /* exact where all are equal */
    for (size_t c = 0; c < width; c++)
        squares += pow(summed(args, width, r, c) - mean, 2);
    const double inv_std = 1 / sqrt(squares / (double)width + epsilon);
    for (size_t c = 0; c < width; c++) {
        const double s = summed(args, width, r, c);
        const double weight = args->weight ? args->weight[c] : 1;
        const double bias = args->bias ? args->bias[c] : 0;
        if (args->sum)
            args->sum[r * width + c] = s;
        if (args->output)
            args->output[r * width + c] = (s - mean) * inv_std * weight + bias;
    }
    if (args->mean)
        args->mean[r] = mean;
    if (args->inv_std)
        args->inv_std[r] = inv_std;
}

void reference_norm(const mha_norm_desc *desc, const reference_norm_args *args)
{
    const size_t rows = args->rows ? args->rows : desc->rows;
    for (size_t r = 0; r < rows; r++)
        normalise_row(desc, args, r);
}

double reference_activate(const mha_activation_desc *desc, double x)
{
    const double alpha = desc->alpha != 0 ? desc->alpha : 1;
    /* Of x times a share: where both are at their ends the share counts. */
    double share = 1;
    switch (desc->kind) {
    case MHA_ACTIVATION_RELU:
        share = x < 0 ? 0 : 1;
        break;
    case MHA_ACTIVATION_GELU:
        share = 0.5 * erfc(-x / sqrt(2));
        break;
    case MHA_ACTIVATION_GELU_TANH:
        share = 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
        break;
    case MHA_ACTIVATION_SILU:
        share = 1 / (1 + exp(-alpha * x));
        break;
    case MHA_ACTIVATION_NONE:
    default:
        break;
    }
    return share == 0 ? 0 : x * share;
}

void reference_activation(const mha_activation_desc *desc, const reference_activation_args *args)
{
    const size_t rows = args->rows ? args->rows : desc->rows;
    for (size_t i = 0; i < rows * desc->width; i++) {
        args->output[i] = reference_activate(desc, args->input[i]);
        if (args->gate)
            args->output[i] *= args->gate[i];
    }
}

/* Column `o` of x W + b, of one row. */
static double project(const mha_ffn_desc *desc, const double *x, size_t in, const float *weight,
                      const float *bias, size_t out, size_t o)
{
    const bool out_in = desc->flags & MHA_FFN_OUT_IN;
    double sum = bias ? bias[o] : 0;
    for (size_t c = 0; c < in; c++)
        sum += x[c] * weight[out_in ? o * in + c : c * out + o];
    return sum;
}

static double hidden_of(const mha_ffn_desc *desc, const reference_ffn_weights *weights,
                        const double *x, size_t o)
{
    const mha_activation_desc activation = { .kind = desc->activation, .alpha = desc->alpha };
    const size_t in = desc->width, out = desc->hidden_width;
    const double hidden =
        project(desc, x, in, weights->hidden,
                desc->flags & MHA_FFN_BIAS_HIDDEN ? weights->bias_hidden : NULL, out, o);
    if (!(desc->flags & MHA_FFN_GATE))
        return reference_activate(&activation, hidden);
    const double gate =
        project(desc, x, in, weights->gate,
                desc->flags & MHA_FFN_BIAS_GATE ? weights->bias_gate : NULL, out, o);
    return reference_activate(&activation, gate) * hidden;
}

void reference_ffn(const mha_ffn_desc *desc, const reference_ffn_weights *weights, size_t rows,
                   const float *input, double *output)
{
    const size_t in = desc->width, between = desc->hidden_width;
    const size_t out = desc->output_width ? desc->output_width : in;
    double *x = calloc(in + between, sizeof *x);
    if (!x) {
        fprintf(stderr, "reference: no memory\n");
        abort();
    }
    double *hidden = x + in;
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < in; c++)
            x[c] = input[r * in + c];
        for (size_t o = 0; o < between; o++)
            hidden[o] = hidden_of(desc, weights, x, o);
        for (size_t o = 0; o < out; o++)
            output[r * out + o] =
                project(desc, hidden, between, weights->output,
                        desc->flags & MHA_FFN_BIAS_OUTPUT ? weights->bias_output : NULL, out, o);
    }
    free(x);
}
