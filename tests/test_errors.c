/* Every rule of the create calls, of devices and statuses: the status, and one sentence that names
 * the function and the field. */
#include "refusal_scene.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <string.h>

TestSuite(errors, .init = scene_fill, .timeout = 300);

/* One field of a desc and what it is set to. */
typedef struct change {
    size_t at, bytes;
    uint64_t number;
    float real; /* of a float, where is_real */
    bool is_real;
} change;

#define SET_IN(type, field, value)                                                     \
    {                                                                                  \
        offsetof(type, field), sizeof(((type *)0)->field), (uint64_t)(value), 0, false \
    }
#define REAL_IN(type, field, value)                                         \
    {                                                                       \
        offsetof(type, field), sizeof(((type *)0)->field), 0, (value), true \
    }
#define SET(field, value) SET_IN(mha_attention_desc, field, value)
#define REAL(field, value) REAL_IN(mha_attention_desc, field, value)

/* A good desc with up to four changes, whether it is refused, and what the sentence must say. */
typedef struct create_row {
    const char *says;
    mha_status status;
    change changes[4];
} create_row;

typedef mha_status create_fn(void **out, mha_context *context, const void *desc);

/* One kind of object: how it is made, and a desc that is good. */
typedef struct kind {
    const char *who;
    create_fn *create;
    void (*destroy)(void **object);
    const void *good;
    size_t bytes;
} kind;

#define KIND(what, type)                                                              \
    static mha_status make_##what(void **out, mha_context *context, const void *desc) \
    {                                                                                 \
        return mha_##what##_create((mha_##what **)(void *)out, context, desc);        \
    }                                                                                 \
    static void destroy_##what(void **object)                                         \
    {                                                                                 \
        mha_##what##_destroy((mha_##what **)(void *)object);                          \
    }
KIND(attention, mha_attention)
KIND(softmax, mha_softmax)
KIND(layer, mha_layer)
KIND(gemm, mha_gemm)
KIND(heads, mha_heads)
KIND(rotary, mha_rotary)
KIND(norm, mha_norm)
KIND(activation, mha_activation)
KIND(ffn, mha_ffn)
KIND(encoder, mha_encoder)
KIND(decoder, mha_decoder)

static const mha_layer_desc good_layer = {
    .attention = { .batch = 2, .heads = 4, .query_len = 5, .key_len = 7 },
    .model_width = 32,
    .query_width = 10,
    .projection = MHA_GEMM_KERNEL,
};
static const mha_gemm_desc good_gemm = {
    .m = 5, .n = 6, .k = 7, .batch = 3, .by = MHA_GEMM_KERNEL
};
static const mha_heads_desc good_heads = { 2, 3, 4, 5 };
static const mha_rotary_desc good_rotary = {
    .batch = 2, .heads = 3, .len = 4, .dim = 8, .rotary_dim = 6, .positions = 9
};
static const mha_norm_desc good_norm = { .rows = 5, .width = 8, .uses = MHA_NORM_MEAN };
static const mha_activation_desc good_activation = { .rows = 5,
                                                     .width = 8,
                                                     .kind = MHA_ACTIVATION_SILU };
#define GOOD_ATTENTION                         \
    {                                          \
        .batch = 2, .heads = 4, .query_len = 5 \
    }
static const mha_encoder_desc good_encoder = {
    .self_attention = { .attention = GOOD_ATTENTION,
                        .model_width = 32,
                        .query_width = 10,
                        .projection = MHA_GEMM_KERNEL },
    .feed_forward = { .hidden_width = 12, .projection = MHA_GEMM_KERNEL },
};
static const mha_decoder_desc good_decoder = {
    .self_attention = { .attention = GOOD_ATTENTION,
                        .model_width = 32,
                        .query_width = 10,
                        .projection = MHA_GEMM_KERNEL },
    .cross_attention = { .attention = { .heads = 2, .key_len = 7, .head_dim = 4 },
                         .key_width = 9,
                         .projection = MHA_GEMM_KERNEL },
    .feed_forward = { .hidden_width = 12, .projection = MHA_GEMM_KERNEL },
};
static const mha_ffn_desc good_ffn = { .rows = 5,
                                       .width = 8,
                                       .hidden_width = 20,
                                       .activation = MHA_ACTIVATION_SILU,
                                       .flags = MHA_FFN_GATE | MHA_FFN_BIAS_GATE,
                                       .projection = MHA_GEMM_KERNEL };

#define KIND_ROW(what, good)                                                       \
    {                                                                              \
        "mha_" #what "_create", make_##what, destroy_##what, &(good), sizeof(good) \
    }
static const kind attention_kind = KIND_ROW(attention, scene_desc);
static const kind softmax_kind = KIND_ROW(softmax, scene_desc);
static const kind layer_kind = KIND_ROW(layer, good_layer);
static const kind gemm_kind = KIND_ROW(gemm, good_gemm);
static const kind heads_kind = KIND_ROW(heads, good_heads);
static const kind rotary_kind = KIND_ROW(rotary, good_rotary);
static const kind norm_kind = KIND_ROW(norm, good_norm);
static const kind activation_kind = KIND_ROW(activation, good_activation);
static const kind ffn_kind = KIND_ROW(ffn, good_ffn);
static const kind encoder_kind = KIND_ROW(encoder, good_encoder);
static const kind decoder_kind = KIND_ROW(decoder, good_decoder);

static void apply(void *desc, const change *c)
{
    char *at = (char *)desc + c->at;
    const uint32_t narrow = (uint32_t)c->number;
    if (c->is_real)
        memcpy(at, &c->real, sizeof c->real);
    else if (c->bytes == sizeof narrow)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &c->number, sizeof c->number);
}

static void try_row(device *d, const kind *k, const create_row *row, size_t number)
{
    union {
        mha_layer_desc layer;
        mha_gemm_desc gemm;
        mha_heads_desc heads;
        mha_rotary_desc rotary;
        mha_norm_desc norm;
        mha_activation_desc activation;
        mha_ffn_desc ffn;
        mha_encoder_desc encoder;
        mha_decoder_desc decoder;
    } desc;
    memcpy(&desc, k->good, k->bytes);
    for (size_t i = 0; i < 4 && row->changes[i].bytes; i++)
        apply(&desc, &row->changes[i]);
    void *object = d; /* not NULL */
    device_hush(d);
    const mha_status status = k->create(&object, d->context, &desc);
    cr_expect_eq(status, row->status, "%s, row %zu (%s): %s, not %s: %s", k->who, number, row->says,
                 mha_status_name(status), mha_status_name(row->status), d->sentence);
    cr_expect_eq(!object, !!status, "%s, row %zu (%s): out is %s", k->who, number, row->says,
                 object ? "not NULL" : "NULL");
    cr_expect_eq(d->sentences, !!status, "%s, row %zu (%s): %zu sentences, the last: %s", k->who,
                 number, row->says, d->sentences, d->sentence);
    cr_expect(!status || refusal_says(d->sentence, k->who),
              "%s, row %zu (%s): does not name the function: %s", k->who, number, row->says,
              d->sentence);
    cr_expect(!status || refusal_says(d->sentence, row->says), "%s, row %zu: does not say %s: %s",
              k->who, number, row->says, d->sentence);
    if (!status)
        k->destroy(&object);
}

/* All rows, each followed by a good create. */
static void try_rows(const kind *k, const create_row *rows, size_t count)
{
    device d;
    device_open(&d);
    const create_row good = { .says = "good" };
    for (size_t i = 0; i < count; i++) {
        try_row(&d, k, &rows[i], i);
        try_row(&d, k, &good, i);
    }
    device_close(&d);
}
#define TRY_ROWS(kind, rows) try_rows(kind, rows, sizeof(rows) / sizeof(rows)[0])

/* Sizes of an axis that no device holds. */
#define HUGE_AXIS(field)                                         \
    { #field, MHA_TOO_LARGE, { SET(field, 1ull << 31) } },       \
        { #field, MHA_TOO_LARGE, { SET(field, 1ull << 33) } },   \
        { #field, MHA_TOO_LARGE, { SET(field, SIZE_MAX / 2) } }, \
    {                                                            \
#field, MHA_TOO_LARGE,                                   \
        {                                                        \
            SET(field, SIZE_MAX)                                 \
        }                                                        \
    }

/* What attention and layer have in common with softmax. */
#define EXCLUSION_ROWS                                                                   \
    { "uses", MHA_UNSUPPORTED, { SET(uses, 1ull << 40) } },                              \
        { "uses", MHA_UNSUPPORTED, { SET(uses, 1ull << 63) } },                          \
        { "diagonal", MHA_INVALID_ARGUMENT, { SET(diagonal, 4) } },                      \
        { "MHA_AFTER_PAST", MHA_INVALID_ARGUMENT, { SET(diagonal, MHA_AFTER_PAST) } },   \
        { "dropout_p", MHA_INVALID_ARGUMENT, { REAL(dropout_p, 0.1f) } },                \
        { "dropout_p", MHA_INVALID_ARGUMENT, { REAL(dropout_p, NAN) } },                 \
        { "diagonal", MHA_INVALID_ARGUMENT, { SET(diagonal, -1) } },                     \
        { "diagonal", MHA_INVALID_ARGUMENT, { SET(diagonal, MHA_DIAGONAL_NONE) } },      \
        { "diagonal",                                                                    \
          MHA_INVALID_ARGUMENT,                                                          \
          { SET(uses, MHA_USES_WINDOW_RIGHT), SET(diagonal, 0), SET(window_left, 0),     \
            SET(bias_broadcast, 0) } },                                                  \
        { "diagonal",                                                                    \
          MHA_INVALID_ARGUMENT,                                                          \
          { SET(uses, MHA_USES_LSE), SET(window_left, 0), SET(bias_broadcast, 0) } },    \
        { "window",                                                                      \
          MHA_INVALID_ARGUMENT,                                                          \
          { SET(uses, MHA_USES_CAUSAL | MHA_USES_BIAS), SET(window_left, 1) } },         \
        { "window", MHA_INVALID_ARGUMENT, { SET(window_right, 1) } },                    \
        { "broadcast", MHA_INVALID_ARGUMENT, { SET(bias_broadcast, 16) } },              \
        { "broadcast", MHA_INVALID_ARGUMENT, { SET(mask_broadcast, 1u << 31) } },        \
        { "bias",                                                                        \
          MHA_INVALID_ARGUMENT,                                                          \
          { SET(uses, MHA_USES_CAUSAL), SET(window_left, 0), SET(bias_broadcast, 1) } }, \
        { "mask",                                                                        \
          MHA_INVALID_ARGUMENT,                                                          \
          { SET(uses, MHA_USES_CAUSAL), SET(window_left, 0), SET(bias_broadcast, 0),     \
            SET(mask_broadcast, 1) } },                                                  \
        { "softcap", MHA_INVALID_ARGUMENT, { REAL(softcap, -1) } },                      \
        { "softcap", MHA_INVALID_ARGUMENT, { REAL(softcap, NAN) } },                     \
        { "softcap", MHA_INVALID_ARGUMENT, { REAL(softcap, INFINITY) } },                \
        { "heads", MHA_INVALID_ARGUMENT, { SET(heads, 0), SET(kv_heads, 0) } },          \
    {                                                                                    \
        "batch", MHA_TOO_LARGE,                                                          \
        {                                                                                \
            SET(batch, 1 << 20), SET(heads, 1 << 20), SET(kv_heads, 1)                   \
        }                                                                                \
    }

static const create_row attention_rows[] = {
    EXCLUSION_ROWS,
    HUGE_AXIS(batch),
    HUGE_AXIS(heads),
    HUGE_AXIS(kv_heads),
    HUGE_AXIS(query_len),
    HUGE_AXIS(key_len),
    HUGE_AXIS(head_dim),
    HUGE_AXIS(value_dim),
    { "head_dim", MHA_INVALID_ARGUMENT, { SET(head_dim, 0) } },
    { "kv_heads", MHA_INVALID_ARGUMENT, { SET(kv_heads, 3) } },
    { "kv_heads", MHA_INVALID_ARGUMENT, { SET(kv_heads, 8) } },
    { "size_t",
      MHA_TOO_LARGE,
      { SET(batch, 1 << 15), SET(heads, 1 << 15), SET(query_len, 1 << 30),
        SET(key_len, 1 << 30) } },
    { "size_t",
      MHA_TOO_LARGE,
      { SET(batch, 1 << 15), SET(heads, 1 << 15), SET(query_len, 1 << 30),
        SET(head_dim, 1 << 30) } },
    { "size_t",
      MHA_TOO_LARGE,
      { SET(batch, 1 << 15), SET(heads, 1 << 15), SET(key_len, 1 << 30),
        SET(value_dim, 1 << 30) } },
    { "workspace", MHA_TOO_LARGE, { SET(query_len, 1 << 20), SET(key_len, 1 << 20) } },
    { "type", MHA_INVALID_ARGUMENT, { SET(type, 4) } },
    { "output_type", MHA_INVALID_ARGUMENT, { SET(output_type, -1) } },
    { "scale", MHA_INVALID_ARGUMENT, { REAL(scale, NAN) } },
    { "scale", MHA_INVALID_ARGUMENT, { REAL(scale, -INFINITY) } },
    { "path", MHA_INVALID_ARGUMENT, { SET(path, 4) } },
    { "path", MHA_INVALID_ARGUMENT, { SET(path, -1) } },
    { "gemm", MHA_INVALID_ARGUMENT, { SET(gemm, 3) } },
    { "gemm", MHA_INVALID_ARGUMENT, { SET(gemm, -1) } },
    { "new_len", MHA_INVALID_ARGUMENT, { SET(new_len, 1) } },
    { "new_len", MHA_INVALID_ARGUMENT, { SET(new_len, SIZE_MAX) } },
    { "new_type", MHA_INVALID_ARGUMENT, { SET(new_type, 4) } },
    { "MHA_USES_ROTARY", MHA_INVALID_ARGUMENT, { SET(rotary_dim, 2) } },
    { "MHA_USES_ROTARY", MHA_INVALID_ARGUMENT, { SET(rotary_positions, 1) } },
    { "MHA_USES_ROTARY", MHA_INVALID_ARGUMENT, { SET(rotary_pairs, MHA_ROTARY_INTERLEAVED) } },
    /* What a window's size is, is nobody's business. */
    { "any window", MHA_OK, { SET(window_left, SIZE_MAX) } },
    { "a negative scale", MHA_OK, { REAL(scale, -0.5f) } },
    { "no batch", MHA_OK, { SET(batch, 0) } },
    { "no queries", MHA_OK, { SET(query_len, 0) } },
    { "no keys", MHA_OK, { SET(key_len, 0) } },
};

Test(errors, attention_create)
{
    TRY_ROWS(&attention_kind, attention_rows);
}

/* --- caches, rotary positions, offsets, dropout --- */

enum {
    CACHE = MHA_USES_APPEND,
    RING = MHA_USES_RING,
    ROTARY = MHA_USES_ROTARY,
    CAUSAL = MHA_USES_CAUSAL,
    LEFT = MHA_USES_WINDOW_LEFT,
    LENGTHS = MHA_USES_KEY_LENGTHS,
    QUERY_OFFSETS = MHA_USES_QUERY_OFFSETS,
    KEY_OFFSETS = MHA_USES_KEY_OFFSETS,
    DROPOUT = MHA_USES_DROPOUT
};

static const mha_attention_desc good_cache = {
    .batch = 2,
    .heads = 4,
    .kv_heads = 2,
    .query_len = 3,
    .key_len = 7,
    .head_dim = 8,
    .value_dim = 6,
    .uses = CACHE | ROTARY | CAUSAL,
    .diagonal = MHA_AFTER_PAST,
    .new_len = 3,
    .rotary_dim = 6,
    .rotary_positions = 9,
};
static const mha_attention_desc good_ring = {
    .batch = 2,
    .heads = 4,
    .query_len = 3,
    .key_len = 7,
    .head_dim = 8,
    .uses = CACHE | RING | CAUSAL | LEFT,
    .diagonal = MHA_BOTTOM_RIGHT,
    .window_left = 4,
    .new_len = 3,
};
static const mha_attention_desc good_offsets = {
    .batch = 2,
    .heads = 4,
    .query_len = 5,
    .key_len = 7,
    .head_dim = 8,
    .uses = QUERY_OFFSETS | KEY_OFFSETS | DROPOUT,
    .dropout_p = 0.25f,
};
static const kind cache_kind = KIND_ROW(attention, good_cache);
static const kind ring_kind = KIND_ROW(attention, good_ring);
static const kind offsets_kind = KIND_ROW(attention, good_offsets);

static const create_row cache_rows[] = {
    { "new_len", MHA_INVALID_ARGUMENT, { SET(new_len, 0) } },
    { "new_len", MHA_INVALID_ARGUMENT, { SET(new_len, 8) } },
    { "new_len", MHA_INVALID_ARGUMENT, { SET(new_len, 1ull << 31) } },
    { "new_len", MHA_INVALID_ARGUMENT, { SET(new_len, 1ull << 32) } },
    { "new_len", MHA_INVALID_ARGUMENT, { SET(new_len, SIZE_MAX) } },
    { "new_len", MHA_INVALID_ARGUMENT, { SET(key_len, 0) } },
    { "new_len", MHA_INVALID_ARGUMENT, { SET(key_len, 2) } },
    { "new_type", MHA_INVALID_ARGUMENT, { SET(new_type, 4) } },
    { "new_type", MHA_INVALID_ARGUMENT, { SET(new_type, -1) } },
    { "offsets", MHA_UNSUPPORTED, { SET(uses, CACHE | QUERY_OFFSETS), SET(diagonal, 0) } },
    { "offsets", MHA_UNSUPPORTED, { SET(uses, CACHE | KEY_OFFSETS), SET(diagonal, 0) } },
    { "MHA_USES_KEY_LENGTHS",
      MHA_INVALID_ARGUMENT,
      { SET(uses, CACHE | ROTARY | CAUSAL | LENGTHS) } },
    { "MHA_AFTER_PAST", MHA_INVALID_ARGUMENT, { SET(uses, CAUSAL), SET(new_len, 0) } },
    { "MHA_USES_ROTARY",
      MHA_INVALID_ARGUMENT,
      { SET(uses, ROTARY | CAUSAL), SET(new_len, 0), SET(diagonal, MHA_TOP_LEFT) } },
    { "rotary_dim", MHA_INVALID_ARGUMENT, { SET(rotary_dim, 5) } },
    { "rotary_dim", MHA_INVALID_ARGUMENT, { SET(rotary_dim, 10) } },
    { "rotary_dim", MHA_INVALID_ARGUMENT, { SET(rotary_dim, SIZE_MAX) } },
    { "rotary_dim", MHA_INVALID_ARGUMENT, { SET(rotary_dim, SIZE_MAX - 1) } },
    { "rotary_dim", MHA_INVALID_ARGUMENT, { SET(rotary_dim, 0), SET(head_dim, 7) } },
    { "rotary_positions", MHA_INVALID_ARGUMENT, { SET(rotary_positions, 0) } },
    HUGE_AXIS(rotary_positions),
    { "rotary_positions", MHA_TOO_LARGE, { SET(rotary_positions, INT_MAX) } },
    { "rotary_pairs", MHA_INVALID_ARGUMENT, { SET(rotary_pairs, 2) } },
    { "rotary_pairs", MHA_INVALID_ARGUMENT, { SET(rotary_pairs, -1) } },
    { "MHA_USES_ROTARY", MHA_INVALID_ARGUMENT, { SET(uses, CACHE | CAUSAL) } },
    { "MHA_USES_ROTARY",
      MHA_INVALID_ARGUMENT,
      { SET(uses, CACHE | CAUSAL), SET(rotary_dim, 0), SET(rotary_positions, 0),
        SET(rotary_pairs, MHA_ROTARY_INTERLEAVED) } },
    HUGE_AXIS(batch),
    HUGE_AXIS(query_len),
    HUGE_AXIS(key_len),
    /* The rotated queries alone are more than a buffer holds. */
    { "workspace",
      MHA_TOO_LARGE,
      { SET(batch, 1 << 15), SET(query_len, 1 << 30), SET(head_dim, 64) } },
    { "the largest rotary_positions", MHA_OK, { SET(rotary_positions, INT_MAX - (1 << 17)) } },
    { "fewer positions than new keys", MHA_OK, { SET(rotary_positions, 1) } },
    { "no batch", MHA_OK, { SET(batch, 0) } },
    { "no queries", MHA_OK, { SET(query_len, 0) } },
    { "every key new", MHA_OK, { SET(new_len, 7) } },
    { "the whole row", MHA_OK, { SET(rotary_dim, 0) } },
};

static const create_row ring_rows[] = {
    { "MHA_USES_RING", MHA_INVALID_ARGUMENT, { SET(uses, RING | CAUSAL | LEFT), SET(new_len, 0) } },
    { "MHA_USES_WINDOW_LEFT",
      MHA_INVALID_ARGUMENT,
      { SET(uses, CACHE | RING | CAUSAL), SET(window_left, 0) } },
    { "MHA_BOTTOM_RIGHT", MHA_INVALID_ARGUMENT, { SET(diagonal, MHA_TOP_LEFT) } },
    { "MHA_BOTTOM_RIGHT", MHA_INVALID_ARGUMENT, { SET(diagonal, MHA_AFTER_PAST) } },
    { "window_left", MHA_INVALID_ARGUMENT, { SET(window_left, 7) } },
    { "window_left", MHA_INVALID_ARGUMENT, { SET(window_left, INT_MAX) } },
    { "window_left", MHA_INVALID_ARGUMENT, { SET(window_left, SIZE_MAX) } },
    { "window_left", MHA_INVALID_ARGUMENT, { SET(window_left, SIZE_MAX - 6) } },
    { "a window that fits one query", MHA_OK, { SET(window_left, 6) } },
    { "path", MHA_UNSUPPORTED, { SET(path, MHA_PATH_COMPOSED) } },
#define NOT_WITH_RING(word, use)                            \
    {                                                       \
        word, MHA_UNSUPPORTED,                              \
        {                                                   \
            SET(uses, CACHE | RING | CAUSAL | LEFT | (use)) \
        }                                                   \
    }
    NOT_WITH_RING("bias", MHA_USES_BIAS),
    NOT_WITH_RING("mask", MHA_USES_MASK),
    NOT_WITH_RING("starts", MHA_USES_KEY_STARTS),
    NOT_WITH_RING("lengths", MHA_USES_KEY_LENGTHS),
    NOT_WITH_RING("lengths", MHA_USES_KEY_LENGTHS_PER_QUERY),
    NOT_WITH_RING("probs", MHA_USES_PROBS),
    NOT_WITH_RING("scores", MHA_USES_SCORES),
    NOT_WITH_RING("dropout", MHA_USES_DROPOUT),
    NOT_WITH_RING("offsets", MHA_USES_QUERY_OFFSETS),
};

static const create_row offsets_rows[] = {
    { "dropout_p", MHA_INVALID_ARGUMENT, { REAL(dropout_p, 1) } },
    { "dropout_p", MHA_INVALID_ARGUMENT, { REAL(dropout_p, -0.1f) } },
    { "dropout_p", MHA_INVALID_ARGUMENT, { REAL(dropout_p, NAN) } },
    { "dropout_p", MHA_INVALID_ARGUMENT, { REAL(dropout_p, INFINITY) } },
    { "dropout_p", MHA_INVALID_ARGUMENT, { SET(uses, QUERY_OFFSETS) } },
    { "offsets", MHA_UNSUPPORTED, { SET(path, MHA_PATH_COMPOSED) } },
    { "offsets", MHA_UNSUPPORTED, { SET(uses, QUERY_OFFSETS | DROPOUT | MHA_USES_PROBS) } },
    { "offsets", MHA_UNSUPPORTED, { SET(uses, KEY_OFFSETS | DROPOUT | MHA_USES_SCORES) } },
    { "no dropout", MHA_OK, { REAL(dropout_p, 0) } },
    { "nearly all dropped", MHA_OK, { REAL(dropout_p, 0x1.fffffep-1f) } },
    { "no batch", MHA_OK, { SET(batch, 0) } },
    { "no queries", MHA_OK, { SET(query_len, 0) } },
};

Test(errors, attention_create_with_a_cache)
{
    TRY_ROWS(&cache_kind, cache_rows);
    TRY_ROWS(&ring_kind, ring_rows);
}

Test(errors, attention_create_with_offsets_and_dropout)
{
    TRY_ROWS(&offsets_kind, offsets_rows);
}

/* --- the others --- */

static const create_row softmax_rows[] = {
    EXCLUSION_ROWS,
    HUGE_AXIS(batch),
    HUGE_AXIS(heads),
    HUGE_AXIS(query_len),
    HUGE_AXIS(key_len),
    { "scale", MHA_UNSUPPORTED, { REAL(scale, 2) } },
    { "scale", MHA_UNSUPPORTED, { REAL(scale, NAN) } },
    { "caches", MHA_UNSUPPORTED, { SET(uses, MHA_USES_APPEND) } },
    { "caches", MHA_UNSUPPORTED, { SET(uses, MHA_USES_RING) } },
    { "rotary", MHA_UNSUPPORTED, { SET(uses, MHA_USES_ROTARY) } },
    { "offsets", MHA_UNSUPPORTED, { SET(uses, MHA_USES_QUERY_OFFSETS) } },
    { "offsets", MHA_UNSUPPORTED, { SET(uses, MHA_USES_KEY_OFFSETS) } },
    { "scale of 1", MHA_OK, { REAL(scale, 1) } },
    { "ignored fields",
      MHA_OK,
      { SET(head_dim, 0), SET(value_dim, SIZE_MAX), SET(kv_heads, 3), SET(type, 99) } },
    { "more ignored fields", MHA_OK, { SET(path, 99), SET(gemm, 99), SET(tiling, 99) } },
    { "fields of a cache",
      MHA_OK,
      { SET(new_len, SIZE_MAX), SET(new_type, 99), SET(rotary_dim, 3),
        SET(rotary_positions, SIZE_MAX) } },
    { "dropout",
      MHA_OK,
      { SET(uses, DROPOUT | CAUSAL), REAL(dropout_p, 0.5f), SET(window_left, 0),
        SET(bias_broadcast, 0) } },
};

Test(errors, softmax_create)
{
    TRY_ROWS(&softmax_kind, softmax_rows);
}

#define SET_LAYER(field, value) SET_IN(mha_layer_desc, field, value)
#define HUGE_FIELD(field)                                                      \
    { #field, MHA_TOO_LARGE, { SET_LAYER(attention.field, 1ull << 31) } },     \
        { #field, MHA_TOO_LARGE, { SET_LAYER(attention.field, 1ull << 33) } }, \
    {                                                                          \
#field, MHA_TOO_LARGE,                                                 \
        {                                                                      \
            SET_LAYER(attention.field, SIZE_MAX - 3)                           \
        }                                                                      \
    }

static const create_row layer_rows[] = {
    { "attention.heads", MHA_INVALID_ARGUMENT, { SET_LAYER(attention.heads, 0) } },
    { "model_width",
      MHA_INVALID_ARGUMENT,
      { SET_LAYER(model_width, 0), SET_LAYER(query_width, 0) } },
    { "model_width", MHA_INVALID_ARGUMENT, { SET_LAYER(model_width, 30) } },
    { "model_width", MHA_INVALID_ARGUMENT, { SET_LAYER(model_width, 3) } },
    { "model_width",
      MHA_INVALID_ARGUMENT,
      { SET_LAYER(model_width, 0), SET_LAYER(query_width, 30) } },
    { "head_dim", MHA_INVALID_ARGUMENT, { SET_LAYER(attention.head_dim, 7) } },
    { "flags", MHA_UNSUPPORTED, { SET_LAYER(flags, 1u << 6) } },
    { "flags", MHA_UNSUPPORTED, { SET_LAYER(flags, 1u << 31) } },
    { "projection", MHA_INVALID_ARGUMENT, { SET_LAYER(projection, 3) } },
    { "projection", MHA_INVALID_ARGUMENT, { SET_LAYER(projection, -1) } },
    { "MHA_LAYER_BIAS_OUTPUT",
      MHA_INVALID_ARGUMENT,
      { SET_LAYER(flags, MHA_LAYER_MERGED_OUTPUT | MHA_LAYER_BIAS_OUTPUT) } },
    { "output_width",
      MHA_INVALID_ARGUMENT,
      { SET_LAYER(flags, MHA_LAYER_MERGED_OUTPUT), SET_LAYER(output_width, 31) } },
    { "the merged width", MHA_OK, { SET_LAYER(flags, MHA_LAYER_MERGED_OUTPUT) } },
    { "kv_heads", MHA_INVALID_ARGUMENT, { SET_LAYER(attention.kv_heads, 3) } },
    { "halves", MHA_OK, { SET_LAYER(attention.type, MHA_FLOAT16) } },
    { "type", MHA_INVALID_ARGUMENT, { SET_LAYER(attention.type, 4) } },
    { "output_type", MHA_INVALID_ARGUMENT, { SET_LAYER(attention.output_type, -1) } },
    { "weight_type", MHA_INVALID_ARGUMENT, { SET_LAYER(weight_type, 4) } },
    { "weight_type", MHA_INVALID_ARGUMENT, { SET_LAYER(weight_type, -1) } },
    { "softcap", MHA_INVALID_ARGUMENT, { REAL_IN(mha_layer_desc, attention.softcap, -1) } },
    { "diagonal", MHA_INVALID_ARGUMENT, { SET_LAYER(attention.uses, MHA_USES_CAUSAL) } },
    { "new_len", MHA_INVALID_ARGUMENT, { SET_LAYER(attention.uses, CACHE) } },
    { "new_len",
      MHA_INVALID_ARGUMENT,
      { SET_LAYER(attention.uses, CACHE), SET_LAYER(attention.new_len, 8) } },
    { "new tokens of halves",
      MHA_OK,
      { SET_LAYER(attention.uses, CACHE), SET_LAYER(attention.new_len, 2),
        SET_LAYER(attention.new_type, MHA_FLOAT16) } },
    { "a cache of halves",
      MHA_OK,
      { SET_LAYER(attention.uses, CACHE), SET_LAYER(attention.new_len, 2),
        SET_LAYER(attention.key_value_type, MHA_FLOAT16) } },
    { "MHA_USES_RING", MHA_INVALID_ARGUMENT, { SET_LAYER(attention.uses, RING) } },
    { "MHA_USES_ROTARY", MHA_INVALID_ARGUMENT, { SET_LAYER(attention.uses, ROTARY) } },
    { "offsets", MHA_UNSUPPORTED, { SET_LAYER(attention.uses, QUERY_OFFSETS) } },
    { "offsets", MHA_UNSUPPORTED, { SET_LAYER(attention.uses, KEY_OFFSETS) } },
    { "new_len", MHA_INVALID_ARGUMENT, { SET_LAYER(attention.new_len, 1) } },
    { "dropout_p", MHA_INVALID_ARGUMENT, { REAL_IN(mha_layer_desc, attention.dropout_p, 0.5f) } },
    { "dropout_p",
      MHA_INVALID_ARGUMENT,
      { SET_LAYER(attention.uses, DROPOUT), REAL_IN(mha_layer_desc, attention.dropout_p, 1) } },
    HUGE_FIELD(batch),
    HUGE_FIELD(query_len),
    HUGE_FIELD(value_dim),
    /* The sentence may speak of the projection of query, key, value or output. */
    { "query", MHA_TOO_LARGE, { SET_LAYER(query_width, SIZE_MAX) } },
    { "query", MHA_TOO_LARGE, { SET_LAYER(query_width, 1ull << 31) } },
    { "key", MHA_TOO_LARGE, { SET_LAYER(key_width, 1ull << 33) } },
    { "value", MHA_TOO_LARGE, { SET_LAYER(value_width, SIZE_MAX / 2) } },
    { "output", MHA_TOO_LARGE, { SET_LAYER(output_width, SIZE_MAX / 2) } },
    { "heads",
      MHA_TOO_LARGE,
      { SET_LAYER(model_width, 0), SET_LAYER(attention.heads, 1ull << 31),
        SET_LAYER(attention.head_dim, 1) } },
    /* heads * head_dim is 0 modulo 2^64. */
    { "heads",
      MHA_TOO_LARGE,
      { SET_LAYER(model_width, 0), SET_LAYER(attention.heads, 1ull << 32),
        SET_LAYER(attention.head_dim, 1ull << 32) } },
    { "workspace",
      MHA_UNSUPPORTED,
      { SET_LAYER(attention.query_len, 1 << 20), SET_LAYER(attention.key_len, 1 << 20),
        SET_LAYER(attention.path, MHA_PATH_COMPOSED) } },
};

Test(errors, layer_create)
{
    TRY_ROWS(&layer_kind, layer_rows);
}

#define SET_GEMM(field, value) SET_IN(mha_gemm_desc, field, value)
#define SET_HEADS(field, value) SET_IN(mha_heads_desc, field, value)

static const create_row gemm_rows[] = {
    { "m", MHA_INVALID_ARGUMENT, { SET_GEMM(m, 0) } },
    { "n", MHA_INVALID_ARGUMENT, { SET_GEMM(n, 0) } },
    { "m", MHA_TOO_LARGE, { SET_GEMM(m, 1ull << 31) } },
    { "n", MHA_TOO_LARGE, { SET_GEMM(n, 1ull << 33) } },
    { "k", MHA_TOO_LARGE, { SET_GEMM(k, SIZE_MAX / 2) } },
    { "batch", MHA_TOO_LARGE, { SET_GEMM(batch, SIZE_MAX) } },
    { "flags", MHA_UNSUPPORTED, { SET_GEMM(flags, 16) } },
    { "flags", MHA_UNSUPPORTED, { SET_GEMM(flags, 1u << 31) } },
    { "beta",
      MHA_INVALID_ARGUMENT,
      { SET_GEMM(flags, MHA_GEMM_BIAS), REAL_IN(mha_gemm_desc, beta, 1) } },
    { "by", MHA_INVALID_ARGUMENT, { SET_GEMM(by, 3) } },
    { "by", MHA_INVALID_ARGUMENT, { SET_GEMM(by, -1) } },
    { "type", MHA_INVALID_ARGUMENT, { SET_GEMM(type, 4) } },
    { "type", MHA_INVALID_ARGUMENT, { SET_GEMM(type, -1) } },
    { "b_type", MHA_INVALID_ARGUMENT, { SET_GEMM(b_type, 4) } },
    { "c_type", MHA_INVALID_ARGUMENT, { SET_GEMM(c_type, -1) } },
    { "bias_type", MHA_INVALID_ARGUMENT, { SET_GEMM(bias_type, 4) } },
    { "workspace",
      MHA_TOO_LARGE,
      { SET_GEMM(m, 1 << 29), SET_GEMM(k, 1 << 29), SET_GEMM(by, MHA_GEMM_CLBLAST),
        SET_GEMM(type, MHA_FLOAT16) } },
    { "activation", MHA_INVALID_ARGUMENT, { SET_GEMM(activation, 5) } },
    { "activation", MHA_INVALID_ARGUMENT, { SET_GEMM(activation, -1) } },
    { "activation_alpha", MHA_INVALID_ARGUMENT, { REAL_IN(mha_gemm_desc, activation_alpha, NAN) } },
    { "activation_alpha",
      MHA_INVALID_ARGUMENT,
      { SET_GEMM(activation, MHA_ACTIVATION_GELU), REAL_IN(mha_gemm_desc, activation_alpha, 2) } },
    { "no k", MHA_OK, { SET_GEMM(k, 0) } },
};

static const create_row heads_rows[] = {
    { "axis", MHA_TOO_LARGE, { SET_HEADS(batch, 1ull << 31) } },
    { "axis", MHA_TOO_LARGE, { SET_HEADS(heads, 1ull << 33) } },
    { "axis", MHA_TOO_LARGE, { SET_HEADS(len, SIZE_MAX / 2) } },
    { "axis", MHA_TOO_LARGE, { SET_HEADS(dim, SIZE_MAX) } },
    { "size_t",
      MHA_TOO_LARGE,
      { SET_HEADS(batch, 1 << 29), SET_HEADS(len, 1 << 29), SET_HEADS(dim, 1 << 29) } },
};

Test(errors, gemm_and_heads_create)
{
    TRY_ROWS(&gemm_kind, gemm_rows);
    TRY_ROWS(&heads_kind, heads_rows);
}

#define SET_ROTARY(field, value) SET_IN(mha_rotary_desc, field, value)
#define HUGE_OF_ROTARY(field)                                         \
    { #field, MHA_TOO_LARGE, { SET_ROTARY(field, 1ull << 31) } },     \
        { #field, MHA_TOO_LARGE, { SET_ROTARY(field, 1ull << 33) } }, \
    {                                                                 \
#field, MHA_TOO_LARGE,                                        \
        {                                                             \
            SET_ROTARY(field, SIZE_MAX)                               \
        }                                                             \
    }

static const create_row rotary_rows[] = {
    HUGE_OF_ROTARY(batch),
    HUGE_OF_ROTARY(heads),
    HUGE_OF_ROTARY(len),
    HUGE_OF_ROTARY(dim),
    HUGE_OF_ROTARY(positions),
    { "size_t",
      MHA_TOO_LARGE,
      { SET_ROTARY(batch, 1 << 29), SET_ROTARY(len, 1 << 29), SET_ROTARY(dim, 1 << 29) } },
    { "workspace", MHA_TOO_LARGE, { SET_ROTARY(batch, 1 << 25), SET_ROTARY(len, 1 << 25) } },
    { "heads", MHA_INVALID_ARGUMENT, { SET_ROTARY(heads, 0) } },
    { "dim", MHA_INVALID_ARGUMENT, { SET_ROTARY(dim, 0), SET_ROTARY(rotary_dim, 0) } },
    { "dim", MHA_INVALID_ARGUMENT, { SET_ROTARY(dim, 1), SET_ROTARY(rotary_dim, 0) } },
    { "rotary_dim", MHA_INVALID_ARGUMENT, { SET_ROTARY(dim, 7), SET_ROTARY(rotary_dim, 0) } },
    { "rotary_dim", MHA_INVALID_ARGUMENT, { SET_ROTARY(rotary_dim, 5) } },
    { "rotary_dim", MHA_INVALID_ARGUMENT, { SET_ROTARY(rotary_dim, 10) } },
    { "rotary_dim", MHA_INVALID_ARGUMENT, { SET_ROTARY(rotary_dim, SIZE_MAX - 1) } },
    { "pairs", MHA_INVALID_ARGUMENT, { SET_ROTARY(pairs, 2) } },
    { "pairs", MHA_INVALID_ARGUMENT, { SET_ROTARY(pairs, -1) } },
    { "type", MHA_INVALID_ARGUMENT, { SET_ROTARY(type, 4) } },
    { "output_type", MHA_INVALID_ARGUMENT, { SET_ROTARY(output_type, -1) } },
    { "no batch", MHA_OK, { SET_ROTARY(batch, 0) } },
    { "no rows", MHA_OK, { SET_ROTARY(len, 0) } },
    { "no positions", MHA_OK, { SET_ROTARY(positions, 0) } },
    { "the whole row", MHA_OK, { SET_ROTARY(rotary_dim, 0) } },
};

Test(errors, rotary_create)
{
    TRY_ROWS(&rotary_kind, rotary_rows);
}

#define SET_NORM(field, value) SET_IN(mha_norm_desc, field, value)
#define REAL_OF_NORM(field, value) REAL_IN(mha_norm_desc, field, value)

static const create_row norm_rows[] = {
    { "rows", MHA_TOO_LARGE, { SET_NORM(rows, 1ull << 31) } },
    { "rows", MHA_TOO_LARGE, { SET_NORM(rows, SIZE_MAX) } },
    { "width", MHA_TOO_LARGE, { SET_NORM(width, 1ull << 33) } },
    { "width", MHA_INVALID_ARGUMENT, { SET_NORM(width, 0) } },
    { "kind", MHA_INVALID_ARGUMENT, { SET_NORM(kind, 2) } },
    { "kind", MHA_INVALID_ARGUMENT, { SET_NORM(kind, -1) } },
    { "uses", MHA_INVALID_ARGUMENT, { SET_NORM(uses, 1 << 7) } },
    { "uses", MHA_INVALID_ARGUMENT, { SET_NORM(uses, 1u << 31) } },
    { "MHA_NORM_MEAN", MHA_INVALID_ARGUMENT, { SET_NORM(kind, MHA_NORM_RMS) } },
    { "epsilon", MHA_INVALID_ARGUMENT, { REAL_OF_NORM(epsilon, -1) } },
    { "epsilon", MHA_INVALID_ARGUMENT, { REAL_OF_NORM(epsilon, NAN) } },
    { "epsilon", MHA_INVALID_ARGUMENT, { REAL_OF_NORM(epsilon, INFINITY) } },
    { "type", MHA_INVALID_ARGUMENT, { SET_NORM(type, 4) } },
    { "output_type", MHA_INVALID_ARGUMENT, { SET_NORM(output_type, -1) } },
    { "weight_type", MHA_INVALID_ARGUMENT, { SET_NORM(weight_type, 4) } },
    { "tiling", MHA_INVALID_ARGUMENT, { SET_NORM(tiling, 3) } },
    { "tiling", MHA_INVALID_ARGUMENT, { SET_NORM(tiling, -1) } },
    { "no rows", MHA_OK, { SET_NORM(rows, 0) } },
    { "the default epsilon", MHA_OK, { REAL_OF_NORM(epsilon, 0) } },
    { "RMS", MHA_OK, { SET_NORM(kind, MHA_NORM_RMS), SET_NORM(uses, 0) } },
};

Test(errors, norm_create)
{
    TRY_ROWS(&norm_kind, norm_rows);
}

#define SET_ACTIVATION(field, value) SET_IN(mha_activation_desc, field, value)
#define ALPHA(value) REAL_IN(mha_activation_desc, alpha, value)

static const create_row activation_rows[] = {
    { "rows", MHA_TOO_LARGE, { SET_ACTIVATION(rows, 1ull << 31) } },
    { "width", MHA_TOO_LARGE, { SET_ACTIVATION(width, SIZE_MAX) } },
    { "width", MHA_INVALID_ARGUMENT, { SET_ACTIVATION(width, 0) } },
    { "kind", MHA_INVALID_ARGUMENT, { SET_ACTIVATION(kind, 5) } },
    { "kind", MHA_INVALID_ARGUMENT, { SET_ACTIVATION(kind, -1) } },
    { "uses", MHA_INVALID_ARGUMENT, { SET_ACTIVATION(uses, 2) } },
    { "alpha", MHA_INVALID_ARGUMENT, { ALPHA(NAN) } },
    { "alpha", MHA_INVALID_ARGUMENT, { ALPHA(-INFINITY) } },
    { "alpha", MHA_INVALID_ARGUMENT, { ALPHA(2), SET_ACTIVATION(kind, MHA_ACTIVATION_GELU) } },
    { "type", MHA_INVALID_ARGUMENT, { SET_ACTIVATION(type, 4) } },
    { "output_type", MHA_INVALID_ARGUMENT, { SET_ACTIVATION(output_type, -1) } },
    { "tiling", MHA_INVALID_ARGUMENT, { SET_ACTIVATION(tiling, 3) } },
    { "no rows", MHA_OK, { SET_ACTIVATION(rows, 0) } },
    { "an alpha below 0", MHA_OK, { ALPHA(-1) } },
    { "an alpha of 1", MHA_OK, { ALPHA(1), SET_ACTIVATION(kind, MHA_ACTIVATION_RELU) } },
};

Test(errors, activation_create)
{
    TRY_ROWS(&activation_kind, activation_rows);
}

#define SET_FFN(field, value) SET_IN(mha_ffn_desc, field, value)

static const create_row ffn_rows[] = {
    { "rows", MHA_TOO_LARGE, { SET_FFN(rows, 1ull << 31) } },
    { "width", MHA_TOO_LARGE, { SET_FFN(width, SIZE_MAX) } },
    { "width", MHA_TOO_LARGE, { SET_FFN(hidden_width, 1ull << 33) } },
    { "too large", MHA_TOO_LARGE, { SET_FFN(output_width, SIZE_MAX) } },
    { "workspace", MHA_TOO_LARGE, { SET_FFN(rows, 1 << 29), SET_FFN(hidden_width, 4096) } },
    { "width", MHA_INVALID_ARGUMENT, { SET_FFN(width, 0) } },
    { "hidden_width", MHA_INVALID_ARGUMENT, { SET_FFN(hidden_width, 0) } },
    { "kind", MHA_INVALID_ARGUMENT, { SET_FFN(activation, 5) } },
    { "alpha", MHA_INVALID_ARGUMENT, { REAL_IN(mha_ffn_desc, alpha, NAN) } },
    { "flags", MHA_UNSUPPORTED, { SET_FFN(flags, 1 << 5) } },
    { "MHA_FFN_BIAS_GATE", MHA_INVALID_ARGUMENT, { SET_FFN(flags, MHA_FFN_BIAS_GATE) } },
    { "type", MHA_INVALID_ARGUMENT, { SET_FFN(type, 4) } },
    { "halves", MHA_OK, { SET_FFN(type, MHA_FLOAT16), SET_FFN(weight_type, MHA_BFLOAT16) } },
    { "output_type", MHA_INVALID_ARGUMENT, { SET_FFN(output_type, 4) } },
    { "weight_type", MHA_INVALID_ARGUMENT, { SET_FFN(weight_type, -1) } },
    { "projection", MHA_INVALID_ARGUMENT, { SET_FFN(projection, 3) } },
    { "tiling", MHA_INVALID_ARGUMENT, { SET_FFN(tiling, 3) } },
    { "no rows", MHA_OK, { SET_FFN(rows, 0) } },
    { "another width", MHA_OK, { SET_FFN(output_width, 3) } },
    { "no activation", MHA_OK, { SET_FFN(activation, 0), SET_FFN(flags, 0) } },
};

Test(errors, ffn_create)
{
    TRY_ROWS(&ffn_kind, ffn_rows);
}

#define SET_ENCODER(field, value) SET_IN(mha_encoder_desc, field, value)

static const create_row encoder_rows[] = {
    { "self_attention", MHA_INVALID_ARGUMENT, { SET_ENCODER(self_attention.attention.heads, 0) } },
    { "key_len", MHA_INVALID_ARGUMENT, { SET_ENCODER(self_attention.attention.key_len, 6) } },
    { "new_len",
      MHA_INVALID_ARGUMENT,
      { SET_ENCODER(self_attention.attention.uses, CACHE),
        SET_ENCODER(self_attention.attention.key_len, 9),
        SET_ENCODER(self_attention.attention.new_len, 2) } },
    { "key_width", MHA_INVALID_ARGUMENT, { SET_ENCODER(self_attention.key_width, 11) } },
    { "output_width", MHA_INVALID_ARGUMENT, { SET_ENCODER(self_attention.output_width, 11) } },
    { "MHA_LAYER_MERGED_OUTPUT",
      MHA_UNSUPPORTED,
      { SET_ENCODER(self_attention.flags, MHA_LAYER_MERGED_OUTPUT) } },
    { "feed_forward", MHA_INVALID_ARGUMENT, { SET_ENCODER(feed_forward.hidden_width, 0) } },
    { "rows", MHA_INVALID_ARGUMENT, { SET_ENCODER(feed_forward.rows, 9) } },
    { "width", MHA_INVALID_ARGUMENT, { SET_ENCODER(feed_forward.width, 9) } },
    { "output_width", MHA_INVALID_ARGUMENT, { SET_ENCODER(feed_forward.output_width, 9) } },
    { "feed_forward_place", MHA_INVALID_ARGUMENT, { SET_ENCODER(feed_forward_place, 3) } },
    { "feed_forward_place", MHA_INVALID_ARGUMENT, { SET_ENCODER(feed_forward_place, -1) } },
    { "norm_place", MHA_INVALID_ARGUMENT, { SET_ENCODER(norm_place, 2) } },
    { "norm_place", MHA_INVALID_ARGUMENT, { SET_ENCODER(norm_place, -1) } },
    { "uses", MHA_INVALID_ARGUMENT, { SET_ENCODER(norm.uses, MHA_NORM_SUM) } },
    { "kind", MHA_INVALID_ARGUMENT, { SET_ENCODER(norm.kind, 2) } },
    { "rows", MHA_INVALID_ARGUMENT, { SET_ENCODER(norm.rows, 3) } },
    { "halves", MHA_OK, { SET_ENCODER(self_attention.attention.type, MHA_FLOAT16) } },
    { "weights of norms", MHA_OK, { SET_ENCODER(norm.weight_type, MHA_BFLOAT16) } },
    { "attention.type", MHA_INVALID_ARGUMENT, { SET_ENCODER(self_attention.attention.type, 4) } },
    { "attention.output_type",
      MHA_INVALID_ARGUMENT,
      { SET_ENCODER(self_attention.attention.output_type, -1) } },
    { "attention.key_value_type",
      MHA_INVALID_ARGUMENT,
      { SET_ENCODER(self_attention.attention.key_value_type, MHA_FLOAT16) } },
    { "attention.new_type",
      MHA_INVALID_ARGUMENT,
      { SET_ENCODER(self_attention.attention.new_type, MHA_FLOAT16) } },
    { "weight_type", MHA_INVALID_ARGUMENT, { SET_ENCODER(self_attention.weight_type, 4) } },
    { "feed_forward", MHA_INVALID_ARGUMENT, { SET_ENCODER(feed_forward.type, MHA_FLOAT16) } },
    { "output_type", MHA_INVALID_ARGUMENT, { SET_ENCODER(feed_forward.output_type, MHA_FLOAT16) } },
    { "norm", MHA_INVALID_ARGUMENT, { SET_ENCODER(norm.type, MHA_FLOAT16) } },
    { "output_type", MHA_INVALID_ARGUMENT, { SET_ENCODER(norm.output_type, MHA_BFLOAT16) } },
    { "weight_type", MHA_INVALID_ARGUMENT, { SET_ENCODER(norm.weight_type, 4) } },
    { "its own lengths",
      MHA_OK,
      { SET_ENCODER(self_attention.attention.key_len, 5), SET_ENCODER(feed_forward.rows, 10) } },
    { "networks around", MHA_OK, { SET_ENCODER(feed_forward_place, MHA_FFN_AROUND) } },
    { "no batch", MHA_OK, { SET_ENCODER(self_attention.attention.batch, 0) } },
    { "a cache",
      MHA_OK,
      { SET_ENCODER(self_attention.attention.uses, CACHE),
        SET_ENCODER(self_attention.attention.key_len, 9) } },
};

#define SET_DECODER(field, value) SET_IN(mha_decoder_desc, field, value)

static const create_row decoder_rows[] = {
    { "self_attention", MHA_INVALID_ARGUMENT, { SET_DECODER(self_attention.attention.heads, 0) } },
    { "cross_attention",
      MHA_INVALID_ARGUMENT,
      { SET_DECODER(cross_attention.attention.heads, 0) } },
    { "batch", MHA_INVALID_ARGUMENT, { SET_DECODER(cross_attention.attention.batch, 3) } },
    { "query_len", MHA_INVALID_ARGUMENT, { SET_DECODER(cross_attention.attention.query_len, 4) } },
    { "query_width", MHA_INVALID_ARGUMENT, { SET_DECODER(cross_attention.query_width, 8) } },
    { "value_width", MHA_INVALID_ARGUMENT, { SET_DECODER(cross_attention.value_width, 8) } },
    { "MHA_USES_APPEND",
      MHA_UNSUPPORTED,
      { SET_DECODER(cross_attention.attention.uses, MHA_USES_APPEND) } },
    { "no memory", MHA_OK, { SET_DECODER(cross_attention.attention.key_len, 0) } },
};

Test(errors, encoder_and_decoder_create)
{
    TRY_ROWS(&encoder_kind, encoder_rows);
    TRY_ROWS(&decoder_kind, decoder_rows);
}

Test(errors, create_without)
{
    const kind *const kinds[] = { &attention_kind, &softmax_kind, &layer_kind,  &gemm_kind,
                                  &heads_kind,     &rotary_kind,  &norm_kind,   &activation_kind,
                                  &ffn_kind,       &encoder_kind, &decoder_kind };
    device d;
    device_open(&d);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const kind *k = kinds[i];
        void *object = &d;
        device_hush(&d);
        cr_expect_eq(k->create(NULL, d.context, k->good), MHA_INVALID_ARGUMENT, "%s", k->who);
        cr_expect(refusal_says(d.sentence, "out"), "%s: %s", k->who, d.sentence);
        cr_expect_eq(k->create(&object, d.context, NULL), MHA_INVALID_ARGUMENT, "%s", k->who);
        cr_expect(!object, "%s", k->who);
        cr_expect(refusal_says(d.sentence, "desc"), "%s: %s", k->who, d.sentence);
        cr_expect_eq(d.sentences, 2, "%s", k->who);
        /* There is nobody to log to. */
        object = &d;
        cr_expect_eq(k->create(&object, NULL, k->good), MHA_INVALID_ARGUMENT, "%s", k->who);
        cr_expect(!object, "%s", k->who);
    }
    device_close(&d);
}
