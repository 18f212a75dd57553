/* The host of cl/attend_cpu.cl: streaming attention, a work-item by itself. */
#include "attend_cpu.h"

#include "attend.h"
#include "grid.h"

#include <stdint.h>
#include <stdio.h>

/* How the kernel is cut: `tiles` of lanes * vectors queries a work-item, `block` keys at a time,
 * `tall` keys or dims in a tile of registers. */
typedef struct cpu_cut {
    size_t lanes, vectors, tiles, block, tall;
    size_t cost; /* a work-item's time as measured, in percent of that of a vector in the best */
} cpu_cut;

/* Best first. 24 queries x 4 keys are the most that the 16 registers of AVX2 hold, 48 x 8 the 32 of
 * AVX-512. There two tiles of a work-item, which share what they read of a block, win nothing, and
 * lose where a bias's rows are read as well. The long blocks spread the cost of looking at the
 * maximum; the short ones are for devices with little local memory. */
static const cpu_cut cuts[] = {
    { 16, 3, 1, 64, 8, 300 }, { 16, 2, 1, 64, 8, 216 }, { 16, 1, 1, 64, 8, 130 },
    { 16, 1, 1, 16, 8, 150 }, { 8, 3, 2, 128, 4, 600 }, { 8, 3, 1, 128, 4, 320 },
    { 8, 2, 1, 128, 4, 220 }, { 8, 1, 1, 64, 4, 125 },  { 8, 1, 1, 16, 4, 145 },
};

static size_t queries_of(const cpu_cut *cut)
{
    return cut->lanes * cut->vectors * cut->tiles;
}

static size_t local_bytes(const cpu_cut *cut, const mha_attention_desc *desc)
{
    const size_t lanes = cut->lanes * cut->vectors * sizeof(float);
    const size_t tile = (desc->head_dim + desc->value_dim + 5) * lanes;
    const size_t rows = desc->key_value_type == MHA_FLOAT32
                            ? 0
                            : cut->block * (desc->head_dim + desc->value_dim) * sizeof(float);
    return cut->tiles * tile + cut->block * lanes + rows;
}

/* The cut with which the whole is done first, by its cost and the work-items that each core gets:
 * fewer queries than a wide cut has, or than fill the last one, are better served by a narrow one.
 * False if none fits; *out is then the last that did not. */
static bool choose(const mha_context *context, const mha_attention_desc *desc, cpu_cut *out)
{
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        cpu_cut cut = cuts[i];
        if (cut.lanes > context->lanes)
            continue; /* a narrower one needs less local memory, and does for few queries */
        if (desc->key_value_type != MHA_FLOAT32 && cut.block > 32)
            cut.block = 32; /* rows are converted a block at a time, and stay near */
        const bool fits = local_bytes(&cut, desc) <= context->device.local_memory_bytes;
        const size_t items =
            desc->batch * desc->heads * mha_grid_divide_up(desc->query_len, queries_of(&cut));
        const size_t cost = mha_grid_divide_up(items, context->device.compute_units) * cut.cost;
        if (least == SIZE_MAX || (fits && cost < least))
            *out = cut;
        if (fits && cost < least)
            least = cost;
    }
    return least != SIZE_MAX;
}

bool mha_attend_cpu_can(const mha_context *context, const mha_attention_desc *desc,
                        mha_text *why_not)
{
    cpu_cut cut;
    if (choose(context, desc, &cut))
        return true;
    mha_text_add(
        why_not,
        "its CPU tiling needs %zu bytes of local memory at head_dim %zu and value_dim %zu, "
        "and %s gives %llu",
        local_bytes(&cut, desc), desc->head_dim, desc->value_dim, context->device.name,
        (unsigned long long)context->device.local_memory_bytes);
    return false;
}

mha_status mha_attend_cpu_setup(mha_attend_cpu_stage *attend, mha_context *context,
                                const mha_attention_desc *desc)
{
    cpu_cut cut;
    choose(context, desc, &cut);
    attend->queries = queries_of(&cut);
    char options[512];
    const int used = snprintf(options, sizeof options,
                              "-DLANES=%zu -DVECTORS=%zu -DTILES=%zu -DBLOCK=%zu -DTALL=%zu ",
                              cut.lanes, cut.vectors, cut.tiles, cut.block, cut.tall);
    mha_attend_options(options + used, sizeof options - (size_t)used, desc);
    return mha_context_kernel(context, &attend->rows, "attend_cpu", options, "attend_cpu_rows");
}

void mha_attend_cpu_release(mha_attend_cpu_stage *attend)
{
    mha_kernel_release(&attend->rows);
}

mha_status mha_attend_cpu_launch(const mha_attend_cpu_stage *attend, mha_run *run,
                                 const mha_attention_desc *desc, const mha_bound *bound)
{
    mha_arg args[MHA_ATTEND_ARGS];
    const size_t count = mha_attend_args(args, desc, bound);
    const size_t parts = mha_grid_divide_up(bound->query_len, attend->queries);
    const mha_grid grid = mha_grid_parts(parts, 1, desc->batch * desc->heads);
    return mha_run_launch(run, "attend", &attend->rows, args, count, &grid);
}
