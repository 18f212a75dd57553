/* The host of cl/softmax.cl: softcap, bias, exclusion and softmax over rows of scores. */
#include "softmax.h"

#include "grid.h"

#include <limits.h>
#include <stdio.h>

/* A row's work-items: enough for one key each, as many as a row of 4096 keeps busy at the most. */
static size_t choose_group(const mha_context *context, size_t key_len)
{
    const size_t most =
        context->device.max_work_group_size < 256 ? context->device.max_work_group_size : 256;
    size_t group = 1;
    while (group * 2 <= most && (group < key_len && (group < 64 || group * 16 <= key_len)))
        group *= 2;
    return group;
}

mha_status mha_softmax_setup(mha_softmax_stage *softmax, mha_context *context,
                             const mha_attention_desc *desc)
{
    softmax->group = choose_group(context, desc->key_len);
    const uint64_t uses = desc->uses;
    char options[256];
    snprintf(options, sizeof options,
             "-DGROUP=%zu -DUSES_BIAS=%d -DUSES_MASK=%d -DUSES_SOFTCAP=%d -DUSES_CAUSAL=%d "
             "-DUSES_WINDOW_LEFT=%d -DUSES_WINDOW_RIGHT=%d -DBOTTOM_RIGHT=%d",
             softmax->group, !!(uses & MHA_USES_BIAS), !!(uses & MHA_USES_MASK), desc->softcap != 0,
             !!(uses & MHA_USES_CAUSAL), !!(uses & MHA_USES_WINDOW_LEFT),
             !!(uses & MHA_USES_WINDOW_RIGHT), desc->diagonal == MHA_BOTTOM_RIGHT);
    return mha_context_kernel(context, &softmax->rows, "softmax", options, "softmax_rows");
}

void mha_softmax_release(mha_softmax_stage *softmax)
{
    mha_kernel_release(&softmax->rows);
}

/* A window wider than any row is no limit. */
static size_t clamp_window(size_t window)
{
    return window < INT_MAX ? window : INT_MAX;
}

mha_status mha_softmax_launch(const mha_softmax_stage *softmax, mha_run *run,
                              const mha_attention_desc *desc, const mha_bound *bound, cl_mem scores,
                              size_t scores_offset, cl_mem probs, size_t probs_offset)
{
    const mha_view *lse = &bound->lse;
    const mha_view *bias = &bound->bias;
    const mha_view *mask = &bound->mask;
    const mha_arg args[] = {
        MHA_ARG_MEM(scores),
        MHA_ARG_SIZE(scores_offset),
        MHA_ARG_MEM(probs),
        MHA_ARG_SIZE(probs_offset),
        MHA_ARG_MEM(lse->buffer),
        MHA_ARG_SIZE(lse->offset),
        MHA_ARG_SIZE(lse->strides[0]),
        MHA_ARG_SIZE(lse->strides[1]),
        MHA_ARG_SIZE(lse->strides[2]),
        MHA_ARG_MEM(bias->buffer),
        MHA_ARG_SIZE(bias->offset),
        MHA_ARG_SIZE(bias->strides[0]),
        MHA_ARG_SIZE(bias->strides[1]),
        MHA_ARG_SIZE(bias->strides[2]),
        MHA_ARG_SIZE(bias->strides[3]),
        MHA_ARG_MEM(mask->buffer),
        MHA_ARG_SIZE(mask->offset),
        MHA_ARG_SIZE(mask->strides[0]),
        MHA_ARG_SIZE(mask->strides[1]),
        MHA_ARG_SIZE(mask->strides[2]),
        MHA_ARG_SIZE(mask->strides[3]),
        MHA_ARG_MEM(bound->key_lengths.buffer),
        MHA_ARG_SIZE(bound->key_lengths.offset),
        MHA_ARG_MEM(bound->per_query.buffer),
        MHA_ARG_SIZE(bound->per_query.offset),
        MHA_ARG_INT(desc->batch),
        MHA_ARG_INT(desc->heads),
        MHA_ARG_INT(bound->query_len),
        MHA_ARG_INT(bound->key_len),
        MHA_ARG_INT(clamp_window(desc->window_left)),
        MHA_ARG_INT(clamp_window(desc->window_right)),
        MHA_ARG_FLOAT(desc->softcap),
    };
    const mha_grid grid =
        mha_grid_groups(desc->batch * desc->heads * bound->query_len, softmax->group);
    return mha_run_launch(run, "softmax", &softmax->rows, args, sizeof args / sizeof args[0],
                          &grid);
}
