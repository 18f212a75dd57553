/* The host of cl/attend_gpu.cl: attention in one pass over the keys, a work-group at a time. */
#include "attend_gpu.h"

#include "attend.h"
#include "grid.h"

#include <stdio.h>
#include <string.h>

enum {
    ROWS = 64, /* as in cl/attend_gpu.cl */
    FEWEST_LANES = 4,
    MOST_LANES = 16
};

/* How the work is cut, by the vendor of the device; what the numbers are is in cl/attend_gpu.cl,
 * and what the compilers make of them in doc/devices/compiled.md. */
typedef struct gpu_cut {
    const char *vendor; /* a part of what the device says */
    unsigned quads, slice, score_steps, value_steps, swizzled;
    unsigned ruled_value_steps; /* with a rule of each score but a softcap, or a ring */
} gpu_cut;

static const gpu_cut cuts[] = {
    { "", 2, 16, 2, 2, 0, 2 }, /* any other */
    { "NVIDIA", 2, 32, 4, 4, 1, 4 },
    { "Advanced Micro Devices", 2, 16, 8, 8, 0, 8 },
    { "AMD", 2, 16, 8, 8, 0, 8 }, /* Mesa's name for it */
    /* 128 registers of 8 lanes have no room for a tile twice as high. All of a slice of scores at
     * once, as its compiler copies the whole tile for each round of a loop in a loop. Eight values
     * at once leave no room for a rule. */
    { "Intel", 1, 16, 16, 8, 0, 4 },
};

/* A CPU's vendor says nothing of this kernel on its driver. */
static const gpu_cut *cut_of(const mha_device_info *device)
{
    const bool is_gpu = device->type & CL_DEVICE_TYPE_GPU;
    for (size_t i = 1; i < sizeof cuts / sizeof cuts[0]; i++)
        if (is_gpu && strstr(device->vendor, cuts[i].vendor))
            return &cuts[i];
    return &cuts[0];
}

static size_t group_of(const gpu_cut *cut, size_t lanes)
{
    return lanes * (ROWS / 4 / cut->quads);
}

static size_t wide_of(size_t lanes)
{
    return 8 * lanes;
}

/* Slices of the rows' and the columns' operand, and the rows' ranges. */
static size_t local_bytes(const gpu_cut *cut, size_t lanes)
{
    const size_t slices = cut->slice * (ROWS + 4 + wide_of(lanes) + 4) * sizeof(cl_float);
    return slices + 2 * ROWS * sizeof(cl_int);
}

static bool fits(const mha_device_info *device, size_t lanes)
{
    const gpu_cut *cut = cut_of(device);
    return group_of(cut, lanes) <= device->max_work_group_size &&
           local_bytes(cut, lanes) <= device->local_memory_bytes;
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
    const gpu_cut *cut = cut_of(&context->device);
    if (fits(&context->device, FEWEST_LANES))
        return true;
    mha_text_add(why_not,
                 "its GPU tiling needs work-groups of %zu and %zu bytes of local memory, and %s "
                 "gives %u and %llu",
                 group_of(cut, FEWEST_LANES), local_bytes(cut, FEWEST_LANES), context->device.name,
                 (unsigned)context->device.max_work_group_size,
                 (unsigned long long)context->device.local_memory_bytes);
    return false;
}

mha_status mha_attend_gpu_setup(mha_attend_gpu_stage *attend, mha_context *context,
                                const mha_attention_desc *desc)
{
    const gpu_cut *cut = cut_of(&context->device);
    attend->lanes = choose_lanes(context, desc);
    attend->group = group_of(cut, attend->lanes);
    const uint64_t ruled = MHA_USES_BIAS | MHA_USES_MASK | MHA_USES_ALIBI | MHA_USES_RING;
    char options[512];
    const int used = snprintf(
        options, sizeof options,
        "-DLANES=%zu -DQUADS=%u -DSLICE=%u -DSCORE_STEPS=%u -DVALUE_STEPS=%u -DSWIZZLED=%u ",
        attend->lanes, cut->quads, cut->slice, cut->score_steps,
        desc->uses & ruled ? cut->ruled_value_steps : cut->value_steps, cut->swizzled);
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
    const mha_grid grid = mha_grid_all_parts(tiles, attend->group, desc->batch * desc->heads);
    return mha_run_launch(run, "attend", &attend->tile, args, count, &grid);
}
