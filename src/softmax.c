/* The host of cl/softmax.cl: softcap, bias, exclusion and softmax over rows of scores. */
#include "softmax.h"

#include "grid.h"
#include "rules.h"

#include <stdio.h>
#include <string.h>

mha_status mha_softmax_setup(mha_softmax_stage *softmax, mha_context *context,
                             const mha_attention_desc *desc)
{
    softmax->group = mha_grid_row_group(context->device.max_work_group_size, desc->key_len);
    char options[512];
    const int used = snprintf(
        options, sizeof options, "-DGROUP=%zu -DSHOWS=%d -DSHOWN_TYPE=%d ", softmax->group,
        desc->uses & MHA_USES_SCORES ? 1 + (int)desc->scores_stage : 0, (int)desc->scores_type);
    mha_rules_options(options + used, sizeof options - (size_t)used, desc);
    return mha_context_kernel(context, &softmax->rows, "softmax", options, "softmax_rows");
}

void mha_softmax_release(mha_softmax_stage *softmax)
{
    mha_kernel_release(&softmax->rows);
}

mha_status mha_softmax_launch(const mha_softmax_stage *softmax, mha_run *run,
                              const mha_attention_desc *desc, const mha_bound *bound, cl_mem scores,
                              size_t scores_offset, cl_mem probs, size_t probs_offset)
{
    const mha_view *lse = &bound->lse;
    const mha_view *shown = &bound->scores;
    const mha_arg own[] = {
        MHA_ARG_MEM(scores),
        MHA_ARG_SIZE(scores_offset),
        MHA_ARG_MEM(probs),
        MHA_ARG_SIZE(probs_offset),
        MHA_ARG_MEM(shown->buffer),
        MHA_ARG_SIZE(shown->offset),
        MHA_ARG_SIZE(shown->strides[0]),
        MHA_ARG_SIZE(shown->strides[1]),
        MHA_ARG_SIZE(shown->strides[2]),
        MHA_ARG_MEM(lse->buffer),
        MHA_ARG_SIZE(lse->offset),
        MHA_ARG_SIZE(lse->strides[0]),
        MHA_ARG_SIZE(lse->strides[1]),
        MHA_ARG_SIZE(lse->strides[2]),
        MHA_ARG_INT(desc->batch),
        MHA_ARG_INT(desc->heads),
    };
    enum {
        OWN = sizeof own / sizeof own[0]
    };
    mha_arg args[OWN + MHA_RULES_ARGS];
    memcpy(args, own, sizeof own);
    const size_t count = OWN + mha_rules_args(args + OWN, desc, bound);
    const mha_grid grid =
        mha_grid_groups(desc->batch * desc->heads * bound->query_len, softmax->group);
    return mha_run_launch(run, "softmax", &softmax->rows, args, count, &grid);
}
