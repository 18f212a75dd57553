/* Rows from one type to another.
 *
 * Build options: FROM_TYPE, TO_TYPE, see types.h; LANES, see lanes.h.
 *
 * Work-item (p, r): LANES elements of row r; an item goes on with r + size, over batch * len.
 *
 * from, to [batch][len][width], strides between batches and rows in elements */
#include "lanes.h"

__kernel void convert_rows(__global const STORED(FROM_TYPE) *from, ulong from_offset,
                           ulong from_batch, ulong from_row,
                           __global STORED(TO_TYPE) *to, ulong to_offset, ulong to_batch,
                           ulong to_row, int batch, int len, int width)
{
    const int c = (int)get_global_id(0) * LANES;
    if (c >= width)
        return;
    const int n = width - c;
    const ulong rows = (ulong)batch * len;
    for (ulong r = get_global_id(1); r < rows; r += get_global_size(1)) {
        const lanes x = LANES_LOAD(FROM_TYPE, from,
                                   from_offset + r / len * from_batch + r % len * from_row + c, n);
        LANES_STORE(TO_TYPE, x, to, to_offset + r / len * to_batch + r % len * to_row + c, n);
    }
}
