/* Layer norm (Ba et al., "Layer normalization", 2016) and RMS norm (Zhang and Sennrich, "Root mean
 * square layer normalization", 2019) of rows s = from + residual + from_bias:
 *
 *   layer: y = (s - mean) inv_std weight + bias, inv_std = 1 / sqrt(mean of (s - mean)^2 + epsilon)
 *   RMS:   y = s inv_std weight + bias,          inv_std = 1 / sqrt(mean of s^2 + epsilon)
 *
 * Build options: RMS: 0 or 1; USES_RESIDUAL, USES_FROM_BIAS, USES_WEIGHT, USES_BIAS, USES_SUM: 1 where
 * that is given, since to ask for it piece by piece takes half the time again; FROM_TYPE of from,
 * residual and sum, TO_TYPE of to, WEIGHT_TYPE of weight and both biases, see types.h; GROUP
 * work-items a row, see group.h; LANES, see lanes.h.
 *
 * Work-group i: the rows that are its share of all, neighbours, as a product before has left them in
 * a core's cache. A work-item reads each element for the last time before it writes there: to and sum
 * may each be from or residual.
 *
 * from, residual, to, sum [rows][width], a stride between rows in elements
 * from_bias, weight, bias [width]
 * mean, inv_std           [rows], a stride, or NULL */
#include "group.h"
#include "lanes.h"

/* What s of one row is made of. */
typedef struct norm_row {
    __global const STORED(FROM_TYPE) *from, *residual;
    __global const STORED(WEIGHT_TYPE) *from_bias;
    int width;
} norm_row;

/* s from column c on, 0 behind the row. */
static lanes norm_load(const norm_row *row, int c)
{
    const int n = row->width - c;
    lanes s = LANES_LOAD(FROM_TYPE, row->from, c, n);
    if (USES_RESIDUAL)
        s += LANES_LOAD(FROM_TYPE, row->residual, c, n);
    if (USES_FROM_BIAS)
        s += LANES_LOAD(WEIGHT_TYPE, row->from_bias, c, n);
    return s;
}

/* This work-item's part of the sum of s. */
static float norm_sum(const norm_row *row)
{
    lanes sum = 0.0f;
    for (int c = (int)get_local_id(0) * LANES; c < row->width; c += GROUP * LANES)
        sum += norm_load(row, c);
    return lanes_sum(sum);
}

/* The same of s - centre and of its square. */
static float norm_squares(const norm_row *row, float centre, float *rest)
{
    lanes sum = 0.0f, squares = 0.0f;
    for (int c = (int)get_local_id(0) * LANES; c < row->width; c += GROUP * LANES) {
        const lanes d = lanes_keep(norm_load(row, c) - centre, row->width - c);
        sum += d;
        squares += d * d;
    }
    *rest = lanes_sum(sum);
    return lanes_sum(squares);
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void norm_rows(__global const STORED(FROM_TYPE) *from, ulong from_offset, ulong from_row,
               __global const STORED(FROM_TYPE) *residual, ulong residual_offset,
               ulong residual_row,
               __global const STORED(WEIGHT_TYPE) *from_bias, ulong from_bias_offset,
               __global const STORED(WEIGHT_TYPE) *weight, ulong weight_offset,
               __global const STORED(WEIGHT_TYPE) *bias, ulong bias_offset,
               __global STORED(TO_TYPE) *to, ulong to_offset, ulong to_row,
               __global STORED(FROM_TYPE) *sum, ulong sum_offset, ulong sum_row,
               __global float *mean, ulong mean_offset, ulong mean_row,
               __global float *inv_std, ulong inv_std_offset, ulong inv_std_row,
               float epsilon, ulong rows, int width)
{
    __local float pool[GROUP];
    const int item = (int)get_local_id(0);

    const ulong i = get_group_id(0), groups = get_num_groups(0);
    const ulong behind = (i + 1) * rows / groups;
    for (ulong r = i * rows / groups; r < behind; r++) {
        norm_row row;
        row.from = from + from_offset + r * from_row;
        row.residual = residual + residual_offset + r * residual_row;
        row.from_bias = from_bias + from_bias_offset;
        row.width = width;

        /* The corrected two-pass algorithm (Chan, Golub and LeVeque, 1983): the mean of many large
         * elements is not exact, but those less than it are small, and their mean corrects it. */
        const float centre = RMS ? 0.0f : sum_over_group(pool, norm_sum(&row)) / width;
        float rest;
        float squares = norm_squares(&row, centre, &rest);
        squares = sum_over_group(pool, squares) / width;
        rest = RMS ? 0.0f : sum_over_group(pool, rest) / width;
        const float variance = squares - rest * rest;
        const float scale = rsqrt((variance < 0.0f ? 0.0f : variance) + epsilon);

        for (int c = item * LANES; c < width; c += GROUP * LANES) {
            const int n = width - c;
            const lanes s = norm_load(&row, c);
            lanes y = (s - centre - rest) * scale;
            if (USES_WEIGHT)
                y *= LANES_LOAD(WEIGHT_TYPE, weight, weight_offset + c, n);
            if (USES_BIAS)
                y += LANES_LOAD(WEIGHT_TYPE, bias, bias_offset + c, n);
            if (USES_SUM)
                LANES_STORE(FROM_TYPE, s, sum, sum_offset + r * sum_row + c, n);
            LANES_STORE(TO_TYPE, y, to, to_offset + r * to_row + c, n);
        }
        if (mean && item == 0)
            mean[mean_offset + r * mean_row] = centre + rest;
        if (inv_std && item == 0)
            inv_std[inv_std_offset + r * inv_std_row] = scale;
    }
}
