/* Activation functions of rows, gated or not: to = activate(from), or activate(from) * gate.
 *
 * Build options: ACTIVATION, see activate.h; FROM_TYPE of from and gate, TO_TYPE, see types.h; LANES,
 * see lanes.h.
 *
 * Work-item (p, r): LANES elements of row r; an item goes on with r + size. It reads all that it
 * writes over: from or gate may be to.
 *
 * from, gate, to [rows][width], a stride between rows in elements; gate may be NULL */
#include "lanes.h"

#define ACTIVATE_REAL lanes
#include "activate.h"

__kernel void activation_rows(__global const STORED(FROM_TYPE) *from, ulong from_offset,
                              ulong from_row,
                              __global const STORED(FROM_TYPE) *gate, ulong gate_offset,
                              ulong gate_row,
                              __global STORED(TO_TYPE) *to, ulong to_offset, ulong to_row,
                              float alpha, ulong rows, int width)
{
    const int c = (int)get_global_id(0) * LANES;
    if (c >= width)
        return;
    const int n = width - c;
    for (ulong r = get_global_id(1); r < rows; r += get_global_size(1)) {
        lanes y = activate(LANES_LOAD(FROM_TYPE, from, from_offset + r * from_row + c, n), alpha);
        if (gate)
            y *= LANES_LOAD(FROM_TYPE, gate, gate_offset + r * gate_row + c, n);
        LANES_STORE(TO_TYPE, y, to, to_offset + r * to_row + c, n);
    }
}
