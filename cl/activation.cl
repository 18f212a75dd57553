/* Activation functions of rows, gated or not: to = activate(from), or activate(from) * gate.
 *
 * Build options: ACTIVATION, see activate.h; FROM_TYPE of from and gate, TO_TYPE, see types.h; LANES,
 * see lanes.h.
 *
 * Work-item (p, i): elements p * piece and on, of the rows that are its share of all: neighbours, as
 * a product before has left them in a core's cache. It reads all that it writes over: from or gate
 * may be to.
 *
 * from, gate, to [rows][width], a stride between rows in elements; gate may be NULL */
#include "lanes.h"

#if LANES > 1
typedef lanes floats;
#define as_floats as_float16
#define as_ints as_int16
#include "power.h"
#define ACTIVATE_EXP exponential
#else
#define ACTIVATE_EXP exp
#endif
#define ACTIVATE_REAL lanes
#include "activate.h"

/* n elements, or LANES if that is less. */
static void activate_lanes(__global const STORED(FROM_TYPE) *from,
                           __global const STORED(FROM_TYPE) *gate,
                           __global STORED(TO_TYPE) *to, float alpha, int n)
{
    lanes y = activate(LANES_LOAD(FROM_TYPE, from, 0, n), alpha);
    if (gate)
        y *= LANES_LOAD(FROM_TYPE, gate, 0, n);
    LANES_STORE(TO_TYPE, y, to, 0, n);
}

__kernel void activation_rows(__global const STORED(FROM_TYPE) *from, ulong from_offset,
                              ulong from_row,
                              __global const STORED(FROM_TYPE) *gate, ulong gate_offset,
                              ulong gate_row,
                              __global STORED(TO_TYPE) *to, ulong to_offset, ulong to_row,
                              float alpha, ulong rows, int width, int piece)
{
    const int first = (int)get_global_id(0) * piece;
    const int end = min(first + piece, width);
    const ulong i = get_global_id(1), items = get_global_size(1);
    const ulong behind = (i + 1) * rows / items;
    for (ulong r = i * rows / items; r < behind; r++) {
        __global const STORED(FROM_TYPE) *x = from + from_offset + r * from_row;
        __global const STORED(FROM_TYPE) *g = gate ? gate + gate_offset + r * gate_row : gate;
        __global STORED(TO_TYPE) *y = to + to_offset + r * to_row;
        int c = first;
        /* Without a question about the end two go on side by side. */
        for (; c + 2 * LANES <= end; c += 2 * LANES) {
            activate_lanes(x + c, g ? g + c : g, y + c, alpha, LANES);
            activate_lanes(x + c + LANES, g ? g + c + LANES : g, y + c + LANES, alpha, LANES);
        }
        for (; c < end; c += LANES)
            activate_lanes(x + c, g ? g + c : g, y + c, alpha, end - c);
    }
}
