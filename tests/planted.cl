/* Kernels with one planted fault each, and one without: what tools/sanitize must and must not find.
 * The work-group has `n` work-items and `out` has n elements. */

/* Sums neighbours through local memory, as it should be done. */
kernel void planted_clean(global int *out, local int *pool)
{
    const int i = (int)get_local_id(0), n = (int)get_local_size(0);
    pool[i] = i;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[i] = pool[i] + pool[(i + 1) % n];
}

/* The same without the barrier: the neighbour may not have written yet. */
kernel void planted_race(global int *out, local int *pool)
{
    const int i = (int)get_local_id(0), n = (int)get_local_size(0);
    pool[i] = i;
    out[i] = pool[i] + pool[(i + 1) % n];
}

/* The last work-item writes one element past the end. */
kernel void planted_overrun(global int *out, local int *pool)
{
    const int i = (int)get_local_id(0);
    pool[i] = i;
    out[i + 1] = pool[i];
}
