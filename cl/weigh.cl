/* output = probs value, for each batch and head; a key whose probability is exactly 0 is skipped, so
 * that nothing stored at an excluded key reaches the output. key_len 0 writes zeros.
 *
 * Work-group (t, g): as in scores.cl.
 *
 * probs  [batch][heads][query_len][key_len], packed
 * value  [batch][kv_heads][key_len][value_dim], strides in elements, the last 1
 * output [batch][heads][query_len][value_dim], likewise */
#include "tile.h"

__kernel __attribute__((reqd_work_group_size(TILE_ITEMS, TILE_ITEMS, 1)))
void weigh_tile(__global const float *probs, ulong probs_offset,
                __global const float *value, ulong value_offset, ulong value_batch,
                ulong value_head, ulong value_row,
                __global float *output, ulong output_offset, ulong output_batch,
                ulong output_head, ulong output_row,
                int batch, int heads, int group, int query_len, int key_len, int value_dim)
{
    __local float a[SLICE * TILE_PITCH];
    __local float b[SLICE * TILE_PITCH];
    const int tiles_across = (value_dim + TILE - 1) / TILE;
    const int i0 = (int)get_group_id(0) / tiles_across * TILE;
    const int d0 = (int)get_group_id(0) % tiles_across * TILE;

    for (int g = (int)get_group_id(1); g < batch * heads; g += (int)get_num_groups(1)) {
        __global const float *p = probs + probs_offset + ((ulong)g * query_len + i0) * key_len;
        __global const float *v = value + value_offset + g / heads * value_batch
                                  + g % heads / group * value_head + d0;
        tile_sum sum = tile_zero();
        for (int j = 0; j < key_len; j += SLICE) {
            TILE_LOAD(1, a, p + j, key_len, 1, query_len - i0, key_len - j, 1);
            TILE_LOAD(1, b, v + j * value_row, 1, value_row, value_dim - d0, key_len - j, 0);
            barrier(CLK_LOCAL_MEM_FENCE);
            sum = tile_multiply(sum, a, b, 1);
            barrier(CLK_LOCAL_MEM_FENCE);
        }

        __global float *o = output + output_offset + g / heads * output_batch
                            + g % heads * output_head;
        for (int r = 0; r < 4; r++) {
            const int i = i0 + (int)get_local_id(1) * 4 + r;
            for (int c = 0; c < 4; c++) {
                const int d = d0 + (int)get_local_id(0) * 4 + c;
                if (i < query_len && d < value_dim)
                    o[i * output_row + d] = tile_get(&sum, r, c);
            }
        }
    }
}
