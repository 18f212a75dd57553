/* A small attention, layer, rotary embedding, norm, activation and decoder layer on a device, and
 * an attention with a cache, with all the memory that their calls need. */
#include "world.h"

#include "fill.h"

#include <criterion/criterion.h>
#include <math.h>

#define SHAPE(...) ((const size_t[4]){ __VA_ARGS__ })

static void fill(world_data *data)
{
    fill_floats(data->query, WORLD_OUTPUTS, 1, FILL_NORMAL);
    fill_floats(data->key, sizeof data->key / sizeof(float), 2, FILL_NORMAL);
    fill_floats(data->value, sizeof data->value / sizeof(float), 3, FILL_NORMAL);
    for (size_t i = 0; i < 4; i++) {
        fill_uniform(data->weights[i], WORLD_WIDTH * WORLD_WIDTH, 4 + i, -0.2f, 0.2f);
        fill_uniform(data->biases[i], WORLD_WIDTH, 8 + i, -1, 1);
    }
    data->key_lengths[0] = WORLD_KEYS;
    data->key_lengths[1] = 3;
    fill_lengths(data->position_ids, WORLD_BATCH * WORLD_QUERIES, 12, WORLD_KEYS - 1);
    fill_floats(data->cached_key, WORLD_CACHED, 13, FILL_NORMAL);
    fill_floats(data->cached_value, WORLD_CACHED, 14, FILL_NORMAL);
    for (size_t i = 0; i < 2; i++)
        fill_uniform(data->table[i], WORLD_CAPACITY * WORLD_DIM / 2, 15 + i, -1, 1);
    data->positions[0] = WORLD_CAPACITY - WORLD_NEW;
    data->positions[1] = 130;
}

static void describe(world *w, mha_gemm_by by)
{
    /* The composed path: the one with many programs, stages and CLBlast to go wrong. */
    w->desc = (mha_attention_desc){
        .path = MHA_PATH_COMPOSED,
        .batch = WORLD_BATCH,
        .heads = WORLD_HEADS,
        .kv_heads = WORLD_KV_HEADS,
        .query_len = WORLD_QUERIES,
        .key_len = WORLD_KEYS,
        .head_dim = WORLD_DIM,
        .uses = MHA_USES_KEY_LENGTHS | MHA_USES_LSE,
        .gemm = by,
    };
    w->layer_desc = (mha_layer_desc){
        .attention = w->desc,
        .flags = MHA_LAYER_BIAS_ALL,
        .projection = by,
    };
    w->rotary_desc = (mha_rotary_desc){
        .batch = WORLD_BATCH,
        .heads = WORLD_HEADS,
        .len = WORLD_QUERIES,
        .dim = WORLD_DIM,
        .positions = WORLD_KEYS,
    };
    w->norm_desc = (mha_norm_desc){
        .rows = WORLD_NORM_ROWS,
        .width = WORLD_WIDTH,
        .uses = 2 * MHA_NORM_INV_STD - 1,
    };
    w->activation_desc = (mha_activation_desc){
        .rows = WORLD_NORM_ROWS,
        .width = WORLD_WIDTH,
        .kind = MHA_ACTIVATION_SILU,
        .uses = MHA_ACTIVATION_GATE,
    };
}

static void describe_cache(world *w)
{
    w->cache_desc = (mha_attention_desc){
        .path = MHA_PATH_DECODE,
        .batch = WORLD_BATCH,
        .heads = WORLD_HEADS,
        .kv_heads = 1,
        .query_len = WORLD_NEW,
        .key_len = WORLD_CAPACITY,
        .head_dim = WORLD_DIM,
        .uses = MHA_USES_APPEND | MHA_USES_ROTARY | MHA_USES_CAUSAL | MHA_USES_LSE,
        .diagonal = MHA_BOTTOM_RIGHT,
        .new_len = WORLD_NEW,
        .rotary_positions = WORLD_CAPACITY,
    };
}

static mha_tensor input(world *w, const size_t shape[4], const float *data)
{
    const device_tensor tensor = device_input(&w->d, shape, NULL, sizeof(float), data);
    return device_arg(&tensor);
}

static void place(world *w)
{
    const size_t b = WORLD_BATCH, h = WORLD_HEADS, kv = WORLD_KV_HEADS, width = WORLD_WIDTH;
    const size_t q = WORLD_QUERIES, k = WORLD_KEYS, dim = WORLD_DIM, kv_width = WORLD_KV_WIDTH;
    const world_data *data = &w->data;
    w->output = device_output(&w->d, SHAPE(b, h, q, dim), NULL, sizeof(float));
    w->lse = device_output(&w->d, SHAPE(b, h, q, 1), NULL, sizeof(float));
    w->layer_output = device_output(&w->d, SHAPE(b, 1, q, width), NULL, sizeof(float));
    w->layer_lse = device_output(&w->d, SHAPE(b, h, q, 1), NULL, sizeof(float));
    w->args = (mha_attention_args){
        .query = input(w, SHAPE(b, h, q, dim), data->query),
        .key = input(w, SHAPE(b, kv, k, dim), data->key),
        .value = input(w, SHAPE(b, kv, k, dim), data->value),
        .output = device_arg(&w->output),
        .lse = device_arg(&w->lse),
        .key_lengths.host = data->key_lengths,
    };
    w->rotary_output = device_output(&w->d, SHAPE(b, h, q, dim), NULL, sizeof(float));
    w->rotary_args = (mha_rotary_args){
        .input = w->args.query,
        .output = device_arg(&w->rotary_output),
        .cos = input(w, SHAPE(1, 1, k, dim / 2), data->key),
        .sin = input(w, SHAPE(1, 1, k, dim / 2), data->value),
        .position_ids.host = data->position_ids,
    };
    w->layer_args = (mha_attention_args){
        .query = input(w, SHAPE(b, 1, q, width), data->query),
        .key = input(w, SHAPE(b, 1, k, width), data->key),
        .value = input(w, SHAPE(b, 1, k, width), data->value),
        .output = device_arg(&w->layer_output),
        .lse = device_arg(&w->layer_lse),
        .key_lengths.host = data->key_lengths,
    };
    w->weights = (mha_layer_weights){
        .query = input(w, SHAPE(1, 1, width, width), data->weights[0]),
        .key = input(w, SHAPE(1, 1, width, kv_width), data->weights[1]),
        .value = input(w, SHAPE(1, 1, width, kv_width), data->weights[2]),
        .output = input(w, SHAPE(1, 1, width, width), data->weights[3]),
        .bias_query = input(w, SHAPE(1, 1, 1, width), data->biases[0]),
        .bias_key = input(w, SHAPE(1, 1, 1, kv_width), data->biases[1]),
        .bias_value = input(w, SHAPE(1, 1, 1, kv_width), data->biases[2]),
        .bias_output = input(w, SHAPE(1, 1, 1, width), data->biases[3]),
    };
}

static void place_norm_and_activation(world *w)
{
    const world_data *data = &w->data;
    const size_t rows[4] = { 1, 1, WORLD_NORM_ROWS, WORLD_WIDTH };
    const size_t each[4] = { 1, 1, WORLD_NORM_ROWS, 1 };
    w->norm_output = device_output(&w->d, rows, NULL, sizeof(float));
    w->norm_sum = device_output(&w->d, rows, NULL, sizeof(float));
    w->norm_mean = device_output(&w->d, each, NULL, sizeof(float));
    w->norm_inv_std = device_output(&w->d, each, NULL, sizeof(float));
    w->norm_args = (mha_norm_args){
        .input = input(w, rows, data->query),
        .residual = input(w, rows, data->key),
        .input_bias = input(w, SHAPE(1, 1, 1, WORLD_WIDTH), data->biases[0]),
        .weight = input(w, SHAPE(1, 1, 1, WORLD_WIDTH), data->biases[1]),
        .bias = input(w, SHAPE(1, 1, 1, WORLD_WIDTH), data->biases[2]),
        .output = device_arg(&w->norm_output),
        .sum = device_arg(&w->norm_sum),
        .mean = device_arg(&w->norm_mean),
        .inv_std = device_arg(&w->norm_inv_std),
    };
    w->activation_output = device_output(&w->d, rows, NULL, sizeof(float));
    w->activation_args = (mha_activation_args){
        .input = w->norm_args.input,
        .gate = w->norm_args.residual,
        .output = device_arg(&w->activation_output),
    };
}

static void describe_decoder(world *w, mha_gemm_by by)
{
    mha_layer_desc layer = w->layer_desc;
    layer.attention.path =
        MHA_PATH_DEFAULT; /* one that is asked for may not fit a device without facts */
    layer.attention.uses = 0;
    layer.attention.key_len = 0;
    w->decoder_desc = (mha_decoder_desc){
        .self_attention = layer,
        .cross_attention = layer,
        .feed_forward = { .hidden_width = WORLD_WIDTH,
                          .activation = MHA_ACTIVATION_RELU,
                          .flags = MHA_FFN_BIAS_HIDDEN,
                          .projection = by },
        .feed_forward_place = MHA_FFN_AROUND,
        .norm.uses = MHA_NORM_WEIGHT,
        .norm_place = MHA_NORM_BEFORE,
    };
    w->decoder_desc.cross_attention.attention.key_len = WORLD_KEYS;
    w->decoder_desc.cross_attention.attention.uses = MHA_USES_KEY_LENGTHS;
}

static void place_decoder(world *w)
{
    const mha_layer_weights *weights = &w->weights;
    const mha_ffn_weights ffn = { .hidden = weights->query,
                                  .output = weights->output,
                                  .bias_hidden = weights->bias_query };
    const mha_norm_weights norm = { .weight = weights->bias_output };
    w->decoder_output =
        device_output(&w->d, SHAPE(1, 1, WORLD_NORM_ROWS, WORLD_WIDTH), NULL, sizeof(float));
    w->decoder_weights = (mha_decoder_weights){ .self_attention = *weights,
                                                .cross_attention = *weights,
                                                .feed_forward = ffn,
                                                .feed_forward_before = ffn,
                                                .norm_self_attention = norm,
                                                .norm_cross_attention = norm,
                                                .norm_feed_forward = norm,
                                                .norm_feed_forward_before = norm };
    w->decoder_args = (mha_decoder_args){
        .input = w->norm_args.input,
        .output = device_arg(&w->decoder_output),
        .memory = w->layer_args.key,
        .cross_attention.key_lengths.host = w->data.key_lengths,
    };
}

static void place_cache(world *w)
{
    const size_t b = WORLD_BATCH, h = WORLD_HEADS, n = WORLD_NEW, dim = WORLD_DIM;
    const size_t cache[4] = { b, 1, WORLD_CAPACITY, dim };
    const size_t table[4] = { 1, 1, WORLD_CAPACITY, dim / 2 };
    const world_data *data = &w->data;
    w->cache_key = device_output(&w->d, cache, NULL, sizeof(float));
    w->cache_value = device_output(&w->d, cache, NULL, sizeof(float));
    w->cache_output = device_output(&w->d, SHAPE(b, h, n, dim), NULL, sizeof(float));
    w->cache_lse = device_output(&w->d, SHAPE(b, h, n, 1), NULL, sizeof(float));
    w->cache_args = (mha_attention_args){
        .query = input(w, SHAPE(b, h, n, dim), data->query),
        .key = device_arg(&w->cache_key),
        .value = device_arg(&w->cache_value),
        .new_key = input(w, SHAPE(b, 1, n, dim), data->key),
        .new_value = input(w, SHAPE(b, 1, n, dim), data->value),
        .output = device_arg(&w->cache_output),
        .lse = device_arg(&w->cache_lse),
        .append_positions.host = data->positions,
        .rotary_cos = input(w, table, data->table[0]),
        .rotary_sin = input(w, table, data->table[1]),
    };
}

void world_open(world *w, mha_gemm_by by)
{
    *w = (world){ 0 };
    device_open(&w->d);
    describe(w, by);
    describe_cache(w);
    describe_decoder(w, by);
    fill(&w->data);
    place(w);
    place_norm_and_activation(w);
    place_decoder(w);
    place_cache(w);
    cr_assert_eq(mha_attention_create(&w->attention, w->d.context, &w->desc), MHA_OK, "%s",
                 w->d.sentence);
    cr_assert_eq(mha_layer_create(&w->layer, w->d.context, &w->layer_desc), MHA_OK, "%s",
                 w->d.sentence);
    cr_assert_eq(mha_rotary_create(&w->rotary, w->d.context, &w->rotary_desc), MHA_OK, "%s",
                 w->d.sentence);
    cr_assert_eq(mha_norm_create(&w->norm, w->d.context, &w->norm_desc), MHA_OK, "%s",
                 w->d.sentence);
    cr_assert_eq(mha_activation_create(&w->activation, w->d.context, &w->activation_desc), MHA_OK,
                 "%s", w->d.sentence);
    cr_assert_eq(mha_decoder_create(&w->decoder, w->d.context, &w->decoder_desc), MHA_OK, "%s",
                 w->d.sentence);
    cr_assert_eq(mha_attention_create(&w->cache, w->d.context, &w->cache_desc), MHA_OK, "%s",
                 w->d.sentence);
    w->cache_call = device_call(&w->d, mha_attention_workspace(w->cache));
    w->rotary_call = device_call(&w->d, mha_rotary_workspace(w->rotary));
    w->call = device_call(&w->d, mha_attention_workspace(w->attention));
    w->layer_call = device_call(&w->d, mha_layer_workspace(w->layer));
    w->decoder_call = device_call(&w->d, mha_decoder_workspace(w->decoder));
    w->load_call = (mha_call){ .queue = w->d.queue };
    w->norm_call = w->activation_call = w->load_call;
}

void world_close(world *w)
{
    mha_attention_destroy(&w->attention);
    mha_layer_destroy(&w->layer);
    mha_rotary_destroy(&w->rotary);
    mha_norm_destroy(&w->norm);
    mha_activation_destroy(&w->activation);
    mha_decoder_destroy(&w->decoder);
    mha_attention_destroy(&w->cache);
    device_close(&w->d);
}

void world_clear(world *w)
{
    static float nans[WORLD_OUTPUTS];
    for (size_t i = 0; i < WORLD_OUTPUTS; i++)
        nans[i] = NAN;
    device_write(&w->d, &w->output, nans);
    device_write(&w->d, &w->lse, nans);
    device_write(&w->d, &w->layer_output, nans);
    device_write(&w->d, &w->layer_lse, nans);
    device_write(&w->d, &w->rotary_output, nans);
    device_write(&w->d, &w->norm_output, nans);
    device_write(&w->d, &w->norm_sum, nans);
    device_write(&w->d, &w->norm_mean, nans);
    device_write(&w->d, &w->norm_inv_std, nans);
    device_write(&w->d, &w->activation_output, nans);
    device_write(&w->d, &w->decoder_output, nans);
    device_write(&w->d, &w->cache_output, nans);
    device_write(&w->d, &w->cache_lse, nans);
    device_write(&w->d, &w->cache_key, w->data.cached_key);
    device_write(&w->d, &w->cache_value, w->data.cached_value);
}

mha_status world_attend(world *w, float *out, float *lse)
{
    world_clear(w);
    const mha_status status = mha_attention_enqueue(w->attention, &w->args, &w->call);
    device_read(&w->d, &w->output, out);
    device_read(&w->d, &w->lse, lse);
    device_expect_guards(&w->d, "attention");
    return status;
}

mha_status world_rotate(world *w, float *out)
{
    world_clear(w);
    const mha_status status = mha_rotary_enqueue(w->rotary, &w->rotary_args, &w->rotary_call);
    device_read(&w->d, &w->rotary_output, out);
    device_expect_guards(&w->d, "rotary");
    return status;
}

mha_status world_normalise(world *w, float *out)
{
    world_clear(w);
    const mha_status status = mha_norm_enqueue(w->norm, &w->norm_args, &w->norm_call);
    device_read(&w->d, &w->norm_output, out);
    device_expect_guards(&w->d, "norm");
    return status;
}

mha_status world_activate(world *w, float *out)
{
    world_clear(w);
    const mha_status status =
        mha_activation_enqueue(w->activation, &w->activation_args, &w->activation_call);
    device_read(&w->d, &w->activation_output, out);
    device_expect_guards(&w->d, "activation");
    return status;
}

mha_status world_load_decoder(world *w)
{
    return mha_decoder_load(w->decoder, &w->decoder_weights, &w->load_call);
}

mha_status world_decode(world *w, float *out)
{
    world_clear(w);
    const mha_status status = mha_decoder_enqueue(w->decoder, &w->decoder_args, &w->decoder_call);
    device_read(&w->d, &w->decoder_output, out);
    device_expect_guards(&w->d, "decoder");
    return status;
}

mha_status world_append(world *w, world_cache *got)
{
    world_clear(w);
    const mha_status status = mha_attention_enqueue(w->cache, &w->cache_args, &w->cache_call);
    device_read(&w->d, &w->cache_output, got->out);
    device_read(&w->d, &w->cache_lse, got->lse);
    device_read(&w->d, &w->cache_key, got->key);
    device_read(&w->d, &w->cache_value, got->value);
    device_expect_guards(&w->d, "cache");
    return status;
}

mha_status world_load(world *w)
{
    return mha_layer_load(w->layer, &w->weights, &w->load_call);
}

mha_status world_run_layer(world *w, float *out, float *lse)
{
    world_clear(w);
    const mha_status status = mha_layer_enqueue(w->layer, &w->layer_args, &w->layer_call);
    device_read(&w->d, &w->layer_output, out);
    device_read(&w->d, &w->layer_lse, lse);
    device_expect_guards(&w->d, "layer");
    return status;
}

mha_status world_attend_host(world *w, mha_attention *attention, float *out, float *lse)
{
    const mha_host_args args = {
        .query.data = w->data.query,
        .key.data = w->data.key,
        .value.data = w->data.value,
        .output.data = out,
        .lse.data = lse,
        .key_lengths = w->data.key_lengths,
    };
    return mha_attention_run(attention, &args);
}

static mha_layer_host_weights layer_weights(const world_data *data)
{
    return (mha_layer_host_weights){
        .query.data = data->weights[0],
        .key.data = data->weights[1],
        .value.data = data->weights[2],
        .output.data = data->weights[3],
        .bias_query = data->biases[0],
        .bias_key = data->biases[1],
        .bias_value = data->biases[2],
        .bias_output = data->biases[3],
    };
}

mha_status world_load_host(world *w, mha_layer *layer)
{
    const mha_layer_host_weights weights = layer_weights(&w->data);
    return mha_layer_load_host(layer, &weights);
}

mha_status world_run_layer_host(world *w, mha_layer *layer, float *out, float *lse)
{
    const mha_host_args args = {
        .query.data = w->data.query,
        .key.data = w->data.key,
        .value.data = w->data.value,
        .output.data = out,
        .lse.data = lse,
        .key_lengths = w->data.key_lengths,
    };
    return mha_layer_run(layer, &args);
}

/* The same as place_decoder gives. */
mha_status world_load_decoder_host(world *w)
{
    const world_data *data = &w->data;
    const mha_layer_host_weights layer = layer_weights(data);
    const mha_ffn_host_weights ffn = { .hidden = layer.query,
                                       .output = layer.output,
                                       .bias_hidden = layer.bias_query };
    const mha_norm_host_weights norm = { .weight = layer.bias_output };
    const mha_decoder_host_weights weights = { .self_attention = layer,
                                               .cross_attention = layer,
                                               .feed_forward = ffn,
                                               .feed_forward_before = ffn,
                                               .norm_self_attention = norm,
                                               .norm_cross_attention = norm,
                                               .norm_feed_forward = norm,
                                               .norm_feed_forward_before = norm };
    return mha_decoder_load_host(w->decoder, &weights);
}

mha_status world_decode_host(world *w, float *out)
{
    const mha_decoder_host_args args = { .input.data = w->data.query,
                                         .memory.data = w->data.key,
                                         .output.data = out,
                                         .cross_attention.key_lengths = w->data.key_lengths };
    return mha_decoder_run(w->decoder, &args);
}
