/* Encoder and decoder layers on host arrays: their weights, and one call. */
#include "block.h"
#include "host.h"
#include "log.h"

/* --- weights --- */

/* What the public structs have in common; of a step that their kind of block never has, NULL. */
typedef struct host_weights {
    const mha_layer_host_weights *layers[MHA_BLOCK_STEPS];
    const mha_ffn_host_weights *ffns[MHA_BLOCK_STEPS];
    const mha_norm_host_weights *norms[MHA_BLOCK_STEPS];
} host_weights;

typedef struct device_weights {
    mha_layer_weights layers[MHA_BLOCK_STEPS];
    mha_ffn_weights ffns[MHA_BLOCK_STEPS];
    mha_norm_weights norms[MHA_BLOCK_STEPS];
} device_weights;

/* Whether weights are given of what a step that there is not would have, which can only be a
 * network. */
static bool gives_any(const host_weights *weights, int step)
{
    const mha_ffn_host_weights *ffn = weights->ffns[step];
    const mha_norm_host_weights *norm = weights->norms[step];
    return (norm && (norm->weight || norm->bias)) ||
           (ffn && (ffn->hidden.data || ffn->gate.data || ffn->output.data || ffn->bias_hidden ||
                    ffn->bias_gate || ffn->bias_output));
}

static mha_status stage_norm(mha_host_call *host, const char *who, const mha_block *block,
                             const mha_norm_host_weights *weights, mha_norm_weights *to)
{
    const unsigned uses = block->first_desc.uses;
    const mha_host_weight list[] = {
        { "norm.weight",
          { .data = weights->weight },
          &to->weight,
          0,
          block->width,
          uses & MHA_NORM_WEIGHT },
        { "norm.bias",
          { .data = weights->bias },
          &to->bias,
          0,
          block->width,
          uses & MHA_NORM_BIAS },
    };
    return mha_host_stage_weights(host, who, list, 2, false, block->norm_type, "norm.uses says");
}

static mha_status stage_weights(mha_host_call *host, const char *caller, const mha_block *block,
                                const host_weights *weights, device_weights *to)
{
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < MHA_BLOCK_STEPS; i++) {
        const mha_block_step *step = &block->steps[i];
        char text[MHA_BLOCK_WHO];
        const char *who = mha_block_say(text, caller, i);
        status = mha_block_check_step(block, who, i, gives_any(weights, i));
        if (status || !step->exists)
            continue;
        status =
            step->layer
                ? mha_host_stage_layer(host, who, step->layer, weights->layers[i], &to->layers[i])
                : mha_host_stage_ffn(host, who, step->ffn, weights->ffns[i], &to->ffns[i]);
        if (!status)
            status = stage_norm(host, who, block, weights->norms[i], &to->norms[i]);
    }
    return status;
}

static mha_status load_block(void *object, const void *weights, const mha_call *call,
                             const char *who)
{
    return mha_block_load(object, weights, call, who);
}

static mha_status load_host(mha_block *block, const char *who, const host_weights *weights)
{
    mha_host_call host = { .context = block->context };
    mha_status status = mha_context_check(block->context, who);
    if (status)
        return status;
    device_weights copies = { 0 };
    mha_block_weights to = { 0 };
    for (int i = 0; i < MHA_BLOCK_STEPS; i++) {
        to.layers[i] = &copies.layers[i];
        to.ffns[i] = &copies.ffns[i];
        to.norms[i] = &copies.norms[i];
    }
    status = stage_weights(&host, who, block, weights, &copies);
    return mha_host_end(&host, who, status, load_block, block, &to, 0);
}

mha_status mha_encoder_load_host(mha_encoder *encoder, const mha_encoder_host_weights *weights)
{
    static const char who[] = "mha_encoder_load_host";
    if (!encoder)
        return MHA_INVALID_ARGUMENT;
    mha_block *block = &encoder->block;
    if (!weights)
        return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT, "%s: weights is NULL", who);
    const host_weights all = { MHA_BLOCK_ENCODER_WEIGHTS(weights) };
    return load_host(block, who, &all);
}

mha_status mha_decoder_load_host(mha_decoder *decoder, const mha_decoder_host_weights *weights)
{
    static const char who[] = "mha_decoder_load_host";
    if (!decoder)
        return MHA_INVALID_ARGUMENT;
    mha_block *block = &decoder->block;
    if (!weights)
        return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT, "%s: weights is NULL", who);
    const host_weights all = { MHA_BLOCK_DECODER_WEIGHTS(weights) };
    return load_host(block, who, &all);
}

/* --- a call --- */

/* What the public structs have in common. memory and cross NULL: none. */
typedef struct host_args {
    size_t len;
    const mha_host_input *input, *memory;
    const mha_host_output *output;
    const mha_host_args *self, *cross;
} host_args;

/* The arguments of the device call, and the lengths of the attentions. */
typedef struct device_args {
    mha_tensor input, output, memory;
    mha_attention_args attentions[2];
    mha_host_shapes shapes[2];
} device_args;

/* What a block gives its attention itself. */
static mha_status check_empty(const mha_block *block, const char *who, const mha_host_args *args,
                              bool is_cross)
{
    const mha_block_own list[] = {
        { "query", args->query.data },    { "key", args->key.data },
        { "value", args->value.data },    { "output", args->output.data },
        { "query_len", args->query_len }, { "key_len", args->key_len && !is_cross },
    };
    return mha_block_check_own(block, who, list, sizeof list / sizeof list[0]);
}

/* What must hold of an attention before any array is read, and its lengths. */
static mha_status check_attention(const mha_block *block, const char *caller, const char *enqueue,
                                  const mha_host_args *args, size_t len, int step,
                                  mha_host_shapes *shapes)
{
    char text[MHA_BLOCK_WHO];
    const char *who = mha_block_say(text, caller, step);
    const mha_attention_desc *desc = &mha_layer_shape(block->steps[step].layer)->attention;
    const bool is_cross = step == MHA_BLOCK_CROSS;
    mha_status status = check_empty(block, who, args, is_cross);
    if (!status)
        status = mha_host_check_options(block->context, who, enqueue, desc, args);
    if (status)
        return status;
    *shapes = (mha_host_shapes){ .query = { block->batch, 1, len, block->width },
                                 .query_len = len,
                                 .key_len = is_cross ? desc->key_len : len };
    if (args->key_len)
        shapes->key_len = args->key_len;
    if (shapes->key_len > desc->key_len)
        return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT,
                            "%s: the call's key_len %zu may be at most the desc's, which is %zu",
                            who, shapes->key_len, desc->key_len);
    return MHA_OK;
}

static mha_status check_args(const mha_block *block, const char *who, const char *enqueue,
                             const host_args *args, device_args *to)
{
    const mha_status lost = mha_context_check(block->context, who);
    if (lost)
        return lost;
    size_t len = 0;
    mha_status status = mha_block_take_len(block, who, args->len, &len);
    if (!status)
        status =
            check_attention(block, who, enqueue, args->self, len, MHA_BLOCK_SELF, &to->shapes[0]);
    if (!status && args->cross)
        status =
            check_attention(block, who, enqueue, args->cross, len, MHA_BLOCK_CROSS, &to->shapes[1]);
    return status ? status : mha_block_check_loaded(block, who);
}

static mha_status stage_rows(mha_host_call *host, const char *who, const mha_block *block,
                             const host_args *args, device_args *to)
{
    const size_t rows[4] = { 1, 1, block->batch * to->shapes[0].query_len, block->width };
    mha_status status = mha_host_stage_input(host, who, "input", &to->input, args->input, rows,
                                             mha_bind_type_bytes(block->type));
    if (!status)
        status = mha_host_stage_output(host, who, "output", &to->output, args->output, rows,
                                       mha_bind_type_bytes(block->output_type), false);
    if (status || !args->memory)
        return status;
    const mha_layer *layer = block->steps[MHA_BLOCK_CROSS].layer;
    return mha_host_stage_input(
        host, who, "memory", &to->memory, args->memory,
        (size_t[]){ block->batch, 1, to->shapes[1].key_len, mha_layer_shape(layer)->key_width },
        mha_bind_type_bytes(mha_layer_key_type(layer)));
}

static mha_status stage_attention(mha_host_call *host, const char *caller, const mha_block *block,
                                  const mha_host_args *args, int step,
                                  const mha_host_shapes *shapes, mha_attention_args *to)
{
    char text[MHA_BLOCK_WHO];
    to->key_len = args->key_len;
    return mha_host_stage_options(host, mha_block_say(text, caller, step),
                                  &mha_layer_shape(block->steps[step].layer)->attention, args,
                                  shapes, to);
}

_Static_assert(2 * 8 + 2 * 6 + MHA_BLOCK_STEPS * 2 <= MHA_HOST_MOST,
               "all weights of a block are staged at once");

static mha_status enqueue_block(void *object, const void *args, const mha_call *call,
                                const char *who)
{
    return mha_block_enqueue(object, args, call, who);
}

/* `enqueue` is the device call that goes with a cache. */
static mha_status run_host(mha_block *block, const char *who, const char *enqueue,
                           const host_args *args)
{
    mha_host_call host = { .context = block->context };
    device_args copies = { 0 };
    mha_status status = check_args(block, who, enqueue, args, &copies);
    if (status)
        return status;
    status = stage_rows(&host, who, block, args, &copies);
    if (!status)
        status = stage_attention(&host, who, block, args->self, MHA_BLOCK_SELF, &copies.shapes[0],
                                 &copies.attentions[0]);
    if (!status && args->cross)
        status = stage_attention(&host, who, block, args->cross, MHA_BLOCK_CROSS, &copies.shapes[1],
                                 &copies.attentions[1]);
    const mha_block_args to = {
        .len = args->len,
        .input = &copies.input,
        .output = &copies.output,
        .memory = args->memory ? &copies.memory : NULL,
        .self = &copies.attentions[0],
        .cross = args->cross ? &copies.attentions[1] : NULL,
    };
    return mha_host_end(&host, who, status, enqueue_block, block, &to,
                        mha_block_workspace(block).bytes);
}

mha_status mha_encoder_run(mha_encoder *encoder, const mha_encoder_host_args *args)
{
    static const char who[] = "mha_encoder_run";
    if (!encoder)
        return MHA_INVALID_ARGUMENT;
    mha_block *block = &encoder->block;
    if (!args)
        return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    const host_args all = {
        .len = args->len,
        .input = &args->input,
        .output = &args->output,
        .self = &args->self_attention,
    };
    return run_host(block, who, "mha_encoder_enqueue", &all);
}

mha_status mha_decoder_run(mha_decoder *decoder, const mha_decoder_host_args *args)
{
    static const char who[] = "mha_decoder_run";
    if (!decoder)
        return MHA_INVALID_ARGUMENT;
    mha_block *block = &decoder->block;
    if (!args)
        return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    const host_args all = {
        .len = args->len,
        .input = &args->input,
        .memory = &args->memory,
        .output = &args->output,
        .self = &args->self_attention,
        .cross = &args->cross_attention,
    };
    return run_host(block, who, "mha_decoder_enqueue", &all);
}
