/* The host of cl/activation.cl: activation functions of rows. */
#include "activation.h"

#include "grid.h"

#include <stdio.h>

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
    const mha_grid grid = mha_grid_rows((desc->width + activation->lanes - 1) / activation->lanes,
                                        rows->rows, activation->rows.free_group);
    return mha_run_launch(run, "activation", &activation->rows, args, sizeof args / sizeof args[0],
                          &grid);
}
