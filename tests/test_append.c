/* Generation with a cache: new keys join it and attention sees them, wherever they land; rings,
 * rotary positions, other types; and 256 tokens one by one against one causal pass. */
#include "append_case.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        { MHA_PATH_DECODE, MHA_TILING_CPU, 5 },      { MHA_PATH_DECODE, MHA_TILING_GPU, 10 },
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
            append_check(&d, &c, &worst);
            count++;
        }
    compare_log("append", count, &worst);
    device_close(&d);
}

/* More or fewer queries than new keys: only then do the two diagonals differ. */
Test(append, other_numbers_of_queries_and_new_keys)
{
    static const mha_path paths[] = { MHA_PATH_COMPOSED, MHA_PATH_STREAMING, MHA_PATH_DECODE };
    device d;
    compare_worst worst = { 0 };
    size_t count = 0;
    device_open(&d);
    for (int diagonal = MHA_BOTTOM_RIGHT; diagonal <= MHA_AFTER_PAST; diagonal++)
        for (size_t p = 0; p < sizeof paths / sizeof paths[0]; p++)
            for (size_t n = 0; n < 4; n++) {
                const append_case c = {
                    .desc = { ATTENTION_SIZES(3, 2, n & 1 ? 5 : 2, 9, 8), .new_len = n & 1 ? 2 : 5,
                              .uses = MHA_USES_APPEND | MHA_USES_CAUSAL | MHA_USES_LSE,
                              .diagonal = (mha_diagonal)diagonal, .path = paths[p] },
                    .on_device = n & 2,
                    .seed = 800 + n,
                };
                append_check(&d, &c, &worst);
                count++;
            }
    compare_log("queries and new keys", count, &worst);
    device_close(&d);
}

/* Rules of each score in a ring, whose blocks end where its rows do. */
Test(append, ring_with_softcap_and_slopes)
{
    static const struct {
        mha_path path;
        mha_tiling tiling;
    } ways[] = { { MHA_PATH_STREAMING, MHA_TILING_CPU },
                 { MHA_PATH_STREAMING, MHA_TILING_GPU },
                 { MHA_PATH_DECODE, MHA_TILING_CPU },
                 { MHA_PATH_DECODE, MHA_TILING_GPU } };
    device d;
    compare_worst worst = { 0 };
    size_t count = 0;
    device_open(&d);
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++)
        for (size_t n = 0; n < 3; n++) {
            const append_case c = {
                .desc = { ATTENTION_SIZES(3, 2, 3, 150, 8), .new_len = 3, .window_left = 140,
                          .uses = MHA_USES_APPEND | MHA_USES_RING | MHA_USES_CAUSAL |
                                  MHA_USES_WINDOW_LEFT | MHA_USES_ALIBI | MHA_USES_LSE,
                          .diagonal = MHA_BOTTOM_RIGHT, .softcap = 2, .path = ways[way].path,
                          .tiling = ways[way].tiling },
                .seed = 820 + n,
            };
            append_check(&d, &c, &worst);
            count++;
        }
    compare_log("ring with softcap and slopes", count, &worst);
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
    float *query = append_filled(TOKENS * few, 1, MHA_FLOAT32);
    float *key = append_filled(TOKENS * kv, 2, MHA_FLOAT32),
          *value = append_filled(TOKENS * kv, 3, MHA_FLOAT32);
    float *got = calloc(TOKENS * few, sizeof *got), *want = calloc(TOKENS * few, sizeof *want);
    cr_assert(got && want);
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
    float *query = append_filled(ALL * few, 1, MHA_FLOAT32),
          *key = append_filled(ALL * kv, 2, MHA_FLOAT32);
    float *got = calloc(ALL * few, sizeof(float)), *want = calloc(ALL * few, sizeof(float));
    cr_assert(got && want);
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
        cr_expect(strstr(stages, step ? "decode\n" : "attend\n"), "step %zu: %s", step, stages);
        stages[0] = '\0';
    }
    cr_expect(strstr(explain, "path decode for calls of at most 4 queries"), "%s", explain);
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
