/* Shows what cl/power.h computes, for tests/test_power.c. Build option LANES, see cl/vectors.h.
 * Buffers lie between guards: element 0 is at the offset. */
#include "vectors.h"
#include "power.h"

/* A work-item is LANES numbers: in -> power, 2^x of those that it takes, and exponential, e^x. */
kernel void power_probe_both(global const float *in, ulong in_offset, global float *power,
                             ulong power_offset, global float *natural, ulong natural_offset)
{
    const size_t n = get_global_id(0);
    const floats x = VLOAD_LANES(n, in + in_offset);
    VSTORE_LANES(power_of_2(x), n, power + power_offset);
    VSTORE_LANES(exponential(x), n, natural + natural_offset);
}
