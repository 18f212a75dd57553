/* scores = scale * query key^T, for each batch and head, from any strides.
 *
 * Work-group (t, g): tile t of the scores of one batch and head, g counting those; a group goes on
 * with g + number of groups, so that the grid may be smaller than batch * heads.
 *
 * query  [batch][heads][query_len][head_dim], strides in elements, the last 1
 * key    [batch][kv_heads][key_len][head_dim], likewise
 * scores [batch][heads][query_len][key_len], packed */
#include "tile.h"

__kernel __attribute__((reqd_work_group_size(TILE_ITEMS, TILE_ITEMS, 1)))
void scores_tile(__global const float *query, ulong query_offset, ulong query_batch,
                 ulong query_head, ulong query_row,
                 __global const float *key, ulong key_offset, ulong key_batch, ulong key_head,
                 ulong key_row,
                 __global float *scores, ulong scores_offset,
                 int batch, int heads, int group, int query_len, int key_len, int head_dim,
                 float scale)
{
    __local float a[SLICE * TILE_PITCH];
    __local float b[SLICE * TILE_PITCH];
    const int tiles_across = (key_len + TILE - 1) / TILE;
    const int i0 = (int)get_group_id(0) / tiles_across * TILE;
    const int j0 = (int)get_group_id(0) % tiles_across * TILE;

    for (int g = (int)get_group_id(1); g < batch * heads; g += (int)get_num_groups(1)) {
        __global const float *q = query + query_offset + g / heads * query_batch
                                  + g % heads * query_head + i0 * query_row;
        __global const float *k = key + key_offset + g / heads * key_batch
                                  + g % heads / group * key_head + j0 * key_row;
        tile_sum sum = tile_zero();
        for (int d = 0; d < head_dim; d += SLICE) {
            TILE_LOAD(1, a, q + d, query_row, 1, query_len - i0, head_dim - d, 1);
            TILE_LOAD(1, b, k + d, key_row, 1, key_len - j0, head_dim - d, 1);
            barrier(CLK_LOCAL_MEM_FENCE);
            sum = tile_multiply(sum, a, b, 0);
            barrier(CLK_LOCAL_MEM_FENCE);
        }

        __global float *s = scores + scores_offset + (ulong)g * query_len * key_len;
        for (int r = 0; r < 4; r++) {
            const int i = i0 + (int)get_local_id(1) * 4 + r;
            for (int c = 0; c < 4; c++) {
                const int j = j0 + (int)get_local_id(0) * 4 + c;
                if (i < query_len && j < key_len)
                    s[(ulong)i * key_len + j] = scale * tile_get(&sum, r, c);
            }
        }
    }
}
