/* The host of cl/weigh.cl: probs value with excluded keys skipped. */
#include "weigh.h"

#include "grid.h"

mha_status mha_weigh_setup(mha_kernel *kernel, mha_context *context)
{
    return mha_context_kernel(context, kernel, "weigh", "", "weigh_tile");
}

mha_status mha_weigh_launch(const mha_kernel *kernel, mha_run *run, const mha_attention_desc *desc,
                            const mha_bound *bound, cl_mem probs, size_t probs_offset)
{
    const mha_arg args[] = {
        MHA_ARG_MEM(probs),
        MHA_ARG_SIZE(probs_offset),
        MHA_ARG_MEM(bound->value.buffer),
        MHA_ARG_SIZE(bound->value.offset),
        MHA_ARG_SIZE(bound->value.strides[0]),
        MHA_ARG_SIZE(bound->value.strides[1]),
        MHA_ARG_SIZE(bound->value.strides[2]),
        MHA_ARG_MEM(bound->output.buffer),
        MHA_ARG_SIZE(bound->output.offset),
        MHA_ARG_SIZE(bound->output.strides[0]),
        MHA_ARG_SIZE(bound->output.strides[1]),
        MHA_ARG_SIZE(bound->output.strides[2]),
        MHA_ARG_INT(desc->batch),
        MHA_ARG_INT(desc->heads),
        MHA_ARG_INT(desc->heads / desc->kv_heads),
        MHA_ARG_INT(bound->query_len),
        MHA_ARG_INT(bound->key_len),
        MHA_ARG_INT(desc->value_dim),
    };
    const mha_grid grid =
        mha_grid_tiles(bound->query_len, desc->value_dim, desc->batch * desc->heads);
    return mha_run_launch(run, "probs value", kernel, args, sizeof args / sizeof args[0], &grid);
}
