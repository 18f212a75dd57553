/* Matrix products: their data and the limits of their errors. */
#include "gemm_case.h"

#include "stored.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    cr_assert(memory, "no memory for %zu elements of %zu bytes", count, size);
    return memory;
}

gemm_case gemm_case_pick(uint64_t seed, mha_gemm_by by)
{
    static const size_t sizes[] = { 1,  2,  3,  5,  6,  7,  15, 16,  17,  31,
                                    32, 33, 63, 64, 65, 95, 97, 129, 130, 257 };
    static const float alphas[] = { 0, 1, 0.75f, -2 };
    static const float betas[] = { 0, 0, 1, -0.5f };
    const size_t num_sizes = sizeof sizes / sizeof sizes[0];
    gemm_case c = { .seed = seed * 16 };
    c.desc = (mha_gemm_desc){
        .n = sizes[compare_pick(seed, 0, num_sizes)],
        .k = sizes[compare_pick(seed, 1, num_sizes)],
        .batch = compare_pick(seed, 2, 4),
        .flags = (unsigned)compare_pick(seed, 3, 8),
        .alpha = alphas[compare_pick(seed, 4, 4)],
        .by = by,
    };
    c.m = sizes[compare_pick(seed, 5, num_sizes)];
    c.desc.m = c.m + 3 * compare_pick(seed, 6, 2);
    if (!(c.desc.flags & MHA_GEMM_BIAS))
        c.desc.beta = betas[compare_pick(seed, 7, 4)];
    c.gap = compare_pick(seed, 8, 2) ? 0 : 1 + compare_pick(seed, 9, 5);
    c.a_shared = compare_pick(seed, 10, 4) == 0;
    c.b_shared = compare_pick(seed, 11, 3) == 0;
    c.a_touches = compare_pick(seed, 12, 3);
    c.c_touches = compare_pick(seed, 14, 3);
    c.fill = (fill_kind)compare_pick(seed, 13, FILL_KINDS);
    return c;
}

gemm_case gemm_case_mix(const gemm_case *given, size_t mix)
{
    static const mha_type mixes[GEMM_MIXES][4] = {
        { MHA_FLOAT16 }, /* the others as A */
        { MHA_BFLOAT16 },
        { MHA_FLOAT32, MHA_FLOAT32, MHA_FLOAT16 },
        { MHA_BFLOAT16, MHA_FLOAT32, MHA_FLOAT32, MHA_FLOAT32 },
        { MHA_FLOAT32, MHA_FLOAT16, MHA_BFLOAT16, MHA_FLOAT16 },
        { MHA_FLOAT16, MHA_BFLOAT16, MHA_FLOAT32, MHA_BFLOAT16 },
        { MHA_TYPE_DEFAULT, MHA_BFLOAT16 },
    };
    gemm_case c = *given;
    c.desc.type = mixes[mix][0];
    c.desc.b_type = mixes[mix][1];
    c.desc.c_type = mixes[mix][2];
    c.desc.bias_type = mixes[mix][3];
    return c;
}

gemm_case gemm_case_pick_half(uint64_t seed, mha_gemm_by by)
{
    gemm_case c = gemm_case_pick(seed, by);
    if (c.fill == FILL_LARGE)
        c.fill = FILL_NORMAL; /* sums that no float16 holds are in a test of their own */
    return gemm_case_mix(&c, compare_pick(seed, 15, GEMM_MIXES));
}

gemm_case gemm_case_activate(const gemm_case *given, size_t which)
{
    static const mha_activation_kind kinds[GEMM_ACTIVATIONS] = {
        MHA_ACTIVATION_RELU, MHA_ACTIVATION_GELU, MHA_ACTIVATION_GELU_TANH, MHA_ACTIVATION_SILU,
        MHA_ACTIVATION_SILU
    };
    gemm_case c = *given;
    c.desc.activation = kinds[which];
    if (which == GEMM_ACTIVATIONS - 1)
        c.desc.activation_alpha = 1.702f;
    if (c.fill == FILL_LARGE)
        c.fill = FILL_NORMAL;
    return c;
}

static mha_type as_a(const mha_gemm_desc *desc, mha_type type)
{
    return type ? type : desc->type ? desc->type : MHA_FLOAT32;
}

static void say_name(gemm_data *data)
{
    const gemm_case *c = &data->given;
    const mha_gemm_desc *d = &c->desc;
    snprintf(data->name, sizeof data->name,
             "seed %llu: batch %zu m %zu/%zu n %zu k %zu flags %x alpha %g beta %g by %d gap %zu"
             "%s%s%s%s %s, types %d %d %d %d, activation %d",
             (unsigned long long)c->seed, data->batch, data->m, d->m, d->n, d->k, d->flags,
             (double)d->alpha, (double)d->beta, (int)d->by, c->gap, c->a_shared ? " a shared" : "",
             c->b_shared ? " b shared" : "", c->a_touches ? " a touches" : "",
             c->c_touches ? " c touches" : "", fill_kind_name(c->fill), (int)d->type,
             (int)d->b_type, (int)d->c_type, (int)d->bias_type, (int)d->activation);
}

/* `data` NULL: an output. */
static device_tensor place(device *d, const gemm_case *c, size_t batch, size_t rows, size_t columns,
                           bool touching, mha_type type, const float *data, mha_matrix *matrix)
{
    const size_t shape[4] = { batch, 1, rows, columns };
    const size_t row = columns + c->gap;
    const size_t strides[4] = { rows * row + (touching ? 0 : c->gap), 0, row, 1 };
    void *stored = data ? stored_pack(type, data, batch * rows * columns) : NULL;
    const device_tensor tensor = data ? device_input(d, shape, strides, stored_bytes(type), stored)
                                      : device_output(d, shape, strides, stored_bytes(type));
    free(stored);
    *matrix = (mha_matrix){ .buffer = device_buffer(&tensor),
                            .offset = tensor.offset,
                            .row_stride = c->gap ? row : 0,
                            .batch_stride = batch > 1 ? strides[0] : 0 };
    return tensor;
}

static void place_all(device *d, gemm_data *data)
{
    const gemm_case *c = &data->given;
    const mha_gemm_desc *desc = &c->desc;
    const bool ta = desc->flags & MHA_GEMM_TRANSPOSE_A;
    const bool tb = desc->flags & MHA_GEMM_TRANSPOSE_B;
    const size_t m = data->m, n = desc->n, k = desc->k;
    data->args = (mha_gemm_args){ .m = c->m };
    place(d, c, c->a_shared ? 1 : data->batch, ta ? k : m, ta ? m : k, c->a_touches,
          as_a(desc, desc->type), data->a, &data->args.a);
    place(d, c, c->b_shared ? 1 : data->batch, tb ? n : k, tb ? k : n, false,
          as_a(desc, desc->b_type), data->b, &data->args.b);
    const mha_type c_type = as_a(desc, desc->c_type), bias_type = as_a(desc, desc->bias_type);
    data->result = place(d, c, data->batch, m, n, c->c_touches, c_type, NULL, &data->args.c);
    if (desc->beta != 0) { /* else it holds NaN, which must not matter */
        void *stored = stored_pack(c_type, data->c, data->batch * m * n);
        device_write(d, &data->result, stored);
        free(stored);
    }
    if (desc->flags & MHA_GEMM_BIAS) {
        void *stored = stored_pack(bias_type, data->bias, n);
        const device_tensor bias =
            device_input(d, (size_t[]){ 1, 1, 1, n }, NULL, stored_bytes(bias_type), stored);
        data->args.bias = device_arg(&bias);
        free(stored);
    }
}

static void expect(gemm_data *data)
{
    const reference_gemm_args args = {
        .m = data->given.m,
        .a = data->a,
        .b = data->b,
        .c = data->c,
        .bias = data->bias,
        .a_shared = data->given.a_shared,
        .b_shared = data->given.b_shared,
        .out = data->want,
    };
    reference_gemm(&data->given.desc, &args);
}

gemm_data *gemm_data_new(device *d, const gemm_case *given)
{
    gemm_data *data = allocate(1, sizeof *data);
    const mha_gemm_desc *desc = &given->desc;
    data->given = *given;
    data->batch = desc->batch ? desc->batch : 1;
    data->m = given->m ? given->m : desc->m;
    const size_t a = data->batch * data->m * desc->k;
    const size_t b = data->batch * desc->k * desc->n;
    const size_t c = data->batch * data->m * desc->n;
    say_name(data);
    data->a = allocate(a, sizeof(float));
    data->b = allocate(b, sizeof(float));
    data->c = allocate(c, sizeof(float));
    data->bias = allocate(desc->n, sizeof(float));
    data->got = allocate(c, sizeof(float));
    data->want = allocate(c, sizeof(double));
    fill_floats(data->a, a, given->seed + 1, given->fill);
    fill_floats(data->b, b, given->seed + 2, given->fill);
    fill_floats(data->c, c, given->seed + 3, given->fill);
    fill_floats(data->bias, desc->n, given->seed + 4, given->fill);
    stored_round(as_a(desc, desc->type), data->a, a);
    stored_round(as_a(desc, desc->b_type), data->b, b);
    stored_round(as_a(desc, desc->c_type), data->c, c);
    stored_round(as_a(desc, desc->bias_type), data->bias, desc->n);
    expect(data);
    place_all(d, data);
    return data;
}

/* The terms of a sum are at most the largest of a times the largest of b, and they add up as their
 * squares do where their signs are random; all equal ones add up in full. */
static double limit_of(const gemm_data *data)
{
    const mha_gemm_desc *d = &data->given.desc;
    const double alpha = d->alpha != 0 ? fabs(d->alpha) : 1;
    const double a = compare_largest(data->a, data->batch * data->m * d->k);
    const double b = compare_largest(data->b, data->batch * d->k * d->n);
    const double c = compare_largest(data->c, data->batch * data->m * d->n) * fabs(d->beta);
    const double bias = d->flags & MHA_GEMM_BIAS ? compare_largest(data->bias, d->n) : 0;
    const double k = (double)d->k;
    const double sum = data->given.fill == FILL_EQUAL ? k : sqrt(k);
    const double limit =
        reference_limit(d->k, alpha * a * b * sum) + reference_limit(1, c + bias) + k * FLT_MIN;
    /* No activation function is steeper than 1.13, and its own error is that of a few roundings. */
    return d->activation ? 1.13 * limit + reference_limit(8, 1) : limit;
}

bool gemm_data_finish(device *d, gemm_data *data, compare_worst *worst)
{
    const size_t count = data->batch * data->m * data->given.desc.n;
    const mha_type type = as_a(&data->given.desc, data->given.desc.c_type);
    const double limit = limit_of(data);
    void *stored = allocate(count, stored_bytes(type));
    device_read(d, &data->result, stored);
    stored_unpack(type, data->got, stored, count);
    device_expect_guards(d, data->name);
    bool good = true;
    for (size_t i = 0; good && i < count; i++)
        good = compare_one(data->name, "c", i, data->got[i], data->want[i],
                           limit + stored_limit(type, fabs(data->want[i]) + limit), worst);
    void *const arrays[] = { data->a,   data->b,    data->c, data->bias,
                             data->got, data->want, stored,  data };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
    device_forget(d);
    return good;
}
