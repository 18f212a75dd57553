/* The stage of matrix products, by the library's kernel and by CLBlast: what no public call reaches
 * (batches that become one taller product, the row of biases by itself). */
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

static void check_gemm(device *d, const gemm_case *c, compare_worst *worst)
{
    const mha_gemm_desc *desc = &c->desc;
    gemm_data *data = gemm_data_new(d, c);
    const mha_gemm_shape shape = {
        .batch = data->batch,
        .m = desc->m,
        .n = desc->n,
        .k = desc->k,
        .transpose_a = desc->flags & MHA_GEMM_TRANSPOSE_A,
        .transpose_b = desc->flags & MHA_GEMM_TRANSPOSE_B,
        .bias = desc->flags & MHA_GEMM_BIAS,
        .shared_b = c->b_shared,
        .alpha = desc->alpha != 0 ? desc->alpha : 1,
        .beta = desc->beta,
        .by = desc->by,
    };
    const mha_gemm_launch_args args = {
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
    const mha_status status = mha_gemm_launch(&stage, &run, "gemm", &args);
    stage_end(d, &run, status, data->name);
    mha_gemm_release(&stage);
    gemm_data_finish(d, data, worst);
}

static void check_cross(const char *test, uint64_t first_seed, size_t count, mha_gemm_by by)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < count; n++) {
        const gemm_case c = gemm_case_pick(first_seed + n, by);
        check_gemm(&d, &c, &worst);
    }
    compare_log(test, count, &worst);
    device_close(&d);
}

Test(kernels_gemm, by_the_kernel)
{
    check_cross("gemm by the kernel", 400, 100, MHA_GEMM_KERNEL);
}

Test(kernels_gemm, by_clblast)
{
    check_cross("gemm by CLBlast", 500, 100, MHA_GEMM_CLBLAST);
}

/* Grids have at most 65535 groups along an axis. A k of 0 leaves beta C + bias. */
Test(kernels_gemm, by_the_kernel_at_the_edges)
{
    static const gemm_case cases[] = {
        { .desc = { .m = 1, .n = 1, .k = 2, .batch = 66000, .by = MHA_GEMM_KERNEL } },
        { .desc = { .m = 3, .n = 33, .k = 0, .batch = 2, .beta = 2, .by = MHA_GEMM_KERNEL } },
        { .desc = { .m = 3, .n = 33, .k = 0, .flags = MHA_GEMM_BIAS, .by = MHA_GEMM_DEFAULT } },
        { .desc = { .m = 2, .n = 5, .k = 3000, .by = MHA_GEMM_KERNEL } },
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        check_gemm(&d, &cases[n], &worst);
    device_close(&d);
}

/* With one B for all, batches whose rows follow each other in A and in C are one taller product;
 * where they do not in either, they must not be. */
Test(kernels_gemm, batches_that_become_one_product)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (int by = MHA_GEMM_CLBLAST; by <= MHA_GEMM_KERNEL; by++)
        for (unsigned n = 0; n < 8; n++) {
            const gemm_case c = { .desc = { .m = 17,
                                            .n = 33,
                                            .k = 16,
                                            .batch = 3,
                                            .flags = n & 4 ? MHA_GEMM_BIAS : 0,
                                            .by = (mha_gemm_by)by },
                                  .gap = 2,
                                  .b_shared = true,
                                  .a_touches = n & 1,
                                  .c_touches = n & 2,
                                  .seed = 16 * n };
            check_gemm(&d, &c, &worst);
        }
    device_close(&d);
}

static void check_fill_bias(device *d, size_t batch, size_t m, size_t n, size_t gap)
{
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
    mha_status status = mha_context_kernel(d->context, &kernel, "gemm", "", "gemm_fill_bias");
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
