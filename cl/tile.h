/* A 32 x 32 tile of a matrix product, made by a work-group of 8 x 8: what gemm, scores and weigh
 * share. Each work-item holds 4 rows of a float4 of columns; both factors come through local memory
 * in slices of 16 along the sum. 64 work-items are the least that fill two warps, and 4 x 4 sums an
 * item the most that no device spills. */
#include "types.h"

#define TILE 32
#define SLICE 16
#define TILE_ITEMS 8
/* One more column keeps the transposing stores of TILE_LOAD off one bank. */
#define TILE_PITCH (TILE + 4)

typedef struct tile_sum {
    float4 row[4];
} tile_sum;

/* slice[depth][line] = source[line * line_stride + depth * depth_stride] for a SLICE x TILE piece of
 * elements of `type`; 0 beyond `lines` and `depths`, which may be 0 or less. Neighbouring work-items
 * read along the depth where that is contiguous (along_depth), else along the lines. */
#define TILE_LOAD(type, slice, source, line_stride, depth_stride, lines, depths, along_depth)      \
    TYPE_JOIN(tile_load_, type)(slice, source, line_stride, depth_stride, lines, depths,           \
                                along_depth)

#define TILE_LOAD_OF(type)                                                                         \
    static void tile_load_##type(__local float *slice, __global const STORED(type) *source,        \
                                 ulong line_stride, ulong depth_stride, int lines, int depths,     \
                                 int along_depth)                                                  \
    {                                                                                              \
        const int item = (int)get_local_id(1) * TILE_ITEMS + (int)get_local_id(0);                 \
        for (int i = item; i < TILE * SLICE; i += TILE_ITEMS * TILE_ITEMS) {                       \
            const int line = along_depth ? i / SLICE : i % TILE;                                   \
            const int depth = along_depth ? i % SLICE : i / TILE;                                  \
            float value = 0.0f;                                                                    \
            if (line < lines && depth < depths)                                                    \
                value = LOAD(type, source, line * line_stride + depth * depth_stride);             \
            slice[depth * TILE_PITCH + line] = value;                                              \
        }                                                                                          \
    }
TILE_LOAD_OF(1)
TILE_LOAD_OF(2)
TILE_LOAD_OF(3)

/* sum += a b over one slice. With skip_zero a factor of a that is exactly 0 leaves the sum alone,
 * whatever stands in b: 0 * NaN must not count where a key is excluded. */
static tile_sum tile_multiply(tile_sum sum, __local const float *a, __local const float *b,
                              int skip_zero)
{
    const int row = (int)get_local_id(1) * 4;
    const int column = (int)get_local_id(0) * 4;
    for (int d = 0; d < SLICE; d++) {
        const float4 x = vload4(0, a + d * TILE_PITCH + row);
        const float4 y = vload4(0, b + d * TILE_PITCH + column);
        if (skip_zero) {
            sum.row[0] = x.s0 == 0.0f ? sum.row[0] : sum.row[0] + x.s0 * y;
            sum.row[1] = x.s1 == 0.0f ? sum.row[1] : sum.row[1] + x.s1 * y;
            sum.row[2] = x.s2 == 0.0f ? sum.row[2] : sum.row[2] + x.s2 * y;
            sum.row[3] = x.s3 == 0.0f ? sum.row[3] : sum.row[3] + x.s3 * y;
        } else {
            sum.row[0] += x.s0 * y;
            sum.row[1] += x.s1 * y;
            sum.row[2] += x.s2 * y;
            sum.row[3] += x.s3 * y;
        }
    }
    return sum;
}

static tile_sum tile_zero(void)
{
    tile_sum sum;
    for (int r = 0; r < 4; r++)
        sum.row[r] = (float4)(0.0f);
    return sum;
}

/* The sum at column c (0..3) of row r. */
static float tile_get(const tile_sum *sum, int r, int c)
{
    const float4 row = sum->row[r];
    return c == 0 ? row.s0 : c == 1 ? row.s1 : c == 2 ? row.s2 : row.s3;
}
