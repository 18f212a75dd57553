/* The host of cl/heads.cl: copies between views, which is what splitting and merging heads is. */
#include "heads.h"

#include "grid.h"
#include "shape.h"

#include <stdio.h>

mha_status mha_heads_setup(mha_kernel *kernel, mha_context *context, mha_type from, mha_type to)
{
    char options[64];
    snprintf(options, sizeof options, "-DFROM_TYPE=%d -DTO_TYPE=%d", (int)from, (int)to);
    return mha_context_kernel(context, kernel, "heads", options, "heads_copy");
}

mha_status mha_heads_launch(const mha_kernel *kernel, mha_run *run, const char *stage,
                            const mha_heads_copy *copy)
{
    const size_t *shape = copy->shape;
    if (mha_shape_is_empty(shape))
        return MHA_OK;
    const mha_bound_lengths *starts = copy->starts;
    const mha_key_counts *lengths = &copy->lengths;
    const mha_arg args[] = {
        MHA_ARG_MEM(copy->from.buffer),
        MHA_ARG_SIZE(copy->from.offset),
        MHA_ARG_SIZE(copy->from.strides[0]),
        MHA_ARG_SIZE(copy->from.strides[1]),
        MHA_ARG_SIZE(copy->from.strides[2]),
        MHA_ARG_SIZE(copy->from.strides[3]),
        MHA_ARG_MEM(copy->to.buffer),
        MHA_ARG_SIZE(copy->to.offset),
        MHA_ARG_SIZE(copy->to.strides[0]),
        MHA_ARG_SIZE(copy->to.strides[1]),
        MHA_ARG_SIZE(copy->to.strides[2]),
        MHA_ARG_MEM(starts ? starts->buffer : NULL),
        MHA_ARG_SIZE(starts ? starts->offset : 0),
        MHA_ARG_MEM(lengths->buffer),
        MHA_ARG_SIZE(lengths->offset),
        MHA_ARG_INT(lengths->more),
        MHA_ARG_INT(shape[0]),
        MHA_ARG_INT(shape[1]),
        MHA_ARG_INT(shape[2]),
        MHA_ARG_INT(shape[3]),
    };
    const mha_grid grid =
        mha_grid_rows(shape[3], shape[0] * shape[1] * shape[2], kernel->free_group);
    return mha_run_launch(run, stage, kernel, args, sizeof args / sizeof args[0], &grid);
}
