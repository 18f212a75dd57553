/* Every rule of mha_attention_enqueue with a cache, rotary positions and rings: what is wrong is
 * refused by name, nothing is written, not to the caches either, and the next good call is right.
 */
#include "fill.h"
#include "refusal_scene.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum {
    B = SCENE_BATCH,
    H = SCENE_HEADS,
    KV = SCENE_KV_HEADS,
    NEW = 3, /* queries as well */
    K = SCENE_KEYS,
    DIM = SCENE_DIM,
    VALUE_DIM = SCENE_VALUE_DIM,
    HALF = 3,
    POSITIONS = 9,
    MOST_KEYS = 12, /* that a batch of the ring has had */
    MOST_POSITION = INT_MAX - (1 << 17) - NEW
};

static const mha_attention_desc cache_desc = {
    .batch = B,
    .heads = H,
    .kv_heads = KV,
    .query_len = NEW,
    .key_len = K,
    .head_dim = DIM,
    .value_dim = VALUE_DIM,
    .uses = MHA_USES_APPEND | MHA_USES_ROTARY | MHA_USES_CAUSAL | MHA_USES_LSE,
    .diagonal = MHA_AFTER_PAST,
    .new_len = NEW,
    .rotary_dim = 2 * HALF,
    .rotary_positions = POSITIONS,
};
static const int32_t cache_positions[B] = { 4, 1 };

static const mha_attention_desc ring_desc = {
    .batch = B,
    .heads = H,
    .kv_heads = KV,
    .query_len = NEW,
    .key_len = K,
    .head_dim = DIM,
    .value_dim = VALUE_DIM,
    .uses = MHA_USES_APPEND | MHA_USES_RING | MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT | MHA_USES_LSE,
    .diagonal = MHA_BOTTOM_RIGHT,
    .window_left = K - NEW,
    .new_len = NEW,
};
static const int32_t ring_positions[B] = { MOST_KEYS - NEW, 1 };

typedef struct scene {
    device d;
    mha_attention *attention;
    mha_attention_desc desc;
    const int32_t *positions;
    mha_attention_args args;
    refusal_arg list[12];
    refusal r;
} scene;

static float new_key[SCENE_MOST], new_value[SCENE_MOST], cosine[SCENE_MOST], sine[SCENE_MOST];
static double want_key[SCENE_MOST], want_value[SCENE_MOST];

/* --- what is right --- */

/* [batch][heads][NEW][DIM] at their positions. */
static void turn(const scene *s, float *to, const float *from, size_t heads)
{
    static double turned[SCENE_MOST];
    const mha_rotary_desc desc = { .batch = B,
                                   .heads = heads,
                                   .len = NEW,
                                   .dim = DIM,
                                   .rotary_dim = 2 * HALF,
                                   .positions = POSITIONS };
    const bool rotates = s->desc.uses & MHA_USES_ROTARY;
    if (rotates)
        reference_rotary(&desc, &(reference_rotary_args){ .input = from,
                                                          .cos = cosine,
                                                          .sin = sine,
                                                          .offsets = s->positions,
                                                          .output = turned });
    for (size_t i = 0; i < B * heads * NEW * DIM; i++)
        to[i] = rotates ? (float)turned[i] : from[i];
}

/* The cache after the call, and all keys in the order of their positions. */
static void append(const scene *s, double *cache, float *all, const float *before,
                   const float *fresh, size_t dim)
{
    for (size_t i = 0; i < B * KV * K * dim; i++)
        cache[i] = before[i];
    for (size_t g = 0; g < B * KV; g++) {
        const size_t past = (size_t)s->positions[g / KV], end = past + NEW;
        for (size_t j = end > K ? end - K : 0; j < end; j++)
            for (size_t i = 0; i < dim; i++) {
                double *at = &cache[(g * K + j % K) * dim + i];
                *at = j < past ? *at : fresh[(g * NEW + j - past) * dim + i];
                all[(g * MOST_KEYS + j) * dim + i] = (float)*at;
            }
    }
}

static void find_right_values(const scene *s)
{
    static float query[SCENE_MOST], fresh[SCENE_MOST], key[SCENE_MOST], value[SCENE_MOST];
    int32_t lengths[B];
    for (size_t b = 0; b < B; b++)
        lengths[b] = s->positions[b] + NEW;
    turn(s, query, scene_query, H);
    turn(s, fresh, new_key, KV);
    append(s, want_key, key, scene_key, fresh, DIM);
    append(s, want_value, value, scene_value, new_value, VALUE_DIM);
    mha_attention_desc desc = s->desc;
    desc.uses &= MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT;
    desc.uses |= MHA_USES_KEY_LENGTHS;
    desc.diagonal = MHA_BOTTOM_RIGHT; /* as many queries as new keys */
    desc.key_len = MOST_KEYS;
    const reference_args args = { .query = query,
                                  .key = key,
                                  .value = value,
                                  .key_lengths = lengths,
                                  .output = scene_output,
                                  .lse = scene_lse };
    reference_attention(&desc, &args);
}

static void fill(void)
{
    fill_floats(new_key, SCENE_MOST, 31, FILL_NORMAL);
    fill_floats(new_value, SCENE_MOST, 32, FILL_NORMAL);
    for (size_t i = 0; i < SCENE_MOST; i++) {
        cosine[i] = (float)cos((double)i * 0.37);
        sine[i] = (float)sin((double)i * 0.37);
    }
}

/* --- the good call --- */

static void add_tensor(scene *s, const char *name, size_t at, const size_t shape[4],
                       const float *data, const double *want)
{
    refusal_add_tensor(&s->list[s->r.count++], &s->d, &s->args, name, at, shape, data, want);
}

static void open_scene(scene *s, const mha_attention_desc *desc, const int32_t *positions)
{
    *s = (scene){ .desc = *desc, .positions = positions };
    device_open(&s->d);
    fill();
    cr_assert_eq(mha_attention_create(&s->attention, s->d.context, desc), MHA_OK, "%s",
                 s->d.sentence);
    find_right_values(s);
    add_tensor(s, "query", SCENE_AT(query), SCENE_SHAPE(B, H, NEW, DIM), scene_query, NULL);
    add_tensor(s, "key", SCENE_AT(key), SCENE_SHAPE(B, KV, K, DIM), scene_key, want_key);
    add_tensor(s, "value", SCENE_AT(value), SCENE_SHAPE(B, KV, K, VALUE_DIM), scene_value,
               want_value);
    add_tensor(s, "output", SCENE_AT(output), SCENE_SHAPE(B, H, NEW, VALUE_DIM), NULL,
               scene_output);
    add_tensor(s, "lse", SCENE_AT(lse), SCENE_SHAPE(B, H, NEW, 1), NULL, scene_lse);
    add_tensor(s, "new_key", SCENE_AT(new_key), SCENE_SHAPE(B, KV, NEW, DIM), new_key, NULL);
    add_tensor(s, "new_value", SCENE_AT(new_value), SCENE_SHAPE(B, KV, NEW, VALUE_DIM), new_value,
               NULL);
    refusal_add_lengths(&s->list[s->r.count++], &s->d, &s->args, "append_positions",
                        SCENE_AT(append_positions.buffer), B, s->positions);
    const size_t table[4] = { 1, 1, POSITIONS, HALF };
    if (desc->uses & MHA_USES_ROTARY) {
        add_tensor(s, "rotary_cos", SCENE_AT(rotary_cos), table, cosine, NULL);
        add_tensor(s, "rotary_sin", SCENE_AT(rotary_sin), table, sine, NULL);
    }
    const mha_workspace workspace = mha_attention_workspace(s->attention);
    const size_t count = s->r.count;
    s->r = (refusal){
        .d = &s->d,
        .who = "mha_attention_enqueue",
        .args_name = "args",
        .enqueue = scene_attend,
        .object = s->attention,
        .args = &s->args,
        .args_bytes = sizeof s->args,
        .call = device_call(&s->d, workspace),
        .workspace = workspace,
        .list = s->list,
        .count = count,
        .limit = reference_limit(DIM + K, 8),
    };
    refusal_open(&s->r);
}

static void close_scene(scene *s)
{
    refusal_close(&s->r);
    mha_attention_destroy(&s->attention);
    device_close(&s->d);
}

Test(errors, cache_calls_and_buffers)
{
    static scene s;
    open_scene(&s, &cache_desc, cache_positions);
    refusal_of_calls(&s.r);
    refusal_of_buffers(&s.r);
    close_scene(&s);
}

Test(errors, cache_strides)
{
    static scene s;
    open_scene(&s, &cache_desc, cache_positions);
    refusal_of_strides(&s.r);
    close_scene(&s);
}

Test(errors, cache_overlaps)
{
    static scene s;
    open_scene(&s, &cache_desc, cache_positions);
    refusal_of_overlaps(&s.r);
    close_scene(&s);
}

Test(errors, cache_with_offsets_and_dropout_unasked)
{
    static scene s;
    open_scene(&s, &cache_desc, cache_positions);
    scene_refuse_unasked(&s.r, 0, false);
    close_scene(&s);
}

/* --- lengths and positions --- */

/* Each row changes a copy of the good arguments. */
typedef struct cache_row {
    const char *name;
    size_t query_len, key_len, new_len;
    const int32_t *positions;
    bool keeps_buffer; /* of append_positions */
    mha_status status;
    const char *says;
} cache_row;

#define EACH_BATCH const int32_t[B]

static const cache_row cache_rows[] = {
    { "new_len above the desc's", 0, 0, NEW + 1, NULL, true, MHA_INVALID_ARGUMENT, "new_len" },
    { "the largest int of new_len", 0, 0, INT_MAX, NULL, true, MHA_INVALID_ARGUMENT, "new_len" },
    { "a new_len that an int does not hold", 0, 0, (size_t)1 << 32, NULL, true,
      MHA_INVALID_ARGUMENT, "new_len" },
    { "the largest new_len", 0, 0, SIZE_MAX, NULL, true, MHA_INVALID_ARGUMENT, "new_len" },
    { "query_len above the desc's", NEW + 1, 0, 0, NULL, true, MHA_INVALID_ARGUMENT, "query_len" },
    { "the largest key_len", 0, SIZE_MAX, 0, NULL, true, MHA_INVALID_ARGUMENT, "key_len" },
    { "fewer keys than new ones", 0, NEW - 1, 0, NULL, true, MHA_INVALID_ARGUMENT, "key_len" },
    { "fewer new keys than queries", 0, 0, NEW - 1, NULL, true, MHA_INVALID_ARGUMENT, "new_len" },
    { "fewer queries than new keys", NEW - 1, 0, 0, NULL, true, MHA_INVALID_ARGUMENT, "query_len" },
    { "positions on host and device", 0, 0, 0, cache_positions, true, MHA_INVALID_ARGUMENT,
      "append_positions" },
    { "no positions", 0, 0, 0, NULL, false, MHA_INVALID_ARGUMENT, "append_positions" },
    { "a negative position", 0, 0, 0, (EACH_BATCH){ 0, -1 }, false, MHA_INVALID_ARGUMENT,
      "append_positions[1]" },
    { "the least position", 0, 0, 0, (EACH_BATCH){ INT32_MIN, 0 }, false, MHA_INVALID_ARGUMENT,
      "append_positions[0]" },
    { "a position without room for all new keys", 0, 0, 0, (EACH_BATCH){ 0, K - NEW + 1 }, false,
      MHA_INVALID_ARGUMENT, "append_positions[1]" },
    { "the largest position", 0, 0, 0, (EACH_BATCH){ INT32_MAX, 0 }, false, MHA_INVALID_ARGUMENT,
      "append_positions[0]" },
    { "a position without room in a shorter cache", 0, K - 1, 0, (EACH_BATCH){ K - NEW, 0 }, false,
      MHA_INVALID_ARGUMENT, "append_positions[0]" },
    { "a position behind a shorter call", NEW - 1, 0, NEW - 1, (EACH_BATCH){ K - NEW + 2, 0 },
      false, MHA_INVALID_ARGUMENT, "append_positions[0]" },
    { "the last position of a shorter call", NEW - 1, 0, NEW - 1, (EACH_BATCH){ K - NEW + 1, 0 },
      false, MHA_OK, "" },
    { "positions in host memory", 0, 0, 0, cache_positions, false, MHA_OK, "" },
};

static const cache_row ring_rows[] = {
    { "a ring that loses what is seen", 0, K - 1, 0, NULL, true, MHA_INVALID_ARGUMENT, "ring" },
    { "fewer rows than the window", 0, K - NEW - 1, 0, NULL, true, MHA_INVALID_ARGUMENT, "ring" },
    { "fewer rows, fewer queries", NEW - 1, K - 1, 0, NULL, true, MHA_INVALID_ARGUMENT, "ring" },
    { "a negative position", 0, 0, 0, (EACH_BATCH){ -1, 0 }, false, MHA_INVALID_ARGUMENT,
      "append_positions[0]" },
    { "the largest position", 0, 0, 0, (EACH_BATCH){ 0, INT32_MAX }, false, MHA_INVALID_ARGUMENT,
      "append_positions[1]" },
    { "a position that no axis has", 0, 0, 0, (EACH_BATCH){ MOST_POSITION + 1, 0 }, false,
      MHA_INVALID_ARGUMENT, "append_positions[0]" },
    { "the last that it may have", 0, 0, 0, (EACH_BATCH){ MOST_POSITION, 0 }, false, MHA_OK, "" },
    { "the new keys are all", 0, 0, 0, (EACH_BATCH){ 0, 0 }, false, MHA_OK, "" },
};

static void try_rows(scene *s, const cache_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const cache_row *row = &rows[i];
        mha_attention_args args = s->args;
        args.query_len = row->query_len;
        args.key_len = row->key_len;
        args.new_len = row->new_len;
        if (!row->keeps_buffer)
            args.append_positions.buffer = NULL;
        args.append_positions.host = row->positions;
        refusal_expect(&s->r, row->name, &args, &s->r.call, row->status, row->says);
    }
}

Test(errors, cache_lengths_and_positions)
{
    static scene s;
    open_scene(&s, &cache_desc, cache_positions);
    try_rows(&s, cache_rows, sizeof cache_rows / sizeof cache_rows[0]);
    close_scene(&s);
}

Test(errors, ring_lengths_and_positions)
{
    static scene s;
    open_scene(&s, &ring_desc, ring_positions);
    try_rows(&s, ring_rows, sizeof ring_rows / sizeof ring_rows[0]);
    mha_attention_args args = s.args;
    args.rotary_cos = args.new_key;
    refusal_expect(&s.r, "cos unasked", &args, &s.r.call, MHA_INVALID_ARGUMENT, "rotary_cos");
    args = s.args;
    args.rotary_sin = args.new_key;
    refusal_expect(&s.r, "sin unasked", &args, &s.r.call, MHA_INVALID_ARGUMENT, "rotary_sin");
    close_scene(&s);
}

/* Tables that are shorter than the cache, and shorter than a call. */
Test(errors, cache_with_short_tables)
{
    static scene s;
    static const struct {
        size_t positions;
        int32_t first;
        mha_status status;
        const char *says;
    } rows[] = {
        { NEW + 1, 1, MHA_OK, "" },
        { NEW + 1, 2, MHA_INVALID_ARGUMENT, "append_positions[0]" },
        { NEW, 1, MHA_INVALID_ARGUMENT, "append_positions[0]" },
        { NEW - 1, 0, MHA_INVALID_ARGUMENT, "rotary_positions" },
        { 1, 0, MHA_INVALID_ARGUMENT, "rotary_positions" },
        { POSITIONS + 1, 0, MHA_BUFFER_TOO_SMALL, "rotary_cos" },
        { (size_t)INT_MAX - (1 << 17), 0, MHA_BUFFER_TOO_SMALL, "rotary_cos" },
    };
    open_scene(&s, &cache_desc, cache_positions);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mha_attention_desc desc = cache_desc;
        desc.rotary_positions = rows[i].positions;
        mha_attention *other = NULL;
        cr_assert_eq(mha_attention_create(&other, s.d.context, &desc), MHA_OK);
        mha_attention_args args = s.args;
        /* Exactly the good tables, up to the ends of their buffers. */
        const cl_buffer_region region = { 0, POSITIONS * HALF * sizeof(float) };
        args.rotary_cos =
            (mha_tensor){ .buffer = clCreateSubBuffer(s.r.arena, 0, CL_BUFFER_CREATE_TYPE_REGION,
                                                      &region, NULL) };
        const int32_t first[B] = { rows[i].first, 0 };
        args.append_positions = (mha_lengths){ .host = first };
        device_hush(&s.d);
        const mha_status status = mha_attention_enqueue(other, &args, &s.r.call);
        cr_expect_eq(status, rows[i].status, "row %zu: %s: %s", i, mha_status_name(status),
                     s.d.sentence);
        cr_expect(!status || refusal_says(s.d.sentence, rows[i].says), "row %zu: %s", i,
                  s.d.sentence);
        clFinish(s.d.queue);
        clReleaseMemObject(args.rotary_cos.buffer);
        mha_attention_destroy(&other);
    }
    close_scene(&s);
}

/* Without a batch nothing is read, so nothing need be given. */
Test(errors, cache_of_nobody)
{
    device d;
    device_open(&d);
    mha_attention_desc desc = cache_desc;
    desc.batch = 0;
    mha_attention *none = NULL;
    cr_assert_eq(mha_attention_create(&none, d.context, &desc), MHA_OK, "%s", d.sentence);
    const mha_call call = device_call(&d, mha_attention_workspace(none));
    cr_expect_eq(mha_attention_enqueue(none, &(mha_attention_args){ 0 }, &call), MHA_OK, "%s",
                 d.sentence);
    mha_attention_destroy(&none);
    device_close(&d);
}
