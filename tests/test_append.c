/* Generation with a cache: new keys join it and attention sees them, wherever they land; rings,
 * rotary positions, other types; and 256 tokens one by one against one causal pass. */
#include "attention_place.h"
#include "half.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call with a history: batch b has `past[b]` keys and gets new ones. */
typedef struct append_case {
    mha_attention_desc desc;
    attention_layout layout;
    bool on_device; /* the positions; some of them leave no room for the new keys */
    uint64_t seed;
} append_case;

/* Keys and values [batch][kv_heads][total][dim] in the order of their positions, as the cache's
 * type holds them; the new ones last. */
typedef struct append_data {
    char name[256];
    append_case given;
    mha_attention_desc desc; /* resolved */
    size_t total;            /* the most keys of a batch */
    int32_t *positions;
    int32_t *lengths;      /* keys of each batch, the new ones too */
    float *query, *turned; /* as given, and rotated */
    float *new_key, *new_value;
    float *key, *value;
    float *cos, *sin;
    float *cache_key, *cache_value; /* [batch][kv_heads][key_len][dim] before; then as wanted */
    double *output, *lse;
} append_data;

static float *allocate(size_t count)
{
    float *memory = calloc(count ? count : 1, sizeof(double));
    cr_assert(memory);
    return memory;
}

static float *filled(size_t count, uint64_t seed, mha_type type)
{
    float *data = allocate(count);
    fill_floats(data, count, seed, FILL_NORMAL);
    stored_round(type, data, count);
    return data;
}

static mha_type type_or(mha_type type, mha_type other)
{
    return type ? type : other;
}

/* A row turned for a position, in double, as the formula of the header says. */
static void turn(const append_data *data, float *to, const float *from, size_t position)
{
    const mha_attention_desc *d = &data->desc;
    const size_t pairs = d->rotary_dim / 2;
    memcpy(to, from, d->head_dim * sizeof *to);
    for (size_t p = 0; p < pairs; p++) {
        const bool halves = d->rotary_pairs == MHA_ROTARY_HALVES;
        const size_t first = halves ? p : 2 * p, second = halves ? p + pairs : 2 * p + 1;
        const double a = from[first], b = from[second];
        const double c = data->cos[position * pairs + p], s = data->sin[position * pairs + p];
        to[first] = (float)(a * c - b * s);
        to[second] = (float)(b * c + a * s);
    }
}

static void place_positions(append_data *data)
{
    const mha_attention_desc *d = &data->desc;
    const bool rings = d->uses & MHA_USES_RING;
    const size_t room = d->key_len - d->new_len;
    for (size_t b = 0; b < d->batch; b++) {
        size_t position = compare_pick(data->given.seed + b, 40, room + 1);
        if (rings)
            position = compare_pick(data->given.seed + b, 41, 3 * d->key_len);
        if (b == 0)
            position = rings ? 0 : room;
        data->positions[b] = (int32_t)position;
        data->lengths[b] = (int32_t)(position + d->new_len);
        if ((size_t)data->lengths[b] > data->total)
            data->total = (size_t)data->lengths[b];
    }
}

/* The new rows, turned if they are, in the type of the cache; and the caches before the call. */
static void place_rows(append_data *data, float *all, const float *fresh, float *cache, size_t dim,
                       bool turns)
{
    const mha_attention_desc *d = &data->desc;
    float *row = allocate(dim);
    for (size_t g = 0; g < d->batch * d->kv_heads; g++) {
        const size_t b = g / d->kv_heads;
        const size_t past = (size_t)data->positions[b];
        for (size_t j = 0; j < data->total; j++) {
            float *at = all + (g * data->total + j) * dim;
            if (j >= past && j < past + d->new_len) {
                const float *from = fresh + (g * d->new_len + j - past) * dim;
                if (turns)
                    turn(data, row, from, j);
                memcpy(at, turns ? row : from, dim * sizeof *at);
                stored_round(type_or(d->key_value_type, d->type), at, dim);
            } else if (j < past && j + d->key_len >= past) {
                memcpy(cache + (g * d->key_len + j % d->key_len) * dim, at, dim * sizeof *at);
            }
        }
    }
    free(row);
}

static void expect_cache(const append_data *data, const float *all, float *cache, size_t dim)
{
    const mha_attention_desc *d = &data->desc;
    for (size_t g = 0; g < d->batch * d->kv_heads; g++)
        for (size_t n = 0; n < d->new_len; n++) {
            const size_t j = (size_t)data->positions[g / d->kv_heads] + n;
            memcpy(cache + (g * d->key_len + j % d->key_len) * dim,
                   all + (g * data->total + j) * dim, dim * sizeof *all);
        }
}

static void expect_output(append_data *data)
{
    mha_attention_desc desc = data->desc;
    desc.uses &= MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT;
    desc.uses |= MHA_USES_KEY_LENGTHS;
    desc.key_len = data->total;
    data->output = (double *)allocate(desc.batch * desc.heads * desc.query_len * desc.value_dim);
    data->lse = (double *)allocate(desc.batch * desc.heads * desc.query_len);
    const reference_args args = {
        .query = data->turned,
        .key = data->key,
        .value = data->value,
        .key_lengths = data->lengths,
        .output = data->output,
        .lse = data->lse,
    };
    reference_attention(&desc, &args);
}

static append_data *append_data_new(const append_case *given)
{
    append_data *data = calloc(1, sizeof *data);
    cr_assert(data);
    data->given = *given;
    data->desc = reference_attention_resolve(&given->desc);
    mha_attention_desc *d = &data->desc;
    const bool rotates = d->uses & MHA_USES_ROTARY;
    if (rotates && !d->rotary_dim)
        d->rotary_dim = d->head_dim;
    snprintf(data->name, sizeof data->name,
             "append seed %llu: b%zu h%zu/%zu q%zu k%zu n%zu d%zu v%zu uses %llx path %d/%d types "
             "%d,%d,%d rotary %zu/%d layout %d%s",
             (unsigned long long)given->seed, d->batch, d->heads, d->kv_heads, d->query_len,
             d->key_len, d->new_len, d->head_dim, d->value_dim, (unsigned long long)d->uses,
             (int)d->path, (int)d->tiling, (int)d->type, (int)d->key_value_type, (int)d->new_type,
             d->rotary_dim, (int)d->rotary_pairs, (int)given->layout,
             given->on_device ? " positions on device" : "");
    data->positions = calloc(d->batch, sizeof(int32_t));
    data->lengths = calloc(d->batch, sizeof(int32_t));
    cr_assert(data->positions && data->lengths);
    place_positions(data);
    const mha_type cache = type_or(d->key_value_type, d->type);
    const size_t queries = d->batch * d->heads * d->query_len, kv = d->batch * d->kv_heads;
    const size_t pairs = d->rotary_positions * d->rotary_dim / 2;
    const uint64_t seed = given->seed * 16;
    data->query = filled(queries * d->head_dim, seed + 1, d->type);
    data->turned = allocate(queries * d->head_dim);
    data->new_key = filled(kv * d->new_len * d->head_dim, seed + 2, type_or(d->new_type, d->type));
    data->new_value =
        filled(kv * d->new_len * d->value_dim, seed + 3, type_or(d->new_type, d->type));
    data->key = filled(kv * data->total * d->head_dim, seed + 4, cache);
    data->value = filled(kv * data->total * d->value_dim, seed + 5, cache);
    data->cos = allocate(pairs);
    data->sin = allocate(pairs);
    for (size_t n = 0; n < pairs; n++) {
        data->cos[n] = (float)cos((double)n * 0.37);
        data->sin[n] = (float)sin((double)n * 0.37);
    }
    data->cache_key = allocate(kv * d->key_len * d->head_dim);
    data->cache_value = allocate(kv * d->key_len * d->value_dim);
    /* What is in no batch's past must not be read. */
    for (size_t n = 0; n < kv * d->key_len * d->head_dim; n++)
        data->cache_key[n] = NAN;
    for (size_t n = 0; n < kv * d->key_len * d->value_dim; n++)
        data->cache_value[n] = NAN;
    place_rows(data, data->key, data->new_key, data->cache_key, d->head_dim, rotates);
    place_rows(data, data->value, data->new_value, data->cache_value, d->value_dim, false);
    for (size_t r = 0; r < queries; r++) {
        const size_t b = r / d->query_len / d->heads, i = r % d->query_len;
        float *to = data->turned + r * d->head_dim;
        const float *from = data->query + r * d->head_dim;
        memcpy(to, from, d->head_dim * sizeof *to);
        if (rotates)
            turn(data, to, from, (size_t)data->positions[b] + i);
        stored_round(d->type, to, d->head_dim);
    }
    expect_output(data);
    return data;
}

static void append_data_free(append_data *data)
{
    void *const arrays[] = { data->positions, data->lengths,   data->query,
                             data->turned,    data->new_key,   data->new_value,
                             data->key,       data->value,     data->cos,
                             data->sin,       data->cache_key, data->cache_value,
                             data->output,    data->lse,       data };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
}

static device_tensor place(device *d, attention_layout layout, const size_t shape[4], mha_type type,
                           const float *data)
{
    const size_t count = shape[0] * shape[1] * shape[2] * shape[3];
    void *packed = stored_pack(type, data, count);
    const device_tensor tensor = attention_place_one(d, layout, shape, stored_bytes(type), packed);
    free(packed);
    return tensor;
}

/* A tensor that the call may change, and what it holds before. */
static device_tensor place_cache(device *d, attention_layout layout, const size_t shape[4],
                                 mha_type type, const float *data)
{
    const size_t count = shape[0] * shape[1] * shape[2] * shape[3];
    void *packed = stored_pack(type, data, count);
    const device_tensor tensor = attention_place_one(d, layout, shape, stored_bytes(type), NULL);
    device_write(d, &tensor, packed);
    free(packed);
    return tensor;
}

static void read_as(device *d, const device_tensor *tensor, mha_type type, float *to, size_t count)
{
    void *packed = calloc(count ? count : 1, stored_bytes(type));
    cr_assert(packed);
    device_read(d, tensor, packed);
    stored_unpack(type, to, packed, count);
    free(packed);
}

static void compare_cache(device *d, const append_data *data, const char *what,
                          const device_tensor *tensor, const float *want, size_t dim, bool turns,
                          compare_worst *worst)
{
    const mha_attention_desc *desc = &data->desc;
    const mha_type type = type_or(desc->key_value_type, desc->type);
    const size_t count = desc->batch * desc->kv_heads * desc->key_len * dim;
    float *got = allocate(count);
    read_as(d, tensor, type, got, count);
    for (size_t n = 0; n < count; n++) {
        const double limit = turns ? reference_limit(2, 8) + 2 * stored_limit(type, want[n]) : 0;
        if (isnan(want[n]) && isnan(got[n]))
            continue;
        if (!compare_one(data->name, what, n, got[n], want[n], limit, worst))
            break;
    }
    free(got);
}

static void compare_results(device *d, const append_data *data, const device_tensor *output,
                            const device_tensor *lse, compare_worst *worst)
{
    const mha_attention_desc *desc = &data->desc;
    const mha_type type = type_or(desc->output_type, desc->type);
    const size_t rows = desc->batch * desc->heads * desc->query_len;
    const size_t count = rows * desc->value_dim;
    float *got = allocate(count);
    read_as(d, output, type, got, count);
    /* Rounding the rotated query and key to a half moves the scores. */
    const bool turns = desc->uses & MHA_USES_ROTARY;
    const double coarse = fmax(half_epsilon(type_or(desc->type, MHA_FLOAT32)),
                               half_epsilon(type_or(desc->key_value_type, desc->type)));
    const double extra = turns ? 32 * coarse : 0;
    for (size_t n = 0; n < count; n++)
        if (!compare_one(data->name, "output", n, got[n], data->output[n],
                         reference_limit(desc->head_dim + data->total, 8) + extra +
                             stored_limit(type, data->output[n]),
                         worst))
            break;
    device_read(d, lse, got);
    for (size_t n = 0; n < rows; n++)
        compare_one(data->name, "lse", n, got[n], data->lse[n],
                    reference_limit(desc->head_dim + data->total, 8) + extra, worst);
    free(got);
}

static void check_append(device *d, const append_case *given, compare_worst *worst)
{
    append_data *data = append_data_new(given);
    const mha_attention_desc *desc = &data->desc;
    const size_t b = desc->batch, kv = desc->kv_heads;
    const mha_type cache_type = type_or(desc->key_value_type, desc->type);
    const mha_type new_type = type_or(desc->new_type, desc->type);
    const size_t query[4] = { b, desc->heads, desc->query_len, desc->head_dim };
    const size_t output[4] = { b, desc->heads, desc->query_len, desc->value_dim };
    const size_t table[4] = { 1, 1, desc->rotary_positions, desc->rotary_dim / 2 };
    const attention_layout layout = given->layout;
    mha_attention_args args = { 0 };
    const device_tensor q = place(d, layout, query, desc->type, data->query);
    const device_tensor nk = place(d, layout, (size_t[]){ b, kv, desc->new_len, desc->head_dim },
                                   new_type, data->new_key);
    const device_tensor nv = place(d, layout, (size_t[]){ b, kv, desc->new_len, desc->value_dim },
                                   new_type, data->new_value);
    const device_tensor k = place_cache(
        d, layout, (size_t[]){ b, kv, desc->key_len, desc->head_dim }, cache_type, data->cache_key);
    const device_tensor v =
        place_cache(d, layout, (size_t[]){ b, kv, desc->key_len, desc->value_dim }, cache_type,
                    data->cache_value);
    const device_tensor o = attention_place_one(
        d, layout, output, stored_bytes(type_or(desc->output_type, desc->type)), NULL);
    const device_tensor lse = attention_place_one(
        d, LAYOUT_PACKED, (size_t[]){ b, desc->heads, desc->query_len, 1 }, sizeof(float), NULL);
    args.query = device_arg(&q);
    args.key = device_arg(&k);
    args.value = device_arg(&v);
    args.new_key = device_arg(&nk);
    args.new_value = device_arg(&nv);
    args.output = device_arg(&o);
    args.lse = device_arg(&lse);
    args.append_positions.host = data->positions;
    if (given->on_device) {
        const device_tensor at =
            device_input(d, (size_t[]){ 1, 1, 1, b }, NULL, sizeof(int32_t), data->positions);
        args.append_positions = (mha_lengths){ .buffer = device_buffer(&at), .offset = at.offset };
    }
    if (desc->uses & MHA_USES_ROTARY) {
        const device_tensor c = place(d, LAYOUT_GAPS, table, MHA_FLOAT32, data->cos);
        const device_tensor s = place(d, LAYOUT_PACKED, table, MHA_FLOAT32, data->sin);
        args.rotary_cos = device_arg(&c);
        args.rotary_sin = device_arg(&s);
    }
    mha_attention *attention = NULL;
    mha_status status = mha_attention_create(&attention, d->context, &given->desc);
    cr_assert_eq(status, MHA_OK, "%s: create: %s", data->name, d->sentence);
    const mha_call call = device_call(d, mha_attention_workspace(attention));
    status = mha_attention_enqueue(attention, &args, &call);
    cr_assert_eq(status, MHA_OK, "%s: enqueue: %s", data->name, d->sentence);
    mha_attention_destroy(&attention);

    expect_cache(data, data->key, data->cache_key, desc->head_dim);
    expect_cache(data, data->value, data->cache_value, desc->value_dim);
    compare_cache(d, data, "cache of keys", &k, data->cache_key, desc->head_dim,
                  desc->uses & MHA_USES_ROTARY, worst);
    compare_cache(d, data, "cache of values", &v, data->cache_value, desc->value_dim, false, worst);
    compare_results(d, data, &o, &lse, worst);
    device_expect_guards(d, data->name);
    append_data_free(data);
    device_forget(d);
}

static append_case pick_case(uint64_t seed)
{
    static const size_t dims[] = { 2, 8, 20, 33, 64 };
    static const size_t news[] = { 1, 1, 2, 3, 17 };
    static const mha_type types[][3] = {
        { MHA_FLOAT32, MHA_FLOAT32, MHA_FLOAT32 },
        { MHA_FLOAT32, MHA_FLOAT16, MHA_FLOAT32 },
        { MHA_FLOAT16, MHA_FLOAT16, MHA_FLOAT16 },
        { MHA_FLOAT32, MHA_BFLOAT16, MHA_BFLOAT16 },
    };
    append_case c = { .seed = seed };
    mha_attention_desc *d = &c.desc;
    const mha_type *row = types[compare_pick(seed, 0, 4)];
    d->type = row[0];
    d->key_value_type = row[1];
    d->new_type = row[2];
    d->batch = 1 + compare_pick(seed, 1, 3);
    d->kv_heads = 1 + compare_pick(seed, 2, 2);
    d->heads = d->kv_heads * (1 + compare_pick(seed, 3, 3));
    d->new_len = news[compare_pick(seed, 4, 5)];
    d->query_len = d->new_len;
    d->head_dim = dims[compare_pick(seed, 5, 5)];
    d->value_dim = compare_pick(seed, 6, 2) ? 0 : dims[compare_pick(seed, 7, 5)];
    d->uses = MHA_USES_APPEND | MHA_USES_LSE;
    d->key_len = d->new_len + compare_pick(seed, 8, 70);
    const size_t kind = compare_pick(seed, 9, 4);
    if (kind) {
        d->uses |= MHA_USES_CAUSAL;
        d->diagonal = MHA_BOTTOM_RIGHT;
    }
    if (kind >= 2) {
        d->uses |= MHA_USES_WINDOW_LEFT;
        d->window_left = compare_pick(seed, 10, 9);
    }
    if (kind == 3) {
        d->uses |= MHA_USES_RING;
        d->key_len = d->window_left + d->query_len + compare_pick(seed, 11, 40);
    }
    if (compare_pick(seed, 12, 2) && d->head_dim % 2 == 0) {
        d->uses |= MHA_USES_ROTARY;
        d->rotary_dim = compare_pick(seed, 13, 2) ? 0 : 2;
        d->rotary_pairs = (mha_rotary_pairs)compare_pick(seed, 14, 2);
        d->rotary_positions = 4 * d->key_len + 3 * d->new_len;
    }
    c.layout = (attention_layout)compare_pick(seed, 15, NUM_LAYOUTS);
    if (c.layout == LAYOUT_QKV)
        c.layout = LAYOUT_PACKED;
    c.on_device = compare_pick(seed, 16, 2);
    return c;
}

Test(append, cross)
{
    enum {
        SEEDS = 40
    };
    static const struct {
        mha_path path;
        mha_tiling tiling;
        size_t each; /* a program of the GPU tiling takes seconds to build */
    } ways[] = {
        { MHA_PATH_DEFAULT, MHA_TILING_DEFAULT, 4 }, { MHA_PATH_COMPOSED, MHA_TILING_DEFAULT, 1 },
        { MHA_PATH_STREAMING, MHA_TILING_CPU, 5 },   { MHA_PATH_STREAMING, MHA_TILING_GPU, 20 },
        { MHA_PATH_DECODE, MHA_TILING_DEFAULT, 5 },
    };
    device d;
    compare_worst worst = { 0 };
    size_t count = 0;
    device_open(&d);
    for (size_t n = 0; n < SEEDS; n++)
        for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
            append_case c = pick_case(700 + n);
            c.desc.path = ways[way].path;
            c.desc.tiling = ways[way].tiling;
            const bool rings = c.desc.uses & MHA_USES_RING;
            if (n % ways[way].each || (rings && c.desc.path == MHA_PATH_COMPOSED))
                continue;
            check_append(&d, &c, &worst);
            count++;
        }
    compare_log("append", count, &worst);
    device_close(&d);
}

/* Positions on the device that leave no room, or lie before the cache: the rows that fit are
 * written, nothing else is, and the count of keys is clamped. */
Test(append, positions_on_the_device_are_clamped)
{
    enum {
        KEYS = 4,
        NEW = 3
    };
    static const int32_t positions[] = { 2, -2, 100, -100, INT32_MAX, INT32_MIN };
    enum {
        BATCH = sizeof positions / sizeof positions[0]
    };
    static const float fresh[BATCH][NEW] = { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 },
                                             { 1, 1, 1 }, { 2, 2, 2 }, { 3, 3, 3 } };
    static const float query[BATCH][NEW];
    float cache[BATCH][KEYS], got[BATCH][KEYS];
    for (size_t b = 0; b < BATCH; b++)
        for (size_t j = 0; j < KEYS; j++)
            cache[b][j] = -1 - (float)(b * KEYS + j);
    device d;
    device_open(&d);
    for (int path = MHA_PATH_COMPOSED; path <= MHA_PATH_DECODE; path++) {
        const size_t few[4] = { BATCH, 1, NEW, 1 }, all[4] = { BATCH, 1, KEYS, 1 };
        const device_tensor q = device_input(&d, few, NULL, sizeof(float), query);
        const device_tensor n = device_input(&d, few, NULL, sizeof(float), fresh);
        const device_tensor k = device_output(&d, all, NULL, sizeof(float));
        const device_tensor v = device_output(&d, all, NULL, sizeof(float));
        const device_tensor o = device_output(&d, few, NULL, sizeof(float));
        const device_tensor at =
            device_input(&d, (size_t[]){ 1, 1, 1, BATCH }, NULL, sizeof(int32_t), positions);
        device_write(&d, &k, cache);
        device_write(&d, &v, cache);
        const mha_attention_desc desc = { ATTENTION_SIZES(BATCH, 1, NEW, KEYS, 1), .new_len = NEW,
                                          .uses = MHA_USES_APPEND, .path = (mha_path)path };
        const mha_attention_args args = {
            .query = device_arg(&q),
            .key = device_arg(&k),
            .value = device_arg(&v),
            .new_key = device_arg(&n),
            .new_value = device_arg(&n),
            .output = device_arg(&o),
            .append_positions = { .buffer = device_buffer(&at), .offset = at.offset },
        };
        mha_attention *attention;
        cr_assert_eq(mha_attention_create(&attention, d.context, &desc), MHA_OK, "%s", d.sentence);
        const mha_call call = device_call(&d, mha_attention_workspace(attention));
        cr_assert_eq(mha_attention_enqueue(attention, &args, &call), MHA_OK, "%s", d.sentence);
        mha_attention_destroy(&attention);
        device_read(&d, &v, got);
        float output[BATCH][NEW];
        device_read(&d, &o, output);
        for (size_t b = 0; b < BATCH; b++) {
            double sum = 0;
            int64_t length = (int64_t)positions[b] + NEW;
            length = length < 0 ? 0 : length > KEYS ? KEYS : length;
            for (int64_t j = 0; j < KEYS; j++) {
                const int64_t i = j - positions[b];
                const float want = i >= 0 && i < NEW ? fresh[b][i] : cache[b][j];
                cr_expect_eq(got[b][j], want, "path %d, batch %zu, row %d is %g", path, b, (int)j,
                             (double)got[b][j]);
                sum += j < length ? want : 0;
            }
            for (size_t i = 0; i < NEW; i++)
                compare_one("clamped positions", "output", b * NEW + i, output[b][i],
                            length ? sum / (double)length : 0, 1e-5, NULL);
        }
        device_expect_guards(&d, "clamped positions");
        device_forget(&d);
    }
    device_close(&d);
}

/* 256 tokens, one by one and then in threes, against all at once. */
typedef struct steps_case {
    const char *name;
    mha_type cache;
    size_t window; /* 0: none */
    bool rings;
    size_t step;
    mha_path path;
} steps_case;

enum {
    TOKENS = 256,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 32
};

static void check_steps(device *d, const steps_case *c)
{
    const size_t few = HEADS * DIM, kv = KV_HEADS * DIM;
    const size_t capacity = c->rings ? c->window + c->step + 5 : TOKENS;
    float *query = filled(TOKENS * few, 1, MHA_FLOAT32);
    float *key = filled(TOKENS * kv, 2, MHA_FLOAT32), *value = filled(TOKENS * kv, 3, MHA_FLOAT32);
    float *got = allocate(TOKENS * few), *want = allocate(TOKENS * few);
    /* [len][heads][dim], so that a step is a view of some rows. */
    const size_t q_shape[4] = { 1, HEADS, TOKENS, DIM }, q_strides[4] = { 0, DIM, few, 1 };
    const size_t k_shape[4] = { 1, KV_HEADS, TOKENS, DIM }, k_strides[4] = { 0, DIM, kv, 1 };
    const size_t c_shape[4] = { 1, KV_HEADS, capacity, DIM };
    const device_tensor q = device_input(d, q_shape, q_strides, sizeof(float), query);
    const device_tensor k = device_input(d, k_shape, k_strides, sizeof(float), key);
    const device_tensor v = device_input(d, k_shape, k_strides, sizeof(float), value);
    const device_tensor ck = device_output(d, c_shape, NULL, stored_bytes(c->cache));
    const device_tensor cv = device_output(d, c_shape, NULL, stored_bytes(c->cache));
    const device_tensor o = device_output(d, q_shape, q_strides, sizeof(float));
    mha_attention_desc desc = { ATTENTION_SIZES(1, HEADS, c->step, capacity, DIM),
                                .kv_heads = KV_HEADS,
                                .key_value_type = c->cache,
                                .new_len = c->step,
                                .path = c->path,
                                .diagonal = MHA_BOTTOM_RIGHT,
                                .uses = MHA_USES_APPEND | MHA_USES_CAUSAL |
                                        (c->window ? MHA_USES_WINDOW_LEFT : 0) |
                                        (c->rings ? MHA_USES_RING : 0),
                                .window_left = c->window };
    mha_attention *attention;
    cr_assert_eq(mha_attention_create(&attention, d->context, &desc), MHA_OK, "%s", d->sentence);
    const mha_call call = device_call(d, mha_attention_workspace(attention));
    int32_t positions[TOKENS];
    for (size_t t = 0; t < TOKENS; t += c->step) {
        const size_t len = t + c->step <= TOKENS ? c->step : TOKENS - t;
        positions[t] = (int32_t)t;
        mha_attention_args args = { .query_len = len, .new_len = len };
        args.query = device_arg(&q);
        args.query.offset += t * few;
        args.output = device_arg(&o);
        args.output.offset += t * few;
        args.new_key = device_arg(&k);
        args.new_key.offset += t * kv;
        args.new_value = device_arg(&v);
        args.new_value.offset += t * kv;
        args.key = device_arg(&ck);
        args.value = device_arg(&cv);
        args.append_positions.host = &positions[t];
        cr_assert_eq(mha_attention_enqueue(attention, &args, &call), MHA_OK, "%s: %s", c->name,
                     d->sentence);
    }
    mha_attention_destroy(&attention);
    device_read(d, &o, got);

    /* One pass over keys and values as the cache holds them. */
    stored_round(c->cache, key, TOKENS * kv);
    stored_round(c->cache, value, TOKENS * kv);
    const device_tensor all_k = device_input(d, k_shape, k_strides, sizeof(float), key);
    const device_tensor all_v = device_input(d, k_shape, k_strides, sizeof(float), value);
    desc = (mha_attention_desc){ ATTENTION_SIZES(1, HEADS, TOKENS, TOKENS, DIM),
                                 .kv_heads = KV_HEADS, .diagonal = MHA_BOTTOM_RIGHT,
                                 .uses = MHA_USES_CAUSAL | (c->window ? MHA_USES_WINDOW_LEFT : 0),
                                 .window_left = c->window };
    const mha_attention_args args = { .query = device_arg(&q),
                                      .key = device_arg(&all_k),
                                      .value = device_arg(&all_v),
                                      .output = device_arg(&o) };
    cr_assert_eq(mha_attention_create(&attention, d->context, &desc), MHA_OK, "%s", d->sentence);
    const mha_call whole = device_call(d, mha_attention_workspace(attention));
    cr_assert_eq(mha_attention_enqueue(attention, &args, &whole), MHA_OK, "%s", d->sentence);
    mha_attention_destroy(&attention);
    device_read(d, &o, want);
    for (size_t n = 0; n < TOKENS * few; n++)
        if (!compare_one(c->name, "output", n, got[n], want[n], 2e-6, NULL))
            break;
    device_expect_guards(d, c->name);
    device_forget(d);
    free(query);
    free(key);
    free(value);
    free(got);
    free(want);
}

Test(append, token_by_token_is_one_causal_pass)
{
    static const steps_case cases[] = {
        { "float32", MHA_FLOAT32, 0, false, 1, MHA_PATH_DEFAULT },
        { "float16", MHA_FLOAT16, 0, false, 1, MHA_PATH_DEFAULT },
        { "float32, window", MHA_FLOAT32, 40, false, 1, MHA_PATH_DEFAULT },
        { "float16, window", MHA_FLOAT16, 40, false, 1, MHA_PATH_DEFAULT },
        { "float32, ring", MHA_FLOAT32, 40, true, 1, MHA_PATH_DEFAULT },
        { "float16, ring", MHA_FLOAT16, 40, true, 1, MHA_PATH_DEFAULT },
        { "float32, threes", MHA_FLOAT32, 0, false, 3, MHA_PATH_DEFAULT },
        { "float32, ring, threes", MHA_FLOAT32, 40, true, 3, MHA_PATH_DEFAULT },
        { "float32, streaming", MHA_FLOAT32, 0, false, 1, MHA_PATH_STREAMING },
        { "float16, ring, streaming", MHA_FLOAT16, 40, true, 3, MHA_PATH_STREAMING },
        { "float16, composed", MHA_FLOAT16, 0, false, 3, MHA_PATH_COMPOSED },
    };
    device d;
    device_open(&d);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        check_steps(&d, &cases[n]);
    device_close(&d);
}

static bool is_cpu(const device *d)
{
    mha_device_info info;
    cr_assert_eq(mha_context_info(d->context, &info), MHA_OK);
    return info.type & CL_DEVICE_TYPE_CPU;
}

static void note_stage(void *data, const char *stage, const char *what, cl_event event)
{
    char *list = data;
    (void)what;
    (void)event;
    snprintf(list + strlen(list), 256 - strlen(list), "%s\n", stage);
}

/* One object for a prompt and for single tokens takes the path that suits each, and looks at as
 * much of a packed cache as a call says, which lies where the desc says. */
Test(append, one_object_for_prompt_and_tokens)
{
    enum {
        PROMPT = 32,
        ROOM = 96,
        STEPS = 3,
        ALL = PROMPT + STEPS
    };
    const size_t few = HEADS * DIM, kv = KV_HEADS * DIM;
    const size_t q_shape[4] = { 1, HEADS, ALL, DIM }, q_strides[4] = { 0, DIM, few, 1 };
    const size_t k_shape[4] = { 1, KV_HEADS, ALL, DIM }, k_strides[4] = { 0, DIM, kv, 1 };
    const size_t c_shape[4] = { 1, KV_HEADS, ROOM, DIM };
    float *query = filled(ALL * few, 1, MHA_FLOAT32), *key = filled(ALL * kv, 2, MHA_FLOAT32);
    float *got = allocate(ALL * few), *want = allocate(ALL * few);
    device d;
    device_open(&d);
    const device_tensor q = device_input(&d, q_shape, q_strides, sizeof(float), query);
    const device_tensor k = device_input(&d, k_shape, k_strides, sizeof(float), key);
    const device_tensor cache = device_output(&d, c_shape, NULL, sizeof(float));
    const device_tensor values = device_output(&d, c_shape, NULL, sizeof(float));
    const device_tensor o = device_output(&d, q_shape, q_strides, sizeof(float));
    mha_attention_desc desc = { ATTENTION_SIZES(1, HEADS, PROMPT, ROOM, DIM), .kv_heads = KV_HEADS,
                                .new_len = PROMPT, .diagonal = MHA_AFTER_PAST,
                                .uses = MHA_USES_APPEND | MHA_USES_CAUSAL };
    mha_attention *attention;
    cr_assert_eq(mha_attention_create(&attention, d.context, &desc), MHA_OK, "%s", d.sentence);
    char explain[2048], stages[256] = "";
    mha_attention_explain(attention, explain, sizeof explain);
    mha_call call = device_call(&d, mha_attention_workspace(attention));
    call.stage = note_stage;
    call.stage_data = stages;
    int32_t positions[STEPS + 1];
    for (size_t step = 0; step <= STEPS; step++) {
        const size_t t = step ? PROMPT + step - 1 : 0, len = step ? 1 : PROMPT;
        positions[step] = (int32_t)t;
        mha_attention_args args = { .query_len = len, .new_len = len, .key_len = t + len };
        args.query = device_arg(&q);
        args.query.offset += t * few;
        args.output = device_arg(&o);
        args.output.offset += t * few;
        args.new_key = args.new_value = device_arg(&k);
        args.new_key.offset = args.new_value.offset += t * kv;
        args.key = device_arg(&cache);
        args.value = device_arg(&values);
        args.append_positions.host = &positions[step];
        cr_assert_eq(mha_attention_enqueue(attention, &args, &call), MHA_OK, "%s", d.sentence);
        cr_expect(!is_cpu(&d) || strstr(stages, step ? "decode\n" : "attend\n"), "step %zu: %s",
                  step, stages);
        stages[0] = '\0';
    }
    cr_expect(!is_cpu(&d) || strstr(explain, "path decode for calls of at most 4 queries"), "%s",
              explain);
    mha_attention_destroy(&attention);
    device_read(&d, &o, got);
    desc = (mha_attention_desc){ ATTENTION_SIZES(1, HEADS, ALL, ALL, DIM), .kv_heads = KV_HEADS,
                                 .uses = MHA_USES_CAUSAL, .diagonal = MHA_TOP_LEFT };
    const mha_attention_args args = { .query = device_arg(&q),
                                      .key = device_arg(&k),
                                      .value = device_arg(&k),
                                      .output = device_arg(&o) };
    cr_assert_eq(mha_attention_create(&attention, d.context, &desc), MHA_OK, "%s", d.sentence);
    const mha_call whole = device_call(&d, mha_attention_workspace(attention));
    cr_assert_eq(mha_attention_enqueue(attention, &args, &whole), MHA_OK, "%s", d.sentence);
    mha_attention_destroy(&attention);
    device_read(&d, &o, want);
    for (size_t n = 0; n < ALL * few; n++)
        if (!compare_one("prompt and tokens", "output", n, got[n], want[n], 2e-6, NULL))
            break;
    device_expect_guards(&d, "prompt and tokens");
    free(query);
    free(key);
    free(got);
    free(want);
    device_close(&d);
}
