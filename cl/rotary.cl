/* Rotary position embedding of rows between two views of strides, and between types.
 *
 * Build options: FROM_TYPE, TO_TYPE, see types.h; ROTARY_DIM, ROTARY_INTERLEAVED, see rotate.h.
 *
 * Work-item (p, r): pair p of row r, or one element behind the pairs; an item goes on with r + size,
 * over batch * heads * len. It reads all that it writes over: from may be to.
 *
 * from, to [batch][heads][len][dim], strides in elements
 * cosines, sines [batch or 1][positions][ROTARY_DIM / 2], likewise
 * ids [batch][len] or NULL: the position of each row
 * starts [batch] or NULL: that of row 0; neither: 0 */
#include "types.h"
#include "rotate.h"

__kernel void rotary_rows(__global const STORED(FROM_TYPE) *from, ulong from_offset,
                          ulong from_batch, ulong from_head, ulong from_row,
                          __global STORED(TO_TYPE) *to, ulong to_offset, ulong to_batch,
                          ulong to_head, ulong to_row,
                          __global const float *cosines, ulong cosines_offset, ulong cosines_batch,
                          ulong cosines_row,
                          __global const float *sines, ulong sines_offset, ulong sines_batch,
                          ulong sines_row,
                          __global const int *ids, ulong ids_offset,
                          __global const int *starts, ulong starts_offset,
                          int positions, int batch, int heads, int len, int dim)
{
    const int p = (int)get_global_id(0);
    if (p >= rotate_items(dim))
        return;
    const ulong rows = (ulong)batch * heads * len;
    for (ulong r = get_global_id(1); r < rows; r += get_global_size(1)) {
        const int i = (int)(r % len);
        const ulong g = r / len;
        const ulong h = g % heads;
        const ulong b = g / heads;
        const ulong x = from_offset + b * from_batch + h * from_head + i * from_row;
        const ulong y = to_offset + b * to_batch + h * to_head + i * to_row;
        if (p >= ROTARY_PAIRS) {
            const int d = rotate_copied(p);
            STORE(TO_TYPE, LOAD(FROM_TYPE, from, x + d), to, y + d);
            continue;
        }
        const long given = ids      ? (long)ids[ids_offset + b * len + i]
                           : starts ? (long)starts[starts_offset + b] + i
                                    : (long)i;
        const ulong t = rotate_position(given, positions);
        const float2 turned =
            rotate_pair(LOAD(FROM_TYPE, from, x + rotate_a(p)),
                        LOAD(FROM_TYPE, from, x + rotate_b(p)),
                        cosines[cosines_offset + b * cosines_batch + t * cosines_row + p],
                        sines[sines_offset + b * sines_batch + t * sines_row + p]);
        STORE(TO_TYPE, turned.x, to, y + rotate_a(p));
        STORE(TO_TYPE, turned.y, to, y + rotate_b(p));
    }
}
