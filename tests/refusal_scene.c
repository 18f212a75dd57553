/* What the refused calls of attention, layer and softmax share: sizes, data, and all options. */
#include "refusal_scene.h"

#include "fill.h"

#include <criterion/criterion.h>
#include <string.h>

const mha_attention_desc scene_desc = {
    .batch = SCENE_BATCH,
    .heads = SCENE_HEADS,
    .kv_heads = SCENE_KV_HEADS,
    .query_len = SCENE_QUERIES,
    .key_len = SCENE_KEYS,
    .head_dim = SCENE_DIM,
    .value_dim = SCENE_VALUE_DIM,
    .uses = MHA_USES_KEY_LENGTHS | MHA_USES_KEY_LENGTHS_PER_QUERY | MHA_USES_BIAS | MHA_USES_MASK |
            MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT | MHA_USES_PROBS | MHA_USES_LSE,
    .diagonal = MHA_BOTTOM_RIGHT,
    .window_left = 4,
    .bias_broadcast = MHA_AXIS_BATCH,
    .gemm = MHA_GEMM_KERNEL,
};

float scene_query[SCENE_MOST], scene_key[SCENE_MOST], scene_value[SCENE_MOST];
float scene_bias[SCENE_MOST];
unsigned char scene_mask[SCENE_MOST];
const int32_t scene_key_lengths[SCENE_BATCH] = { 7, 5 };
const int32_t scene_per_query[SCENE_BATCH * SCENE_QUERIES] = { 7, 6, 7, 3, 7, 5, 5, 4, 5, 0 };
double scene_output[SCENE_MOST], scene_probs[SCENE_MOST], scene_lse[SCENE_MOST];

const reference_args scene_reference = {
    .query = scene_query,
    .key = scene_key,
    .value = scene_value,
    .bias = scene_bias,
    .mask = scene_mask,
    .key_lengths = scene_key_lengths,
    .key_lengths_per_query = scene_per_query,
    .output = scene_output,
    .probs = scene_probs,
    .lse = scene_lse,
};

void scene_fill(void)
{
    float *const all[] = { scene_query, scene_key, scene_value, scene_bias };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fill_floats(all[i], SCENE_MOST, i + 1, FILL_NORMAL);
    fill_mask(scene_mask, SCENE_MOST, 9, 0.8);
}

mha_status scene_attend(void *object, const void *args, const mha_call *call)
{
    return mha_attention_enqueue(object, args, call);
}

size_t scene_add_options(device *d, refusal_arg *list, mha_attention_args *args, size_t base)
{
    const size_t b = SCENE_BATCH, h = SCENE_HEADS, q = SCENE_QUERIES, k = SCENE_KEYS;
    void *const whole = (char *)args - base;
    size_t n = 0;
    refusal_add_tensor(&list[n++], d, whole, "bias", base + SCENE_AT(bias), SCENE_SHAPE(1, h, q, k),
                       scene_bias, NULL);
    list[n] = (refusal_arg){ .name = "mask", .at = base + SCENE_AT(mask), .strided = true };
    list[n].tensor = device_input(d, SCENE_SHAPE(b, h, q, k), NULL, 1, scene_mask);
    args->mask = device_arg(&list[n++].tensor);
    refusal_add_lengths(&list[n++], d, whole, "key_lengths", base + SCENE_AT(key_lengths.buffer), b,
                        scene_key_lengths);
    refusal_add_lengths(&list[n++], d, whole, "key_lengths_per_query",
                        base + SCENE_AT(key_lengths_per_query.buffer), b * q, scene_per_query);
    refusal_add_tensor(&list[n++], d, whole, "probs", base + SCENE_AT(probs),
                       SCENE_SHAPE(b, h, q, k), NULL, scene_probs);
    refusal_add_tensor(&list[n++], d, whole, "lse", base + SCENE_AT(lse), SCENE_SHAPE(b, h, q, 1),
                       NULL, scene_lse);
    return n;
}

/* Each row changes a copy of the good arguments. */
typedef struct lengths_row {
    const char *name;
    size_t query_len, key_len;
    const int32_t *key_lengths, *per_query;
    bool keeps_buffers; /* beside the host arrays */
    const char *says;
} lengths_row;

#define EACH_QUERY const int32_t[SCENE_BATCH * SCENE_QUERIES]

static const lengths_row lengths_rows[] = {
    { "query_len above the desc's", SCENE_QUERIES + 1, 0, NULL, NULL, true, "query_len" },
    { "key_len above the desc's", 0, SCENE_KEYS + 1, NULL, NULL, true, "key_len" },
    { "the largest query_len", SIZE_MAX, 0, NULL, NULL, true, "query_len" },
    { "the largest key_len", 0, SIZE_MAX, NULL, NULL, true, "key_len" },
    { "no lengths at all", 0, 0, NULL, NULL, false, "key_lengths" },
    { "key_lengths on host and device", 0, 0, scene_key_lengths, NULL, true, "key_lengths" },
    { "lengths of queries on host and device", 0, 0, NULL, scene_per_query, true,
      "key_lengths_per_query" },
    { "no lengths of queries", 0, 0, scene_key_lengths, NULL, false, "key_lengths_per_query" },
    { "a negative length", 0, 0, (const int32_t[]){ 7, -1 }, scene_per_query, false,
      "key_lengths[1]" },
    { "the least length", 0, 0, (const int32_t[]){ INT32_MIN, 7 }, scene_per_query, false,
      "key_lengths[0]" },
    { "a length above key_len", 0, 0, (const int32_t[]){ SCENE_KEYS + 1, 7 }, scene_per_query,
      false, "key_lengths[0]" },
    { "a length above the call's key_len", 0, 4, (const int32_t[]){ 4, 5 }, (EACH_QUERY){ 0 },
      false, "key_lengths[1]" },
    { "a negative length of a query", 0, 0, scene_key_lengths, (EACH_QUERY){ [9] = -1 }, false,
      "key_lengths_per_query[9]" },
    { "a length of a query above key_len", 0, 0, scene_key_lengths,
      (EACH_QUERY){ [4] = SCENE_KEYS + 1 }, false, "key_lengths_per_query[4]" },
};

void scene_refuse_lengths(refusal *r, size_t base)
{
    for (size_t i = 0; i < sizeof lengths_rows / sizeof lengths_rows[0]; i++) {
        const lengths_row *row = &lengths_rows[i];
        const refusal_arg *any = &r->list[0];
        char *copy = refusal_moved(r, any, device_buffer(&any->tensor), any->tensor.offset);
        mha_attention_args args;
        memcpy(&args, copy + base, sizeof args);
        args.query_len = row->query_len;
        args.key_len = row->key_len;
        if (!row->keeps_buffers)
            args.key_lengths.buffer = args.key_lengths_per_query.buffer = NULL;
        args.key_lengths.host = row->key_lengths;
        args.key_lengths_per_query.host = row->per_query;
        memcpy(copy + base, &args, sizeof args);
        refusal_expect(r, row->name, copy, &r->call, MHA_INVALID_ARGUMENT, row->says);
    }
}

typedef struct unasked_row {
    const char *says;
    size_t at, bytes; /* of mha_attention_args */
    const void *value;
} unasked_row;

#define UNASKED(field, value)                             \
    {                                                     \
#field, SCENE_AT(field), sizeof *(value), (value) \
    }

static void refuse_rows(refusal *r, size_t base, const unasked_row *rows, size_t count)
{
    const refusal_arg *any = &r->list[0];
    for (size_t i = 0; i < count; i++) {
        char *copy = refusal_moved(r, any, device_buffer(&any->tensor), any->tensor.offset);
        memcpy(copy + base + rows[i].at, rows[i].value, rows[i].bytes);
        refusal_expect(r, rows[i].says, copy, &r->call, MHA_INVALID_ARGUMENT, rows[i].says);
    }
}

void scene_refuse_unasked(refusal *r, size_t base, bool cache_too)
{
    const mha_tensor tensor = { .buffer = r->arena };
    const mha_lengths host = { .host = scene_key_lengths };
    const mha_lengths buffer = { .buffer = r->arena };
    const size_t one = 1, most = SIZE_MAX;
    const uint64_t low = 1, high = 1ull << 63;
    const uint32_t number = 1;
    const unasked_row rows[] = {
        UNASKED(query_offsets, &host),    UNASKED(query_offsets, &buffer),
        UNASKED(key_offsets, &host),      UNASKED(key_offsets, &buffer),
        UNASKED(query_total, &one),       UNASKED(query_total, &most),
        UNASKED(key_total, &one),         UNASKED(key_total, &most),
        UNASKED(dropout_seed, &low),      UNASKED(dropout_seed, &high),
        UNASKED(dropout_offset, &number),
    };
    const unasked_row cache_rows[] = {
        UNASKED(new_key, &tensor),        UNASKED(new_value, &tensor),
        UNASKED(rotary_cos, &tensor),     UNASKED(rotary_sin, &tensor),
        UNASKED(append_positions, &host), UNASKED(append_positions, &buffer),
        UNASKED(new_len, &one),           UNASKED(new_len, &most),
    };
    refuse_rows(r, base, rows, sizeof rows / sizeof rows[0]);
    if (cache_too)
        refuse_rows(r, base, cache_rows, sizeof cache_rows / sizeof cache_rows[0]);
}
