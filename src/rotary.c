/* The host of cl/rotary.cl: rotary position embedding of rows between views. */
#include "rotary.h"

#include "grid.h"
#include "shape.h"

#include <stdio.h>

mha_status mha_rotary_setup(mha_kernel *kernel, mha_context *context, const mha_rotary_desc *desc)
{
    char options[128];
    snprintf(options, sizeof options,
             "-DFROM_TYPE=%d -DTO_TYPE=%d -DROTARY_DIM=%zu -DROTARY_INTERLEAVED=%d",
             (int)desc->type, (int)desc->output_type, desc->rotary_dim,
             desc->pairs == MHA_ROTARY_INTERLEAVED);
    return mha_context_kernel(context, kernel, "rotary", options, "rotary_rows");
}

mha_status mha_rotary_launch(const mha_kernel *kernel, mha_run *run, const mha_rotary_desc *desc,
                             const mha_rotary_rows *rows)
{
    if (mha_shape_is_empty((size_t[]){ desc->batch, desc->heads, rows->len, desc->dim }))
        return MHA_OK;
    const mha_bound_lengths *ids = rows->ids;
    const mha_bound_lengths *starts = rows->starts;
    const mha_arg args[] = {
        MHA_ARG_MEM(rows->from.buffer),
        MHA_ARG_SIZE(rows->from.offset),
        MHA_ARG_SIZE(rows->from.strides[0]),
        MHA_ARG_SIZE(rows->from.strides[1]),
        MHA_ARG_SIZE(rows->from.strides[2]),
        MHA_ARG_MEM(rows->to.buffer),
        MHA_ARG_SIZE(rows->to.offset),
        MHA_ARG_SIZE(rows->to.strides[0]),
        MHA_ARG_SIZE(rows->to.strides[1]),
        MHA_ARG_SIZE(rows->to.strides[2]),
        MHA_ARG_MEM(rows->cos.buffer),
        MHA_ARG_SIZE(rows->cos.offset),
        MHA_ARG_SIZE(rows->cos.strides[0]),
        MHA_ARG_SIZE(rows->cos.strides[2]),
        MHA_ARG_MEM(rows->sin.buffer),
        MHA_ARG_SIZE(rows->sin.offset),
        MHA_ARG_SIZE(rows->sin.strides[0]),
        MHA_ARG_SIZE(rows->sin.strides[2]),
        MHA_ARG_MEM(ids ? ids->buffer : NULL),
        MHA_ARG_SIZE(ids ? ids->offset : 0),
        MHA_ARG_MEM(starts ? starts->buffer : NULL),
        MHA_ARG_SIZE(starts ? starts->offset : 0),
        MHA_ARG_INT(desc->positions ? desc->positions : rows->len),
        MHA_ARG_INT(desc->batch),
        MHA_ARG_INT(desc->heads),
        MHA_ARG_INT(rows->len),
        MHA_ARG_INT(desc->dim),
    };
    const mha_grid grid = mha_grid_rows(desc->dim - desc->rotary_dim / 2,
                                        desc->batch * desc->heads * rows->len, kernel->free_group);
    return mha_run_launch(run, "rotate", kernel, args, sizeof args / sizeof args[0], &grid);
}
