/* The host of cl/gemm_cpu.cl: matrix products in the shape that suits a CPU. */
#include "gemm_cpu.h"

#include "grid.h"
#include "shape.h"

#include <stdio.h>

/* Two vectors of sums a row, and as many rows as leave a register or two for the factors: 16
 * registers of 8 floats, as AVX2 has, hold 6, and 32 of 16 floats 12. */
static size_t rows_for(const mha_context *context)
{
    return context->lanes == 16 ? 12 : 6;
}

static size_t columns_for(const mha_context *context)
{
    return 2 * context->lanes;
}

static bool stages(const mha_gemm_shape *shape)
{
    return shape->transpose_a || mha_product_is_half(shape->a_type);
}

/* What lies in local memory at once. */
typedef struct cpu_room {
    size_t depth;  /* the terms of a sum, a power of 2; 0: there is room for too few */
    size_t height; /* rows of A or of sums, which both numbers of rows of a tile divide */
    size_t width;  /* columns of sums */
} cpu_room;

static size_t bytes_of(const mha_context *context, const mha_gemm_shape *shape,
                       const cpu_room *room)
{
    const size_t lines =
        (shape->packed_b ? 0 : columns_for(context)) + (stages(shape) ? room->height : 0);
    const size_t sums = mha_product_is_half(shape->c_type) ? room->height * room->width : 0;
    return (room->depth * lines + sums) * sizeof(float);
}

static cpu_room choose_room(const mha_context *context, const mha_gemm_shape *shape)
{
    const size_t columns = columns_for(context), least = 32;
    /* Half of the local memory, since some drivers need of it for themselves. */
    const size_t most_bytes = context->device.local_memory_bytes / 2;
    /* With 1024 few sums come back to C; a staged A of 256 stays in the second cache. */
    cpu_room room = { .depth = stages(shape) ? 256 : 1024,
                      .height = 96,
                      .width = stages(shape) ? 8 * columns : columns };
    while (room.depth >= least && bytes_of(context, shape, &room) > most_bytes) {
        if (mha_product_is_half(shape->c_type) && room.width > columns)
            room.width /= 2;
        else if (mha_product_is_half(shape->c_type) && room.depth == least && room.height > 24)
            room.height /= 2;
        else
            room.depth /= 2;
    }
    if (room.depth < least)
        room.depth = 0;
    return room;
}

/* Of a packed B, whose last panel is filled up. */
static mha_size pack_bytes(const mha_gemm_shape *shape, size_t columns)
{
    return mha_size_of(
        (size_t[]){ sizeof(float), mha_grid_divide_up(shape->n, columns), columns, shape->k }, 4);
}

bool mha_gemm_cpu_can(const mha_context *context, const mha_gemm_shape *shape)
{
    return choose_room(context, shape).depth &&
           (!shape->packed_b || !pack_bytes(shape, columns_for(context)).overflows);
}

mha_status mha_gemm_cpu_setup(mha_gemm_cpu_stage *gemm, mha_context *context,
                              const mha_gemm_shape *shape)
{
    const cpu_room room = choose_room(context, shape);
    *gemm = (mha_gemm_cpu_stage){
        .packed = shape->packed_b,
        .staged = stages(shape),
        .held = mha_product_is_half(shape->c_type),
        .rows = rows_for(context),
        .columns = columns_for(context),
        .height = room.height,
        .width = room.width,
    };
    char common[MHA_PRODUCT_OPTIONS], options[224];
    snprintf(options, sizeof options,
             "-DLANES=%zu -DROWS=%zu %s -DPACKED=%d -DTURNED=%d -DHEIGHT=%zu -DWIDTH=%zu "
             "-DDEPTH=%zu",
             context->lanes, gemm->rows, mha_product_options(common, shape), gemm->packed,
             shape->transpose_a, room.height, room.width, room.depth);
    mha_status status =
        mha_context_kernel(context, &gemm->multiply, "gemm_cpu", options, "gemm_cpu_multiply");
    if (!status && gemm->packed)
        status = mha_context_kernel(context, &gemm->pack, "gemm_cpu", options, "gemm_cpu_pack");
    return status;
}

void mha_gemm_cpu_release(mha_gemm_cpu_stage *gemm)
{
    mha_kernel_release(&gemm->multiply);
    mha_kernel_release(&gemm->pack);
}

/* How a product is cut into blocks of C, one a work-item. */
typedef struct cpu_blocks {
    size_t height, width;
} cpu_blocks;

/* A tall block goes over its columns of B, and maybe packs them, once for many rows; a wide one
 * stages its rows of A once for many columns. But several blocks are wanted for each core, so that
 * all cores end at about the same time. */
static cpu_blocks choose_blocks(const mha_gemm_cpu_stage *gemm, const mha_context *context,
                                const mha_gemm_launch_args *args)
{
    const size_t enough = (size_t)8 * context->device.compute_units;
    cpu_blocks blocks = { .height = 384 / gemm->rows * gemm->rows, .width = gemm->columns };
    if (gemm->staged || gemm->held)
        blocks.height = gemm->height;
    if (gemm->staged)
        blocks.width = gemm->held ? gemm->width : 16 * gemm->columns;
    while (args->batch * mha_grid_divide_up(args->m, blocks.height) *
                   mha_grid_divide_up(args->n, blocks.width) <
               enough &&
           (blocks.height > 4 * gemm->rows || blocks.width > gemm->columns)) {
        if (blocks.width > gemm->columns)
            blocks.width /= 2;
        else
            blocks.height -= gemm->rows;
    }
    /* All of a height: PoCL gives a thread half of the work-items at once, the first ones. */
    blocks.height =
        mha_grid_divide_up(mha_grid_divide_up(args->m, mha_grid_divide_up(args->m, blocks.height)),
                           gemm->rows) *
        gemm->rows;
    return blocks;
}

mha_status mha_gemm_cpu_launch(const mha_gemm_cpu_stage *gemm, mha_run *run, const char *stage,
                               const mha_gemm_shape *shape, const mha_gemm_launch_args *args)
{
    const cpu_blocks blocks = choose_blocks(gemm, run->context, args);
    mha_arg list[MHA_PRODUCT_ARGS + 2 + MHA_PRODUCT_FACTORS];
    mha_product_args(list, shape, args);
    list[MHA_PRODUCT_ARGS] = (mha_arg)MHA_ARG_INT(blocks.height);
    list[MHA_PRODUCT_ARGS + 1] = (mha_arg)MHA_ARG_INT(blocks.width);
    mha_product_factors(list + MHA_PRODUCT_ARGS + 2, shape);
    const size_t parts =
        mha_grid_divide_up(args->m, blocks.height) * mha_grid_divide_up(args->n, blocks.width);
    const mha_grid grid = mha_grid_parts(parts, 1, args->batch);
    return mha_run_launch(run, stage, &gemm->multiply, list, sizeof list / sizeof list[0], &grid);
}

size_t mha_gemm_cpu_pack_bytes(const mha_gemm_cpu_stage *gemm, const mha_gemm_shape *shape)
{
    return gemm->pack.cl ? pack_bytes(shape, gemm->columns).value : 0;
}

mha_status mha_gemm_cpu_pack(const mha_gemm_cpu_stage *gemm, mha_run *run, const char *stage,
                             const mha_gemm_shape *shape, const mha_view *from, cl_mem to,
                             size_t to_offset)
{
    const mha_arg list[] = {
        MHA_ARG_MEM(from->buffer),
        MHA_ARG_SIZE(from->offset),
        MHA_ARG_SIZE(from->strides[2]),
        MHA_ARG_SIZE(from->strides[3]),
        MHA_ARG_MEM(to),
        MHA_ARG_SIZE(to_offset),
        MHA_ARG_INT(shape->n),
        MHA_ARG_INT(shape->k),
    };
    const mha_grid grid = mha_grid_parts(mha_grid_divide_up(shape->n, gemm->columns), 1, 1);
    return mha_run_launch(run, stage, &gemm->pack, list, sizeof list / sizeof list[0], &grid);
}
