/* The public decoder layer: a block with attention to a memory. */
#include "block.h"
#include "log.h"

#include <stdlib.h>

mha_status mha_decoder_create(mha_decoder **out, mha_context *context, const mha_decoder_desc *desc)
{
    static const char who[] = "mha_decoder_create";
    if (out)
        *out = NULL;
    mha_status status = mha_context_begin_create(context, who, desc, out);
    if (status)
        return status;
    mha_decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                            "no host memory for a decoder layer");
    const mha_block_desc block = {
        .self = &desc->self_attention,
        .cross = &desc->cross_attention,
        .ffn = &desc->feed_forward,
        .ffn_place = desc->feed_forward_place,
        .norm = &desc->norm,
        .norm_place = desc->norm_place,
    };
    status = mha_block_setup(&decoder->block, context, &block, who);
    if (status) {
        mha_decoder_destroy(&decoder);
        return status;
    }
    *out = decoder;
    return MHA_OK;
}

void mha_decoder_destroy(mha_decoder **decoder)
{
    mha_decoder *e = decoder ? *decoder : NULL;
    if (!e)
        return;
    *decoder = NULL;
    mha_block_release(&e->block);
    free(e);
}

mha_workspace mha_decoder_workspace(const mha_decoder *decoder)
{
    return decoder ? mha_block_workspace(&decoder->block) : (mha_workspace){ 0 };
}

size_t mha_decoder_explain(const mha_decoder *decoder, char *text, size_t capacity)
{
    if (text && capacity)
        text[0] = '\0';
    return decoder ? mha_block_explain(&decoder->block, text, capacity) : 0;
}

mha_status mha_decoder_load(mha_decoder *decoder, const mha_decoder_weights *weights,
                            const mha_call *call)
{
    static const char who[] = "mha_decoder_load";
    mha_run_clear_event(call);
    if (!decoder)
        return MHA_INVALID_ARGUMENT;
    if (!weights)
        return mha_log_fail(&decoder->block.context->log, MHA_INVALID_ARGUMENT,
                            "%s: weights is NULL", who);
    const mha_block_weights block = { MHA_BLOCK_DECODER_WEIGHTS(weights) };
    return mha_block_load(&decoder->block, &block, call, who);
}

mha_status mha_decoder_enqueue(mha_decoder *decoder, const mha_decoder_args *args,
                               const mha_call *call)
{
    static const char who[] = "mha_decoder_enqueue";
    mha_run_clear_event(call);
    if (!decoder)
        return MHA_INVALID_ARGUMENT;
    if (!args)
        return mha_log_fail(&decoder->block.context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL",
                            who);
    const mha_block_args block = {
        .len = args->len,
        .input = &args->input,
        .output = &args->output,
        .memory = &args->memory,
        .self = &args->self_attention,
        .cross = &args->cross_attention,
    };
    return mha_block_enqueue(&decoder->block, &block, call, who);
}
