/* A layer that keeps its keys and values: a prompt and the tokens after it, one at a time, give
 * what the reference gives for the whole sequence at once. */
#include "compare.h"
#include "device_memory.h"
#include "fill.h"
#include "reference.h"
#include "refusal.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

TestSuite(layer_cache, .timeout = 600);

enum {
    BATCH = 2,
    HEADS = 4,
    KV_HEADS = 2,
    LEN = 9,    /* of the whole sequence */
    PROMPT = 4, /* of it, in the first call */
    ROOM = 12,
    WIDTH = 20, /* of tokens */
    DIM = 6,
    VALUE_DIM = 5,
    TOKENS = BATCH * LEN * WIDTH,
    MATRIX = 32 * 32,
    NUM_WEIGHTS = 8
};

typedef struct world {
    device d;
    float weights[NUM_WEIGHTS][MATRIX];
    float tokens[TOKENS];
    double want[TOKENS]; /* of the whole sequence */
    mha_layer *layer;
    mha_type type; /* of tokens and output */
    device_tensor key, value;
} world;

static mha_layer_desc describe(uint64_t uses, size_t len, size_t keys)
{
    return (mha_layer_desc){
        .attention = { .batch = BATCH,
                       .heads = HEADS,
                       .kv_heads = KV_HEADS,
                       .query_len = len,
                       .key_len = keys,
                       .head_dim = DIM,
                       .value_dim = VALUE_DIM,
                       .uses = uses },
        .query_width = WIDTH,
        .flags = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN,
        .projection = MHA_GEMM_KERNEL,
    };
}

static void load(world *w)
{
    const size_t keys = KV_HEADS * DIM, values = KV_HEADS * VALUE_DIM, merged = HEADS * VALUE_DIM;
    const size_t shapes[NUM_WEIGHTS][4] = {
        { 1, 1, HEADS * DIM, WIDTH }, { 1, 1, keys, WIDTH },    { 1, 1, values, WIDTH },
        { 1, 1, WIDTH, merged },      { 1, 1, 1, HEADS * DIM }, { 1, 1, 1, keys },
        { 1, 1, 1, values },          { 1, 1, 1, WIDTH },
    };
    mha_layer_weights weights;
    mha_tensor *const to[NUM_WEIGHTS] = { &weights.query,      &weights.key,
                                          &weights.value,      &weights.output,
                                          &weights.bias_query, &weights.bias_key,
                                          &weights.bias_value, &weights.bias_output };
    for (int i = 0; i < NUM_WEIGHTS; i++) {
        const device_tensor tensor =
            device_input(&w->d, shapes[i], NULL, sizeof(float), w->weights[i]);
        *to[i] = device_arg(&tensor);
    }
    cr_assert_eq(mha_layer_load(w->layer, &weights, &(mha_call){ .queue = w->d.queue }), MHA_OK,
                 "%s", w->d.sentence);
}

/* The layer of the desc, loaded, and an empty cache. */
static void open_world(world *w, const mha_layer_desc *desc)
{
    const mha_attention_desc *a = &desc->attention;
    const size_t bytes = stored_bytes(a->key_value_type ? a->key_value_type : a->type);
    w->type = a->type;
    device_open(&w->d);
    for (int i = 0; i < NUM_WEIGHTS; i++)
        fill_uniform(w->weights[i], MATRIX, 30 + (uint64_t)i, -0.4f, 0.4f);
    fill_floats(w->tokens, TOKENS, 40, FILL_NORMAL);
    stored_round(w->type, w->tokens, TOKENS);
    cr_assert_eq(mha_layer_create(&w->layer, w->d.context, desc), MHA_OK, "%s", w->d.sentence);
    load(w);
    w->key = device_output(&w->d, (size_t[]){ BATCH, KV_HEADS, ROOM, DIM }, NULL, bytes);
    w->value = device_output(&w->d, (size_t[]){ BATCH, KV_HEADS, ROOM, VALUE_DIM }, NULL, bytes);
}

static void close_world(world *w)
{
    mha_layer_destroy(&w->layer);
    device_close(&w->d);
}

static void ask_reference(world *w)
{
    mha_layer_desc desc = describe(MHA_USES_CAUSAL, LEN, LEN);
    desc.attention.diagonal = MHA_TOP_LEFT;
    const reference_layer_weights weights = {
        .query = w->weights[0],
        .key = w->weights[1],
        .value = w->weights[2],
        .output = w->weights[3],
        .bias_query = w->weights[4],
        .bias_key = w->weights[5],
        .bias_value = w->weights[6],
        .bias_output = w->weights[7],
    };
    reference_layer(
        &desc, &weights,
        &(reference_args){
            .query = w->tokens, .key = w->tokens, .value = w->tokens, .output = w->want });
}

/* Tokens `first` and on of each batch. */
static mha_attention_args place_call(world *w, size_t first, size_t len, const int32_t *positions,
                                     device_tensor *output)
{
    float some[TOKENS];
    for (size_t b = 0; b < BATCH; b++)
        for (size_t i = 0; i < len * WIDTH; i++)
            some[b * len * WIDTH + i] = w->tokens[(b * LEN + first) * WIDTH + i];
    const size_t shape[4] = { BATCH, 1, len, WIDTH };
    void *stored = stored_pack(w->type, some, BATCH * len * WIDTH);
    const device_tensor tokens = device_input(&w->d, shape, NULL, stored_bytes(w->type), stored);
    *output = device_output(&w->d, shape, NULL, stored_bytes(w->type));
    free(stored);
    return (mha_attention_args){ .query_len = len,
                                 .new_len = len,
                                 .query = device_arg(&tokens),
                                 .new_key = device_arg(&tokens),
                                 .new_value = device_arg(&tokens),
                                 .key = device_arg(&w->key),
                                 .value = device_arg(&w->value),
                                 .output = device_arg(output),
                                 .append_positions.host = positions };
}

static void run(world *w, const mha_attention_args *args, const device_tensor *output, float *got)
{
    const mha_call call = device_call(&w->d, mha_layer_workspace(w->layer));
    cr_assert_eq(mha_layer_enqueue(w->layer, args, &call), MHA_OK, "%s", w->d.sentence);
    const size_t count = output->shape[0] * output->shape[2] * output->shape[3];
    void *stored = calloc(count, stored_bytes(w->type));
    cr_assert(stored);
    device_read(&w->d, output, stored);
    stored_unpack(w->type, got, stored, count);
    free(stored);
    device_expect_guards(&w->d, "a layer with a cache");
}

static void expect_rows(world *w, const char *name, size_t first, size_t len, const float *got,
                        double limit, compare_worst *worst)
{
    for (size_t b = 0; b < BATCH; b++)
        compare_all(name, "output", got + b * len * WIDTH, w->want + (b * LEN + first) * WIDTH,
                    len * WIDTH, limit, worst);
}

Test(layer_cache, prompt_and_tokens)
{
    static const struct {
        mha_type tokens, cache;
    } types[] = { { MHA_FLOAT32, MHA_FLOAT32 },
                  { MHA_FLOAT32, MHA_FLOAT16 },
                  { MHA_BFLOAT16, MHA_FLOAT32 } };
    static const mha_path paths[] = { MHA_PATH_DEFAULT, MHA_PATH_COMPOSED, MHA_PATH_STREAMING };
    static world w;
    compare_worst worst = { 0 };
    for (int n = 0; n < 9; n++) {
        float got[TOKENS];
        device_tensor output;
        char name[64];
        const mha_type type = types[n % 3].tokens, cache = types[n % 3].cache;
        snprintf(name, sizeof name, "tokens of type %d, cache of type %d, path %d", (int)type,
                 (int)cache, (int)paths[n / 3]);
        mha_layer_desc desc = describe(MHA_USES_CAUSAL | MHA_USES_APPEND, PROMPT, ROOM);
        desc.attention.diagonal = MHA_AFTER_PAST;
        desc.attention.new_len = PROMPT;
        desc.attention.type = type;
        desc.attention.key_value_type = cache;
        desc.attention.path = paths[n / 3];
        /* Values of a few units, rounded to 11 bits in a cache of halves. */
        const double limit = (cache == MHA_FLOAT16 ? 0.02 : 0) + stored_limit(type, 8) +
                             reference_limit(WIDTH + DIM + LEN + WIDTH, 8);
        open_world(&w, &desc);
        ask_reference(&w);
        for (size_t first = 0, len = PROMPT; first < LEN; first += len, len = 1) {
            const int32_t positions[BATCH] = { (int32_t)first, (int32_t)first };
            const mha_attention_args args = place_call(&w, first, len, positions, &output);
            run(&w, &args, &output, got);
            expect_rows(&w, name, first, len, got, limit, n % 3 ? NULL : &worst);
        }
        close_world(&w);
    }
    compare_log("layers with a cache", 3, &worst);
}

/* Rotary positions are relative: a prompt further on in the cache, whose earlier rows do not
 * exist, gives the same; and without them it gives something else. */
Test(layer_cache, rotary_positions_are_relative)
{
    enum {
        PAIRS = DIM / 2,
        SHIFT = 3
    };
    static world w;
    float tables[2][ROOM * PAIRS], got[3][TOKENS];
    for (int i = 0; i < ROOM * PAIRS; i++) {
        const double angle = i / PAIRS * pow(100, -2.0 * (i % PAIRS) / DIM);
        tables[0][i] = (float)cos(angle);
        tables[1][i] = (float)sin(angle);
    }
    for (int n = 0; n < 3; n++) {
        const int32_t at = n == 1 ? SHIFT : 0;
        const int32_t positions[BATCH] = { at, at };
        device_tensor output;
        mha_layer_desc desc = describe(MHA_USES_CAUSAL | MHA_USES_APPEND | MHA_USES_KEY_STARTS |
                                           (n < 2 ? MHA_USES_ROTARY : 0),
                                       LEN, ROOM);
        desc.attention.diagonal = MHA_AFTER_PAST;
        desc.attention.new_len = LEN;
        desc.attention.rotary_positions = n < 2 ? ROOM : 0;
        open_world(&w, &desc);
        mha_attention_args args = place_call(&w, 0, LEN, positions, &output);
        args.key_starts.host = positions;
        for (int t = 0; n < 2 && t < 2; t++) {
            const device_tensor table =
                device_input(&w.d, (size_t[]){ 1, 1, ROOM, PAIRS }, NULL, sizeof(float), tables[t]);
            *(t ? &args.rotary_sin : &args.rotary_cos) = device_arg(&table);
        }
        run(&w, &args, &output, got[n]);
        close_world(&w);
    }
    double apart = 0;
    for (size_t i = 0; i < TOKENS; i++) {
        cr_expect(fabs((double)got[0][i] - got[1][i]) < 1e-4, "[%zu]: %g and %g", i,
                  (double)got[0][i], (double)got[1][i]);
        apart = fmax(apart, fabs((double)got[0][i] - got[2][i]));
    }
    cr_expect_gt(apart, 0.01);
}

Test(layer_cache, refusals)
{
    static world w;
    static const int32_t good[BATCH] = { 0, 1 }, late[BATCH] = { 0, ROOM - PROMPT + 1 };
    device_tensor output;
    mha_layer_desc desc = describe(MHA_USES_APPEND, PROMPT, ROOM);
    desc.attention.new_len = PROMPT;
    open_world(&w, &desc);
    const mha_attention_args right = place_call(&w, 0, PROMPT, good, &output);
    enum {
        CASES = 5
    };
    mha_attention_args wrong[CASES];
    const struct {
        mha_status status;
        const char *says;
    } rules[CASES] = {
        { MHA_INVALID_ARGUMENT, "append_positions" },
        { MHA_INVALID_ARGUMENT, "new_key" },
        { MHA_OVERLAP, "value" },
        { MHA_OVERLAP, "new_value" },
        { MHA_INVALID_ARGUMENT, "new_len" },
    };
    for (int i = 0; i < CASES; i++)
        wrong[i] = right;
    wrong[0].append_positions.host = late;
    wrong[1].new_key = (mha_tensor){ 0 };
    wrong[2].value = right.key;
    wrong[3].new_value = right.output;
    wrong[4].new_len = PROMPT + 1;
    const mha_call call = device_call(&w.d, mha_layer_workspace(w.layer));
    for (int i = 0; i < CASES; i++) {
        device_hush(&w.d);
        cr_expect_eq(mha_layer_enqueue(w.layer, &wrong[i], &call), rules[i].status, "%d", i);
        cr_expect(w.d.sentences == 1 && refusal_says(w.d.sentence, rules[i].says), "%d: %s", i,
                  w.d.sentence);
    }
    device_hush(&w.d);
    cr_expect_eq(mha_layer_run(w.layer, &(mha_host_args){ 0 }), MHA_UNSUPPORTED);
    cr_expect(refusal_says(w.d.sentence, "MHA_USES_APPEND"), "%s", w.d.sentence);
    cr_expect_eq(mha_layer_enqueue(w.layer, &right, &call), MHA_OK, "%s", w.d.sentence);
    close_world(&w);
}
