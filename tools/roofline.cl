/* What a device can do at best: the kernels of tools/roofline.c. FLOATS is float or a vector of it,
 * SUMS is how many of them a work-item has in flight, independent of each other. */

/* out: one of each work-item, so that nothing is left out as unused. factor is below 1: the sums stay
 * near addend / (1 - factor), far from inf and from the subnormal. */
kernel void roofline_fma(global FLOATS *restrict out, uint steps, float factor, float addend)
{
    FLOATS sums[SUMS];
    for (int i = 0; i < SUMS; i++)
        sums[i] = (FLOATS)(get_global_id(0) + i);
    for (uint step = 0; step < steps; step++) {
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sums[i] = sums[i] * (FLOATS)factor + (FLOATS)addend; /* mad() may be two operations */
    }
    for (int i = 1; i < SUMS; i++)
        sums[0] += sums[i];
    out[get_global_id(0)] = sums[0];
}

/* The first element of a work-item: a group has a stretch of its own, and goes over SUMS parts of it
 * at once, since more of memory is on its way then; its work-items stand side by side. */
static size_t first_of(uint steps)
{
    return get_group_id(0) * SUMS * steps * get_local_size(0) + get_local_id(0);
}

/* data: [groups][SUMS][steps][local size] */
kernel void roofline_read(global FLOATS *restrict out, uint steps,
                          global const FLOATS *restrict data, uint passes)
{
    const size_t lanes = get_local_size(0), part = steps * lanes;
    FLOATS sums[SUMS];
    for (int i = 0; i < SUMS; i++)
        sums[i] = (FLOATS)0;
    for (uint pass = 0; pass < passes; pass++) {
        global const FLOATS *next = data + first_of(steps);
        for (uint step = 0; step < steps; step++, next += lanes) {
#pragma unroll
            for (int i = 0; i < SUMS; i++)
                sums[i] += next[i * part];
        }
    }
    for (int i = 1; i < SUMS; i++)
        sums[0] += sums[i];
    out[get_global_id(0)] = sums[0];
}

/* to, from: [groups][SUMS][steps][local size] */
kernel void roofline_copy(global FLOATS *restrict to, uint steps,
                          global const FLOATS *restrict from)
{
    const size_t lanes = get_local_size(0), part = steps * lanes;
    to += first_of(steps);
    from += first_of(steps);
    for (uint step = 0; step < steps; step++, to += lanes, from += lanes) {
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            to[i * part] = from[i * part];
    }
}
