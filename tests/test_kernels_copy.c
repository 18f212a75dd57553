/* The kernel of heads, which copies between views and types: bit for bit, with NaN in what is
 * outside of the lengths. */
#include "compare.h"
#include "fill.h"
#include "half.h"
#include "heads.h"
#include "stage_run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    cr_assert(memory, "no memory");
    return memory;
}

static size_t pick_size(uint64_t seed, unsigned number)
{
    static const size_t sizes[] = { 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65 };
    return sizes[compare_pick(seed, number, sizeof sizes / sizeof sizes[0])];
}

typedef struct copy_case {
    char name[160];
    size_t shape[4];
    size_t from_strides[4], to_strides[4]; /* all 0: packed */
    mha_type from, to;
    bool has_starts, has_lengths;
    size_t more; /* added to each length */
    uint64_t seed;
} copy_case;

/* Where the source is a transposed matrix its last axis is not the contiguous one. */
static copy_case pick_copy(uint64_t seed)
{
    copy_case c = { .seed = seed * 16 };
    size_t *s = c.shape;
    s[0] = 1 + compare_pick(seed, 0, 3);
    s[1] = 1 + compare_pick(seed, 1, 3);
    s[2] = pick_size(seed, 2);
    s[3] = pick_size(seed, 3);
    const size_t gap = compare_pick(seed, 4, 4);
    const bool turned = compare_pick(seed, 5, 3) == 0;
    const size_t column = turned ? s[2] + gap : 1;
    const size_t row = turned ? 1 : s[1] * (s[3] + gap);
    const size_t head = turned ? s[3] * column : s[3] + gap;
    const size_t from[4] = { s[1] * s[2] * s[3] * 2 + gap * s[1] * (s[2] + s[3]), head, row,
                             column };
    const size_t to[4] = { s[1] * s[2] * (s[3] + gap) + gap, s[2] * (s[3] + gap), s[3] + gap, 1 };
    for (int axis = 0; axis < 4; axis++) {
        c.from_strides[axis] = from[axis];
        c.to_strides[axis] = to[axis];
    }
    c.from = (mha_type)(MHA_FLOAT32 + (int)compare_pick(seed, 6, 3));
    c.to = (mha_type)(MHA_FLOAT32 + (int)compare_pick(seed, 7, 3));
    c.has_starts = compare_pick(seed, 8, 3) == 0;
    c.has_lengths = compare_pick(seed, 9, 2);
    c.more = compare_pick(seed, 10, 3);
    snprintf(c.name, sizeof c.name, "seed %llu: %zu %zu %zu %zu gap %zu%s types %d to %d%s%s",
             (unsigned long long)seed, s[0], s[1], s[2], s[3], gap, turned ? " turned" : "",
             (int)c.from, (int)c.to, c.has_starts ? " starts" : "",
             c.has_lengths ? " lengths" : "");
    return c;
}

static size_t count_of(const size_t shape[4])
{
    return shape[0] * shape[1] * shape[2] * shape[3];
}

static size_t bytes_of(mha_type type)
{
    return type == MHA_FLOAT32 ? 4 : 2;
}

/* Values of the source's type: the fill, and some that roundings get wrong. */
static float *fill_source(const copy_case *c)
{
    static const float hard[] = { 65519.996f,     65520.0f,    -65536.0f,     1.00048828125f,
                                  1.00146484375f, 6.1e-5f,     5.9604645e-8f, 2.9802322e-8f,
                                  3.0e-8f,        1.00390625f, 1.01171875f,   3.3895314e38f,
                                  -3.4e38f,       -0.0f,       INFINITY,      -INFINITY };
    const size_t num_hard = sizeof hard / sizeof hard[0];
    const size_t count = count_of(c->shape);
    float *data = allocate(count, sizeof *data);
    fill_floats(data, count, c->seed, (fill_kind)(c->seed / 16 % FILL_KINDS));
    for (size_t i = 0; i < count; i++)
        data[i] = half_round(i % 7 == 3 ? hard[i / 7 % num_hard] : data[i], c->from);
    return data;
}

/* Elements as they are stored, for the caller to free. */
static void *store(const float *data, size_t count, mha_type type)
{
    void *stored = allocate(count, bytes_of(type));
    for (size_t i = 0; i < count; i++) {
        const uint16_t bits = type == MHA_FLOAT32 ? 0 : half_bits(data[i], type);
        if (type == MHA_FLOAT32)
            memcpy((char *)stored + i * 4, &data[i], 4);
        else
            memcpy((char *)stored + i * 2, &bits, 2);
    }
    return stored;
}

static bool is_outside(const copy_case *c, size_t index, const int32_t *starts,
                       const int32_t *lengths)
{
    const int32_t row = (int32_t)(index / c->shape[3] % c->shape[2]);
    const size_t b = index / c->shape[3] / c->shape[2] / c->shape[1];
    return (c->has_starts && row < starts[b]) ||
           (c->has_lengths && row >= lengths[b] + (int32_t)c->more);
}

static void launch_copy(device *d, const copy_case *c, const device_tensor *from,
                        const device_tensor *to, const int32_t *starts, const int32_t *lengths)
{
    const mha_bound_lengths first = stage_lengths(d, starts, c->shape[0]);
    const mha_bound_lengths last = stage_lengths(d, lengths, c->shape[0]);
    mha_heads_copy copy = {
        .from = stage_view(from),
        .to = stage_view(to),
        .starts = c->has_starts ? &first : NULL,
        .lengths = { c->has_lengths ? last.buffer : NULL, last.offset, c->more },
    };
    memcpy(copy.shape, c->shape, sizeof copy.shape);
    const mha_call call = { .queue = d->queue };
    mha_run run = stage_begin(d, &call);
    mha_kernel kernel = { 0 };
    mha_status status = mha_heads_setup(&kernel, d->context, c->from, c->to);
    if (!status)
        status = mha_heads_launch(&kernel, &run, "copy", &copy);
    stage_end(d, &run, status, c->name);
    mha_kernel_release(&kernel);
}

static void check_copy(device *d, const copy_case *c)
{
    const size_t count = count_of(c->shape);
    int32_t starts[8], lengths[8];
    fill_lengths(starts, c->shape[0], c->seed + 1, (int32_t)c->shape[2] + 4);
    fill_lengths(lengths, c->shape[0], c->seed + 2, (int32_t)c->shape[2] + 4);
    for (size_t b = 0; b < c->shape[0]; b++) {
        starts[b] -= 2;
        lengths[b] -= 2;
    }
    float *data = fill_source(c);
    float *want = allocate(count, sizeof *want);
    for (size_t i = 0; i < count; i++) {
        const bool outside = is_outside(c, i, starts, lengths);
        want[i] = outside ? 0 : half_round(data[i], c->to);
        data[i] = outside ? NAN : data[i];
    }
    void *source = store(data, count, c->from);
    void *wanted = store(want, count, c->to);
    void *got = allocate(count, bytes_of(c->to));
    const device_tensor from =
        device_input(d, c->shape, c->from_strides, bytes_of(c->from), source);
    const device_tensor to = device_output(d, c->shape, c->to_strides, bytes_of(c->to));
    launch_copy(d, c, &from, &to, starts, lengths);
    device_read(d, &to, got);
    device_expect_guards(d, c->name);
    size_t at = 0;
    while (at < count && !memcmp((char *)got + at * bytes_of(c->to),
                                 (char *)wanted + at * bytes_of(c->to), bytes_of(c->to)))
        at++;
    cr_expect_eq(at, count, "%s: element %zu is not %g", c->name, at, (double)want[at % count]);
    void *const arrays[] = { data, want, source, wanted, got };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
    device_forget(d);
}

Test(kernels_copy, between_views_and_types)
{
    device d;
    device_open(&d);
    for (uint64_t seed = 0; seed < 90; seed++) {
        const copy_case c = pick_copy(300 + seed);
        check_copy(&d, &c);
    }
    device_close(&d);
}

/* The kernel's grid has at most 65535 groups along the rows. */
Test(kernels_copy, more_rows_than_groups)
{
    device d;
    device_open(&d);
    const copy_case c = { .name = "many rows",
                          .shape = { 2, 1, 33000, 64 },
                          .from = MHA_FLOAT32,
                          .to = MHA_FLOAT32,
                          .has_lengths = true,
                          .seed = 7 };
    check_copy(&d, &c);
    device_close(&d);
}
