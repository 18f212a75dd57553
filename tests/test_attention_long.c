/* Attention at lengths and offsets where 16 and 32 bits end: 65537 queries, 65537 keys, both, and
 * tensors whose last element lies past 2^31; and how much workspace a long one takes. */
#include "attention_place.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONG = 65537,
    WINDOW = MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT
};

static void check_all_ways(const attention_case *cases, size_t count)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < count; n++)
        for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++) {
            attention_case c = attention_by_way(&cases[n], way);
            c.seed = 300 + n;
            attention_check(&d, &c, &worst);
        }
    compare_log("long attention", ATTENTION_ALL_WAYS * count, &worst);
    device_close(&d);
}

Test(attention_long, many_queries_or_many_keys)
{
    static const attention_case cases[] = {
        { .desc = { ATTENTION_SIZES(1, 1, LONG, 3, 4), .uses = WINDOW | MHA_USES_LSE,
                    .diagonal = MHA_BOTTOM_RIGHT, .window_left = 1 } },
        { .desc = { ATTENTION_SIZES(1, 2, 2, LONG, 4), .kv_heads = 1, .uses = WINDOW | MHA_USES_LSE,
                    .diagonal = MHA_BOTTOM_RIGHT, .window_left = LONG - 2 },
          .layout = LAYOUT_ROWS },
    };
    check_all_ways(cases, sizeof cases / sizeof cases[0]);
}

/* The reference of one query of many, which a window of `left` keys keeps short. */
static void expect_row(const attention_data *all, size_t i, double *output, double *lse)
{
    const mha_attention_desc *d = &all->desc;
    const size_t first = i > d->window_left ? i - d->window_left : 0;
    const mha_attention_desc desc = { ATTENTION_SIZES(1, 1, 1, i + 1 - first, d->head_dim) };
    const reference_args args = {
        .query = all->query + i * d->head_dim,
        .key = all->key + first * d->head_dim,
        .value = all->value + first * d->value_dim,
        .output = output,
        .lse = lse,
    };
    reference_attention(&desc, &args);
}

/* One query's maximum rises with every block of keys, so that what came before is scaled down over
 * and over; the others' stay where they are, or rise by next to nothing, and nothing of that may
 * add up in them. */
Test(attention_long, scaling_down_adds_no_error)
{
    enum {
        QUERIES = 9,
        KEYS = 65536,
        DIM = 2
    };
    float query[QUERIES][DIM] = { { 1, 0 }, { 1e-9f, 0 } };
    float *key = calloc((size_t)KEYS * DIM, sizeof *key);
    float *value = calloc((size_t)KEYS * DIM, sizeof *value);
    cr_assert(key && value);
    for (size_t j = 0; j < KEYS; j++) {
        key[j * DIM] = (float)j * 1e-3f;
        value[j * DIM] = j < KEYS / 2 ? 1 : -1;
    }
    device d;
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++) {
        const attention_case given = { .desc = { ATTENTION_SIZES(1, 1, QUERIES, KEYS, DIM),
                                                 .scale = 1, .uses = MHA_USES_LSE } };
        const attention_case c = attention_by_way(&given, way);
        float output[QUERIES][DIM], lse[QUERIES];
        const mha_host_args args = { .query.data = query,
                                     .key.data = key,
                                     .value.data = value,
                                     .output.data = output,
                                     .lse.data = lse };
        mha_attention *attention;
        cr_assert_eq(mha_attention_create(&attention, d.context, &c.desc), MHA_OK, "%s",
                     d.sentence);
        cr_assert_eq(mha_attention_run(attention, &args), MHA_OK, "%s", d.sentence);
        mha_attention_destroy(&attention);
        /* Each of them weighs all keys alike, the second but for a hair. */
        for (size_t i = 1; i < QUERIES; i++) {
            compare_one("scaling down", "output", i, output[i][0], 0, 2e-6, NULL);
            compare_one("scaling down", "lse", i, lse[i], log(KEYS), 4e-6, NULL);
        }
    }
    device_close(&d);
    free(key);
    free(value);
}

/* The composed path would store 16 GiB of scores. */
Test(attention_long, many_queries_and_many_keys)
{
    enum {
        DIM = 4
    };
    device d;
    device_open(&d);
    for (mha_tiling tiling = MHA_TILING_CPU; tiling <= MHA_TILING_GPU; tiling++) {
        const attention_case c = { .desc = { ATTENTION_SIZES(1, 1, LONG, LONG, DIM),
                                             .uses = WINDOW | MHA_USES_LSE,
                                             .diagonal = MHA_BOTTOM_RIGHT, .window_left = 100,
                                             .path = MHA_PATH_STREAMING, .tiling = tiling },
                                   .seed = 310 };
        attention_data data = { .given = c, .desc = c.desc, .query_len = LONG, .key_len = LONG };
        data.desc.kv_heads = 1;
        data.desc.value_dim = DIM;
        float **arrays[] = { &data.query, &data.key, &data.value, &data.output };
        for (size_t n = 0; n < 4; n++) {
            *arrays[n] = calloc((size_t)LONG * DIM, sizeof(float));
            cr_assert(*arrays[n]);
            fill_floats(*arrays[n], (size_t)LONG * DIM, c.seed + n, FILL_NORMAL);
        }
        data.lse = calloc(LONG, sizeof(float));
        cr_assert(data.lse);
        attention_run(&d, &data);
        for (size_t i = 0; i < LONG; i += i < LONG - 300 ? 257 : 1) {
            double output[DIM], lse;
            expect_row(&data, i, output, &lse);
            const double limit = 4 * reference_limit(101, 4);
            compare_all("65537 x 65537", "output", data.output + i * DIM, output, DIM, limit, NULL);
            compare_one("65537 x 65537", "lse", i, data.lse[i], lse, limit, NULL);
        }
        for (size_t n = 0; n < 4; n++)
            free(*arrays[n]);
        free(data.lse);
    }
    device_close(&d);
}

/* A buffer of which only the tensor's own parts are ever touched; NULL, said, where the device
 * gives none so large. */
static cl_mem far_buffer(const device *d, const char *what, size_t bytes, bool say)
{
    mha_device_info info;
    cr_assert_eq(mha_context_info(d->context, &info), MHA_OK);
    cl_int error = CL_INVALID_BUFFER_SIZE;
    cl_mem buffer = NULL;
    if (info.max_allocation_bytes >= bytes)
        buffer = clCreateBuffer(d->cl, CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (!buffer && say)
        fprintf(stderr, "past 2^31, %s: not run: it needs %zu MiB, the device gives %zu\n", what,
                (bytes + 0xfffff) >> 20, (size_t)(info.max_allocation_bytes >> 20));
    return buffer;
}

static void write_far(const device *d, cl_mem buffer, size_t offset, const void *from, size_t size)
{
    cr_assert_eq(clEnqueueWriteBuffer(d->queue, buffer, CL_TRUE, offset, size, from, 0, NULL, NULL),
                 CL_SUCCESS);
}

enum {
    FAR_KEYS = 5,
    FAR_DIM = 8
};
static const size_t past = ((size_t)1 << 31) + 3;

/* The same result as with the same data near: keys of the second batch lie past 2^31 elements, or
 * the mask of the last query does. */
static void check_far(device *d, size_t way, bool far_mask)
{
    const attention_case given = { .desc = { ATTENTION_SIZES(2, 1, 3, FAR_KEYS, FAR_DIM),
                                             .key_value_type = MHA_FLOAT16, .uses = MHA_USES_MASK,
                                             .mask_broadcast = MHA_AXIS_BATCH | MHA_AXIS_HEADS },
                                   .seed = 320 };
    const attention_case c = attention_by_way(&given, way);
    const size_t bytes = far_mask ? past + FAR_KEYS : 2 * (past + FAR_KEYS * FAR_DIM);
    const cl_mem buffer = far_buffer(d, far_mask ? "a mask" : "float16 keys", bytes, !way);
    if (!buffer)
        return;
    attention_data *data = attention_data_new(&c);
    attention_data_see(data);
    attention_data_expect(data);
    attention_tensors to = attention_place(d, data);
    if (far_mask) {
        to.args.mask = (mha_tensor){ buffer, 0, { 0, 0, past / 2, 1 } };
        for (size_t i = 0; i < 3; i++)
            write_far(d, buffer, i * (past / 2), data->mask + i * FAR_KEYS, FAR_KEYS);
    } else {
        to.args.key = (mha_tensor){ buffer, 0, { past, FAR_KEYS * FAR_DIM, FAR_DIM, 1 } };
        uint16_t *half = stored_pack(MHA_FLOAT16, data->key, 2 * FAR_KEYS * FAR_DIM);
        for (size_t b = 0; b < 2; b++)
            write_far(d, buffer, b * 2 * past, half + b * FAR_KEYS * FAR_DIM,
                      2 * FAR_KEYS * FAR_DIM);
        free(half);
    }
    attention_run_placed(d, data, &to);
    attention_compare(data, NULL);
    attention_data_free(data);
    device_forget(d);
    clReleaseMemObject(buffer);
}

Test(attention_long, elements_past_2_to_the_31)
{
    device d;
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++) {
        check_far(&d, way, true);
        check_far(&d, way, false);
    }
    device_close(&d);
}

/* What 16384 x 16384 of 8 heads takes, and what the composed path says of itself. */
Test(attention_long, memory_grows_with_the_length)
{
    device d;
    device_open(&d);
    mha_attention_desc desc = { ATTENTION_SIZES(1, 8, 16384, 16384, 64) };
    mha_attention *attention;
    cr_assert_eq(mha_attention_create(&attention, d.context, &desc), MHA_OK, "%s", d.sentence);
    const size_t bytes = mha_attention_workspace(attention).bytes;
    cr_expect(bytes <= 1 << 20, "a workspace of %zu bytes", bytes);
    char text[2048];
    cr_assert(mha_attention_explain(attention, text, sizeof text) < sizeof text);
    cr_expect(strstr(text, "path streaming"), "%s", text);
    const char *composed = strstr(text, "not path composed: ");
    cr_assert(composed, "%s", text);
    double mib = 0;
    for (const char *at = composed; *at && !mib; at++)
        if (sscanf(at, "need %lf MiB", &mib) != 1)
            mib = 0;
    cr_expect(mib >= 8192 && mib < 10000, "%g MiB in: %s", mib, composed);
    mha_attention_destroy(&attention);
    device_close(&d);
}
