/* Every rule of mha_attention_enqueue with sequences end to end, and with dropout: what is wrong is
 * refused by name, nothing is written, and the next good call is right. */
#include "refusal_scene.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <string.h>

enum {
    B = SCENE_BATCH,
    H = SCENE_HEADS,
    KV = SCENE_KV_HEADS,
    Q = SCENE_QUERIES, /* of the longest sequence */
    K = SCENE_KEYS,
    DIM = SCENE_DIM,
    VALUE_DIM = SCENE_VALUE_DIM,
    QUERIES = 8, /* of all sequences */
    KEYS = 10,
    MOST_AXIS = INT_MAX - (1 << 17)
};

static const mha_attention_desc good = {
    .batch = B,
    .heads = H,
    .kv_heads = KV,
    .query_len = Q,
    .key_len = K,
    .head_dim = DIM,
    .value_dim = VALUE_DIM,
    .uses = MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS | MHA_USES_LSE | MHA_USES_DROPOUT,
    .dropout_p = 0.25f,
};
static const int32_t query_offsets[B + 1] = { 0, 3, QUERIES };
static const int32_t key_offsets[B + 1] = { 0, K, KEYS };

typedef struct scene {
    device d;
    mha_attention *attention;
    mha_attention_args args;
    refusal_arg list[8];
    refusal r;
} scene;

/* Rows [heads][total][dim] to and from [batch][heads][len][dim]. */
static size_t packed_row(const int32_t *offsets, size_t b, size_t h, size_t i)
{
    return h * (size_t)offsets[B] + (size_t)offsets[b] + i;
}

static void spread(float *to, const float *from, const int32_t *offsets, size_t heads, size_t len,
                   size_t dim)
{
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < (size_t)(offsets[b + 1] - offsets[b]); i++)
                memcpy(to + ((b * heads + h) * len + i) * dim,
                       from + packed_row(offsets, b, h, i) * dim, dim * sizeof *to);
}

static void collect(double *to, const double *from, size_t dim)
{
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < H; h++)
            for (size_t i = 0; i < (size_t)(query_offsets[b + 1] - query_offsets[b]); i++)
                memcpy(to + packed_row(query_offsets, b, h, i) * dim,
                       from + ((b * H + h) * Q + i) * dim, dim * sizeof *to);
}

/* The same with every sequence in a batch of its own. */
static void find_right_values(const mha_attention_args *call)
{
    static float query[SCENE_MOST], key[SCENE_MOST], value[SCENE_MOST];
    static double output[SCENE_MOST], lse[SCENE_MOST];
    const int32_t lengths[B] = { key_offsets[1], key_offsets[2] - key_offsets[1] };
    mha_attention_desc desc = good;
    desc.uses = MHA_USES_KEY_LENGTHS;
    spread(query, scene_query, query_offsets, H, Q, DIM);
    spread(key, scene_key, key_offsets, KV, K, DIM);
    spread(value, scene_value, key_offsets, KV, K, VALUE_DIM);
    const reference_args args = { .query = query,
                                  .key = key,
                                  .value = value,
                                  .key_lengths = lengths,
                                  .dropout_p = good.dropout_p,
                                  .dropout_seed = call->dropout_seed,
                                  .dropout_offset = call->dropout_offset,
                                  .output = output,
                                  .lse = lse };
    reference_attention(&desc, &args);
    collect(scene_output, output, VALUE_DIM);
    collect(scene_lse, lse, 1);
}

static void add_tensor(scene *s, const char *name, size_t at, const size_t shape[4],
                       const float *data, const double *want)
{
    refusal_add_tensor(&s->list[s->r.count++], &s->d, &s->args, name, at, shape, data, want);
}

static void add_offsets(scene *s, const char *name, size_t at, const int32_t *offsets)
{
    refusal_add_lengths(&s->list[s->r.count++], &s->d, &s->args, name, at, B + 1, offsets);
}

static void open_scene(scene *s)
{
    *s = (scene){ .args = { .query_total = QUERIES,
                            .key_total = KEYS,
                            .dropout_seed = 0x123456789abcdef0,
                            .dropout_offset = 7 } };
    device_open(&s->d);
    cr_assert_eq(mha_attention_create(&s->attention, s->d.context, &good), MHA_OK, "%s",
                 s->d.sentence);
    find_right_values(&s->args);
    add_tensor(s, "query", SCENE_AT(query), SCENE_SHAPE(1, H, QUERIES, DIM), scene_query, NULL);
    add_tensor(s, "key", SCENE_AT(key), SCENE_SHAPE(1, KV, KEYS, DIM), scene_key, NULL);
    add_tensor(s, "value", SCENE_AT(value), SCENE_SHAPE(1, KV, KEYS, VALUE_DIM), scene_value, NULL);
    add_tensor(s, "output", SCENE_AT(output), SCENE_SHAPE(1, H, QUERIES, VALUE_DIM), NULL,
               scene_output);
    add_tensor(s, "lse", SCENE_AT(lse), SCENE_SHAPE(1, H, QUERIES, 1), NULL, scene_lse);
    add_offsets(s, "query_offsets", SCENE_AT(query_offsets.buffer), query_offsets);
    add_offsets(s, "key_offsets", SCENE_AT(key_offsets.buffer), key_offsets);
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
        .limit = reference_limit(DIM + K, 16),
    };
    refusal_open(&s->r);
}

static void close_scene(scene *s)
{
    refusal_close(&s->r);
    mha_attention_destroy(&s->attention);
    device_close(&s->d);
}

Test(errors, offsets_calls_and_buffers)
{
    static scene s;
    open_scene(&s);
    refusal_of_calls(&s.r);
    refusal_of_buffers(&s.r);
    close_scene(&s);
}

Test(errors, offsets_strides)
{
    static scene s;
    open_scene(&s);
    refusal_of_strides(&s.r);
    close_scene(&s);
}

Test(errors, offsets_overlaps)
{
    static scene s;
    open_scene(&s);
    refusal_of_overlaps(&s.r);
    close_scene(&s);
}

/* Each row changes a copy of the good arguments. */
typedef struct offsets_row {
    const char *name;
    const int32_t *queries, *keys; /* in host memory; not NULL: the buffer is not given */
    size_t query_total, key_total;
    mha_status status;
    const char *says;
} offsets_row;

#define OFFSETS(...) ((const int32_t[B + 1]){ __VA_ARGS__ })

static const offsets_row offsets_rows[] = {
    { "a negative first offset", OFFSETS(-1, 3, 8), NULL, 8, KEYS, MHA_INVALID_ARGUMENT,
      "query_offsets[0]" },
    { "the least offset", OFFSETS(0, INT32_MIN, 8), NULL, 8, KEYS, MHA_INVALID_ARGUMENT,
      "query_offsets[1]" },
    { "a negative last offset", OFFSETS(0, 0, -1), NULL, 0, KEYS, MHA_INVALID_ARGUMENT,
      "query_offsets[2]" },
    { "a descending offset", OFFSETS(4, 3, 8), NULL, 8, KEYS, MHA_INVALID_ARGUMENT,
      "query_offsets[1]" },
    { "a descending offset, and no total", OFFSETS(0, 5, 4), NULL, 0, KEYS, MHA_INVALID_ARGUMENT,
      "query_offsets[1]" },
    { "a sequence that is too long", OFFSETS(0, 2, 8), NULL, 8, KEYS, MHA_INVALID_ARGUMENT,
      "query_offsets" },
    { "a sequence that is too long", OFFSETS(0, 6, 8), NULL, 8, KEYS, MHA_INVALID_ARGUMENT,
      "query_len" },
    { "an offset above the total", OFFSETS(0, 4, 9), NULL, 8, KEYS, MHA_INVALID_ARGUMENT,
      "query_offsets[2]" },
    { "a total that is too small", OFFSETS(0, 3, 8), NULL, 7, KEYS, MHA_INVALID_ARGUMENT,
      "query_total" },
    { "the largest offset, and no total", OFFSETS(0, 3, INT32_MAX), NULL, 0, KEYS, MHA_TOO_LARGE,
      "query_total" },
    { "offsets on the device, and no total", NULL, NULL, 0, KEYS, MHA_INVALID_ARGUMENT,
      "query_total" },
    { "a total that no axis has", NULL, NULL, (size_t)MOST_AXIS + 1, KEYS, MHA_TOO_LARGE,
      "query_total" },
    { "a total that an int does not hold", NULL, NULL, (size_t)1 << 32, KEYS, MHA_TOO_LARGE,
      "query_total" },
    { "the largest total", NULL, NULL, SIZE_MAX, KEYS, MHA_TOO_LARGE, "query_total" },
    { "the largest total that an axis has", NULL, NULL, MOST_AXIS, KEYS, MHA_BUFFER_TOO_SMALL,
      "query" },
    { "a negative key offset", NULL, OFFSETS(-7, 0, 3), 8, 10, MHA_INVALID_ARGUMENT,
      "key_offsets[0]" },
    { "a descending key offset", NULL, OFFSETS(0, 7, 6), 8, 10, MHA_INVALID_ARGUMENT,
      "key_offsets[2]" },
    { "too many keys", NULL, OFFSETS(0, 8, 10), 8, 10, MHA_INVALID_ARGUMENT, "key_len" },
    { "a key offset above the total", NULL, OFFSETS(0, 5, 11), 8, 10, MHA_INVALID_ARGUMENT,
      "key_offsets[2]" },
    { "a total of keys that is too small", NULL, OFFSETS(0, 7, 10), 8, 9, MHA_INVALID_ARGUMENT,
      "key_total" },
    { "the largest key offset", NULL, OFFSETS(0, 7, INT32_MAX), 8, 0, MHA_TOO_LARGE, "key_total" },
    { "key offsets on the device, and no total", NULL, NULL, 8, 0, MHA_INVALID_ARGUMENT,
      "key_total" },
    { "a total of keys that no axis has", NULL, NULL, 8, (size_t)MOST_AXIS + 1, MHA_TOO_LARGE,
      "key_total" },
    { "the largest total of keys", NULL, NULL, 8, SIZE_MAX, MHA_TOO_LARGE, "key_total" },
    { "the largest total of keys that an axis has", NULL, NULL, 8, MOST_AXIS, MHA_BUFFER_TOO_SMALL,
      "key" },
    { "totals by the last offset", query_offsets, key_offsets, 0, 0, MHA_OK, "" },
    { "rows that belong to nobody", OFFSETS(1, 3, 7), OFFSETS(2, 8, 9), QUERIES, KEYS, MHA_OK, "" },
    { "empty sequences", OFFSETS(0, 0, 0), OFFSETS(3, 3, 3), 0, 0, MHA_OK, "" },
};

Test(errors, offsets_and_totals)
{
    static scene s;
    open_scene(&s);
    for (size_t i = 0; i < sizeof offsets_rows / sizeof offsets_rows[0]; i++) {
        const offsets_row *row = &offsets_rows[i];
        mha_attention_args args = s.args;
        args.query_total = row->query_total;
        args.key_total = row->key_total;
        if (row->queries)
            args.query_offsets = (mha_lengths){ .host = row->queries };
        if (row->keys)
            args.key_offsets = (mha_lengths){ .host = row->keys };
        refusal_expect(&s.r, row->name, &args, &s.r.call, row->status, row->says);
    }
    mha_attention_args args = s.args;
    args.query_offsets.host = query_offsets;
    refusal_expect(&s.r, "on host and device", &args, &s.r.call, MHA_INVALID_ARGUMENT,
                   "query_offsets");
    args = s.args;
    args.key_offsets.host = key_offsets;
    refusal_expect(&s.r, "on host and device", &args, &s.r.call, MHA_INVALID_ARGUMENT,
                   "key_offsets");
    args = s.args;
    args.query_len = Q - 1;
    args.query_offsets = (mha_lengths){ .host = query_offsets };
    refusal_expect(&s.r, "a sequence longer than the call's", &args, &s.r.call,
                   MHA_INVALID_ARGUMENT, "query_len");
    close_scene(&s);
}

/* The call decides how many rows there are, so that create cannot know their bytes. */
Test(errors, offsets_whose_bytes_overflow)
{
    static scene s;
    open_scene(&s);
    mha_attention_desc desc = good;
    desc.batch = 1;
    desc.heads = 1 << 30;
    desc.query_len = 1;
    desc.uses = MHA_USES_QUERY_OFFSETS;
    desc.dropout_p = 0;
    mha_attention *wide = NULL;
    cr_assert_eq(mha_attention_create(&wide, s.d.context, &desc), MHA_OK, "%s", s.d.sentence);
    mha_attention_args args = { .query = s.args.query,
                                .key = s.args.key,
                                .value = s.args.value,
                                .output = s.args.output,
                                .query_offsets = s.args.query_offsets,
                                .query_total = 1 << 30 };
    device_hush(&s.d);
    cr_expect_eq(mha_attention_enqueue(wide, &args, &s.r.call), MHA_TOO_LARGE);
    cr_expect(refusal_says(s.d.sentence, "query"), "%s", s.d.sentence);
    /* One row for all queries of all heads. */
    args.query.strides[3] = 1;
    cr_expect_eq(mha_attention_enqueue(wide, &args, &s.r.call), MHA_TOO_LARGE);
    cr_expect(refusal_says(s.d.sentence, "output"), "%s", s.d.sentence);
    mha_attention_destroy(&wide);
    close_scene(&s);
}

/* Without a batch nothing is read, whatever the totals are. */
Test(errors, offsets_of_nobody)
{
    static scene s;
    open_scene(&s);
    mha_attention_desc desc = good;
    desc.batch = 0;
    mha_attention *none = NULL;
    cr_assert_eq(mha_attention_create(&none, s.d.context, &desc), MHA_OK, "%s", s.d.sentence);
    mha_attention_args args = { 0 };
    device_hush(&s.d);
    cr_expect_eq(mha_attention_enqueue(none, &args, &s.r.call), MHA_OK, "%s", s.d.sentence);
    args.query_offsets.host = OFFSETS(0);
    args.key_offsets.host = OFFSETS(5);
    cr_expect_eq(mha_attention_enqueue(none, &args, &s.r.call), MHA_OK, "%s", s.d.sentence);
    mha_attention_destroy(&none);
    close_scene(&s);
}

/* Nobody checks these before the kernels do: whatever they are, no row outside is touched, and
 * those that only reach too far are as if they did not. */
Test(errors, offsets_on_the_device_are_clamped)
{
    static const struct {
        int32_t queries[B + 1], keys[B + 1];
        bool is_good; /* once clamped */
    } rows[] = {
        { { -5, 3, QUERIES }, { INT32_MIN, K, KEYS }, true },
        { { 0, 3, QUERIES + 1 }, { 0, K, INT32_MAX }, true },
        { { QUERIES, 3, 0 }, { KEYS, K, 0 }, false },
        { { 0, QUERIES, QUERIES }, { 0, KEYS, KEYS }, false },
        { { INT32_MAX, INT32_MIN, INT32_MAX }, { INT32_MIN, INT32_MAX, INT32_MIN }, false },
        { { INT32_MIN, INT32_MAX, INT32_MAX }, { INT32_MIN, INT32_MIN, INT32_MAX }, false },
    };
    static float now[SCENE_MOST];
    static scene s;
    open_scene(&s);
    const refusal_arg *output = refusal_find(&s.r, "output");
    const size_t bytes = H * QUERIES * VALUE_DIM * sizeof(float);
    for (int path = MHA_PATH_STREAMING; path <= MHA_PATH_DECODE; path++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            mha_attention_desc desc = good;
            desc.path = (mha_path)path;
            mha_attention *other = NULL;
            cr_assert_eq(mha_attention_create(&other, s.d.context, &desc), MHA_OK);
            const size_t shape[4] = { 1, 1, 1, B + 1 };
            const device_tensor queries =
                device_input(&s.d, shape, NULL, sizeof(int32_t), rows[i].queries);
            const device_tensor keys =
                device_input(&s.d, shape, NULL, sizeof(int32_t), rows[i].keys);
            mha_attention_args args = s.args;
            args.query_offsets = (mha_lengths){ NULL, device_buffer(&queries), queries.offset };
            args.key_offsets = (mha_lengths){ NULL, device_buffer(&keys), keys.offset };
            const mha_call call = device_call(&s.d, mha_attention_workspace(other));
            cr_expect_eq(mha_attention_enqueue(other, &args, &call), MHA_OK, "%s", s.d.sentence);
            mha_attention_destroy(&other);
            device_read(&s.d, &output->tensor, now);
            for (size_t n = 0; rows[i].is_good && n < bytes / sizeof(float); n++)
                cr_expect_float_eq(now[n], scene_output[n], s.r.limit,
                                   "path %d, row %zu: output[%zu] is %g, not %g", path, i, n,
                                   (double)now[n], scene_output[n]);
            device_expect_guards(&s.d, "clamped offsets");
        }
    close_scene(&s);
}
