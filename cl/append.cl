/* Rows on their way into attention: new keys and values to their places in a cache, and queries to
 * the workspace; rotated by their positions, if at all (Su et al., "RoFormer", 2021).
 *
 * Build options: FROM_TYPE, TO_TYPE, see types.h; ROTARY_DIM elements of a row are rotated, an even
 * number, 0 none; ROTARY_INTERLEAVED 0 or 1, see rotate.h.
 *
 * Work-item (p, r): pair p of row r, and behind the pairs one element each; an item goes on with r +
 * size, over batch * heads * len. Row i of batch b has the position positions[b] + i. It goes to row
 * i; or, where `moves`, to the row of its position, which in a ring of `capacity` rows is counted
 * modulo that; and nowhere where it is no row of to's.
 *
 * from      [batch][heads][len][dim], strides in elements, the last 1
 * to        [batch][heads][capacity][dim], likewise
 * positions [batch]
 * cosine, sine [num_positions][ROTARY_DIM / 2]; positions past the last take the last row */
#include "rotate.h"
#include "types.h"

__kernel void append_rows(__global const STORED(FROM_TYPE) *from, ulong from_offset,
                          ulong from_batch, ulong from_head, ulong from_row,
                          __global STORED(TO_TYPE) *to, ulong to_offset, ulong to_batch,
                          ulong to_head, ulong to_row,
                          __global const int *positions, ulong positions_offset,
                          __global const float *cosine, ulong cosine_offset, ulong cosine_row,
                          __global const float *sine, ulong sine_offset, ulong sine_row,
                          int batch, int heads, int len, int dim, int capacity, int moves,
                          int wraps, int num_positions)
{
    const int p = (int)get_global_id(0);
    if (p >= rotate_items(dim))
        return;
    const ulong rows = (ulong)batch * heads * len;
    for (ulong r = get_global_id(1); r < rows; r += get_global_size(1)) {
        const int i = (int)(r % len);
        const ulong h = r / len % heads;
        const ulong b = r / len / heads;
        const long position = (long)positions[positions_offset + b] + i;
        const long place = !moves ? i : wraps && position >= 0 ? position % capacity : position;
        if (place < 0 || place >= capacity)
            continue;
        __global const STORED(FROM_TYPE) *x = from + from_offset + b * from_batch + h * from_head
                                              + i * from_row;
        __global STORED(TO_TYPE) *y = to + to_offset + b * to_batch + h * to_head + place * to_row;
        if (p < ROTARY_PAIRS) {
            const ulong t = rotate_position(position, num_positions);
            const float2 turned = rotate_pair(LOAD(FROM_TYPE, x, rotate_a(p)),
                                              LOAD(FROM_TYPE, x, rotate_b(p)),
                                              cosine[cosine_offset + t * cosine_row + p],
                                              sine[sine_offset + t * sine_row + p]);
            STORE(TO_TYPE, turned.x, y, rotate_a(p));
            STORE(TO_TYPE, turned.y, y, rotate_b(p));
        } else {
            STORE(TO_TYPE, LOAD(FROM_TYPE, x, rotate_copied(p)), y, rotate_copied(p));
        }
    }
}
