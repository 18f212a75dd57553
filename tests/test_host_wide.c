/* Host arrays with what came after the article: sequences end to end, dropout; and caches, which
 * they have not. Belongs to the suite of test_host.c. */
#include "compare.h"
#include "page_end.h"
#include "refusal_scene.h"
#include "world.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum {
    SEQUENCES = 3,
    H = SCENE_HEADS,
    KV = SCENE_KV_HEADS,
    Q = 4, /* of the longest sequence */
    K = 6,
    DIM = SCENE_DIM,
    VALUE_DIM = SCENE_VALUE_DIM,
    WORD = sizeof(float)
};

/* The second has no query, and two rows at the front are nobody's. */
static const int32_t query_offsets[SEQUENCES + 1] = { 2, 5, 5, 9 };
static const int32_t key_offsets[SEQUENCES + 1] = { 1, 7, 8, 12 };
enum {
    QUERIES = 9,
    KEYS = 12
};

static const mha_attention_desc packed_desc = {
    .batch = SEQUENCES,
    .heads = H,
    .kv_heads = KV,
    .query_len = Q,
    .key_len = K,
    .head_dim = DIM,
    .value_dim = VALUE_DIM,
    .uses = MHA_USES_CAUSAL | MHA_USES_LSE,
    .diagonal = MHA_BOTTOM_RIGHT,
    .path = MHA_PATH_STREAMING,
};

static mha_attention *make(device *d, const mha_attention_desc *desc)
{
    mha_attention *attention = NULL;
    cr_assert_eq(mha_attention_create(&attention, d->context, desc), MHA_OK, "%s", d->sentence);
    return attention;
}

/* --- sequences end to end --- */

/* Batch b of [heads][total][dim], or of [batch][heads][len][dim] where nothing is packed. */
static void place(const void **data, size_t strides[4], const float *all, const int32_t *offsets,
                  size_t b, size_t heads, size_t len, size_t dim)
{
    const size_t rows = offsets ? (size_t)offsets[SEQUENCES] : len;
    *data = all + (offsets ? (size_t)offsets[b] * dim : b * heads * len * dim);
    strides[0] = heads * rows * dim;
    strides[1] = rows * dim;
    strides[2] = dim;
    strides[3] = 1;
}

/* Every sequence by itself, into the rows of its own. */
static void run_alone(device *d, const int32_t *queries, const int32_t *keys, float *output,
                      float *lse)
{
    mha_attention_desc desc = packed_desc;
    desc.batch = 1;
    mha_attention *one = make(d, &desc);
    for (size_t b = 0; b < SEQUENCES; b++) {
        mha_host_args args = { 0 };
        const void *to = NULL, *to_lse = NULL;
        place(&args.query.data, args.query.strides, scene_query, queries, b, H, Q, DIM);
        place(&args.key.data, args.key.strides, scene_key, keys, b, KV, K, DIM);
        place(&args.value.data, args.value.strides, scene_value, keys, b, KV, K, VALUE_DIM);
        place(&to, args.output.strides, output, queries, b, H, Q, VALUE_DIM);
        place(&to_lse, args.lse.strides, lse, queries, b, H, Q, 1);
        args.output.data = output + ((const float *)to - output);
        args.lse.data = lse + ((const float *)to_lse - lse);
        args.query_len = queries ? (size_t)(queries[b + 1] - queries[b]) : Q;
        args.key_len = keys ? (size_t)(keys[b + 1] - keys[b]) : K;
        if (args.query_len)
            cr_assert_eq(mha_attention_run(one, &args), MHA_OK, "%s", d->sentence);
    }
    mha_attention_destroy(&one);
}

static void expect_alike(const char *name, const char *what, const float *got, const float *want,
                         size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(isnan(got[i]) && isnan(want[i])))
            compare_one(name, what, i, got[i], want[i], 1e-6, NULL);
}

static void check_sequences(device *d, const char *name, const int32_t *queries,
                            const int32_t *keys)
{
    const size_t q = queries ? QUERIES : SEQUENCES * Q, k = keys ? KEYS : SEQUENCES * K;
    const size_t outputs = H * q * VALUE_DIM, rows = H * q;
    float *output = page_end_nans(outputs), *lse = page_end_nans(rows);
    float *want = page_end_nans(outputs), *want_lse = page_end_nans(rows);
    mha_attention_desc desc = packed_desc;
    desc.uses |= (queries ? MHA_USES_QUERY_OFFSETS : 0) | (keys ? MHA_USES_KEY_OFFSETS : 0);
    mha_attention *all = make(d, &desc);
    const size_t offsets_bytes = (SEQUENCES + 1) * sizeof(int32_t);
    const mha_host_args args = {
        .query.data = page_end_copy(scene_query, H * q * DIM * WORD),
        .key.data = page_end_copy(scene_key, KV * k * DIM * WORD),
        .value.data = page_end_copy(scene_value, KV * k * VALUE_DIM * WORD),
        .output.data = output,
        .lse.data = lse,
        .query_offsets = queries ? page_end_copy(queries, offsets_bytes) : NULL,
        .key_offsets = keys ? page_end_copy(keys, offsets_bytes) : NULL,
    };
    cr_expect_eq(mha_attention_run(all, &args), MHA_OK, "%s: %s", name, d->sentence);
    run_alone(d, queries, keys, want, want_lse);
    /* NaN where no sequence has a row: these stay as they were. */
    expect_alike(name, "output", output, want, outputs);
    expect_alike(name, "lse", lse, want_lse, rows);
    mha_attention_destroy(&all);
}

Test(host, sequences_end_to_end)
{
    device d;
    device_open(&d);
    check_sequences(&d, "queries and keys", query_offsets, key_offsets);
    check_sequences(&d, "queries", query_offsets, NULL);
    check_sequences(&d, "keys", NULL, key_offsets);
    device_close(&d);
}

/* Rows of output and lse in one array: what lies between them, or is nobody's, stays. */
Test(host, sequences_with_gaps)
{
    enum {
        ROW = VALUE_DIM + 2
    };
    device d;
    device_open(&d);
    mha_attention_desc desc = packed_desc;
    desc.uses |= MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS;
    mha_attention *all = make(&d, &desc);
    float *rows = page_end_nans(H * QUERIES * ROW);
    float *want = page_end_nans(H * QUERIES * VALUE_DIM), *want_lse = page_end_nans(H * QUERIES);
    for (size_t i = 0; i < H * QUERIES * ROW; i++)
        rows[i] = 777;
    mha_host_args args = { .query.data = scene_query,
                           .key.data = scene_key,
                           .value.data = scene_value,
                           .output = { rows, { 0, QUERIES * ROW, ROW, 1 } },
                           .lse = { rows + VALUE_DIM, { 0, QUERIES * ROW, ROW, 1 } },
                           .query_offsets = query_offsets,
                           .key_offsets = key_offsets };
    cr_expect_eq(mha_attention_run(all, &args), MHA_OK, "%s", d.sentence);
    run_alone(&d, query_offsets, key_offsets, want, want_lse);
    for (size_t r = 0; r < H * QUERIES; r++) {
        const bool is_ones = r % QUERIES >= (size_t)query_offsets[0];
        for (size_t i = 0; i < ROW; i++) {
            const double is = i < VALUE_DIM ? want[r * VALUE_DIM + i] : want_lse[r];
            compare_one("gaps", "row", r * ROW + i, rows[r * ROW + i],
                        is_ones && i <= VALUE_DIM ? is : 777, 1e-6, NULL);
        }
    }
    mha_attention_destroy(&all);
    device_close(&d);
}

typedef struct refused_row {
    const char *name, *says;
    const int32_t *queries, *keys;
} refused_row;

#define OFFSETS(...) ((const int32_t[SEQUENCES + 1]){ __VA_ARGS__ })

static const refused_row refused_rows[] = {
    { "no offsets", "query_offsets", NULL, key_offsets },
    { "no offsets of keys", "key_offsets", query_offsets, NULL },
    { "a negative offset", "query_offsets[0]", OFFSETS(-1, 1, 2, 3), key_offsets },
    { "a negative offset and far rows", "query_offsets[0]", OFFSETS(-9, 1 << 30, 1 << 30, 1 << 30),
      key_offsets },
    { "the least offset", "query_offsets[3]", OFFSETS(0, 0, 0, INT32_MIN), key_offsets },
    { "a descending offset", "query_offsets[2]", OFFSETS(0, 3, 2, 6), key_offsets },
    { "a sequence that is too long", "query_offsets[1]", OFFSETS(0, Q + 1, Q + 1, Q + 1),
      key_offsets },
    { "one of all rows", "query_offsets[3]", OFFSETS(0, 0, 0, 3 * Q), key_offsets },
    { "the largest offset", "query_offsets[3]", OFFSETS(0, 0, 0, INT32_MAX), key_offsets },
    { "a negative key offset", "key_offsets[0]", query_offsets, OFFSETS(INT32_MIN, 0, 0, 1 << 30) },
    { "a descending key offset", "key_offsets[3]", query_offsets, OFFSETS(0, 3, 6, 5) },
    { "too many keys", "key_offsets[2]", query_offsets, OFFSETS(0, 1, K + 2, K + 3) },
};

static void expect_refused(device *d, mha_attention *attention, const char *name,
                           const mha_host_args *args, mha_status want, const char *says)
{
    device_hush(d);
    const mha_status status = mha_attention_run(attention, args);
    cr_expect_eq(status, want, "%s: %s: %s", name, mha_status_name(status), d->sentence);
    cr_expect_eq(d->sentences, 1, "%s: %zu sentences", name, d->sentences);
    cr_expect(refusal_says(d->sentence, "mha_attention_run"), "%s: %s", name, d->sentence);
    cr_expect(refusal_says(d->sentence, says), "%s: %s", name, d->sentence);
}

/* Nothing is read of arrays whose size is nonsense. */
Test(host, sequences_that_are_refused)
{
    device d;
    device_open(&d);
    mha_attention_desc desc = packed_desc;
    desc.uses |= MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS;
    mha_attention *attention = make(&d, &desc);
    void *no_memory = page_untouchable();
    for (size_t i = 0; i < sizeof refused_rows / sizeof refused_rows[0]; i++) {
        const refused_row *row = &refused_rows[i];
        const mha_host_args args = { .query.data = no_memory,
                                     .key.data = no_memory,
                                     .value.data = no_memory,
                                     .output.data = no_memory,
                                     .lse.data = no_memory,
                                     .query_offsets = row->queries,
                                     .key_offsets = row->keys };
        expect_refused(&d, attention, row->name, &args, MHA_INVALID_ARGUMENT, row->says);
    }
    mha_attention_destroy(&attention);
    device_close(&d);
}

/* Without a batch there are no rows, whatever the offsets say, and no array is touched. */
Test(host, sequences_of_nobody)
{
    device d;
    device_open(&d);
    mha_attention_desc desc = packed_desc;
    desc.batch = 0;
    desc.uses |= MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS;
    mha_attention *none = make(&d, &desc);
    void *no_memory = page_untouchable();
    mha_host_args args = { .query.data = no_memory,
                           .key.data = no_memory,
                           .value.data = no_memory,
                           .output.data = no_memory,
                           .lse.data = no_memory };
    cr_expect_eq(mha_attention_run(none, &args), MHA_OK, "%s", d.sentence);
    args.query_offsets = (const int32_t[]){ 5 };
    args.key_offsets = (const int32_t[]){ 0 };
    cr_expect_eq(mha_attention_run(none, &args), MHA_OK, "%s", d.sentence);
    mha_attention_destroy(&none);
    device_close(&d);
}

/* --- caches --- */

Test(host, caches_are_refused)
{
    device d;
    device_open(&d);
    mha_attention_desc desc = packed_desc;
    desc.uses |= MHA_USES_APPEND;
    desc.new_len = 1;
    mha_attention *attention = make(&d, &desc);
    void *no_memory = page_untouchable();
    const mha_host_args args = { .query.data = no_memory,
                                 .key.data = no_memory,
                                 .value.data = no_memory,
                                 .output.data = no_memory,
                                 .lse.data = no_memory };
    expect_refused(&d, attention, "a cache", &args, MHA_UNSUPPORTED, "MHA_USES_APPEND");
    expect_refused(&d, attention, "a cache", &args, MHA_UNSUPPORTED, "mha_attention_enqueue");
    mha_attention_destroy(&attention);
    device_close(&d);
}

/* --- dropout --- */

enum {
    NUM_PROBS = WORLD_ROWS * WORLD_KEYS
};

static const uint64_t large_seed = 0x8edcba9876543210;
static const uint32_t large_offset = 0xfffffff0;
static const float share = 0.375f;

/* The world's attention with dropout, on the device. */
static void attend_dropping(world *w, float *output, float *probs, float *lse)
{
    w->desc.uses |= MHA_USES_DROPOUT | MHA_USES_PROBS;
    w->desc.dropout_p = share;
    mha_attention_destroy(&w->attention);
    w->attention = make(&w->d, &w->desc);
    w->call = device_call(&w->d, mha_attention_workspace(w->attention));
    const device_tensor to = device_output(
        &w->d, SCENE_SHAPE(WORLD_BATCH, WORLD_HEADS, WORLD_QUERIES, WORLD_KEYS), NULL, WORD);
    w->args.probs = device_arg(&to);
    w->args.dropout_seed = large_seed;
    w->args.dropout_offset = large_offset;
    cr_assert_eq(world_attend(w, output, lse), MHA_OK, "%s", w->d.sentence);
    device_read(&w->d, &to, probs);
}

Test(host, attention_drops_as_on_the_device)
{
    static float want[WORLD_OUTPUTS], want_probs[NUM_PROBS], want_lse[WORLD_ROWS];
    static double right[WORLD_OUTPUTS], right_probs[NUM_PROBS], right_lse[WORLD_ROWS];
    static world w;
    world_open(&w, MHA_GEMM_KERNEL);
    attend_dropping(&w, want, want_probs, want_lse);
    mha_host_args args = { .query.data = w.data.query,
                           .key.data = w.data.key,
                           .value.data = w.data.value,
                           .output.data = page_end_nans(WORLD_OUTPUTS),
                           .probs.data = page_end_nans(NUM_PROBS),
                           .lse.data = page_end_nans(WORLD_ROWS),
                           .key_lengths = w.data.key_lengths,
                           .dropout_seed = large_seed,
                           .dropout_offset = large_offset };
    cr_expect_eq(mha_attention_run(w.attention, &args), MHA_OK, "%s", w.d.sentence);
    cr_expect(!memcmp(args.output.data, want, sizeof want), "output");
    cr_expect(!memcmp(args.probs.data, want_probs, sizeof want_probs), "probs");
    cr_expect(!memcmp(args.lse.data, want_lse, sizeof want_lse), "lse");
    reference_attention(&w.desc, &(reference_args){ .query = w.data.query,
                                                    .key = w.data.key,
                                                    .value = w.data.value,
                                                    .key_lengths = w.data.key_lengths,
                                                    .dropout_p = share,
                                                    .dropout_seed = large_seed,
                                                    .dropout_offset = large_offset,
                                                    .output = right,
                                                    .probs = right_probs,
                                                    .lse = right_lse });
    const double limit = reference_limit(WORLD_DIM + WORLD_KEYS, 8);
    compare_all("dropout", "output", want, right, WORLD_OUTPUTS, limit, NULL);
    compare_all("dropout", "probs", want_probs, right_probs, NUM_PROBS, limit, NULL);
    compare_all("dropout", "lse", want_lse, right_lse, WORLD_ROWS, limit, NULL);
    /* Another number, another choice. */
    args.dropout_offset++;
    cr_expect_eq(mha_attention_run(w.attention, &args), MHA_OK, "%s", w.d.sentence);
    cr_expect(memcmp(args.probs.data, want_probs, sizeof want_probs), "the same choice");
    world_close(&w);
}

/* By each path: the composed one is the world's. */
Test(host, layer_drops_as_on_the_device)
{
    static float want[WORLD_OUTPUTS], want_lse[WORLD_ROWS];
    static double right[WORLD_OUTPUTS];
    for (int path = MHA_PATH_COMPOSED; path <= MHA_PATH_DECODE; path++) {
        static world w;
        world_open(&w, MHA_GEMM_KERNEL);
        w.layer_desc.attention.path = (mha_path)path;
        w.layer_desc.attention.uses |= MHA_USES_DROPOUT;
        w.layer_desc.attention.dropout_p = share;
        mha_layer_destroy(&w.layer);
        cr_assert_eq(mha_layer_create(&w.layer, w.d.context, &w.layer_desc), MHA_OK, "%s",
                     w.d.sentence);
        w.layer_call = device_call(&w.d, mha_layer_workspace(w.layer));
        w.layer_args.dropout_seed = large_seed;
        w.layer_args.dropout_offset = large_offset;
        cr_assert_eq(world_load(&w), MHA_OK, "%s", w.d.sentence);
        cr_assert_eq(world_run_layer(&w, want, want_lse), MHA_OK, "%s", w.d.sentence);
        const world_data *data = &w.data;
        const mha_host_args args = { .query.data = data->query,
                                     .key.data = data->key,
                                     .value.data = data->value,
                                     .output.data = page_end_nans(WORLD_OUTPUTS),
                                     .lse.data = page_end_nans(WORLD_ROWS),
                                     .key_lengths = data->key_lengths,
                                     .dropout_seed = large_seed,
                                     .dropout_offset = large_offset };
        cr_expect_eq(mha_layer_run(w.layer, &args), MHA_OK, "%s", w.d.sentence);
        cr_expect(!memcmp(args.output.data, want, sizeof want), "path %d: output", path);
        cr_expect(!memcmp(args.lse.data, want_lse, sizeof want_lse), "path %d: lse", path);
        const reference_layer_weights weights = { data->weights[0], data->weights[1],
                                                  data->weights[2], data->weights[3],
                                                  data->biases[0],  data->biases[1],
                                                  data->biases[2],  data->biases[3] };
        reference_layer(&w.layer_desc, &weights,
                        &(reference_args){ .query = data->query,
                                           .key = data->key,
                                           .value = data->value,
                                           .key_lengths = data->key_lengths,
                                           .dropout_p = share,
                                           .dropout_seed = large_seed,
                                           .dropout_offset = large_offset,
                                           .output = right });
        compare_all("layer with dropout", "output", want, right, WORLD_OUTPUTS,
                    reference_limit(3 * WORLD_WIDTH + WORLD_KEYS, 16), NULL);
        world_close(&w);
    }
}
