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
/* e^x, relative error 2e-7 + 1e-7 |x|; 0 below 2^-126, infinity above 2^127.5. A driver's exp takes
 * twice as long. The polynomial is that of power.h. */
static lanes activation_exp(lanes x)
{
    x *= 1.4426950408889634f;
    const lanes magic = (lanes)(12582912.0f); /* 1.5 * 2^23 rounds to an integer when added */
    const lanes shifted = x + magic;
    const lanes f = x - (shifted - magic);
    lanes p = f * 1.3276476e-3f + 9.6755410e-3f;
    p = p * f + 5.5507131e-2f;
    p = p * f + 2.4022120e-1f;
    p = p * f + 6.9314694e-1f;
    p = p * f + 1.0000001f;
    const lanes power = as_float16((as_int16(shifted) << 23) + (int16)(0x3f800000));
    const lanes y = select(p * power, (lanes)(INFINITY), x > 127.5f);
    return select(y, (lanes)(0.0f), x < -126.0f);
}
#define ACTIVATE_EXP(x) activation_exp(x)
#else
#define ACTIVATE_EXP(x) exp(x)
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
