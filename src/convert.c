/* The host of cl/convert.cl: rows from one type to another. */
#include "convert.h"

#include "grid.h"

#include <stdio.h>

mha_status mha_convert_setup(mha_convert_stage *convert, mha_context *context, mha_type from,
                             mha_type to)
{
    convert->lanes = context->device.type & CL_DEVICE_TYPE_CPU ? 16 : 1;
    char options[64];
    snprintf(options, sizeof options, "-DFROM_TYPE=%d -DTO_TYPE=%d -DLANES=%zu", (int)from, (int)to,
             convert->lanes);
    return mha_context_kernel(context, &convert->rows, "convert", options, "convert_rows");
}

void mha_convert_release(mha_convert_stage *convert)
{
    mha_kernel_release(&convert->rows);
}

mha_status mha_convert_launch(const mha_convert_stage *convert, mha_run *run, size_t batch,
                              size_t len, size_t width, const mha_operand *from,
                              const mha_operand *to)
{
    if (!batch || !len || !width)
        return MHA_OK;
    const mha_arg args[] = {
        MHA_ARG_MEM(from->buffer), MHA_ARG_SIZE(from->offset), MHA_ARG_SIZE(from->batch),
        MHA_ARG_SIZE(from->row),   MHA_ARG_MEM(to->buffer),    MHA_ARG_SIZE(to->offset),
        MHA_ARG_SIZE(to->batch),   MHA_ARG_SIZE(to->row),      MHA_ARG_INT(batch),
        MHA_ARG_INT(len),          MHA_ARG_INT(width),
    };
    const mha_grid grid = mha_grid_rows(mha_grid_divide_up(width, convert->lanes), batch * len,
                                        convert->rows.free_group);
    return mha_run_launch(run, "convert", &convert->rows, args, sizeof args / sizeof args[0],
                          &grid);
}
