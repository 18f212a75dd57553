/* Encoder and decoder layers against the reference. How they refuse is in test_errors_block.c. */
#include "block_case.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(block, .timeout = 900);

static const mha_tiling tilings[] = { MHA_TILING_CPU, MHA_TILING_GPU };

/* All but what a test is about is the seed's choice. */
static block_case pick(uint64_t seed)
{
    static const size_t lens[] = { 1, 2, 5, 17 }, dims[] = { 3, 8, 11 };
    const size_t heads = 2 * (1 + compare_pick(seed, 0, 2)), dim = dims[compare_pick(seed, 1, 3)];
    const unsigned gate = compare_pick(seed, 2, 2) ? MHA_FFN_GATE | MHA_FFN_BIAS_GATE : 0;
    const bool turned = compare_pick(seed, 3, 2);
    const bool causal = compare_pick(seed, 4, 2);
    block_case c = { .gaps = compare_pick(seed, 5, 2), .seed = seed };
    const mha_layer_desc layer = {
        .attention = { .heads = heads,
                       .kv_heads = compare_pick(seed, 6, 2) ? 2 : 0,
                       .head_dim = dim },
        .flags = MHA_LAYER_BIAS_ALL | (turned ? MHA_LAYER_OUT_IN : 0),
        .projection = MHA_GEMM_KERNEL,
    };
    c.desc = (mha_decoder_desc){
        .self_attention = layer,
        .cross_attention = layer,
        .feed_forward = { .hidden_width = 5 + compare_pick(seed, 7, 60),
                          .activation = MHA_ACTIVATION_GELU,
                          .flags = MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_OUTPUT | gate,
                          .projection = MHA_GEMM_KERNEL,
                          .tiling = tilings[compare_pick(seed, 8, 2)] },
        .norm = { .uses = (unsigned)compare_pick(seed, 9, 4), .tiling = tilings[seed % 2] },
    };
    c.desc.self_attention.query_width = 10 + compare_pick(seed, 10, 50);
    mha_attention_desc *own = &c.desc.self_attention.attention;
    own->batch = 1 + compare_pick(seed, 11, 3);
    own->query_len = lens[compare_pick(seed, 12, 4)];
    own->uses = causal ? MHA_USES_CAUSAL : 0;
    own->diagonal = causal ? MHA_TOP_LEFT : MHA_DIAGONAL_NONE;
    c.desc.cross_attention.attention.key_len = lens[compare_pick(seed, 13, 4)];
    c.desc.cross_attention.key_width = compare_pick(seed, 14, 2) ? 13 : 0;
    if (own->query_len > 2 && compare_pick(seed, 15, 2))
        c.len = own->query_len - 1;
    return c;
}

/* Each place of norm and network, each kind of norm. */
Test(block, cross)
{
    device d;
    compare_worst worst = { 0 };
    size_t cases = 0;
    device_open(&d);
    for (uint64_t n = 0; n < 2 * 2 * 3 * 2 * 2; n++) {
        block_case c = pick(9000 + n);
        c.is_encoder = n % 2;
        c.desc.norm_place = (mha_norm_place)(n / 2 % 2);
        c.desc.feed_forward_place = (mha_ffn_place)(n / 4 % 3);
        c.desc.norm.kind = (mha_norm_kind)(n / 12 % 2);
        block_case_check(&d, &c, &worst);
        cases++;
    }
    compare_log("blocks", cases, &worst);
    device_close(&d);
}

/* Half types of input, output, memory and weights, each its own, with norms before and behind; by
 * CLBlast, too. */
Test(block, half_types)
{
    static const struct {
        mha_type type, output_type, memory_type, weight_type, norm_type;
    } mixes[] = {
        { MHA_FLOAT16, MHA_TYPE_DEFAULT, MHA_TYPE_DEFAULT, MHA_FLOAT16, MHA_FLOAT16 },
        { MHA_BFLOAT16, MHA_TYPE_DEFAULT, MHA_FLOAT32, MHA_BFLOAT16, MHA_TYPE_DEFAULT },
        { MHA_FLOAT16, MHA_FLOAT32, MHA_BFLOAT16, MHA_TYPE_DEFAULT, MHA_BFLOAT16 },
        { MHA_TYPE_DEFAULT, MHA_BFLOAT16, MHA_FLOAT16, MHA_FLOAT16, MHA_FLOAT16 },
    };
    device d;
    compare_worst worst = { 0 };
    size_t cases = 0;
    device_open(&d);
    for (uint64_t n = 0; n < 4 * 2 * 3 * 2; n++) {
        block_case c = pick(9500 + n);
        mha_layer_desc *own = &c.desc.self_attention, *cross = &c.desc.cross_attention;
        own->attention.type = mixes[n % 4].type;
        own->attention.output_type = mixes[n % 4].output_type;
        cross->attention.key_value_type = mixes[n % 4].memory_type;
        own->weight_type = cross->weight_type = c.desc.feed_forward.weight_type =
            mixes[n % 4].weight_type;
        c.desc.norm.weight_type = mixes[n % 4].norm_type;
        c.desc.norm_place = (mha_norm_place)(n / 4 % 2);
        c.desc.feed_forward_place = (mha_ffn_place)(n / 8 % 3);
        c.is_encoder = n / 24;
        if (n % 5 == 0)
            own->projection = cross->projection = MHA_GEMM_CLBLAST;
        block_case_check(&d, &c, &worst);
        cases++;
    }
    compare_log("blocks of half types", cases, &worst);
    device_close(&d);
}

/* As a user's program does it: the default choices of who multiplies. */
Test(block, defaults)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    block_case c = pick(1);
    c.desc.self_attention.projection = c.desc.cross_attention.projection =
        c.desc.feed_forward.projection = MHA_GEMM_DEFAULT;
    c.desc.norm.tiling = c.desc.feed_forward.tiling = MHA_TILING_DEFAULT;
    c.is_encoder = true;
    block_case_check(&d, &c, &worst);
    c.is_encoder = false;
    block_case_check(&d, &c, &worst);
    device_close(&d);
}

/* A decoder with a cache: a prompt, then tokens one at a time, give the rows that the reference
 * gives for the whole sequence. Where the rows are float16, so is the cache. */
Test(block, generation)
{
    enum {
        LEN = 7,
        PROMPT = 3,
        ROOM = 9,
        MOST = 2 * LEN * 64
    };
    device d;
    compare_worst worst = { 0 };
    float some[MOST], got[MOST];
    device_open(&d);
    for (int n = 0; n < 4; n++) {
        const mha_type type = n / 2 ? MHA_FLOAT16 : MHA_FLOAT32;
        const size_t bytes = stored_bytes(type);
        block_case c = pick(11);
        mha_attention_desc *own = &c.desc.self_attention.attention;
        own->batch = 2;
        own->type = type;
        own->query_len = LEN;
        own->uses = MHA_USES_CAUSAL;
        own->diagonal = MHA_TOP_LEFT;
        c.len = 0;
        c.desc.norm_place = (mha_norm_place)(n % 2);
        block_data *data = block_data_new(&c);
        const size_t width = data->width;
        /* Keys and values of a few units, and rows, rounded to 11 bits. */
        const double limit = block_limit(data) + (n / 2 ? 0.02 + stored_limit(type, 8) : 0);
        own->uses |= MHA_USES_APPEND;
        own->diagonal = MHA_AFTER_PAST;
        own->query_len = PROMPT;
        own->key_len = ROOM;
        const mha_decoder_weights weights = block_place_decoder(&d, data);
        mha_decoder *decoder = NULL;
        cr_assert_eq(mha_decoder_create(&decoder, d.context, &c.desc), MHA_OK, "%s", d.sentence);
        cr_assert_eq(mha_decoder_load(decoder, &weights, &(mha_call){ .queue = d.queue }), MHA_OK,
                     "%s", d.sentence);
        const size_t kv_heads = own->kv_heads ? own->kv_heads : own->heads;
        const size_t cache[4] = { 2, kv_heads, ROOM, own->head_dim };
        const device_tensor key = device_output(&d, cache, NULL, bytes);
        const device_tensor value = device_output(&d, cache, NULL, bytes);
        const size_t memory_count = 2 * data->memory_len * data->memory_width;
        void *stored = stored_pack(type, data->memory, memory_count);
        const device_tensor memory = device_input(
            &d, (size_t[]){ 2, 1, data->memory_len, data->memory_width }, NULL, bytes, stored);
        free(stored);
        for (size_t first = 0, len = PROMPT; first < LEN; first += len, len = 1) {
            const int32_t positions[2] = { (int32_t)first, (int32_t)first };
            for (size_t b = 0; b < 2; b++)
                memcpy(some + b * len * width, data->input + (b * LEN + first) * width,
                       len * width * sizeof *some);
            const size_t shape[4] = { 1, 1, 2 * len, width };
            stored = stored_pack(type, some, 2 * len * width);
            const device_tensor from = device_input(&d, shape, NULL, bytes, stored);
            const device_tensor to = device_output(&d, shape, NULL, bytes);
            const mha_decoder_args args = {
                .len = len,
                .input = device_arg(&from),
                .output = device_arg(&to),
                .memory = device_arg(&memory),
                .self_attention = { .key = device_arg(&key),
                                    .value = device_arg(&value),
                                    .append_positions.host = positions },
            };
            const mha_call call = device_call(&d, mha_decoder_workspace(decoder));
            cr_assert_eq(mha_decoder_enqueue(decoder, &args, &call), MHA_OK, "%s", d.sentence);
            device_read(&d, &to, stored);
            stored_unpack(type, got, stored, 2 * len * width);
            free(stored);
            device_expect_guards(&d, "generation");
            for (size_t b = 0; b < 2; b++)
                compare_all("generation", "output", got + b * len * width,
                            data->want + (b * LEN + first) * width, len * width, limit,
                            n / 2 ? NULL : &worst);
        }
        mha_decoder_destroy(&decoder);
        device_forget(&d);
        block_data_free(data);
    }
    compare_log("generation", 2, &worst);
    device_close(&d);
}

/* What a call writes shares memory with nothing, and a cache is written. */
Test(block, cache_apart)
{
    enum {
        BATCH = 2,
        LEN = 2,
        ROOM = 4,
        WIDTH = 6
    };
    const mha_encoder_desc desc = {
        .self_attention = { .attention = { .batch = BATCH,
                                           .heads = 1,
                                           .query_len = LEN,
                                           .key_len = ROOM,
                                           .uses = MHA_USES_APPEND },
                            .query_width = WIDTH,
                            .projection = MHA_GEMM_KERNEL },
        .feed_forward = { .hidden_width = 5, .projection = MHA_GEMM_KERNEL },
    };
    static const float weights[WIDTH * WIDTH], rows[BATCH * LEN * WIDTH];
    static const int32_t positions[BATCH];
    device d;
    device_open(&d);
    const size_t row_shape[4] = { 1, 1, BATCH * LEN, WIDTH }, cache[4] = { BATCH, 1, ROOM, WIDTH };
    const device_tensor square =
        device_input(&d, (size_t[]){ 1, 1, WIDTH, WIDTH }, NULL, sizeof(float), weights);
    const mha_tensor matrix = device_arg(&square);
    const mha_encoder_weights loaded = {
        .self_attention = { .query = matrix, .key = matrix, .value = matrix, .output = matrix },
        .feed_forward = { .hidden = matrix, .output = matrix }
    };
    const device_tensor key = device_output(&d, cache, NULL, sizeof(float));
    const device_tensor value = device_output(&d, cache, NULL, sizeof(float));
    const device_tensor from = device_input(&d, row_shape, NULL, sizeof(float), rows);
    const device_tensor to = device_output(&d, row_shape, NULL, sizeof(float));
    mha_encoder *encoder = NULL;
    cr_assert_eq(mha_encoder_create(&encoder, d.context, &desc), MHA_OK, "%s", d.sentence);
    cr_assert_eq(mha_encoder_load(encoder, &loaded, &(mha_call){ .queue = d.queue }), MHA_OK, "%s",
                 d.sentence);
    const mha_encoder_args good = { .input = device_arg(&from),
                                    .output = device_arg(&to),
                                    .self_attention = { .key = device_arg(&key),
                                                        .value = device_arg(&value),
                                                        .append_positions.host = positions } };
    const mha_call call = device_call(&d, mha_encoder_workspace(encoder));
    cr_assert_eq(mha_encoder_enqueue(encoder, &good, &call), MHA_OK, "%s", d.sentence);

    mha_encoder_args one_cache = good, over_the_cache = good;
    one_cache.self_attention.value = one_cache.self_attention.key;
    over_the_cache.input = over_the_cache.self_attention.value;
    cr_expect_eq(mha_encoder_enqueue(encoder, &one_cache, &call), MHA_OVERLAP);
    cr_expect(strstr(d.sentence, "key shares memory with value"), "%s", d.sentence);
    device_hush(&d);
    cr_expect_eq(mha_encoder_enqueue(encoder, &over_the_cache, &call), MHA_OVERLAP);
    cr_expect(strstr(d.sentence, "value shares memory with input"), "%s", d.sentence);
    device_hush(&d);
    mha_encoder_destroy(&encoder);
    device_close(&d);
}

Test(block, explain)
{
    char text[2048];
    device d;
    device_open(&d);
    const block_case c = pick(3);
    mha_decoder *decoder = NULL;
    cr_assert_eq(mha_decoder_create(&decoder, d.context, &c.desc), MHA_OK, "%s", d.sentence);
    cr_expect_eq(mha_decoder_explain(decoder, text, sizeof text), strlen(text));
    cr_expect(strstr(text, "self_attention:\nproject query") &&
                  strstr(text, "cross_attention:\n") && strstr(text, "feed_forward:\n") &&
                  strstr(text, "norms: kernel norm_rows"),
              "%s", text);
    cr_expect_eq(mha_decoder_explain(decoder, NULL, 0), strlen(text));
    mha_decoder_destroy(&decoder);
    device_close(&d);
}
