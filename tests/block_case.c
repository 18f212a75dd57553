/* An encoder or decoder layer: its weights on the host and on the device, and one call. */
#include "block_case.h"

#include "block_host.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    cr_assert(memory, "no memory for %zu elements", count);
    return memory;
}

mha_type block_memory_type(const mha_decoder_desc *desc)
{
    const mha_type type = desc->cross_attention.attention.key_value_type;
    return type ? type : desc->self_attention.attention.type;
}

mha_type block_output_type(const mha_decoder_desc *desc)
{
    const mha_attention_desc *a = &desc->self_attention.attention;
    return a->output_type ? a->output_type : a->type;
}

/* An input of floats as elements of a type that holds them. */
static device_tensor place_input(device *d, const size_t shape[4], const size_t *strides,
                                 mha_type type, const float *data)
{
    void *stored = stored_pack(type, data, shape[0] * shape[2] * shape[3]);
    const device_tensor tensor = device_input(d, shape, strides, stored_bytes(type), stored);
    free(stored);
    return tensor;
}

static void fill_layer(block_data *data, int which, const mha_layer_desc *given, size_t key_width,
                       uint64_t seed)
{
    const mha_attention_desc a = reference_attention_resolve(&given->attention);
    const size_t in[4] = { data->width, key_width, key_width, a.heads * a.value_dim };
    const size_t out[4] = { a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.value_dim,
                            data->width };
    const bool turned = given->flags & MHA_LAYER_OUT_IN;
    for (int i = 0; i < BLOCK_MATRICES; i++) {
        const bool is_bias = i >= 4;
        const size_t rows = is_bias ? 1 : in[i % 4], columns = out[i % 4];
        const size_t shape[4] = { 1, 1, turned && !is_bias ? columns : rows,
                                  turned && !is_bias ? rows : columns };
        const float most = is_bias ? 0.5f : 1.5f / sqrtf((float)rows);
        memcpy(data->shapes[which][i], shape, sizeof shape);
        data->layers[which][i] = allocate(rows * columns, sizeof(float));
        fill_uniform(data->layers[which][i], rows * columns, seed + (uint64_t)i, -most, most);
        stored_round(given->weight_type, data->layers[which][i], rows * columns);
    }
}

static reference_layer_weights reference_of_layer(const block_data *data, int which)
{
    float *const *m = data->layers[which];
    return (reference_layer_weights){ .query = m[0],
                                      .key = m[1],
                                      .value = m[2],
                                      .output = m[3],
                                      .bias_query = m[4],
                                      .bias_key = m[5],
                                      .bias_value = m[6],
                                      .bias_output = m[7] };
}

static void ask_reference(block_data *data)
{
    mha_decoder_desc desc = data->given.desc;
    const size_t len = data->given.len;
    if (len)
        desc.self_attention.attention.query_len = len;
    const reference_decoder_weights weights = {
        .self_attention = reference_of_layer(data, 0),
        .cross_attention = reference_of_layer(data, 1),
        .feed_forward = ffn_weights_reference(&data->ffns[0]),
        .feed_forward_before = ffn_weights_reference(&data->ffns[1]),
        .norm_self_attention = data->norms[0],
        .norm_cross_attention = data->norms[1],
        .norm_feed_forward = data->norms[2],
        .norm_feed_forward_before = data->norms[3],
    };
    const reference_decoder_args args = { .input = data->input,
                                          .memory = data->memory,
                                          .output = data->want };
    reference_decoder(&desc, &weights, &args);
}

block_data *block_data_new(const block_case *given)
{
    block_data *data = allocate(1, sizeof *data);
    const mha_decoder_desc *desc = &given->desc;
    const mha_attention_desc *a = &desc->self_attention.attention;
    const uint64_t seed = given->seed * 64;
    data->given = *given;
    data->width = desc->self_attention.query_width;
    data->rows = a->batch * (given->len ? given->len : a->query_len);
    fill_layer(data, 0, &desc->self_attention, data->width, seed);
    mha_ffn_desc ffn = desc->feed_forward;
    ffn.width = data->width;
    for (int i = 0; i < 2; i++)
        data->ffns[i] = ffn_weights_new(&ffn, seed + 20 + 8 * (uint64_t)i);
    for (int i = 0; i < 4; i++) {
        data->norms[i] = allocate(2 * data->width, sizeof(float));
        fill_uniform(data->norms[i], 2 * data->width, seed + 40 + (uint64_t)i, 0.5f, 1.5f);
        stored_round(desc->norm.weight_type, data->norms[i], 2 * data->width);
    }
    data->input = allocate(data->rows * data->width, sizeof(float));
    fill_floats(data->input, data->rows * data->width, seed + 50, FILL_NORMAL);
    stored_round(a->type, data->input, data->rows * data->width);
    data->want = allocate(data->rows * data->width, sizeof(double));
    if (!given->is_encoder) {
        const mha_layer_desc *cross = &desc->cross_attention;
        data->memory_len = cross->attention.key_len;
        data->memory_width = cross->key_width ? cross->key_width : data->width;
        fill_layer(data, 1, cross, data->memory_width, seed + 10);
        const size_t count = a->batch * data->memory_len * data->memory_width;
        data->memory = allocate(count, sizeof(float));
        fill_floats(data->memory, count, seed + 51, FILL_NORMAL);
        stored_round(block_memory_type(desc), data->memory, count);
    }
    ask_reference(data);
    return data;
}

void block_data_free(block_data *data)
{
    for (int i = 0; i < 2 * BLOCK_MATRICES; i++)
        free(data->layers[i / BLOCK_MATRICES][i % BLOCK_MATRICES]);
    for (int i = 0; i < 2; i++)
        ffn_weights_free(&data->ffns[i]);
    for (int i = 0; i < 4; i++)
        free(data->norms[i]);
    free(data->input);
    free(data->memory);
    free(data->want);
    free(data);
}

static mha_layer_weights place_layer(device *d, const block_data *data, int which)
{
    const mha_decoder_desc *desc = &data->given.desc;
    const mha_type type =
        which ? desc->cross_attention.weight_type : desc->self_attention.weight_type;
    mha_tensor placed[BLOCK_MATRICES];
    for (int i = 0; i < BLOCK_MATRICES; i++) {
        const device_tensor tensor =
            place_input(d, data->shapes[which][i], NULL, type, data->layers[which][i]);
        placed[i] = device_arg(&tensor);
    }
    return (mha_layer_weights){ placed[0], placed[1], placed[2], placed[3],
                                placed[4], placed[5], placed[6], placed[7] };
}

static mha_norm_weights place_norm(device *d, const block_data *data, int which)
{
    const unsigned uses = data->given.desc.norm.uses;
    const mha_type type = data->given.desc.norm.weight_type;
    const size_t shape[4] = { 1, 1, 1, data->width };
    mha_norm_weights weights = { 0 };
    if (uses & MHA_NORM_WEIGHT) {
        const device_tensor tensor = place_input(d, shape, NULL, type, data->norms[which]);
        weights.weight = device_arg(&tensor);
    }
    if (uses & MHA_NORM_BIAS) {
        const device_tensor tensor =
            place_input(d, shape, NULL, type, data->norms[which] + data->width);
        weights.bias = device_arg(&tensor);
    }
    return weights;
}

mha_decoder_weights block_place_decoder(device *d, const block_data *data)
{
    const mha_ffn_place place = data->given.desc.feed_forward_place;
    mha_decoder_weights weights = { .self_attention = place_layer(d, data, 0),
                                    .norm_self_attention = place_norm(d, data, 0) };
    if (!data->given.is_encoder) {
        weights.cross_attention = place_layer(d, data, 1);
        weights.norm_cross_attention = place_norm(d, data, 1);
    }
    if (place != MHA_FFN_BEFORE) {
        weights.feed_forward = ffn_weights_place(d, &data->ffns[0], false);
        weights.norm_feed_forward = place_norm(d, data, 2);
    }
    if (place != MHA_FFN_AFTER) {
        weights.feed_forward_before = ffn_weights_place(d, &data->ffns[1], false);
        weights.norm_feed_forward_before = place_norm(d, data, 3);
    }
    return weights;
}

mha_encoder_weights block_place_encoder(device *d, const block_data *data)
{
    const mha_decoder_weights all = block_place_decoder(d, data);
    return (mha_encoder_weights){ .self_attention = all.self_attention,
                                  .feed_forward = all.feed_forward,
                                  .feed_forward_before = all.feed_forward_before,
                                  .norm_self_attention = all.norm_self_attention,
                                  .norm_feed_forward = all.norm_feed_forward,
                                  .norm_feed_forward_before = all.norm_feed_forward_before };
}

mha_encoder_desc block_encoder_desc(const mha_decoder_desc *desc)
{
    return (mha_encoder_desc){ .self_attention = desc->self_attention,
                               .feed_forward = desc->feed_forward,
                               .feed_forward_place = desc->feed_forward_place,
                               .norm = desc->norm,
                               .norm_place = desc->norm_place };
}

double block_limit(const block_data *data)
{
    /* Four steps, each of sums over widths, of rows of some units. */
    const size_t hidden = data->given.desc.feed_forward.hidden_width;
    return reference_limit(4 * (data->width + hidden + data->memory_len + data->rows), 2);
}

static void run_encoder(device *d, const char *name, const block_data *data,
                        const mha_decoder_args *args)
{
    const mha_encoder_desc desc = block_encoder_desc(&data->given.desc);
    const mha_encoder_weights weights = block_place_encoder(d, data);
    const mha_encoder_args given = { .len = args->len,
                                     .input = args->input,
                                     .output = args->output };
    mha_encoder *encoder = NULL;
    cr_assert_eq(mha_encoder_create(&encoder, d->context, &desc), MHA_OK, "%s: %s", name,
                 d->sentence);
    cr_assert_eq(mha_encoder_load(encoder, &weights, &(mha_call){ .queue = d->queue }), MHA_OK,
                 "%s: %s", name, d->sentence);
    const mha_call call = device_call(d, mha_encoder_workspace(encoder));
    cr_assert_eq(mha_encoder_enqueue(encoder, &given, &call), MHA_OK, "%s: %s", name, d->sentence);
    mha_encoder_destroy(&encoder);
    cr_assert_null(encoder);
}

static void run_decoder(device *d, const char *name, const block_data *data,
                        const mha_decoder_args *args)
{
    const mha_decoder_weights weights = block_place_decoder(d, data);
    mha_decoder *decoder = NULL;
    cr_assert_eq(mha_decoder_create(&decoder, d->context, &data->given.desc), MHA_OK, "%s: %s",
                 name, d->sentence);
    cr_assert_eq(mha_decoder_load(decoder, &weights, &(mha_call){ .queue = d->queue }), MHA_OK,
                 "%s: %s", name, d->sentence);
    const mha_call call = device_call(d, mha_decoder_workspace(decoder));
    cr_assert_eq(mha_decoder_enqueue(decoder, args, &call), MHA_OK, "%s: %s", name, d->sentence);
    mha_decoder_destroy(&decoder);
    cr_assert_null(decoder);
}

void block_case_check(device *d, const block_case *given, compare_worst *worst)
{
    block_data *data = block_data_new(given);
    const size_t width = data->width, rows = data->rows;
    const size_t shape[4] = { 1, 1, rows, width }, strides[4] = { 0, 0, width + 3, 1 };
    const bool gaps = given->gaps && rows > 1;
    char name[160];
    snprintf(name, sizeof name,
             "seed %llu: %s of %zu rows of %zu, network %d, norm %d %d uses %x types %d,%d",
             (unsigned long long)given->seed, given->is_encoder ? "encoder" : "decoder", rows,
             width, (int)given->desc.feed_forward_place, (int)given->desc.norm_place,
             (int)given->desc.norm.kind, given->desc.norm.uses,
             (int)given->desc.self_attention.attention.type, (int)block_output_type(&given->desc));
    const mha_type type = block_output_type(&given->desc);
    const device_tensor from = place_input(d, shape, gaps ? strides : NULL,
                                           given->desc.self_attention.attention.type, data->input);
    const device_tensor to = device_output(d, shape, gaps ? strides : NULL, stored_bytes(type));
    mha_decoder_args args = { .len = given->len,
                              .input = device_arg(&from),
                              .output = device_arg(&to) };
    if (!given->is_encoder) {
        const size_t memory_shape[4] = { given->desc.self_attention.attention.batch, 1,
                                         data->memory_len, data->memory_width };
        const device_tensor memory =
            place_input(d, memory_shape, NULL, block_memory_type(&given->desc), data->memory);
        args.memory = device_arg(&memory);
        run_decoder(d, name, data, &args);
    } else {
        run_encoder(d, name, data, &args);
    }
    float *got = allocate(rows * width, sizeof *got);
    void *stored = allocate(rows * width, stored_bytes(type));
    device_read(d, &to, stored);
    stored_unpack(type, got, stored, rows * width);
    device_expect_guards(d, name);
    void *host = allocate(rows * width, stored_bytes(type));
    block_host_run(d, name, data, host);
    cr_expect(!memcmp(host, stored, rows * width * stored_bytes(type)),
              "%s: host arrays give another result", name);
    free(host);
    const double limit = block_limit(data);
    for (size_t i = 0; i < rows * width; i++)
        if (!compare_one(name, "output", i, got[i], data->want[i],
                         limit + stored_limit(type, fabs(data->want[i]) + limit), worst))
            break;
    free(got);
    free(stored);
    device_forget(d);
    block_data_free(data);
}
