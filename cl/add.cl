/* Sums of rows: to = a + b.
 *
 * Build options: TO_TYPE, see types.h; LANES, see lanes.h.
 *
 * Work-item (p, r): LANES elements of row r; an item goes on with r + size. It reads all that it
 * writes over: a or b may be to.
 *
 * a, b [rows][width] float32, to likewise of TO_TYPE, a stride between rows in elements */
#include "lanes.h"

__kernel void add_rows(__global const float *a, ulong a_offset, ulong a_row,
                       __global const float *b, ulong b_offset, ulong b_row,
                       __global STORED(TO_TYPE) *to, ulong to_offset, ulong to_row, ulong rows,
                       int width)
{
    const int c = (int)get_global_id(0) * LANES;
    if (c >= width)
        return;
    const int n = width - c;
    for (ulong r = get_global_id(1); r < rows; r += get_global_size(1)) {
        const lanes sum = LANES_LOAD(1, a, a_offset + r * a_row + c, n) +
                          LANES_LOAD(1, b, b_offset + r * b_row + c, n);
        LANES_STORE(TO_TYPE, sum, to, to_offset + r * to_row + c, n);
    }
}
