/* Products whose sizes fill CLBlast's tiles, which it then does not copy: 1.5.3 forgets offsets and
 * batch strides there in its batched routine. */
#include "compare.h"
#include "device_memory.h"
#include "fill.h"
#include "reference.h"

#include <clblast_c.h>
#include <criterion/criterion.h>
#include <stdlib.h>

enum {
    SIZE = 128,
    BATCH = 2,
    PLANE = SIZE * SIZE
};

/* From the smallest size on CLBlast does what it does with large ones. */
static void make_all_large(cl_device_id id)
{
    const char *names[] = { "XGEMM_MIN_INDIRECT_SIZE" };
    cr_assert_eq(CLBlastOverrideParameters(id, "GemmRoutine", CLBlastPrecisionSingle, 1, names,
                                           (const size_t[]){ 1 }),
                 CLBlastSuccess);
}

static mha_matrix matrix(const device_tensor *tensor, size_t batch_stride)
{
    const mha_tensor arg = device_arg(tensor);
    return (mha_matrix){ .buffer = arg.buffer, .offset = arg.offset, .batch_stride = batch_stride };
}

static void check(device *d, unsigned flags, bool shared_b, const float *a, const float *b)
{
    static double want[BATCH * PLANE];
    static float got[BATCH * PLANE];
    const mha_gemm_desc desc = {
        .m = SIZE, .n = SIZE, .k = SIZE, .batch = BATCH, .flags = flags, .by = MHA_GEMM_CLBLAST
    };
    const reference_gemm_args expected = { .a = a, .b = b, .b_shared = shared_b, .out = want };
    reference_gemm(&desc, &expected);

    const size_t shape[4] = { BATCH, 1, SIZE, SIZE };
    device_tensor ta = device_input(d, shape, NULL, sizeof(float), a);
    device_tensor tb = device_input(d, shape, NULL, sizeof(float), b);
    device_tensor tc = device_output(d, shape, NULL, sizeof(float));
    const mha_gemm_args args = { .a = matrix(&ta, PLANE),
                                 .b = matrix(&tb, shared_b ? 0 : PLANE),
                                 .c = matrix(&tc, PLANE) };
    mha_gemm *gemm = NULL;
    cr_assert_eq(mha_gemm_create(&gemm, d->context, &desc), MHA_OK, "%s", d->sentence);
    const mha_call call = device_call(d, mha_gemm_workspace(gemm));
    cr_assert_eq(mha_gemm_enqueue(gemm, &args, &call), MHA_OK, "%s", d->sentence);
    device_read(d, &tc, got);
    const double limit = reference_limit(SIZE, SIZE);
    for (size_t i = 0; i < BATCH * PLANE; i++)
        cr_assert(got[i] - want[i] <= limit && want[i] - got[i] <= limit,
                  "flags %u, shared B %d: c[%zu] is %g, not %g", flags, shared_b, i, (double)got[i],
                  want[i]);
    device_expect_guards(d, "whole tiles");
    mha_gemm_destroy(&gemm);
    device_forget(d);
}

/* Batches of a turned A do not become one product, and need no memory of one. */
Test(parts, gemm_of_turned_batches_needs_no_more_memory)
{
    device d;
    device_open(&d);
    make_all_large(mha_context_device(d.context));
    size_t bytes[2];
    for (size_t i = 0; i < 2; i++) {
        const mha_gemm_desc desc = { .m = SIZE,
                                     .n = SIZE,
                                     .k = SIZE,
                                     .batch = i ? 8 : 1,
                                     .flags = MHA_GEMM_TRANSPOSE_A | MHA_GEMM_LOADED_B,
                                     .by = MHA_GEMM_CLBLAST };
        mha_gemm *gemm = NULL;
        cr_assert_eq(mha_gemm_create(&gemm, d.context, &desc), MHA_OK, "%s", d.sentence);
        bytes[i] = mha_gemm_workspace(gemm).bytes;
        mha_gemm_destroy(&gemm);
    }
    cr_expect_gt(bytes[0], 0);
    cr_expect_eq(bytes[1], bytes[0], "%zu bytes, %zu of one", bytes[1], bytes[0]);
    device_close(&d);
}

Test(parts, gemm_of_whole_tiles)
{
    static float a[BATCH * PLANE], b[BATCH * PLANE];
    fill_floats(a, BATCH * PLANE, 1, FILL_UNIFORM);
    fill_floats(b, BATCH * PLANE, 2, FILL_UNIFORM);
    device d;
    device_open(&d);
    make_all_large(mha_context_device(d.context));
    for (unsigned flags = 0; flags <= (MHA_GEMM_TRANSPOSE_A | MHA_GEMM_TRANSPOSE_B); flags++)
        for (int shared_b = 0; shared_b < 2; shared_b++)
            check(&d, flags, shared_b, a, b);
    device_close(&d);
}
