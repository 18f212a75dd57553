/* Attention that appends to a cache, with a history, against the reference. */
#include "append_case.h"

#include "attention_place.h"
#include "half.h"
#include "reference.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    float *slopes;                  /* [heads] */
    float *cache_key, *cache_value; /* [batch][kv_heads][key_len][dim] before; then as wanted */
    double *output, *lse;
} append_data;

static float *allocate(size_t count)
{
    float *memory = calloc(count ? count : 1, sizeof(double));
    cr_assert(memory);
    return memory;
}

float *append_filled(size_t count, uint64_t seed, mha_type type)
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

/* The reference knows no past: the diagonal that begins after it is a length of each query. */
static int32_t *lengths_after_past(const append_data *data)
{
    const mha_attention_desc *d = &data->desc;
    int32_t *lengths = calloc(d->batch * d->query_len, sizeof *lengths);
    cr_assert(lengths);
    for (size_t r = 0; r < d->batch * d->query_len; r++)
        lengths[r] = data->positions[r / d->query_len] + (int32_t)(r % d->query_len) + 1;
    return lengths;
}

static void expect_output(append_data *data)
{
    mha_attention_desc desc = data->desc;
    desc.uses &= MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT | MHA_USES_ALIBI;
    desc.uses |= MHA_USES_KEY_LENGTHS;
    desc.key_len = data->total;
    int32_t *per_query = NULL;
    if (desc.diagonal == MHA_AFTER_PAST) {
        cr_assert_eq(desc.uses, MHA_USES_CAUSAL | MHA_USES_KEY_LENGTHS);
        desc.uses = MHA_USES_KEY_LENGTHS | MHA_USES_KEY_LENGTHS_PER_QUERY;
        desc.diagonal = MHA_DIAGONAL_NONE;
        per_query = lengths_after_past(data);
    }
    data->output = (double *)allocate(desc.batch * desc.heads * desc.query_len * desc.value_dim);
    data->lse = (double *)allocate(desc.batch * desc.heads * desc.query_len);
    const reference_args args = {
        .query = data->turned,
        .key = data->key,
        .value = data->value,
        .key_lengths = data->lengths,
        .key_lengths_per_query = per_query,
        .slopes = data->slopes,
        .output = data->output,
        .lse = data->lse,
    };
    reference_attention(&desc, &args);
    free(per_query);
}

static void name_case(append_data *data)
{
    const append_case *given = &data->given;
    const mha_attention_desc *d = &data->desc;
    snprintf(data->name, sizeof data->name,
             "append seed %llu: b%zu h%zu/%zu q%zu k%zu n%zu d%zu v%zu uses %llx path %d/%d types "
             "%d,%d,%d rotary %zu/%d layout %d%s",
             (unsigned long long)given->seed, d->batch, d->heads, d->kv_heads, d->query_len,
             d->key_len, d->new_len, d->head_dim, d->value_dim, (unsigned long long)d->uses,
             (int)d->path, (int)d->tiling, (int)d->type, (int)d->key_value_type, (int)d->new_type,
             d->rotary_dim, (int)d->rotary_pairs, (int)given->layout,
             given->on_device ? " positions on device" : "");
}

/* Tables, slopes, and caches before the call. */
static void fill_tables(append_data *data)
{
    const mha_attention_desc *d = &data->desc;
    const size_t pairs = d->rotary_positions * d->rotary_dim / 2, kv = d->batch * d->kv_heads;
    data->cos = allocate(pairs);
    data->sin = allocate(pairs);
    for (size_t n = 0; n < pairs; n++) {
        data->cos[n] = (float)cos((double)n * 0.37);
        data->sin[n] = (float)sin((double)n * 0.37);
    }
    data->slopes = allocate(d->heads);
    /* So slight that keys at the far end of a cache still count. */
    for (size_t h = 0; h < d->heads; h++)
        data->slopes[h] = (float)exp2(-(double)(h + 7));
    data->cache_key = allocate(kv * d->key_len * d->head_dim);
    data->cache_value = allocate(kv * d->key_len * d->value_dim);
    /* What is in no batch's past must not count. */
    for (size_t n = 0; n < kv * d->key_len * d->head_dim; n++)
        data->cache_key[n] = NAN;
    for (size_t n = 0; n < kv * d->key_len * d->value_dim; n++)
        data->cache_value[n] = NAN;
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
    name_case(data);
    data->positions = calloc(d->batch, sizeof(int32_t));
    data->lengths = calloc(d->batch, sizeof(int32_t));
    cr_assert(data->positions && data->lengths);
    place_positions(data);
    const mha_type cache = type_or(d->key_value_type, d->type);
    const size_t queries = d->batch * d->heads * d->query_len, kv = d->batch * d->kv_heads;
    const uint64_t seed = given->seed * 16;
    data->query = append_filled(queries * d->head_dim, seed + 1, d->type);
    data->turned = allocate(queries * d->head_dim);
    data->new_key =
        append_filled(kv * d->new_len * d->head_dim, seed + 2, type_or(d->new_type, d->type));
    data->new_value =
        append_filled(kv * d->new_len * d->value_dim, seed + 3, type_or(d->new_type, d->type));
    data->key = append_filled(kv * data->total * d->head_dim, seed + 4, cache);
    data->value = append_filled(kv * data->total * d->value_dim, seed + 5, cache);
    fill_tables(data);
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
    void *const arrays[] = { data->positions, data->lengths,   data->query,     data->turned,
                             data->new_key,   data->new_value, data->key,       data->value,
                             data->cos,       data->sin,       data->cache_key, data->cache_value,
                             data->output,    data->lse,       data->slopes,    data };
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

/* The arguments on the device, and the tensors that the call writes. */
typedef struct append_tensors {
    mha_attention_args args;
    device_tensor key, value, output, lse;
} append_tensors;

/* What some calls have only. */
static void place_options(device *d, const append_data *data, mha_attention_args *args)
{
    const mha_attention_desc *desc = &data->desc;
    const size_t table[4] = { 1, 1, desc->rotary_positions, desc->rotary_dim / 2 };
    args->append_positions.host = data->positions;
    if (data->given.on_device) {
        const device_tensor at = device_input(d, (size_t[]){ 1, 1, 1, desc->batch }, NULL,
                                              sizeof(int32_t), data->positions);
        args->append_positions = (mha_lengths){ .buffer = device_buffer(&at), .offset = at.offset };
    }
    if (desc->uses & MHA_USES_ROTARY) {
        const device_tensor c = place(d, LAYOUT_GAPS, table, MHA_FLOAT32, data->cos);
        const device_tensor s = place(d, LAYOUT_PACKED, table, MHA_FLOAT32, data->sin);
        args->rotary_cos = device_arg(&c);
        args->rotary_sin = device_arg(&s);
    }
    if (desc->uses & MHA_USES_ALIBI) {
        const device_tensor slopes =
            place(d, LAYOUT_PACKED, (size_t[]){ 1, 1, 1, desc->heads }, MHA_FLOAT32, data->slopes);
        args->alibi_slopes = device_arg(&slopes);
    }
}

static append_tensors place_all(device *d, const append_data *data)
{
    const mha_attention_desc *desc = &data->desc;
    const size_t b = desc->batch, h = desc->heads, kv = desc->kv_heads;
    const size_t q = desc->query_len, k = desc->key_len, n = desc->new_len;
    const size_t dim = desc->head_dim, value_dim = desc->value_dim;
    const mha_type cache_type = type_or(desc->key_value_type, desc->type);
    const mha_type new_type = type_or(desc->new_type, desc->type);
    const attention_layout layout = data->given.layout;
    const device_tensor query =
        place(d, layout, (size_t[]){ b, h, q, dim }, desc->type, data->query);
    const device_tensor new_key =
        place(d, layout, (size_t[]){ b, kv, n, dim }, new_type, data->new_key);
    const device_tensor new_value =
        place(d, layout, (size_t[]){ b, kv, n, value_dim }, new_type, data->new_value);
    append_tensors t = {
        .key = place_cache(d, layout, (size_t[]){ b, kv, k, dim }, cache_type, data->cache_key),
        .value = place_cache(d, layout, (size_t[]){ b, kv, k, value_dim }, cache_type,
                             data->cache_value),
        .output = attention_place_one(d, layout, (size_t[]){ b, h, q, value_dim },
                                      stored_bytes(type_or(desc->output_type, desc->type)), NULL),
        .lse = attention_place_one(d, LAYOUT_PACKED, (size_t[]){ b, h, q, 1 }, sizeof(float), NULL),
    };
    t.args = (mha_attention_args){
        .query = device_arg(&query),
        .key = device_arg(&t.key),
        .value = device_arg(&t.value),
        .new_key = device_arg(&new_key),
        .new_value = device_arg(&new_value),
        .output = device_arg(&t.output),
        .lse = device_arg(&t.lse),
    };
    place_options(d, data, &t.args);
    return t;
}

void append_check(device *d, const append_case *given, compare_worst *worst)
{
    append_data *data = append_data_new(given);
    const mha_attention_desc *desc = &data->desc;
    const append_tensors t = place_all(d, data);
    mha_attention *attention = NULL;
    mha_status status = mha_attention_create(&attention, d->context, &given->desc);
    cr_assert_eq(status, MHA_OK, "%s: create: %s", data->name, d->sentence);
    const mha_call call = device_call(d, mha_attention_workspace(attention));
    status = mha_attention_enqueue(attention, &t.args, &call);
    cr_assert_eq(status, MHA_OK, "%s: enqueue: %s", data->name, d->sentence);
    mha_attention_destroy(&attention);

    expect_cache(data, data->key, data->cache_key, desc->head_dim);
    expect_cache(data, data->value, data->cache_value, desc->value_dim);
    compare_cache(d, data, "cache of keys", &t.key, data->cache_key, desc->head_dim,
                  desc->uses & MHA_USES_ROTARY, worst);
    compare_cache(d, data, "cache of values", &t.value, data->cache_value, desc->value_dim, false,
                  worst);
    compare_results(d, data, &t.output, &t.lse, worst);
    device_expect_guards(d, data->name);
    append_data_free(data);
    device_forget(d);
}
