/* What the work-items of a group find out together. Build option GROUP: how many they are, a power of
 * two. `pool` has room for one float each. */

/* The sum (or maximum) of x over the work-group, in every work-item. The order is fixed, so two runs
 * give the same bits. */
static float sum_over_group(__local float *pool, float x)
{
#if GROUP > 1
    const int item = (int)get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    pool[item] = x;
    for (int step = GROUP / 2; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < step)
            pool[item] += pool[item + step];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    x = pool[0];
#endif
    return x;
}

static float max_over_group(__local float *pool, float x)
{
#if GROUP > 1
    const int item = (int)get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    pool[item] = x;
    for (int step = GROUP / 2; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < step)
            pool[item] = fmax(pool[item], pool[item + step]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    x = pool[0];
#endif
    return x;
}
