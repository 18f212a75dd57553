/* Encoder and decoder layers in double precision, of the references of their steps. */
#include "reference_layers.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct rows {
    const mha_decoder_desc *desc;
    size_t count, width;
    float *stream, *normed; /* [count][width] */
    double *branch, *sum;
} rows;

/* `to` = norm(from), with or without a residual. */
static void normalise(const rows *r, const float *weights, const float *from, const float *residual,
                      float *to)
{
    mha_norm_desc norm = r->desc->norm;
    norm.rows = r->count;
    norm.width = r->width;
    const reference_norm_args args = {
        .input = from,
        .residual = residual,
        .weight = norm.uses & MHA_NORM_WEIGHT ? weights : NULL,
        .bias = norm.uses & MHA_NORM_BIAS ? weights + r->width : NULL,
        .output = r->sum,
    };
    reference_norm(&norm, &args);
    for (size_t i = 0; i < r->count * r->width; i++)
        to[i] = (float)r->sum[i];
}

typedef void branch_fn(rows *r, const void *weights, const void *args, const float *from);

static void attend(rows *r, const void *weights, const void *args, const float *from)
{
    const reference_decoder_args *a = args;
    mha_layer_desc desc = r->desc->self_attention;
    reference_args call = a->self;
    desc.attention.key_len = desc.attention.query_len;
    call.query = call.key = call.value = from;
    call.output = r->branch;
    reference_layer(&desc, weights, &call);
}

static void attend_to_memory(rows *r, const void *weights, const void *args, const float *from)
{
    const reference_decoder_args *a = args;
    mha_layer_desc desc = r->desc->cross_attention;
    reference_args call = a->cross;
    desc.attention.batch = r->desc->self_attention.attention.batch;
    desc.attention.query_len = r->desc->self_attention.attention.query_len;
    desc.query_width = r->width;
    call.query = from;
    call.key = call.value = a->memory;
    call.output = r->branch;
    reference_layer(&desc, weights, &call);
}

static void feed_forward(rows *r, const void *weights, const void *args, const float *from)
{
    mha_ffn_desc desc = r->desc->feed_forward;
    (void)args;
    desc.width = r->width;
    reference_ffn(&desc, weights, r->count, from, r->branch);
}

/* One step: x = norm(x + f(x)), or x + f(norm(x)). */
static void step(rows *r, branch_fn *branch, const void *weights, const float *norm,
                 const reference_decoder_args *args)
{
    const bool first = r->desc->norm_place == MHA_NORM_BEFORE;
    const size_t count = r->count * r->width;
    if (first)
        normalise(r, norm, r->stream, NULL, r->normed);
    branch(r, weights, args, first ? r->normed : r->stream);
    for (size_t i = 0; i < count; i++)
        r->normed[i] = (float)(r->stream[i] + r->branch[i]);
    if (first)
        for (size_t i = 0; i < count; i++)
            r->stream[i] = r->normed[i];
    else
        normalise(r, norm, r->normed, NULL, r->stream);
}

void reference_decoder(const mha_decoder_desc *desc, const reference_decoder_weights *weights,
                       const reference_decoder_args *args)
{
    const mha_attention_desc *a = &desc->self_attention.attention;
    const mha_ffn_place place = desc->feed_forward_place;
    rows r = { .desc = desc,
               .count = a->batch * a->query_len,
               .width = desc->self_attention.query_width };
    const size_t count = r.count * r.width;
    r.stream = calloc(2 * count + 1, sizeof *r.stream);
    r.branch = calloc(2 * count + 1, sizeof *r.branch);
    if (!r.stream || !r.branch) {
        fprintf(stderr, "reference: no memory\n");
        abort();
    }
    r.normed = r.stream + count;
    r.sum = r.branch + count;
    for (size_t i = 0; i < count; i++)
        r.stream[i] = args->input[i];
    if (place != MHA_FFN_AFTER)
        step(&r, feed_forward, &weights->feed_forward_before, weights->norm_feed_forward_before,
             args);
    step(&r, attend, &weights->self_attention, weights->norm_self_attention, args);
    if (args->memory)
        step(&r, attend_to_memory, &weights->cross_attention, weights->norm_cross_attention, args);
    if (place != MHA_FFN_BEFORE)
        step(&r, feed_forward, &weights->feed_forward, weights->norm_feed_forward, args);
    for (size_t i = 0; i < count; i++)
        args->output[i] = r.stream[i];
    free(r.stream);
    free(r.branch);
}
