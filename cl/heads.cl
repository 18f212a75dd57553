/* The article's head transposes. Splitting [batch][len][heads * dim] to [batch][heads][len][dim] and
 * merging back are one copy between two views of strides, and between types.
 *
 * Build options: FROM_TYPE, TO_TYPE, see types.h.
 *
 * Work-item (d, r): one element of row r; an item goes on with r + size, over batch * heads * len.
 * Rows before the start, or from the length + length_more of their batch on, are written as 0: what stands there,
 * maybe NaN, must not meet a probability of 0 in a matrix product.
 *
 * from, to [batch][heads][len][dim], strides in elements
 * starts, lengths [batch] or NULL */
#include "types.h"

__kernel void heads_copy(__global const STORED(FROM_TYPE) *from, ulong from_offset,
                         ulong from_batch, ulong from_head, ulong from_row, ulong from_column,
                         __global STORED(TO_TYPE) *to, ulong to_offset, ulong to_batch,
                         ulong to_head, ulong to_row,
                         __global const int *starts, ulong starts_offset,
                         __global const int *lengths, ulong lengths_offset, int length_more,
                         int batch, int heads, int len, int dim)
{
    const int d = (int)get_global_id(0);
    if (d >= dim)
        return;
    const ulong rows = (ulong)batch * heads * len;
    for (ulong r = get_global_id(1); r < rows; r += get_global_size(1)) {
        const int i = (int)(r % len);
        const ulong g = r / len;
        const ulong h = g % heads;
        const ulong b = g / heads;
        const bool outside = (starts && i < starts[starts_offset + b])
                             || (lengths && i >= (long)lengths[lengths_offset + b] + length_more);
        float x = 0.0f;
        if (!outside)
            x = LOAD(FROM_TYPE, from,
                     from_offset + b * from_batch + h * from_head + i * from_row + d * from_column);
        STORE(TO_TYPE, x, to, to_offset + b * to_batch + h * to_head + i * to_row + d);
    }
}
