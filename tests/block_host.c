/* An encoder or decoder layer on host arrays. */
#include "block_host.h"

#include "host_memory.h"

#include <criterion/criterion.h>

static mha_layer_host_weights layer_of(const block_data *data, int which, bool gaps)
{
    const mha_decoder_desc *desc = &data->given.desc;
    const mha_type type =
        which ? desc->cross_attention.weight_type : desc->self_attention.weight_type;
    mha_host_input made[BLOCK_MATRICES];
    for (int i = 0; i < BLOCK_MATRICES; i++)
        made[i] = host_input(type, data->shapes[which][i], gaps && i < 4, data->layers[which][i]);
    return (mha_layer_host_weights){ made[0],      made[1],      made[2],      made[3],
                                     made[4].data, made[5].data, made[6].data, made[7].data };
}

static mha_norm_host_weights norm_of(const block_data *data, int which)
{
    const mha_norm_desc *norm = &data->given.desc.norm;
    const float *weights = data->norms[which];
    const size_t width = data->width;
    mha_norm_host_weights made = { 0 };
    if (norm->uses & MHA_NORM_WEIGHT)
        made.weight = host_row(norm->weight_type, width, weights);
    if (norm->uses & MHA_NORM_BIAS)
        made.bias = host_row(norm->weight_type, width, weights + width);
    return made;
}

mha_decoder_host_weights block_host_decoder(const block_data *data, bool gaps)
{
    const mha_ffn_place place = data->given.desc.feed_forward_place;
    mha_decoder_host_weights weights = { .self_attention = layer_of(data, 0, gaps),
                                         .norm_self_attention = norm_of(data, 0) };
    if (!data->given.is_encoder) {
        weights.cross_attention = layer_of(data, 1, gaps);
        weights.norm_cross_attention = norm_of(data, 1);
    }
    if (place != MHA_FFN_BEFORE) {
        weights.feed_forward = ffn_host_weights(&data->ffns[0], gaps);
        weights.norm_feed_forward = norm_of(data, 2);
    }
    if (place != MHA_FFN_AFTER) {
        weights.feed_forward_before = ffn_host_weights(&data->ffns[1], gaps);
        weights.norm_feed_forward_before = norm_of(data, 3);
    }
    return weights;
}

mha_encoder_host_weights block_host_encoder(const block_data *data, bool gaps)
{
    const mha_decoder_host_weights all = block_host_decoder(data, gaps);
    return (mha_encoder_host_weights){ .self_attention = all.self_attention,
                                       .feed_forward = all.feed_forward,
                                       .feed_forward_before = all.feed_forward_before,
                                       .norm_self_attention = all.norm_self_attention,
                                       .norm_feed_forward = all.norm_feed_forward,
                                       .norm_feed_forward_before = all.norm_feed_forward_before };
}

mha_decoder_host_args block_host_args(const block_data *data)
{
    const mha_decoder_desc *desc = &data->given.desc;
    const mha_attention_desc *a = &desc->self_attention.attention;
    const size_t rows[4] = { 1, 1, data->rows, data->width };
    const size_t memory[4] = { a->batch, 1, data->memory_len, data->memory_width };
    return (mha_decoder_host_args){
        .len = data->given.len,
        .input = host_input(a->type, rows, data->given.gaps, data->input),
        .memory = host_input(block_memory_type(desc), memory, data->given.gaps, data->memory),
        .output = host_output(block_output_type(desc), rows, data->given.gaps),
    };
}

void block_host_run(device *d, const char *name, const block_data *data, void *output)
{
    const mha_decoder_desc *desc = &data->given.desc;
    const bool gaps = data->given.gaps;
    const mha_decoder_host_args args = block_host_args(data);
    if (data->given.is_encoder) {
        const mha_encoder_desc encoder_desc = block_encoder_desc(desc);
        const mha_encoder_host_weights weights = block_host_encoder(data, gaps);
        const mha_encoder_host_args given = { .len = args.len,
                                              .input = args.input,
                                              .output = args.output };
        mha_encoder *encoder = NULL;
        cr_assert_eq(mha_encoder_create(&encoder, d->context, &encoder_desc), MHA_OK, "%s: %s",
                     name, d->sentence);
        cr_assert_eq(mha_encoder_load_host(encoder, &weights), MHA_OK, "%s: %s", name, d->sentence);
        cr_assert_eq(mha_encoder_run(encoder, &given), MHA_OK, "%s: %s", name, d->sentence);
        mha_encoder_destroy(&encoder);
    } else {
        const mha_decoder_host_weights weights = block_host_decoder(data, gaps);
        mha_decoder *decoder = NULL;
        cr_assert_eq(mha_decoder_create(&decoder, d->context, desc), MHA_OK, "%s: %s", name,
                     d->sentence);
        cr_assert_eq(mha_decoder_load_host(decoder, &weights), MHA_OK, "%s: %s", name, d->sentence);
        cr_assert_eq(mha_decoder_run(decoder, &args), MHA_OK, "%s: %s", name, d->sentence);
        mha_decoder_destroy(&decoder);
    }
    host_read(name, &args.output, block_output_type(desc),
              (size_t[]){ 1, 1, data->rows, data->width }, output);
}
