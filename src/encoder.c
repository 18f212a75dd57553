/* The public encoder layer: a block. */
#include "block.h"
#include "log.h"

#include <stdlib.h>

mha_status mha_encoder_create(mha_encoder **out, mha_context *context, const mha_encoder_desc *desc)
{
    static const char who[] = "mha_encoder_create";
    if (out)
        *out = NULL;
    mha_status status = mha_context_begin_create(context, who, desc, out);
    if (status)
        return status;
    mha_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                            "no host memory for an encoder layer");
    const mha_block_desc block = {
        .self = &desc->self_attention,
        .ffn = &desc->feed_forward,
        .ffn_place = desc->feed_forward_place,
        .norm = &desc->norm,
        .norm_place = desc->norm_place,
    };
    status = mha_block_setup(&encoder->block, context, &block, who);
    if (status) {
        mha_encoder_destroy(&encoder);
        return status;
    }
    *out = encoder;
    return MHA_OK;
}

void mha_encoder_destroy(mha_encoder **encoder)
{
    mha_encoder *e = encoder ? *encoder : NULL;
    if (!e)
        return;
    *encoder = NULL;
    mha_block_release(&e->block);
    free(e);
}

mha_workspace mha_encoder_workspace(const mha_encoder *encoder)
{
    return encoder ? mha_block_workspace(&encoder->block) : (mha_workspace){ 0 };
}

size_t mha_encoder_explain(const mha_encoder *encoder, char *text, size_t capacity)
{
    if (text && capacity)
        text[0] = '\0';
    return encoder ? mha_block_explain(&encoder->block, text, capacity) : 0;
}

mha_status mha_encoder_load(mha_encoder *encoder, const mha_encoder_weights *weights,
                            const mha_call *call)
{
    static const char who[] = "mha_encoder_load";
    mha_run_clear_event(call);
    if (!encoder)
        return MHA_INVALID_ARGUMENT;
    if (!weights)
        return mha_log_fail(&encoder->block.context->log, MHA_INVALID_ARGUMENT,
                            "%s: weights is NULL", who);
    const mha_block_weights block = { MHA_BLOCK_ENCODER_WEIGHTS(weights) };
    return mha_block_load(&encoder->block, &block, call, who);
}

mha_status mha_encoder_enqueue(mha_encoder *encoder, const mha_encoder_args *args,
                               const mha_call *call)
{
    static const char who[] = "mha_encoder_enqueue";
    mha_run_clear_event(call);
    if (!encoder)
        return MHA_INVALID_ARGUMENT;
    if (!args)
        return mha_log_fail(&encoder->block.context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL",
                            who);
    const mha_block_args block = {
        .len = args->len,
        .input = &args->input,
        .output = &args->output,
        .self = &args->self_attention,
    };
    return mha_block_enqueue(&encoder->block, &block, call, who);
}
