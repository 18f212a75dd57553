/* The half types on the device, every one of their numbers: what kernels load is their value, and
 * what they store is the nearest of them, to even where two are as near. */
#include "half.h"
#include "heads.h"
#include "stage_run.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBERS = 1 << 16,
    /* Between a number and the next: the number, their middle and its neighbours. */
    POINTS = 4
};

/* One at a time, by the heads' kernel. */
static void copy_each(device *d, const device_tensor *from, const device_tensor *to,
                      mha_type from_type, mha_type to_type, const char *name)
{
    const device_tensor *views[] = { from, to };
    const size_t *shape = from->shape;
    mha_heads_copy copies = { .shape = { 1, 1, shape[2], shape[3] } };
    mha_view *const out[] = { &copies.from, &copies.to };
    for (int i = 0; i < 2; i++)
        *out[i] =
            (mha_view){ .buffer = device_buffer(views[i]),
                        .offset = views[i]->offset,
                        .strides = { shape[2] * shape[3], shape[2] * shape[3], shape[3], 1 } };
    const mha_call call = { .queue = d->queue };
    mha_run run = stage_begin(d, &call);
    mha_kernel kernel = { 0 };
    mha_status status = mha_heads_setup(&kernel, d->context, from_type, to_type);
    if (!status)
        status = mha_heads_launch(&kernel, &run, "copy", &copies);
    stage_end(d, &run, status, name);
    mha_kernel_release(&kernel);
}

/* Eight at a time, by an activation that does nothing, as a CPU does it. */
static void copy_eights(device *d, const device_tensor *from, const device_tensor *to,
                        mha_type from_type, mha_type to_type, const char *name)
{
    const mha_activation_desc desc = { .rows = from->shape[2],
                                       .width = from->shape[3],
                                       .type = from_type,
                                       .output_type = to_type,
                                       .tiling = MHA_TILING_CPU };
    const mha_activation_args args = { .input = device_arg(from), .output = device_arg(to) };
    const mha_call call = { .queue = d->queue };
    mha_activation *activation = NULL;
    cr_assert_eq(mha_activation_create(&activation, d->context, &desc), MHA_OK, "%s: %s", name,
                 d->sentence);
    cr_assert_eq(mha_activation_enqueue(activation, &args, &call), MHA_OK, "%s: %s", name,
                 d->sentence);
    mha_activation_destroy(&activation);
}

typedef void copy_function(device *d, const device_tensor *from, const device_tensor *to,
                           mha_type from_type, mha_type to_type, const char *name);
static copy_function *const copiers[] = { copy_each, copy_eights };

/* `count` elements from one type to another, for the caller to free. */
static void *copy(device *d, copy_function *by, const void *data, size_t count, mha_type from_type,
                  mha_type to_type, const char *name)
{
    const size_t shape[4] = { 1, 1, 4, count / 4 };
    void *got = calloc(count, stored_bytes(to_type));
    const device_tensor from = device_input(d, shape, NULL, stored_bytes(from_type), data);
    const device_tensor to = device_output(d, shape, NULL, stored_bytes(to_type));
    by(d, &from, &to, from_type, to_type, name);
    device_read(d, &to, got);
    device_expect_guards(d, name);
    device_forget(d);
    return got;
}

static void check_loads(device *d, copy_function *by, mha_type type)
{
    const char *name = type == MHA_FLOAT16 ? "loads of float16" : "loads of bfloat16";
    uint16_t *bits = malloc(NUMBERS * sizeof *bits);
    cr_assert(bits);
    for (unsigned i = 0; i < NUMBERS; i++)
        bits[i] = (uint16_t)i;
    float *got = copy(d, by, bits, NUMBERS, type, MHA_FLOAT32, name);
    for (unsigned i = 0; i < NUMBERS; i++) {
        const float want = half_value((uint16_t)i, type);
        const bool same = isnan(want) ? isnan(got[i]) : !memcmp(&want, &got[i], sizeof want);
        cr_assert(same, "%s: 0x%04x is %a, not %a", name, i, (double)got[i], (double)want);
    }
    free(bits);
    free(got);
}

/* Numbers of the type and what lies between them, of both signs; beyond the last number is the
 * infinity, whose middle to it rounds up. */
static float *points_of(mha_type type)
{
    float *points = malloc(NUMBERS * POINTS * sizeof *points);
    cr_assert(points);
    for (unsigned i = 0; i < NUMBERS; i++) {
        const double low = half_value((uint16_t)i, type);
        const double high = half_value((uint16_t)(i + 1), type);
        const double last = half_value((uint16_t)(i - 1), type);
        const double middle = isinf(high) ? low + (low - last) / 2 : (low + high) / 2;
        float *at = points + (size_t)i * POINTS;
        at[0] = (float)low;
        at[1] = (float)middle;
        at[2] = nextafterf((float)middle, -INFINITY);
        at[3] = nextafterf((float)middle, INFINITY);
    }
    return points;
}

static void check_stores(device *d, copy_function *by, mha_type type)
{
    const char *name = type == MHA_FLOAT16 ? "stores of float16" : "stores of bfloat16";
    float *points = points_of(type);
    uint16_t *got = copy(d, by, points, NUMBERS * POINTS, MHA_FLOAT32, type, name);
    for (size_t i = 0; i < NUMBERS * POINTS; i++) {
        const uint16_t want = half_bits(half_round(points[i], type), type);
        const bool same = isnan(points[i]) ? isnan(half_value(got[i], type)) : got[i] == want;
        cr_assert(same, "%s: %a is stored as 0x%04x, not 0x%04x", name, (double)points[i],
                  (unsigned)got[i], (unsigned)want);
    }
    free(points);
    free(got);
}

/* NaNs whose bits a rounding could carry away, and the ends of float32. */
static void check_hard_stores(device *d, copy_function *by, mha_type type)
{
    static const uint32_t hard[64] = {
        0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff, 0x7f807fff, 0x7f808000, 0x7fbfffff,
        0x7fc00000, 0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x7f7f7fff, 0x00000001, 0x80000001,
        0x007fffff, 0x00008000, 0x00018000, 0x00007fff, 0x00008001, 0x80018000, 0x00400000,
        0x7f800000, 0xff800000, 0x80000000, 0x477fefff, 0x477ff000, 0xc77ff000, 0x33000000,
        0x33000001, 0x32ffffff, 0x33c00000, 0xb3000001, 0x387fe000, 0x387ff000, 0x387fffff,
    };
    float data[64];
    memcpy(data, hard, sizeof data);
    uint16_t *got = copy(d, by, data, 64, MHA_FLOAT32, type, "hard stores");
    for (int i = 0; i < 64; i++) {
        const uint16_t want = half_bits(half_round(data[i], type), type);
        const bool same = isnan(data[i]) ? isnan(half_value(got[i], type)) : got[i] == want;
        cr_expect(same, "type %d: float32 0x%08x is stored as 0x%04x, not 0x%04x", (int)type,
                  (unsigned)hard[i], (unsigned)got[i], (unsigned)want);
    }
    free(got);
}

Test(kernels_types, every_number_is_loaded_and_stored)
{
    device d;
    device_open(&d);
    for (int n = 0; n < 4; n++) {
        const mha_type type = n / 2 ? MHA_BFLOAT16 : MHA_FLOAT16;
        check_loads(&d, copiers[n % 2], type);
        check_stores(&d, copiers[n % 2], type);
        check_hard_stores(&d, copiers[n % 2], type);
    }
    device_close(&d);
}
