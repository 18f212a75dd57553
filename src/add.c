/* The host of cl/add.cl: sums of rows. */
#include "add.h"

#include "grid.h"

#include <stdio.h>

mha_status mha_add_setup(mha_add_stage *add, mha_context *context, mha_tiling tiling,
                         mha_type to_type)
{
    add->lanes = tiling == MHA_TILING_CPU ? 16 : 1;
    char options[32];
    snprintf(options, sizeof options, "-DLANES=%zu -DTO_TYPE=%d", add->lanes, (int)to_type);
    return mha_context_kernel(context, &add->rows, "add", options, "add_rows");
}

void mha_add_release(mha_add_stage *add)
{
    mha_kernel_release(&add->rows);
}

mha_status mha_add_launch(const mha_add_stage *add, mha_run *run, size_t rows, size_t width,
                          const mha_view *a, const mha_view *b, const mha_view *to)
{
    if (!rows)
        return MHA_OK;
    const mha_arg args[] = {
        MHA_ARG_MEM(a->buffer),  MHA_ARG_SIZE(a->offset),  MHA_ARG_SIZE(a->strides[2]),
        MHA_ARG_MEM(b->buffer),  MHA_ARG_SIZE(b->offset),  MHA_ARG_SIZE(b->strides[2]),
        MHA_ARG_MEM(to->buffer), MHA_ARG_SIZE(to->offset), MHA_ARG_SIZE(to->strides[2]),
        MHA_ARG_SIZE(rows),      MHA_ARG_INT(width),
    };
    const mha_grid grid =
        mha_grid_rows(mha_grid_divide_up(width, add->lanes), rows, add->rows.free_group);
    return mha_run_launch(run, "add", &add->rows, args, sizeof args / sizeof args[0], &grid);
}
