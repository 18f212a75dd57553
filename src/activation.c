/* The host of cl/activation.cl: activation functions of rows. */
#include "activation.h"

#include "grid.h"
#include "log.h"
#include "shape.h"

#include <math.h>
#include <stdio.h>

enum {
    CPU_LANES = 16,
    /* A group of one work-item goes over many rows: see norm.c. */
    CPU_GROUPS_A_UNIT = 16,
    LEAST_PIECE = 256 /* elements that are worth a group; a multiple of two vectors */
};

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
    activation->lanes = desc->tiling == MHA_TILING_CPU ? CPU_LANES : 1;
    char options[128];
    snprintf(options, sizeof options, "-DACTIVATION=%d -DFROM_TYPE=%d -DTO_TYPE=%d -DLANES=%zu",
             (int)desc->kind, (int)desc->type, (int)desc->output_type, activation->lanes);
    return mha_context_kernel(context, &activation->rows, "activation", options, "activation_rows");
}

void mha_activation_release(mha_activation_stage *activation)
{
    mha_kernel_release(&activation->rows);
}

static size_t at_most(size_t value, size_t most)
{
    return value < most ? value : most;
}

/* Groups along the rows, where there are so many parts of a row. */
static size_t groups_for(const mha_run *run, size_t parts)
{
    const size_t groups = run->context->device.compute_units * CPU_GROUPS_A_UNIT / parts;
    return groups ? groups : 1;
}

/* The elements of a row that a work-item goes along alone: all, unless there are few rows. */
static size_t choose_piece(const mha_run *run, size_t lanes, size_t rows, size_t width)
{
    const size_t parts = mha_grid_divide_up(groups_for(run, 1), rows);
    const size_t pair = 2 * lanes;
    const size_t piece = mha_grid_divide_up(mha_grid_divide_up(width, parts), pair) * pair;
    return piece < LEAST_PIECE ? LEAST_PIECE : piece;
}

mha_status mha_activation_launch(const mha_activation_stage *activation, mha_run *run,
                                 const mha_activation_desc *desc, const mha_activation_rows *rows)
{
    if (!rows->rows)
        return MHA_OK;
    const bool alone = activation->lanes > 1;
    const size_t piece = alone ? choose_piece(run, activation->lanes, rows->rows, desc->width) : 1;
    const size_t parts = mha_grid_divide_up(desc->width, piece);
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
        MHA_ARG_INT(piece),
    };
    const mha_grid grid =
        alone ? mha_grid_parts(parts, 1, at_most(rows->rows, groups_for(run, parts)))
              : mha_grid_rows(desc->width, rows->rows, activation->rows.free_group);
    return mha_run_launch(run, "activation", &activation->rows, args, sizeof args / sizeof args[0],
                          &grid);
}
