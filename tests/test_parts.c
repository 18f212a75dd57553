/* The public parts against the reference: matrix products, splitting and merging heads, softmax.
 * How they refuse is in test_errors_parts.c. */
#include "attention_place.h"
#include "gemm_case.h"
#include "softmax_case.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A B of NaN first, in whose place the right one comes. */
static void load_b(device *d, gemm_data *data, mha_gemm *gemm)
{
    const mha_gemm_desc *desc = &data->given.desc;
    const bool turned = desc->flags & MHA_GEMM_TRANSPOSE_B;
    const mha_type type = desc->b_type ? desc->b_type : desc->type;
    const size_t shape[4] = { 1, 1, turned ? desc->n : desc->k, turned ? desc->k : desc->n };
    const device_tensor nans =
        device_output(d, shape, NULL, stored_bytes(type ? type : MHA_FLOAT32));
    const mha_matrix wrong = { .buffer = device_buffer(&nans), .offset = nans.offset };
    const mha_call call = { .queue = d->queue };
    mha_matrix b = data->args.b;
    b.batch_stride = 0;
    cr_assert_eq(mha_gemm_load(gemm, &wrong, &call), MHA_OK, "%s: %s", data->name, d->sentence);
    cr_assert_eq(mha_gemm_load(gemm, &b, &call), MHA_OK, "%s: %s", data->name, d->sentence);
    data->args.b = (mha_matrix){ 0 };
}

static void check_gemm(device *d, const gemm_case *c, compare_worst *worst)
{
    gemm_data *data = gemm_data_new(d, c);
    mha_gemm *gemm = NULL;
    cr_assert_eq(mha_gemm_create(&gemm, d->context, &c->desc), MHA_OK, "%s: %s", data->name,
                 d->sentence);
    if (c->desc.flags & MHA_GEMM_LOADED_B)
        load_b(d, data, gemm);
    const mha_call call = device_call(d, mha_gemm_workspace(gemm));
    cr_assert_eq(mha_gemm_enqueue(gemm, &data->args, &call), MHA_OK, "%s: %s", data->name,
                 d->sentence);
    mha_gemm_destroy(&gemm);
    cr_assert_null(gemm);
    gemm_data_finish(d, data, worst);
}

static gemm_case with_loaded_b(gemm_case c)
{
    c.desc.flags |= MHA_GEMM_LOADED_B;
    c.b_shared = true;
    return c;
}

typedef gemm_case pick_fn(uint64_t seed, mha_gemm_by by);

static void check_seeds(const char *name, pick_fn *pick, uint64_t first, size_t count, bool loads)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (uint64_t n = 0; n < count; n++)
        for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
            const gemm_case c = pick(first + n, (mha_gemm_by)by);
            const gemm_case loaded = with_loaded_b(c);
            check_gemm(&d, loads ? &loaded : &c, &worst);
        }
    compare_log(name, 3 * count, &worst);
    device_close(&d);
}

Test(parts, gemm)
{
    check_seeds("gemm", gemm_case_pick, 700, 70, false);
}

Test(parts, gemm_of_half_types)
{
    check_seeds("gemm of half types", gemm_case_pick_half, 1200, 40, false);
}

Test(parts, gemm_of_a_loaded_b)
{
    check_seeds("gemm of a loaded B", gemm_case_pick, 2100, 40, true);
    check_seeds("gemm of a loaded B of half types", gemm_case_pick_half, 2200, 40, true);
}

/* The caller's B may be gone by the time of the calls, of which there may be many. */
Test(parts, gemm_keeps_a_loaded_b)
{
    enum {
        SIZE = 20
    };
    static float one[SIZE * SIZE], got[SIZE * SIZE];
    const size_t shape[4] = { 1, 1, SIZE, SIZE };
    device d;
    device_open(&d);
    for (size_t i = 0; i < SIZE; i++)
        one[i * SIZE + i] = 1;
    const device_tensor a = device_input(&d, shape, NULL, sizeof *one, one);
    for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
        const mha_gemm_desc desc = {
            .m = SIZE, .n = SIZE, .k = SIZE, .flags = MHA_GEMM_LOADED_B, .by = (mha_gemm_by)by
        };
        mha_gemm *gemm = NULL;
        cr_assert_eq(mha_gemm_create(&gemm, d.context, &desc), MHA_OK, "%s", d.sentence);
        const mha_call call = device_call(&d, mha_gemm_workspace(gemm));
        float b[SIZE * SIZE];
        for (size_t i = 0; i < SIZE * SIZE; i++)
            b[i] = (float)i + (float)by;
        cl_mem memory = clCreateBuffer(d.cl, CL_MEM_COPY_HOST_PTR, sizeof b, b, NULL);
        cr_assert_eq(mha_gemm_load(gemm, &(mha_matrix){ .buffer = memory }, &call), MHA_OK, "%s",
                     d.sentence);
        const float nan = NAN;
        cr_assert_eq(
            clEnqueueFillBuffer(d.queue, memory, &nan, sizeof nan, 0, sizeof b, 0, NULL, NULL),
            CL_SUCCESS);
        clReleaseMemObject(memory);
        for (size_t m = SIZE; m >= SIZE / 2; m -= SIZE / 2) {
            const device_tensor c =
                device_output(&d, (size_t[]){ 1, 1, m, SIZE }, NULL, sizeof *got);
            const mha_gemm_args args = {
                .m = m,
                .a = { .buffer = device_buffer(&a), .offset = a.offset },
                .c = { .buffer = device_buffer(&c), .offset = c.offset },
            };
            cr_assert_eq(mha_gemm_enqueue(gemm, &args, &call), MHA_OK, "%s", d.sentence);
            device_read(&d, &c, got);
            cr_expect(!memcmp(got, b, m * SIZE * sizeof *got), "by %d: %zu rows", by, m);
        }
        mha_gemm_destroy(&gemm);
    }
    device_forget(&d);
    device_close(&d);
}

/* What no float16 holds is an infinity, as a single rounding makes it; a NaN stays one, and in its
 * row. */
Test(parts, gemm_beyond_float16)
{
    enum {
        M = 3,
        N = 35,
        K = 2
    };
    static const float a[M * K] = { 300, 300, -300, -300, NAN, 1 };
    float b[K * N], got[M * N];
    device d;
    device_open(&d);
    for (size_t i = 0; i < K * N; i++)
        b[i] = 200;
    void *halves_a = stored_pack(MHA_FLOAT16, a, M * K),
         *halves_b = stored_pack(MHA_FLOAT16, b, K * N);
    uint16_t halves_c[M * N];
    for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
        const mha_gemm_desc desc = {
            .m = M, .n = N, .k = K, .by = (mha_gemm_by)by, .type = MHA_FLOAT16
        };
        const device_tensor ta = device_input(&d, (size_t[]){ 1, 1, M, K }, NULL, 2, halves_a);
        const device_tensor tb = device_input(&d, (size_t[]){ 1, 1, K, N }, NULL, 2, halves_b);
        const device_tensor tc = device_output(&d, (size_t[]){ 1, 1, M, N }, NULL, 2);
        const mha_gemm_args args = { .a = { .buffer = device_buffer(&ta), .offset = ta.offset },
                                     .b = { .buffer = device_buffer(&tb), .offset = tb.offset },
                                     .c = { .buffer = device_buffer(&tc), .offset = tc.offset } };
        mha_gemm *gemm = NULL;
        cr_assert_eq(mha_gemm_create(&gemm, d.context, &desc), MHA_OK, "%s", d.sentence);
        const mha_call call = device_call(&d, mha_gemm_workspace(gemm));
        cr_assert_eq(mha_gemm_enqueue(gemm, &args, &call), MHA_OK, "%s", d.sentence);
        device_read(&d, &tc, halves_c);
        stored_unpack(MHA_FLOAT16, got, halves_c, M * N);
        for (size_t i = 0; i < M * N; i++)
            cr_expect(i / N == 2 ? isnan(got[i]) : got[i] == (i / N ? -INFINITY : INFINITY),
                      "by %d: c[%zu] is %g", by, i, (double)got[i]);
        mha_gemm_destroy(&gemm);
        device_forget(&d);
    }
    free(halves_a);
    free(halves_b);
    device_close(&d);
}

/* k 0 leaves beta C + bias; alpha 0 and batch 0 stand for 1; sums as long as a layer has them. */
Test(parts, gemm_at_the_edges)
{
    static const gemm_case cases[] = {
        { .desc = { .m = 3, .n = 17, .k = 0, .beta = -2 } },
        { .desc = { .m = 3, .n = 17, .k = 0, .flags = MHA_GEMM_BIAS }, .gap = 2 },
        { .desc = { .m = 3, .n = 17, .k = 0 } },
        { .desc = { .m = 1, .n = 1, .k = 1 } },
        { .desc = { .m = 4, .n = 3, .k = 3000, .flags = MHA_GEMM_TRANSPOSE_B } },
        { .desc = { .m = 130, .n = 140, .k = 150, .batch = 2, .flags = MHA_GEMM_BIAS },
          .m = 129,
          .b_shared = true },
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
            gemm_case c = cases[n];
            c.desc.by = (mha_gemm_by)by;
            check_gemm(&d, &c, &worst);
            c = with_loaded_b(c);
            check_gemm(&d, &c, &worst);
        }
    device_close(&d);
}

typedef struct heads_case {
    char name[96];
    mha_heads_desc desc;
    size_t gap; /* between rows, heads and batches of both; 0: packed */
    bool merges;
    uint64_t seed;
} heads_case;

static heads_case pick_heads(uint64_t seed)
{
    static const size_t sizes[] = { 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65 };
    const size_t num = sizeof sizes / sizeof sizes[0];
    heads_case c = {
        .desc = { .batch = compare_pick(seed, 0, 4),
                  .heads = 1 + compare_pick(seed, 1, 4),
                  .len = sizes[compare_pick(seed, 2, num)],
                  .dim = sizes[compare_pick(seed, 3, num)] },
        .gap = compare_pick(seed, 4, 3),
        .merges = compare_pick(seed, 5, 2),
        .seed = seed,
    };
    snprintf(c.name, sizeof c.name, "seed %llu: b%zu h%zu len %zu dim %zu gap %zu %s",
             (unsigned long long)seed, c.desc.batch, c.desc.heads, c.desc.len, c.desc.dim, c.gap,
             c.merges ? "merge" : "split");
    return c;
}

/* [batch][1][len][heads * dim], or [batch][heads][len][dim]. */
static device_tensor place_heads(device *d, const heads_case *c, bool merged, const float *data)
{
    const mha_heads_desc *h = &c->desc;
    const size_t shape[4] = { h->batch, merged ? 1 : h->heads, h->len,
                              merged ? h->heads * h->dim : h->dim };
    const size_t row = shape[3] + c->gap;
    const size_t head = shape[2] * row + c->gap;
    const size_t strides[4] = { shape[1] * head + c->gap, head, row, 1 };
    const size_t *given = c->gap ? strides : NULL;
    return data ? device_input(d, shape, given, sizeof *data, data)
                : device_output(d, shape, given, sizeof *data);
}

static void check_heads(device *d, const heads_case *c)
{
    const mha_heads_desc *h = &c->desc;
    const size_t count = h->batch * h->heads * h->len * h->dim;
    float *data = malloc((count + 1) * sizeof *data);
    float *got = malloc((count + 1) * sizeof *got);
    double *want = malloc((count + 1) * sizeof *want);
    mha_heads *heads = NULL;
    cr_assert(data && got && want);
    fill_floats(data, count, c->seed, (fill_kind)(c->seed % FILL_KINDS));
    const device_tensor from = place_heads(d, c, c->merges == false, data);
    const device_tensor to = place_heads(d, c, c->merges, NULL);
    const mha_tensor source = device_arg(&from), target = device_arg(&to);
    const mha_call call = { .queue = d->queue };
    cr_assert_eq(mha_heads_create(&heads, d->context, h), MHA_OK, "%s: %s", c->name, d->sentence);
    const mha_status status = c->merges ? mha_heads_merge_enqueue(heads, &source, &target, &call)
                                        : mha_heads_split_enqueue(heads, &source, &target, &call);
    cr_assert_eq(status, MHA_OK, "%s: %s", c->name, d->sentence);
    mha_heads_destroy(&heads);
    device_read(d, &to, got);
    device_expect_guards(d, c->name);
    if (c->merges)
        reference_merge_heads(h, data, want);
    else
        reference_split_heads(h, data, want);
    compare_all(c->name, "heads", got, want, count, 0, NULL);
    free(data);
    free(got);
    free(want);
    device_forget(d);
}

Test(parts, heads)
{
    device d;
    device_open(&d);
    for (uint64_t seed = 800; seed < 880; seed++) {
        const heads_case c = pick_heads(seed);
        check_heads(&d, &c);
    }
    device_close(&d);
}

/* The scores and the probs are packed, and may be the same memory. */
static void check_softmax(device *d, const attention_case *c, bool in_place, compare_worst *worst)
{
    attention_data *data = attention_data_new(c);
    float *scores = softmax_case_scores(data);
    const size_t shape[4] = { data->desc.batch, data->desc.heads, data->query_len, data->key_len };
    const device_tensor to = device_output(d, shape, NULL, sizeof(float));
    device_tensor from = to;
    if (in_place)
        device_write(d, &to, scores);
    else
        from = device_input(d, shape, NULL, sizeof(float), scores);
    attention_tensors tensors = { .args = { .query_len = c->query_len, .key_len = c->key_len } };
    attention_place_options(d, data, &tensors);
    tensors.args.probs = device_arg(&to);
    const mha_tensor source = device_arg(&from);

    mha_softmax *softmax = NULL;
    cr_assert_eq(mha_softmax_create(&softmax, d->context, &c->desc), MHA_OK, "%s: %s", data->name,
                 d->sentence);
    const mha_call call = device_call(d, mha_softmax_workspace(softmax));
    cr_assert_eq(mha_softmax_enqueue(softmax, &source, &tensors.args, &call), MHA_OK, "%s: %s",
                 data->name, d->sentence);
    mha_softmax_destroy(&softmax);
    device_read(d, &to, data->probs);
    if (data->desc.uses & MHA_USES_LSE)
        device_read(d, &tensors.lse, data->lse);
    device_expect_guards(d, data->name);
    softmax_case_compare(data, scores, worst);
    free(scores);
    attention_data_free(data);
    device_forget(d);
}

Test(parts, softmax)
{
    enum {
        CASES = 6 * SOFTMAX_RULES
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (uint64_t n = 0; n < CASES; n++) {
        /* The same seeds as the kernel's test, whose programs are kept. */
        attention_case c = softmax_case_pick(600 + n, softmax_rules[n % SOFTMAX_RULES]);
        c.lengths_on_device = n / SOFTMAX_RULES % 2;
        check_softmax(&d, &c, n % 3 == 0, &worst);
    }
    compare_log("softmax", CASES, &worst);
    device_close(&d);
}

/* Nothing to do is no error. */
Test(parts, softmax_of_nothing)
{
    static const attention_case cases[] = {
        { .desc = { ATTENTION_SIZES(0, 2, 3, 4, 1) } },
        { .desc = { ATTENTION_SIZES(2, 2, 0, 4, 1) } },
        { .desc = { ATTENTION_SIZES(2, 2, 3, 0, 1) } },
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        attention_case c = cases[n];
        c.desc.uses = MHA_USES_PROBS | MHA_USES_LSE;
        check_softmax(&d, &c, false, &worst);
    }
    device_close(&d);
}
