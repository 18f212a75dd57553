/* The kernels of scores and weigh, each by itself through its stage: odd sizes, strides and
 * offsets, NaN wherever nothing may be read. And all of attention with more rows than a grid has
 * groups. */
#include "attention_place.h"
#include "scores.h"
#include "stage_run.h"
#include "weigh.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

/* A product for each batch and head: scores of query and key, or output of probs and value. */
typedef struct product_case {
    char name[160];
    uint64_t seed;
    mha_attention_desc desc;
    attention_layout layout;
    fill_kind fill;
} product_case;

static product_case pick_product(uint64_t seed)
{
    product_case c = { .seed = seed * 16 };
    mha_attention_desc *d = &c.desc;
    d->batch = 1 + compare_pick(seed, 0, 3);
    d->kv_heads = 1 + compare_pick(seed, 1, 3);
    d->heads = d->kv_heads * (1 + compare_pick(seed, 2, 3));
    d->query_len = pick_size(seed, 3);
    d->key_len = pick_size(seed, 4);
    d->head_dim = pick_size(seed, 5);
    d->value_dim = pick_size(seed, 6);
    d->scale = compare_pick(seed, 7, 2) ? 0.375f : -1.5f;
    c.layout = (attention_layout)compare_pick(seed, 8, NUM_LAYOUTS);
    c.fill = (fill_kind)compare_pick(seed, 9, FILL_KINDS);
    snprintf(c.name, sizeof c.name, "seed %llu: b%zu h%zu/%zu q%zu k%zu d%zu v%zu layout %d %s",
             (unsigned long long)seed, d->batch, d->heads, d->kv_heads, d->query_len, d->key_len,
             d->head_dim, d->value_dim, (int)c.layout, fill_kind_name(c.fill));
    return c;
}

static float *filled(size_t count, uint64_t seed, fill_kind fill)
{
    float *data = allocate(count, sizeof *data);
    fill_floats(data, count, seed, fill);
    return data;
}

/* What the product of each query head with its key and value head is. */
static void expect_product(const mha_attention_desc *d, const mha_gemm_desc *gemm, const float *a,
                           const float *b, double *want)
{
    for (size_t h = 0; h < d->batch * d->heads; h++) {
        const size_t kv = h / (d->heads / d->kv_heads);
        const reference_gemm_args args = { .a = a + h * gemm->m * gemm->k,
                                           .b = b + kv * gemm->k * gemm->n,
                                           .out = want + h * gemm->m * gemm->n };
        reference_gemm(gemm, &args);
    }
}

static void check_scores(device *d, const product_case *c, compare_worst *worst)
{
    const mha_attention_desc *desc = &c->desc;
    const size_t query[4] = { desc->batch, desc->heads, desc->query_len, desc->head_dim };
    const size_t key[4] = { desc->batch, desc->kv_heads, desc->key_len, desc->head_dim };
    const size_t shape[4] = { desc->batch, desc->heads, desc->query_len, desc->key_len };
    const size_t queries = query[0] * query[1] * query[2];
    const size_t keys = key[0] * key[1] * key[2];
    const size_t count = queries * desc->key_len;
    float *q = filled(queries * desc->head_dim, c->seed + 1, c->fill);
    float *k = filled(keys * desc->head_dim, c->seed + 2, c->fill);
    float *got = allocate(count, sizeof *got);
    double *want = allocate(count, sizeof *want);
    const device_tensor from = attention_place_one(d, c->layout, query, sizeof(float), q);
    const device_tensor with = attention_place_one(d, c->layout, key, sizeof(float), k);
    const device_tensor scores = device_output(d, shape, NULL, sizeof(float));
    const mha_bound bound = { .query_len = desc->query_len,
                              .key_len = desc->key_len,
                              .query = stage_view(&from),
                              .key = stage_view(&with) };
    const mha_call call = { .queue = d->queue };
    mha_run run = stage_begin(d, &call);
    mha_kernel kernel = { 0 };
    mha_status status = mha_scores_setup(&kernel, d->context);
    if (!status)
        status =
            mha_scores_launch(&kernel, &run, desc, &bound, device_buffer(&scores), scores.offset);
    stage_end(d, &run, status, c->name);
    mha_kernel_release(&kernel);
    device_read(d, &scores, got);
    device_expect_guards(d, c->name);

    const mha_gemm_desc gemm = { .m = desc->query_len,
                                 .n = desc->key_len,
                                 .k = desc->head_dim,
                                 .flags = MHA_GEMM_TRANSPOSE_B,
                                 .alpha = desc->scale };
    expect_product(desc, &gemm, q, k, want);
    const double largest = fabs(desc->scale) * compare_norm(q, queries, desc->head_dim) *
                           compare_norm(k, keys, desc->head_dim);
    compare_all(c->name, "scores", got, want, count,
                reference_limit(desc->head_dim, largest) + (double)desc->head_dim * FLT_MIN, worst);
    free(q);
    free(k);
    free(got);
    free(want);
    device_forget(d);
}

Test(kernels, scores)
{
    enum {
        SEEDS = 60
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const product_case c = pick_product(100 + seed);
        check_scores(&d, &c, &worst);
    }
    compare_log("kernel of scores", SEEDS, &worst);
    device_close(&d);
}

/* Probabilities some of which are 0; keys that have 0 everywhere hold NaN or inf in `value`, and
 * `known` has 0 there. */
static void fill_weigh(const product_case *c, float *probs, float *value, float *known)
{
    const mha_attention_desc *d = &c->desc;
    const size_t rows = d->heads / d->kv_heads * d->query_len; /* of a key and value head */
    const size_t count = d->batch * d->heads * d->query_len * d->key_len;
    const size_t keys = d->batch * d->kv_heads * d->key_len;
    unsigned char *used = allocate(keys, 1);
    unsigned char *some = allocate(count, 1);
    fill_uniform(probs, count, c->seed + 1, 0, 1);
    fill_floats(value, keys * d->value_dim, c->seed + 2, c->fill);
    fill_mask(used, keys, c->seed + 3, 0.7);
    fill_mask(some, count, c->seed + 4, 0.8);
    for (size_t i = 0; i < count; i++) {
        const size_t kv = i / d->key_len / rows;
        if (!some[i] || !used[kv * d->key_len + i % d->key_len])
            probs[i] = 0;
    }
    for (size_t i = 0; i < keys * d->value_dim; i++) {
        const size_t row = i / d->value_dim;
        known[i] = used[row] ? value[i] : 0;
        value[i] = used[row] ? value[i] : i % 2 ? NAN : -INFINITY;
    }
    free(used);
    free(some);
}

static void launch_weigh(device *d, const product_case *c, const float *probs, const float *value,
                         float *got)
{
    const mha_attention_desc *desc = &c->desc;
    const size_t from[4] = { desc->batch, desc->heads, desc->query_len, desc->key_len };
    const size_t with[4] = { desc->batch, desc->kv_heads, desc->key_len, desc->value_dim };
    const size_t to[4] = { desc->batch, desc->heads, desc->query_len, desc->value_dim };
    const device_tensor weights = device_input(d, from, NULL, sizeof(float), probs);
    const device_tensor values = attention_place_one(d, c->layout, with, sizeof(float), value);
    const device_tensor output = attention_place_one(d, c->layout, to, sizeof(float), NULL);
    const mha_bound bound = { .query_len = desc->query_len,
                              .key_len = desc->key_len,
                              .value = stage_view(&values),
                              .output = stage_view(&output) };
    const mha_call call = { .queue = d->queue };
    mha_run run = stage_begin(d, &call);
    mha_kernel kernel = { 0 };
    mha_status status = mha_weigh_setup(&kernel, d->context);
    if (!status)
        status =
            mha_weigh_launch(&kernel, &run, desc, &bound, device_buffer(&weights), weights.offset);
    stage_end(d, &run, status, c->name);
    mha_kernel_release(&kernel);
    device_read(d, &output, got);
    device_expect_guards(d, c->name);
    device_forget(d);
}

static void check_weigh(device *d, const product_case *c, compare_worst *worst)
{
    const mha_attention_desc *desc = &c->desc;
    const size_t rows = desc->batch * desc->heads * desc->query_len;
    const size_t keys = desc->batch * desc->kv_heads * desc->key_len;
    const size_t count = rows * desc->value_dim;
    float *probs = allocate(rows * desc->key_len, sizeof *probs);
    float *value = allocate(keys * desc->value_dim, sizeof *value);
    float *known = allocate(keys * desc->value_dim, sizeof *known);
    float *got = allocate(count, sizeof *got);
    double *want = allocate(count, sizeof *want);
    fill_weigh(c, probs, value, known);
    launch_weigh(d, c, probs, value, got);
    const mha_gemm_desc gemm = { .m = desc->query_len, .n = desc->value_dim, .k = desc->key_len };
    expect_product(desc, &gemm, probs, known, want);
    const double largest = compare_norm(probs, rows, desc->key_len) *
                           compare_largest(known, keys * desc->value_dim) *
                           sqrt((double)desc->key_len);
    compare_all(c->name, "output", got, want, count,
                reference_limit(desc->key_len, largest) + (double)desc->key_len * FLT_MIN, worst);
    free(probs);
    free(value);
    free(known);
    free(got);
    free(want);
}

Test(kernels, weigh)
{
    enum {
        SEEDS = 60
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        product_case c = pick_product(200 + seed);
        if (seed % 20 == 0)
            c.desc.key_len = 0; /* writes zeros */
        check_weigh(&d, &c, &worst);
    }
    compare_log("kernel of weigh", SEEDS, &worst);
    device_close(&d);
}

/* A grid has at most 65535 groups along an axis; each goes on with a further matrix or row, or
 * there is another axis. */
Test(kernels, more_matrices_than_groups)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    attention_case many = { .desc = { ATTENTION_SIZES(33000, 2, 1, 2, 1), .path = MHA_PATH_COMPOSED,
                                      .gemm = MHA_GEMM_KERNEL,
                                      .uses =
                                          MHA_USES_PROBS | MHA_USES_LSE | MHA_USES_KEY_LENGTHS },
                            .layout = LAYOUT_ROWS,
                            .seed = 1 };
    attention_check(&d, &many, &worst);
    many.desc.path = MHA_PATH_STREAMING;
    many.desc.tiling = MHA_TILING_GPU;
    many.desc.uses &= ~(uint64_t)MHA_USES_PROBS;
    attention_check(&d, &many, &worst);
    compare_log("more matrices than groups", 1, &worst);
    device_close(&d);
}
