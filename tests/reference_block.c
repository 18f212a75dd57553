/* What stands beside attention in a transformer block, in double precision. */
#include "reference_block.h"

#include <math.h>

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
