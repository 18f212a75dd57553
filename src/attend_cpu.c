/* The host of cl/attend_cpu.cl: streaming attention, a work-item by itself. */
#include "attend_cpu.h"

#include "attend.h"
#include "grid.h"

#include <stdio.h>

/* How the kernel is cut: tiles of 8 * vectors queries, `block` keys at a time. */
typedef struct cpu_cut {
    size_t vectors, tiles, block;
} cpu_cut;

enum {
    LANES = 8
};

static size_t local_bytes(const cpu_cut *cut, const mha_attention_desc *desc)
{
    const size_t lanes = cut->vectors * LANES * sizeof(float);
    const size_t tile = (desc->head_dim + desc->value_dim + 5) * lanes;
    const size_t rows = desc->key_value_type == MHA_FLOAT32
                            ? 0
                            : cut->block * (desc->head_dim + desc->value_dim) * sizeof(float);
    return cut->tiles * tile + cut->block * lanes + rows;
}

/* The largest cut that fits, best first: 24 queries are the most that the registers of AVX2 hold,
 * two tiles share what they read of a block, and 128 keys spread the cost of looking at the
 * maximum. Fewer queries take narrower tiles. False if none fits. */
static bool choose(const mha_context *context, const mha_attention_desc *desc, cpu_cut *out)
{
    static const cpu_cut cuts[] = { { 3, 2, 128 }, { 3, 1, 128 }, { 3, 1, 64 },
                                    { 2, 1, 64 },  { 1, 1, 64 },  { 1, 1, 16 } };
    const uint64_t most = context->device.local_memory_bytes;
    const size_t enough = (desc->query_len + LANES - 1) / LANES; /* vectors for all queries */
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        *out = cuts[i];
        if (enough && out->vectors * out->tiles > enough) {
            out->vectors = enough < 3 ? enough : 3;
            out->tiles = enough <= 3 ? 1 : 2;
        }
        if (desc->key_value_type != MHA_FLOAT32 && out->block > 32)
            out->block = 32; /* rows are converted a block at a time, and stay near */
        if (local_bytes(out, desc) <= most)
            return true;
    }
    return false;
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
    attend->queries = cut.tiles * cut.vectors * LANES;
    char options[512];
    const int used = snprintf(options, sizeof options, "-DVECTORS=%zu -DTILES=%zu -DBLOCK=%zu ",
                              cut.vectors, cut.tiles, cut.block);
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
    mha_attend_args(args, desc, bound);
    const size_t parts = (bound->query_len + attend->queries - 1) / attend->queries;
    const mha_grid grid = mha_grid_parts(parts, 1, desc->batch * desc->heads);
    return mha_run_launch(run, "attend", &attend->rows, args, MHA_ATTEND_ARGS, &grid);
}
