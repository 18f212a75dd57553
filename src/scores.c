/* The host of cl/scores.cl: scale * query key^T from any strides, where CLBlast is not used. */
#include "scores.h"

#include "grid.h"

mha_status mha_scores_setup(mha_kernel *kernel, mha_context *context)
{
    return mha_context_kernel(context, kernel, "scores", "", "scores_tile");
}

mha_status mha_scores_launch(const mha_kernel *kernel, mha_run *run, const mha_attention_desc *desc,
                             const mha_bound *bound, cl_mem scores, size_t scores_offset)
{
    const mha_arg args[] = {
        MHA_ARG_MEM(bound->query.buffer),
        MHA_ARG_SIZE(bound->query.offset),
        MHA_ARG_SIZE(bound->query.strides[0]),
        MHA_ARG_SIZE(bound->query.strides[1]),
        MHA_ARG_SIZE(bound->query.strides[2]),
        MHA_ARG_MEM(bound->key.buffer),
        MHA_ARG_SIZE(bound->key.offset),
        MHA_ARG_SIZE(bound->key.strides[0]),
        MHA_ARG_SIZE(bound->key.strides[1]),
        MHA_ARG_SIZE(bound->key.strides[2]),
        MHA_ARG_MEM(scores),
        MHA_ARG_SIZE(scores_offset),
        MHA_ARG_INT(desc->batch),
        MHA_ARG_INT(desc->heads),
        MHA_ARG_INT(desc->heads / desc->kv_heads),
        MHA_ARG_INT(bound->query_len),
        MHA_ARG_INT(bound->key_len),
        MHA_ARG_INT(desc->head_dim),
        MHA_ARG_FLOAT(desc->scale),
    };
    const mha_grid grid =
        mha_grid_tiles(bound->query_len, bound->key_len, desc->batch * desc->heads);
    return mha_run_launch(run, "scores", kernel, args, sizeof args / sizeof args[0], &grid);
}
