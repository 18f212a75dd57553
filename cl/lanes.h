/* Rows in pieces of LANES elements, the last piece of a row maybe shorter: n of it are left, and a
 * load gives 0 for the others.
 *
 * Build option LANES: 1, for work-items that go along a row side by side, or 16, for one that goes
 * along it alone: two of a CPU's registers, so that a sum need not wait for itself. */
#include "types.h"

#if LANES == 1
typedef float lanes;
#define LANES_LOAD(type, buffer, i, n) LOAD(type, buffer, i)
#define LANES_STORE(type, x, buffer, i, n) STORE(type, x, buffer, i)

static float lanes_sum(lanes x)
{
    return x;
}

/* 0 in the lanes from n on. */
static lanes lanes_keep(lanes x, int n)
{
    return x;
}
#else
typedef float16 lanes;
#define LANES_LOAD(type, buffer, i, n) TYPE_JOIN(lanes_load_, type)(buffer, i, n)
#define LANES_STORE(type, x, buffer, i, n) TYPE_JOIN(lanes_store_, type)(x, buffer, i, n)

#define LANES_OF(type)                                                                      \
    static lanes lanes_load_##type(__global const STORED(type) *buffer, ulong i, int n)     \
    {                                                                                       \
        if (n >= LANES)                                                                     \
            return (lanes)(LOAD8(type, buffer, i), LOAD8(type, buffer, i + 8));             \
        float part[LANES];                                                                  \
        for (int k = 0; k < LANES; k++)                                                     \
            part[k] = k < n ? LOAD(type, buffer, i + k) : 0.0f;                             \
        return vload16(0, part);                                                            \
    }                                                                                       \
    static void lanes_store_##type(lanes x, __global STORED(type) *buffer, ulong i, int n)  \
    {                                                                                       \
        if (n >= LANES) {                                                                   \
            STORE8(type, x.lo, buffer, i);                                                  \
            STORE8(type, x.hi, buffer, i + 8);                                              \
            return;                                                                         \
        }                                                                                   \
        float part[LANES];                                                                  \
        vstore16(x, 0, part);                                                               \
        for (int k = 0; k < n; k++)                                                         \
            STORE(type, part[k], buffer, i + k);                                            \
    }
LANES_OF(1)
LANES_OF(2)
LANES_OF(3)

static float lanes_sum(lanes x)
{
    const float8 eight = x.lo + x.hi;
    const float4 four = eight.lo + eight.hi;
    const float2 two = four.lo + four.hi;
    return two.x + two.y;
}

static lanes lanes_keep(lanes x, int n)
{
    if (n >= LANES)
        return x;
    const int16 numbers = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return select((lanes)(0.0f), x, numbers < n);
}
#endif
