/* Sequences end to end, by offsets of queries, of keys, or of both: each one as if it were alone.
 */
#include "attention_place.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_BATCH = 4,
    PACKS = MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS
};

typedef struct packed_case {
    mha_attention_desc desc;
    bool rows_first; /* [total][heads][dim], else [heads][total][dim] */
    bool on_device;  /* the offsets */
    uint64_t seed;
} packed_case;

/* One side, queries or keys: where each batch's rows are. */
typedef struct packed_side {
    int32_t offsets[MOST_BATCH + 1]; /* the first is not 0, and rows after the last are nobody's */
    size_t total;                    /* rows in memory */
    size_t lengths[MOST_BATCH];
    size_t first[MOST_BATCH]; /* row of [batches in memory][rows], counted through */
    size_t batches, rows;     /* in memory: 1, total; or batch, len */
} packed_side;

static packed_side pick_side(const packed_case *c, bool packs, size_t len, uint64_t number)
{
    packed_side side = { .batches = c->desc.batch, .rows = len };
    size_t at = 2;
    for (size_t b = 0; b < c->desc.batch; b++) {
        const bool whole = !packs || compare_pick(c->seed, (unsigned)(number + b), 4) == 0;
        side.lengths[b] = whole ? len : compare_pick(c->seed, (unsigned)(number + 8 + b), len + 1);
        side.offsets[b] = (int32_t)at;
        side.first[b] = packs ? at : b * len;
        at += side.lengths[b];
    }
    side.offsets[c->desc.batch] = (int32_t)at;
    side.total = at + 3;
    if (packs) {
        side.batches = 1;
        side.rows = side.total;
    }
    return side;
}

/* Floats [batches][rows][heads * dim] that a type holds, and where they go on the device. */
typedef struct packed_tensor {
    size_t shape[4], strides[4];
    float *data; /* packed in the order of shape */
    device_tensor tensor;
} packed_tensor;

static packed_tensor new_tensor(const packed_case *c, const packed_side *side, size_t heads,
                                size_t dim, mha_type type, uint64_t seed)
{
    packed_tensor t = { .shape = { side->batches, heads, side->rows, dim } };
    const size_t row = c->rows_first ? heads * dim : dim,
                 head = c->rows_first ? dim : side->rows * dim;
    const size_t strides[4] = { heads * side->rows * dim, head, row, 1 };
    memcpy(t.strides, strides, sizeof strides);
    const size_t count = side->batches * heads * side->rows * dim;
    t.data = calloc(count + 1, sizeof *t.data);
    cr_assert(t.data);
    if (seed) {
        fill_floats(t.data, count, seed, FILL_NORMAL);
        stored_round(type, t.data, count);
    }
    return t;
}

static void send(device *d, packed_tensor *t, mha_type type, bool output)
{
    const size_t count = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    void *packed = stored_pack(type, t->data, count);
    t->tensor = output ? device_output(d, t->shape, t->strides, stored_bytes(type))
                       : device_input(d, t->shape, t->strides, stored_bytes(type), packed);
    free(packed);
}

/* A batch's rows of one side as [heads][len][dim], for the reference. */
static float *take(const packed_tensor *t, const packed_side *side, size_t b)
{
    const size_t heads = t->shape[1], len = side->lengths[b], dim = t->shape[3];
    float *rows = calloc(heads * len * dim + 1, sizeof *rows);
    cr_assert(rows);
    const size_t at = side->first[b] % side->rows, memory = side->first[b] / side->rows;
    for (size_t h = 0; h < heads; h++)
        memcpy(rows + h * len * dim, t->data + ((memory * heads + h) * side->rows + at) * dim,
               len * dim * sizeof *rows);
    return rows;
}

static unsigned char *take_mask(const mha_attention_desc *d, const unsigned char *mask, size_t b,
                                size_t q, size_t k)
{
    unsigned char *rows = calloc(d->heads * q * k + 1, 1);
    cr_assert(rows);
    for (size_t h = 0; h < d->heads; h++)
        for (size_t i = 0; i < q; i++)
            memcpy(rows + (h * q + i) * k,
                   mask + ((b * d->heads + h) * d->query_len + i) * d->key_len, k);
    return rows;
}

typedef struct packed_data {
    char name[256];
    mha_attention_desc desc;
    packed_side queries, keys;
    packed_tensor query, key, value, output, lse;
    unsigned char *mask;
    int32_t key_lengths[MOST_BATCH];
} packed_data;

/* Batch b alone, and what the device says of it. */
static void compare_batch(const packed_data *data, size_t b, const float *output, const float *lse,
                          compare_worst *worst)
{
    const mha_attention_desc *d = &data->desc;
    const size_t q = data->queries.lengths[b], k = data->keys.lengths[b];
    mha_attention_desc alone = *d;
    alone.batch = 1;
    alone.query_len = q;
    alone.key_len = k;
    alone.uses &= ~(uint64_t)PACKS;
    float *query = take(&data->query, &data->queries, b);
    float *key = take(&data->key, &data->keys, b), *value = take(&data->value, &data->keys, b);
    unsigned char *mask = take_mask(d, data->mask, b, q, k);
    double *want = calloc(d->heads * q * d->value_dim + 1, sizeof *want);
    double *want_lse = calloc(d->heads * q + 1, sizeof *want_lse);
    cr_assert(want && want_lse);
    const reference_args args = {
        .query = query,
        .key = key,
        .value = value,
        .mask = mask,
        .key_lengths = &data->key_lengths[b],
        .output = want,
        .lse = want_lse,
    };
    if (q)
        reference_attention(&alone, &args);
    const packed_side *side = &data->queries;
    const size_t at = side->first[b] % side->rows, memory = side->first[b] / side->rows;
    const mha_type type = d->output_type ? d->output_type : d->type;
    const double limit = reference_limit(d->head_dim + d->key_len, 8);
    for (size_t h = 0; h < d->heads; h++)
        for (size_t i = 0; i < q; i++) {
            const size_t row = (memory * d->heads + h) * side->rows + at + i;
            for (size_t c = 0; c < d->value_dim; c++) {
                const double x = want[(h * q + i) * d->value_dim + c];
                if (!compare_one(data->name, "output", row * d->value_dim + c,
                                 output[row * d->value_dim + c], x, limit + stored_limit(type, x),
                                 worst))
                    break;
            }
            compare_one(data->name, "lse", row, lse[row], want_lse[h * q + i], limit, worst);
        }
    free(query);
    free(key);
    free(value);
    free(mask);
    free(want);
    free(want_lse);
}

/* Rows of no batch are as they were, which is NaN. */
static void compare_gaps(const packed_data *data, const float *output)
{
    const packed_side *side = &data->queries;
    if (side->batches != 1 || !(data->desc.uses & MHA_USES_QUERY_OFFSETS))
        return;
    const size_t begin = (size_t)side->offsets[0], end = (size_t)side->offsets[data->desc.batch];
    for (size_t h = 0; h < data->desc.heads; h++)
        for (size_t i = 0; i < side->rows; i++)
            if (i < begin || i >= end)
                cr_expect(output[(h * side->rows + i) * data->desc.value_dim] !=
                              output[(h * side->rows + i) * data->desc.value_dim],
                          "%s: row %zu of no batch was written", data->name, i);
}

static packed_data *packed_data_new(const packed_case *c)
{
    packed_data *data = calloc(1, sizeof *data);
    cr_assert(data);
    data->desc = reference_attention_resolve(&c->desc);
    const mha_attention_desc *d = &data->desc;
    snprintf(data->name, sizeof data->name,
             "packed seed %llu: b%zu h%zu/%zu q%zu k%zu d%zu v%zu uses %llx diagonal %d path %d/%d "
             "type %d%s%s",
             (unsigned long long)c->seed, d->batch, d->heads, d->kv_heads, d->query_len, d->key_len,
             d->head_dim, d->value_dim, (unsigned long long)d->uses, (int)d->diagonal, (int)d->path,
             (int)d->tiling, (int)d->type, c->rows_first ? " rows first" : "",
             c->on_device ? " offsets on device" : "");
    data->queries = pick_side(c, d->uses & MHA_USES_QUERY_OFFSETS, d->query_len, 20);
    data->keys = pick_side(c, d->uses & MHA_USES_KEY_OFFSETS, d->key_len, 40);
    const uint64_t seed = c->seed * 16;
    data->query = new_tensor(c, &data->queries, d->heads, d->head_dim, d->type, seed + 1);
    data->key = new_tensor(c, &data->keys, d->kv_heads, d->head_dim, d->type, seed + 2);
    data->value = new_tensor(c, &data->keys, d->kv_heads, d->value_dim, d->type, seed + 3);
    data->output = new_tensor(c, &data->queries, d->heads, d->value_dim, d->type, 0);
    data->lse = new_tensor(c, &data->queries, d->heads, 1, MHA_FLOAT32, 0);
    const size_t pairs = d->batch * d->heads * d->query_len * d->key_len;
    data->mask = calloc(pairs + 1, 1);
    cr_assert(data->mask);
    fill_mask(data->mask, pairs, seed + 4, 0.8);
    for (size_t b = 0; b < d->batch; b++)
        data->key_lengths[b] =
            (int32_t)compare_pick(c->seed, (unsigned)(56 + b), data->keys.lengths[b] + 1);
    return data;
}

static void packed_data_free(packed_data *data)
{
    packed_tensor *const all[] = { &data->query, &data->key, &data->value, &data->output,
                                   &data->lse };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]->data);
    free(data->mask);
    free(data);
}

static mha_lengths place_offsets(device *d, const packed_case *c, const packed_side *side)
{
    if (!c->on_device)
        return (mha_lengths){ .host = side->offsets };
    const device_tensor at = device_input(d, (size_t[]){ 1, 1, 1, c->desc.batch + 1 }, NULL,
                                          sizeof(int32_t), side->offsets);
    return (mha_lengths){ .buffer = device_buffer(&at), .offset = at.offset };
}

static void read_back(device *d, packed_tensor *t, mha_type type)
{
    const size_t count = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    void *packed = calloc(count + 1, stored_bytes(type));
    cr_assert(packed);
    device_read(d, &t->tensor, packed);
    stored_unpack(type, t->data, packed, count);
    free(packed);
}

static void check_packed(device *d, const packed_case *c, compare_worst *worst)
{
    packed_data *data = packed_data_new(c);
    const mha_attention_desc *desc = &data->desc;
    const mha_type type = desc->type;
    send(d, &data->query, type, false);
    send(d, &data->key, type, false);
    send(d, &data->value, type, false);
    send(d, &data->output, type, true);
    send(d, &data->lse, MHA_FLOAT32, true);
    mha_attention_args args = {
        .query = device_arg(&data->query.tensor),
        .key = device_arg(&data->key.tensor),
        .value = device_arg(&data->value.tensor),
        .output = device_arg(&data->output.tensor),
        .lse = device_arg(&data->lse.tensor),
    };
    if (desc->uses & MHA_USES_QUERY_OFFSETS) {
        args.query_offsets = place_offsets(d, c, &data->queries);
        args.query_total = data->queries.total;
    }
    if (desc->uses & MHA_USES_KEY_OFFSETS) {
        args.key_offsets = place_offsets(d, c, &data->keys);
        args.key_total = data->keys.total;
    }
    if (desc->uses & MHA_USES_MASK) {
        const device_tensor mask =
            device_input(d, (size_t[]){ desc->batch, desc->heads, desc->query_len, desc->key_len },
                         NULL, 1, data->mask);
        args.mask = device_arg(&mask);
    }
    if (desc->uses & MHA_USES_KEY_LENGTHS)
        args.key_lengths.host = data->key_lengths;
    mha_attention *attention = NULL;
    mha_status status = mha_attention_create(&attention, d->context, &c->desc);
    cr_assert_eq(status, MHA_OK, "%s: create: %s", data->name, d->sentence);
    const mha_call call = device_call(d, mha_attention_workspace(attention));
    status = mha_attention_enqueue(attention, &args, &call);
    cr_assert_eq(status, MHA_OK, "%s: enqueue: %s", data->name, d->sentence);
    mha_attention_destroy(&attention);
    read_back(d, &data->output, type);
    read_back(d, &data->lse, MHA_FLOAT32);
    for (size_t b = 0; b < desc->batch; b++)
        compare_batch(data, b, data->output.data, data->lse.data, worst);
    compare_gaps(data, data->output.data);
    device_expect_guards(d, data->name);
    packed_data_free(data);
    device_forget(d);
}

static packed_case pick_case(uint64_t seed)
{
    static const uint64_t sets[] = {
        0,
        MHA_USES_CAUSAL,
        MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT,
        MHA_USES_MASK,
        MHA_USES_KEY_LENGTHS,
        MHA_USES_KEY_LENGTHS | MHA_USES_CAUSAL,
    };
    static const uint64_t packs[] = { PACKS, PACKS, MHA_USES_QUERY_OFFSETS, MHA_USES_KEY_OFFSETS };
    static const size_t lengths[] = { 1, 3, 17, 40, 70, 130 };
    static const size_t dims[] = { 8, 20, 33 };
    packed_case c = { .seed = seed };
    mha_attention_desc *d = &c.desc;
    d->batch = 1 + compare_pick(seed, 0, MOST_BATCH);
    d->kv_heads = 1 + compare_pick(seed, 1, 2);
    d->heads = d->kv_heads * (1 + compare_pick(seed, 2, 2));
    d->query_len = lengths[compare_pick(seed, 3, 6)];
    d->key_len = compare_pick(seed, 4, 2) ? d->query_len : lengths[compare_pick(seed, 5, 6)];
    d->head_dim = dims[compare_pick(seed, 6, 3)];
    d->uses = packs[compare_pick(seed, 7, 4)] | sets[compare_pick(seed, 8, 6)] | MHA_USES_LSE;
    if (d->uses & (MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT))
        d->diagonal = compare_pick(seed, 9, 2) ? MHA_BOTTOM_RIGHT : MHA_TOP_LEFT;
    if (d->uses & MHA_USES_WINDOW_LEFT)
        d->window_left = compare_pick(seed, 10, 9);
    d->type = compare_pick(seed, 11, 4) ? MHA_FLOAT32 : MHA_FLOAT16;
    c.rows_first = compare_pick(seed, 12, 2);
    c.on_device = compare_pick(seed, 13, 2);
    return c;
}

Test(packed, cross)
{
    enum {
        SEEDS = 48
    };
    device d;
    compare_worst worst = { 0 };
    size_t count = 0;
    device_open(&d);
    for (size_t n = 0; n < SEEDS; n++) {
        packed_case c = pick_case(900 + n);
        const size_t rows = c.desc.query_len * (c.desc.heads / c.desc.kv_heads);
        /* The GPU tiling takes seconds to build. */
        c.desc.path = n % 16 == 5 || n % 3 == 0 ? MHA_PATH_STREAMING : MHA_PATH_DEFAULT;
        c.desc.tiling = n % 16 == 5  ? MHA_TILING_GPU
                        : n % 3 == 0 ? MHA_TILING_CPU
                                     : MHA_TILING_DEFAULT;
        if (n % 3 == 1 && rows <= 64 && c.desc.tiling == MHA_TILING_DEFAULT) {
            c.desc.path = MHA_PATH_DECODE;
            c.desc.tiling = n % 12 == 7 ? MHA_TILING_GPU : MHA_TILING_DEFAULT;
        }
        check_packed(&d, &c, &worst);
        count++;
    }
    compare_log("packed", count, &worst);
    device_close(&d);
}

/* No sequence has a key. */
Test(packed, no_keys_at_all)
{
    static const int32_t offsets[3] = { 0, 2, 3 }, none[3] = { 0 };
    static const float query[3] = { 1, 2, 3 };
    float got[3], lse[3];
    device d;
    device_open(&d);
    for (int way = 0; way < 2; way++) {
        const size_t shape[4] = { 1, 1, 3, 1 };
        const device_tensor q = device_input(&d, shape, NULL, sizeof(float), query);
        const device_tensor o = device_output(&d, shape, NULL, sizeof(float));
        const device_tensor l = device_output(&d, shape, NULL, sizeof(float));
        const mha_attention_desc desc = { ATTENTION_SIZES(2, 1, 2, 0, 1),
                                          .uses = PACKS | MHA_USES_LSE,
                                          .tiling = way ? MHA_TILING_GPU : MHA_TILING_DEFAULT };
        const mha_attention_args args = { .query = device_arg(&q),
                                          .output = device_arg(&o),
                                          .lse = device_arg(&l),
                                          .query_offsets.host = offsets,
                                          .key_offsets.host = none };
        mha_attention *attention;
        cr_assert_eq(mha_attention_create(&attention, d.context, &desc), MHA_OK, "%s", d.sentence);
        const mha_call call = device_call(&d, mha_attention_workspace(attention));
        cr_assert_eq(mha_attention_enqueue(attention, &args, &call), MHA_OK, "%s", d.sentence);
        mha_attention_destroy(&attention);
        device_read(&d, &o, got);
        device_read(&d, &l, lse);
        for (int i = 0; i < 3; i++)
            cr_expect(got[i] == 0 && lse[i] == -INFINITY, "way %d: row %d is %g, lse %g", way, i,
                      (double)got[i], (double)lse[i]);
        device_expect_guards(&d, "no keys");
        device_forget(&d);
    }
    device_close(&d);
}

/* Offsets on the device that are out of order or range: nothing outside is read or written, and no
 * sequence is longer than it may be. */
Test(packed, offsets_on_the_device_are_clamped)
{
    enum {
        BATCH = 5,
        ROWS = 6,
        LONGEST = 3
    };
    static const int32_t offsets[BATCH + 1] = { -7, 2, 1, 100, INT32_MIN, INT32_MAX };
    float data[ROWS], got[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        data[i] = (float)i;
    const size_t shape[4] = { 1, 1, ROWS, 1 };
    device d;
    device_open(&d);
    for (int way = 0; way < 4; way++) {
        const device_tensor x = device_input(&d, shape, NULL, sizeof(float), data);
        const device_tensor o = device_output(&d, shape, NULL, sizeof(float));
        const device_tensor at =
            device_input(&d, (size_t[]){ 1, 1, 1, BATCH + 1 }, NULL, sizeof(int32_t), offsets);
        const mha_attention_desc desc = { ATTENTION_SIZES(BATCH, 1, LONGEST, LONGEST, 1),
                                          .uses = PACKS,
                                          .path = way >= 2 ? MHA_PATH_DECODE : MHA_PATH_STREAMING,
                                          .tiling = way % 2 ? MHA_TILING_GPU : MHA_TILING_CPU };
        const mha_lengths lengths = { .buffer = device_buffer(&at), .offset = at.offset };
        const mha_attention_args args = {
            .query = device_arg(&x),
            .key = device_arg(&x),
            .value = device_arg(&x),
            .output = device_arg(&o),
            .query_offsets = lengths,
            .key_offsets = lengths,
            .query_total = ROWS,
            .key_total = ROWS,
        };
        mha_attention *attention;
        cr_assert_eq(mha_attention_create(&attention, d.context, &desc), MHA_OK, "%s", d.sentence);
        const mha_call call = device_call(&d, mha_attention_workspace(attention));
        cr_assert_eq(mha_attention_enqueue(attention, &args, &call), MHA_OK, "%s", d.sentence);
        mha_attention_destroy(&attention);
        device_read(&d, &o, got);
        /* Batch 0 has rows 0 and 1; 1 none; 2 has 1 to before 4, cut to three; the last 0 to 2.
         * Batches that share rows write the same place, so only that they stay within is asked. */
        for (size_t i = 0; i < ROWS; i++)
            cr_expect(got[i] != got[i] || (got[i] >= 0 && got[i] < ROWS), "way %d: row %zu is %g",
                      way, i, (double)got[i]);
        cr_expect(got[4] != got[4] && got[5] != got[5], "way %d: a row past all was written", way);
        device_expect_guards(&d, "clamped offsets");
        device_forget(&d);
    }
    device_close(&d);
}
