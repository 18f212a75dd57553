/* The host of cl/norm.cl: layer norm and RMS norm of rows. */
#include "norm.h"

#include "grid.h"
#include "log.h"
#include "shape.h"

#include <math.h>
#include <stdio.h>

enum {
    CPU_LANES = 16,
    /* A group of one work-item goes over many rows: enough groups for cores that are not equally
     * fast, and no more, since each costs a driver as much as a short row does. */
    CPU_GROUPS_A_UNIT = 16
};

static const unsigned known_uses = MHA_NORM_WEIGHT | MHA_NORM_BIAS | MHA_NORM_RESIDUAL |
                                   MHA_NORM_INPUT_BIAS | MHA_NORM_SUM | MHA_NORM_MEAN |
                                   MHA_NORM_INV_STD;

static mha_status check_options(const mha_log *log, const char *who, const mha_norm_desc *desc)
{
    if (desc->kind != MHA_NORM_LAYER && desc->kind != MHA_NORM_RMS)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: kind is no mha_norm_kind: %d", who,
                            (int)desc->kind);
    if (desc->uses & ~known_uses)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: uses has bits without a meaning: 0x%x",
                            who, desc->uses & ~known_uses);
    if (desc->kind == MHA_NORM_RMS && desc->uses & MHA_NORM_MEAN)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: uses has MHA_NORM_MEAN, but an RMS norm takes no mean", who);
    if (!(desc->epsilon > 0) || isinf(desc->epsilon))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: epsilon is %g, it must be a finite number above 0, or 0 for 1e-5",
                            who, (double)desc->epsilon);
    if (desc->tiling != MHA_TILING_CPU && desc->tiling != MHA_TILING_GPU)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: tiling is no mha_tiling: %d", who,
                            (int)desc->tiling);
    return MHA_OK;
}

mha_status mha_norm_resolve(const mha_context *context, const char *who, const mha_norm_desc *desc,
                            mha_norm_desc *out)
{
    const mha_log *log = &context->log;
    const bool is_cpu = context->device.type & CL_DEVICE_TYPE_CPU;
    *out = *desc;
    if (out->epsilon == 0)
        out->epsilon = 1e-5f;
    if (!out->type)
        out->type = MHA_FLOAT32;
    if (!out->output_type)
        out->output_type = out->type;
    if (!out->weight_type)
        out->weight_type = MHA_FLOAT32;
    if (!out->tiling)
        out->tiling = is_cpu ? MHA_TILING_CPU : MHA_TILING_GPU;
    mha_status status = mha_shape_check_rows(log, who, out->rows, out->width);
    if (!status)
        status = check_options(log, who, out);
    if (!status)
        status = mha_shape_check_type(log, who, "type", out->type);
    if (!status)
        status = mha_shape_check_type(log, who, "output_type", out->output_type);
    return status ? status : mha_shape_check_type(log, who, "weight_type", out->weight_type);
}

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
