/* The library's own matrix product, and the row of biases that goes before CLBlast's. */
#include "tile.h"

#define ACTIVATE_REAL float
#define ACTIVATE_EXP exp
#include "activate.h"

/* c = activate(alpha a b + beta c + bias), for each batch. Strides say rows and columns of a [m][k]
 * and b [k][n], so a transposed matrix is one with its strides exchanged.
 *
 * Build options: A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE, see types.h; ACTIVATION, see activate.h, whose
 * alpha is slope
 *
 * Work-group (t, g): tile t of batch g; a group goes on with g + number of groups.
 * bias [n] or NULL; c is not read where beta is 0. */
__kernel __attribute__((reqd_work_group_size(TILE_ITEMS, TILE_ITEMS, 1)))
void gemm_tile(__global const STORED(A_TYPE) *a, ulong a_offset, ulong a_batch, ulong a_row,
               ulong a_column,
               __global const STORED(B_TYPE) *b, ulong b_offset, ulong b_batch, ulong b_row,
               ulong b_column,
               __global STORED(C_TYPE) *c, ulong c_offset, ulong c_batch, ulong c_row,
               __global const STORED(BIAS_TYPE) *bias, ulong bias_offset,
               int batch, int m, int n, int k, float alpha, float beta, float slope)
{
    __local float slice_a[SLICE * TILE_PITCH];
    __local float slice_b[SLICE * TILE_PITCH];
    const int tiles_across = (n + TILE - 1) / TILE;
    const int i0 = (int)get_group_id(0) / tiles_across * TILE;
    const int j0 = (int)get_group_id(0) % tiles_across * TILE;

    for (int g = (int)get_group_id(1); g < batch; g += (int)get_num_groups(1)) {
        __global const STORED(A_TYPE) *from_a = a + a_offset + g * a_batch + i0 * a_row;
        __global const STORED(B_TYPE) *from_b = b + b_offset + g * b_batch + j0 * b_column;
        tile_sum sum = tile_zero();
        for (int d = 0; d < k; d += SLICE) {
            TILE_LOAD(A_TYPE, slice_a, from_a + d * a_column, a_row, a_column, m - i0, k - d,
                      a_column == 1);
            TILE_LOAD(B_TYPE, slice_b, from_b + d * b_row, b_column, b_row, n - j0, k - d,
                      b_row == 1);
            barrier(CLK_LOCAL_MEM_FENCE);
            sum = tile_multiply(sum, slice_a, slice_b, 0);
            barrier(CLK_LOCAL_MEM_FENCE);
        }

        __global STORED(C_TYPE) *to = c + c_offset + g * c_batch;
        /* Unrolled, or the sums, which r indexes, would lie in memory on some GPUs. */
        #pragma unroll
        for (int r = 0; r < 4; r++) {
            const int i = i0 + (int)get_local_id(1) * 4 + r;
            for (int s = 0; s < 4; s++) {
                const int j = j0 + (int)get_local_id(0) * 4 + s;
                if (i < m && j < n) {
                    float x = alpha * tile_get(&sum, r, s);
                    if (beta != 0.0f)
                        x += beta * LOAD(C_TYPE, to, i * c_row + j);
                    if (bias)
                        x += LOAD(BIAS_TYPE, bias, bias_offset + j);
                    STORE(C_TYPE, activate(x, slope), to, i * c_row + j);
                }
            }
        }
    }
}

/* c[g][i][j] = bias[j]: what CLBlast, which knows no bias and no half types, then adds its product
 * to.
 * Work-item (j, i): one column; an item goes on with i + size, over the rows of all batches. */
__kernel void gemm_fill_bias(__global float *c, ulong c_offset, ulong c_batch, ulong c_row,
                             __global const STORED(BIAS_TYPE) *bias, ulong bias_offset,
                             int batch, int m, int n)
{
    const int j = (int)get_global_id(0);
    if (j >= n)
        return;
    const float x = LOAD(BIAS_TYPE, bias, bias_offset + j);
    const ulong rows = (ulong)batch * m;
    for (ulong i = get_global_id(1); i < rows; i += get_global_size(1))
        c[c_offset + i / m * c_batch + i % m * c_row + j] = x;
}
