/* The stage of matrix products, by the library's kernels and by CLBlast: what no public call
 * reaches (batches that become one taller product, the row of biases by itself). */
#include "gemm.h"

#include "gemm_case.h"
#include "grid.h"
#include "stage_run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static mha_operand operand_of(const mha_matrix *matrix, size_t columns)
{
    return (mha_operand){ .buffer = matrix->buffer,
                          .offset = matrix->offset,
                          .row = matrix->row_stride ? matrix->row_stride : columns,
                          .batch = matrix->batch_stride };
}

/* How the stage is made, beside what a gemm_case says. */
typedef struct stage_way {
    const char *name;
    mha_gemm_by by;
    mha_tiling tiling;
    bool packed_b; /* ahead; B is then one for all batches */
} stage_way;

static const stage_way ways[] = {
    { "CLBlast", MHA_GEMM_CLBLAST, MHA_TILING_DEFAULT, false },
    { "the tiles", MHA_GEMM_KERNEL, MHA_TILING_GPU, false },
    { "the CPU kernel", MHA_GEMM_KERNEL, MHA_TILING_CPU, false },
    { "the CPU kernel, packed", MHA_GEMM_KERNEL, MHA_TILING_CPU, true },
};

enum {
    CLBLAST,
    TILES,
    CPU,
    CPU_PACKED,
    NUM_WAYS
};

static mha_gemm_shape shape_of(const gemm_data *data, const stage_way *way)
{
    const mha_gemm_desc *desc = &data->given.desc;
    return (mha_gemm_shape){
        .batch = data->batch,
        .m = desc->m,
        .n = desc->n,
        .k = desc->k,
        .transpose_a = desc->flags & MHA_GEMM_TRANSPOSE_A,
        .transpose_b = desc->flags & MHA_GEMM_TRANSPOSE_B,
        .bias = desc->flags & MHA_GEMM_BIAS,
        .shared_b = data->given.b_shared,
        .packed_b = way->packed_b,
        .alpha = desc->alpha != 0 ? desc->alpha : 1,
        .beta = desc->beta,
        .activation = desc->activation,
        .slope = desc->activation_alpha != 0 ? desc->activation_alpha : 1,
        .by = way->by,
        .tiling = way->tiling,
        .a_type = desc->type,
        .b_type = desc->b_type ? desc->b_type : desc->type,
        .c_type = desc->c_type ? desc->c_type : desc->type,
        .bias_type = desc->bias_type ? desc->bias_type : desc->type,
    };
}

/* B in memory that is full of NaN before: every element of it is to be written. */
static mha_operand pack(device *d, mha_run *run, const mha_gemm_stage *stage, const mha_operand *b)
{
    const mha_gemm_shape *shape = &stage->shape;
    const bool tb = shape->transpose_b;
    const size_t bytes = mha_gemm_pack_bytes(stage);
    cr_assert_geq(bytes, shape->n * shape->k * sizeof(float));
    const mha_workspace memory = { .bytes = bytes };
    const mha_call call = device_call(d, memory);
    const mha_view from = { .buffer = b->buffer,
                            .offset = b->offset,
                            .strides = { 0, 0, tb ? 1 : b->row, tb ? b->row : 1 } };
    cr_assert_eq(mha_gemm_pack_launch(stage, run, "pack", &from, call.workspace, 0), MHA_OK, "%s",
                 d->sentence);
    return (mha_operand){ .buffer = call.workspace };
}

static void check_gemm(device *d, const gemm_case *given, const stage_way *way,
                       compare_worst *worst)
{
    gemm_case c = *given;
    if (way->packed_b)
        c.b_shared = true;
    const mha_gemm_desc *desc = &c.desc;
    gemm_data *data = gemm_data_new(d, &c);
    const mha_gemm_shape shape = shape_of(data, way);
    mha_gemm_launch_args args = {
        .batch = data->batch,
        .m = data->m,
        .n = desc->n,
        .k = desc->k,
        .a = operand_of(&data->args.a, shape.transpose_a ? data->m : desc->k),
        .b = operand_of(&data->args.b, shape.transpose_b ? desc->k : desc->n),
        .c = operand_of(&data->args.c, desc->n),
        .bias = { .buffer = data->args.bias.buffer, .offset = data->args.bias.offset },
    };
    mha_gemm_stage stage;
    cr_assert_eq(mha_gemm_setup(&stage, d->context, &shape), MHA_OK, "%s: %s", data->name,
                 d->sentence);
    const size_t bytes = (stage.temp_bytes + 3) / 4 * 4;
    const mha_call call = device_call(d, (mha_workspace){ .bytes = bytes });
    mha_run run = stage_begin(d, &call);
    if (way->packed_b && desc->k)
        args.b = pack(d, &run, &stage, &args.b);
    const mha_status status = mha_gemm_launch(&stage, &run, "gemm", &args);
    stage_end(d, &run, status, data->name);
    mha_gemm_release(&stage);
    gemm_data_finish(d, data, worst);
}

static void check_cross(uint64_t first_seed, size_t count, const stage_way *way)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < count; n++) {
        const gemm_case c = gemm_case_pick(first_seed + n, way->by);
        check_gemm(&d, &c, way, &worst);
    }
    compare_log(way->name, count, &worst);
    device_close(&d);
}

Test(kernels_gemm, by_clblast)
{
    check_cross(500, 100, &ways[CLBLAST]);
}

Test(kernels_gemm, by_tiles)
{
    check_cross(400, 100, &ways[TILES]);
}

Test(kernels_gemm, by_the_cpu_kernel)
{
    check_cross(10000, 300, &ways[CPU]);
}

Test(kernels_gemm, by_the_cpu_kernel_packed)
{
    check_cross(11000, 300, &ways[CPU_PACKED]);
}

/* Half types: sums are float32 whatever C is, and no NaN that c holds before gets into them. */
static void check_half(uint64_t first_seed, size_t count, const stage_way *way)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < count; n++) {
        const gemm_case c = gemm_case_pick_half(first_seed + n, way->by);
        check_gemm(&d, &c, way, &worst);
    }
    compare_log(way->name, count, &worst);
    device_close(&d);
}

Test(kernels_gemm, half_types)
{
    check_half(600, 60, &ways[CLBLAST]);
    check_half(800, 60, &ways[TILES]);
    check_half(12000, 150, &ways[CPU]);
    check_half(13000, 150, &ways[CPU_PACKED]);
}

/* The activation is of the whole sum: after the bias, after C, after the last piece of k; and is
 * rounded once. Each function with A as it lies, one also with A turned and with a half C: a
 * program for each mix would take minutes to compile. */
static void check_activations(uint64_t first_seed, size_t count, const stage_way *way)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < count; n++) {
        const size_t which = n % GEMM_ACTIVATIONS;
        gemm_case c = gemm_case_pick(first_seed + n, way->by);
        c = gemm_case_activate(&c, which);
        if (which != 1)
            c.desc.flags &= ~MHA_GEMM_TRANSPOSE_A;
        else if (n % 2)
            c = gemm_case_mix(&c, 2); /* C alone is half */
        check_gemm(&d, &c, way, &worst);
    }
    compare_log(way->name, count, &worst);
    device_close(&d);
}

Test(kernels_gemm, activations)
{
    check_activations(900, 30, &ways[CLBLAST]);
    check_activations(1000, 30, &ways[TILES]);
    check_activations(14000, 60, &ways[CPU]);
    check_activations(15000, 60, &ways[CPU_PACKED]);
}

/* Grids have at most 65535 groups along an axis. A k of 0 leaves beta C + bias. Sums and panels in
 * several parts. */
Test(kernels_gemm, by_the_kernels_at_the_edges)
{
    static const gemm_case cases[] = {
        { .desc = { .m = 1, .n = 1, .k = 2, .batch = 66000 } },
        { .desc = { .m = 3, .n = 33, .k = 0, .batch = 2, .beta = 2 } },
        { .desc = { .m = 3, .n = 33, .k = 0, .flags = MHA_GEMM_BIAS } },
        { .desc = { .m = 2, .n = 5, .k = 3000 } },
        { .desc = { .m = 7, .n = 17, .k = 2049, .beta = 0.5f, .alpha = 2 } },
        { .desc = { .m = 97, .n = 257, .k = 1025, .flags = MHA_GEMM_BIAS | MHA_GEMM_TRANSPOSE_B } },
        { .desc = { .m = 259, .n = 300, .k = 258, .flags = MHA_GEMM_TRANSPOSE_A, .beta = 1 } },
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        for (int way = TILES; way < NUM_WAYS; way++)
            check_gemm(&d, &cases[n], &ways[way], &worst);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        for (int way = TILES; way < NUM_WAYS; way++)
            for (size_t mix = n % 2; mix < GEMM_MIXES; mix += 2) {
                const gemm_case c = gemm_case_mix(&cases[n], mix);
                check_gemm(&d, &c, &ways[way], &worst);
            }
    for (size_t n = 1; n < sizeof cases / sizeof cases[0]; n++)
        for (int way = TILES; way < NUM_WAYS; way++) {
            const gemm_case c = gemm_case_activate(&cases[n], 1), half = gemm_case_mix(&c, 2);
            check_gemm(&d, &c, &ways[way], &worst);
            check_gemm(&d, &half, &ways[way], &worst);
        }
    device_close(&d);
}

/* With one B for all, batches whose rows follow each other in A and in C are one taller product;
 * where they do not in either, they must not be. */
Test(kernels_gemm, batches_that_become_one_product)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (int way = 0; way < NUM_WAYS; way++)
        for (unsigned n = 0; n < 8; n++) {
            const gemm_case c = { .desc = { .m = 17,
                                            .n = 33,
                                            .k = 16,
                                            .batch = 3,
                                            .flags = n & 4 ? MHA_GEMM_BIAS : 0 },
                                  .gap = 2,
                                  .b_shared = true,
                                  .a_touches = n & 1,
                                  .c_touches = n & 2,
                                  .seed = 16 * n };
            const gemm_case half = gemm_case_mix(&c, 0);
            check_gemm(&d, &c, &ways[way], &worst);
            check_gemm(&d, &half, &ways[way], &worst);
        }
    device_close(&d);
}

static void check_fill_bias(device *d, size_t batch, size_t m, size_t n, size_t gap)
{
    const mha_gemm_shape floats = { .alpha = 1 };
    char options[MHA_PRODUCT_OPTIONS];
    const size_t shape[4] = { batch, 1, m, n };
    const size_t strides[4] = { m * (n + gap) + gap, 0, n + gap, 1 };
    const size_t count = batch * m * n;
    float *bias = malloc(n * sizeof *bias);
    float *got = malloc(count * sizeof *got);
    char name[80];
    snprintf(name, sizeof name, "fill bias: batch %zu m %zu n %zu gap %zu", batch, m, n, gap);
    cr_assert(bias && got);
    fill_floats(bias, n, n, FILL_NORMAL);
    const device_tensor from = device_input(d, (size_t[]){ 1, 1, 1, n }, NULL, sizeof *bias, bias);
    const device_tensor to = device_output(d, shape, strides, sizeof *got);
    const mha_arg args[] = {
        MHA_ARG_MEM(device_buffer(&to)),
        MHA_ARG_SIZE(to.offset),
        MHA_ARG_SIZE(strides[0]),
        MHA_ARG_SIZE(strides[2]),
        MHA_ARG_MEM(device_buffer(&from)),
        MHA_ARG_SIZE(from.offset),
        MHA_ARG_INT(batch),
        MHA_ARG_INT(m),
        MHA_ARG_INT(n),
    };
    const mha_call call = { .queue = d->queue };
    mha_run run = stage_begin(d, &call);
    mha_kernel kernel = { 0 };
    mha_status status = mha_context_kernel(d->context, &kernel, "gemm",
                                           mha_product_options(options, &floats), "gemm_fill_bias");
    if (!status) {
        const mha_grid grid = mha_grid_rows(n, batch * m, kernel.free_group);
        status = mha_run_launch(&run, "bias", &kernel, args, sizeof args / sizeof args[0], &grid);
    }
    stage_end(d, &run, status, name);
    mha_kernel_release(&kernel);
    device_read(d, &to, got);
    device_expect_guards(d, name);
    size_t at = 0;
    while (at < count && got[at] == bias[at % n])
        at++;
    cr_expect_eq(at, count, "%s: element %zu", name, at);
    free(bias);
    free(got);
    device_forget(d);
}

Test(kernels_gemm, fill_bias)
{
    static const size_t sizes[] = { 1, 3, 17, 64, 65, 130 };
    const size_t num = sizeof sizes / sizeof sizes[0];
    device d;
    device_open(&d);
    for (size_t i = 0; i < num; i++)
        for (size_t j = 0; j < num; j++)
            check_fill_bias(&d, 1 + (i + j) % 3, sizes[i], sizes[j], i % 3);
    check_fill_bias(&d, 2, 33000, 64, 0); /* more rows than a grid has groups */
    device_close(&d);
}
