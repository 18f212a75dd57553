/* The host of cl/norm.cl: layer norm and RMS norm of rows. */
#include "norm.h"

#include "grid.h"

#include <stdio.h>

enum {
    CPU_LANES = 16,
    /* A group of one work-item goes over many rows: enough groups for cores that are not equally
     * fast, and no more, since each costs a driver as much as a short row does. */
    CPU_GROUPS_A_UNIT = 16
};

mha_status mha_norm_setup(mha_norm_stage *norm, mha_context *context, const mha_norm_desc *desc)
{
    const mha_device_info *device = &context->device;
    const bool alone = desc->tiling == MHA_TILING_CPU;
    norm->group = alone ? 1 : mha_grid_row_group(device->max_work_group_size, desc->width);
    norm->most_groups = alone ? device->compute_units * (size_t)CPU_GROUPS_A_UNIT : SIZE_MAX;
    const unsigned uses = desc->uses;
    char options[256];
    snprintf(options, sizeof options,
             "-DRMS=%d -DUSES_RESIDUAL=%d -DUSES_FROM_BIAS=%d -DUSES_WEIGHT=%d -DUSES_BIAS=%d "
             "-DUSES_SUM=%d -DFROM_TYPE=%d -DTO_TYPE=%d -DWEIGHT_TYPE=%d -DGROUP=%zu -DLANES=%d",
             desc->kind == MHA_NORM_RMS, !!(uses & MHA_NORM_RESIDUAL),
             !!(uses & MHA_NORM_INPUT_BIAS), !!(uses & MHA_NORM_WEIGHT), !!(uses & MHA_NORM_BIAS),
             !!(uses & MHA_NORM_SUM), (int)desc->type, (int)desc->output_type,
             (int)desc->weight_type, norm->group, alone ? CPU_LANES : 1);
    return mha_context_kernel(context, &norm->rows, "norm", options, "norm_rows");
}

void mha_norm_release(mha_norm_stage *norm)
{
    mha_kernel_release(&norm->rows);
}

mha_status mha_norm_launch(const mha_norm_stage *norm, mha_run *run, const mha_norm_desc *desc,
                           const mha_norm_rows *rows)
{
    if (!rows->rows)
        return MHA_OK;
    const mha_arg args[] = {
        MHA_ARG_MEM(rows->input.buffer),
        MHA_ARG_SIZE(rows->input.offset),
        MHA_ARG_SIZE(rows->input.strides[2]),
        MHA_ARG_MEM(rows->residual.buffer),
        MHA_ARG_SIZE(rows->residual.offset),
        MHA_ARG_SIZE(rows->residual.strides[2]),
        MHA_ARG_MEM(rows->input_bias.buffer),
        MHA_ARG_SIZE(rows->input_bias.offset),
        MHA_ARG_MEM(rows->weight.buffer),
        MHA_ARG_SIZE(rows->weight.offset),
        MHA_ARG_MEM(rows->bias.buffer),
        MHA_ARG_SIZE(rows->bias.offset),
        MHA_ARG_MEM(rows->output.buffer),
        MHA_ARG_SIZE(rows->output.offset),
        MHA_ARG_SIZE(rows->output.strides[2]),
        MHA_ARG_MEM(rows->sum.buffer),
        MHA_ARG_SIZE(rows->sum.offset),
        MHA_ARG_SIZE(rows->sum.strides[2]),
        MHA_ARG_MEM(rows->mean.buffer),
        MHA_ARG_SIZE(rows->mean.offset),
        MHA_ARG_SIZE(rows->mean.strides[2]),
        MHA_ARG_MEM(rows->inv_std.buffer),
        MHA_ARG_SIZE(rows->inv_std.offset),
        MHA_ARG_SIZE(rows->inv_std.strides[2]),
        MHA_ARG_FLOAT(desc->epsilon),
        MHA_ARG_SIZE(rows->rows),
        MHA_ARG_INT(desc->width),
    };
    const size_t groups = rows->rows < norm->most_groups ? rows->rows : norm->most_groups;
    const mha_grid grid = mha_grid_groups(groups, norm->group);
    return mha_run_launch(run, "norm", &norm->rows, args, sizeof args / sizeof args[0], &grid);
}
