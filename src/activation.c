/* The host of cl/activation.cl: activation functions of rows. */
#include "activation.h"

#include "grid.h"
#include "log.h"
#include "shape.h"

#include <math.h>
#include <stdio.h>

static mha_status check_options(const mha_log *log, const char *who,
                                const mha_activation_desc *desc)
{
    if ((int)desc->kind < MHA_ACTIVATION_NONE || desc->kind > MHA_ACTIVATION_SILU)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: kind is no mha_activation_kind: %d",
                            who, (int)desc->kind);
    if (desc->uses & ~MHA_ACTIVATION_GATE)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: uses has bits without a meaning: 0x%x",
                            who, desc->uses & ~MHA_ACTIVATION_GATE);
    if (!isfinite(desc->alpha))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: alpha is %g, it must be finite", who,
                            (double)desc->alpha);
    if (desc->alpha != 1 && desc->kind != MHA_ACTIVATION_SILU)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: alpha is %g, and it is of MHA_ACTIVATION_SILU only", who,
                            (double)desc->alpha);
    if (desc->tiling != MHA_TILING_CPU && desc->tiling != MHA_TILING_GPU)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: tiling is no mha_tiling: %d", who,
                            (int)desc->tiling);
    return MHA_OK;
}

mha_status mha_activation_resolve(const mha_context *context, const char *who,
                                  const mha_activation_desc *desc, mha_activation_desc *out)
{
    const mha_log *log = &context->log;
    const bool is_cpu = context->device.type & CL_DEVICE_TYPE_CPU;
    *out = *desc;
    if (out->alpha == 0)
        out->alpha = 1;
    if (!out->type)
        out->type = MHA_FLOAT32;
    if (!out->output_type)
        out->output_type = out->type;
    if (!out->tiling)
        out->tiling = is_cpu ? MHA_TILING_CPU : MHA_TILING_GPU;
    mha_status status = mha_shape_check_rows(log, who, out->rows, out->width);
    if (!status)
        status = check_options(log, who, out);
    if (!status)
        status = mha_shape_check_type(log, who, "type", out->type);
    return status ? status : mha_shape_check_type(log, who, "output_type", out->output_type);
}

mha_status mha_activation_setup(mha_activation_stage *activation, mha_context *context,
                                const mha_activation_desc *desc)
{
    activation->lanes = desc->tiling == MHA_TILING_CPU ? 16 : 1;
    char options[128];
    snprintf(options, sizeof options, "-DACTIVATION=%d -DFROM_TYPE=%d -DTO_TYPE=%d -DLANES=%zu",
             (int)desc->kind, (int)desc->type, (int)desc->output_type, activation->lanes);
    return mha_context_kernel(context, &activation->rows, "activation", options, "activation_rows");
}

void mha_activation_release(mha_activation_stage *activation)
{
    mha_kernel_release(&activation->rows);
}

mha_status mha_activation_launch(const mha_activation_stage *activation, mha_run *run,
                                 const mha_activation_desc *desc, const mha_activation_rows *rows)
{
    if (!rows->rows)
        return MHA_OK;
    const mha_arg args[] = {
        MHA_ARG_MEM(rows->input.buffer),
        MHA_ARG_SIZE(rows->input.offset),
        MHA_ARG_SIZE(rows->input.strides[2]),
        MHA_ARG_MEM(rows->gate.buffer),
        MHA_ARG_SIZE(rows->gate.offset),
        MHA_ARG_SIZE(rows->gate.strides[2]),
        MHA_ARG_MEM(rows->output.buffer),
        MHA_ARG_SIZE(rows->output.offset),
        MHA_ARG_SIZE(rows->output.strides[2]),
        MHA_ARG_FLOAT(desc->alpha),
        MHA_ARG_SIZE(rows->rows),
        MHA_ARG_INT(desc->width),
    };
    const mha_grid grid = mha_grid_rows(mha_grid_divide_up(desc->width, activation->lanes),
                                        rows->rows, activation->rows.free_group);
    return mha_run_launch(run, "activation", &activation->rows, args, sizeof args / sizeof args[0],
                          &grid);
}
