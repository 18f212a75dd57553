/* The host of cl/attend_gpu.cl: attention in one pass over the keys, a work-group at a time. */
#include "attend_gpu.h"

#include "attend.h"
#include "grid.h"

#include <stdio.h>

/* As in cl/attend_gpu.cl: a work-group of LANES x HIGH makes ROWS queries x WIDE value dims. */
enum {
    HIGH = 8,
    ROWS = 64,
    SLICE = 16,
    FEWEST_LANES = 4,
    MOST_LANES = 16
};

static size_t wide_of(size_t lanes)
{
    return 8 * lanes;
}

/* Slices of the rows' and the columns' operand, the rows' ranges and a flag. */
static size_t local_bytes(size_t lanes)
{
    const size_t slices = SLICE * (ROWS + 4 + wide_of(lanes) + 4) * sizeof(cl_float);
    return slices + (2 * ROWS + 1) * sizeof(cl_int);
}

static bool fits(const mha_device_info *device, size_t lanes)
{
    return lanes * HIGH <= device->max_work_group_size &&
           local_bytes(lanes) <= device->local_memory_bytes;
}

/* As wide as the values, so that no scores are made twice and few lanes idle, if the device can. */
static size_t choose_lanes(const mha_context *context, const mha_attention_desc *desc)
{
    size_t lanes = FEWEST_LANES;
    while (lanes < MOST_LANES && wide_of(lanes) < desc->value_dim &&
           fits(&context->device, 2 * lanes))
        lanes *= 2;
    return lanes;
}

bool mha_attend_gpu_can(const mha_context *context, mha_text *why_not)
{
    if (fits(&context->device, FEWEST_LANES))
        return true;
    mha_text_add(why_not,
                 "its GPU tiling needs work-groups of %d and %zu bytes of local memory, and %s "
                 "gives %u and %llu",
                 FEWEST_LANES * HIGH, local_bytes(FEWEST_LANES), context->device.name,
                 (unsigned)context->device.max_work_group_size,
                 (unsigned long long)context->device.local_memory_bytes);
    return false;
}

mha_status mha_attend_gpu_setup(mha_attend_gpu_stage *attend, mha_context *context,
                                const mha_attention_desc *desc)
{
    attend->lanes = choose_lanes(context, desc);
    char options[512];
    const int used = snprintf(options, sizeof options, "-DLANES=%zu ", attend->lanes);
    mha_attend_options(options + used, sizeof options - (size_t)used, desc);
    return mha_context_kernel(context, &attend->tile, "attend_gpu", options, "attend_gpu_tile");
}

void mha_attend_gpu_release(mha_attend_gpu_stage *attend)
{
    mha_kernel_release(&attend->tile);
}

bool mha_attend_gpu_may_overwrite(const mha_attend_gpu_stage *attend,
                                  const mha_attention_desc *desc)
{
    return desc->value_dim <= wide_of(attend->lanes);
}

mha_status mha_attend_gpu_launch(const mha_attend_gpu_stage *attend, mha_run *run,
                                 const mha_attention_desc *desc, const mha_bound *bound)
{
    mha_arg args[MHA_ATTEND_ARGS];
    const size_t count = mha_attend_args(args, desc, bound);
    const size_t tiles = mha_grid_divide_up(bound->query_len, ROWS) *
                         mha_grid_divide_up(desc->value_dim, wide_of(attend->lanes));
    const mha_grid grid = mha_grid_parts(tiles, attend->lanes * HIGH, desc->batch * desc->heads);
    return mha_run_launch(run, "attend", &attend->tile, args, count, &grid);
}
