/* The object of the library that solves a problem: made, loaded, called. */
#include "problem_model.h"
#include "problem_parts.h"

#include <stdlib.h>
#include <string.h>

static mha_status create_encoder(problem_ready *self, const mha_layer_desc *given)
{
    mha_encoder_desc desc = { .self_attention = *given,
                              .feed_forward = self->ffn,
                              .norm = self->norm,
                              .norm_place = self->norm_place };
    return mha_encoder_create(&self->encoder, self->context, &desc);
}

static mha_status create_decoder(problem_ready *self, const mha_layer_desc *given)
{
    mha_decoder_desc desc = { .self_attention = *given,
                              .cross_attention = self->cross,
                              .feed_forward = self->ffn,
                              .norm = self->norm,
                              .norm_place = self->norm_place };
    return mha_decoder_create(&self->decoder, self->context, &desc);
}

mha_status problem_create(problem_ready *self, const mha_layer_desc *given)
{
    mha_status status;
    switch (self->kind) {
    case KIND_GEMM:
        status = mha_gemm_create(&self->gemm, self->context, &self->gemm_desc);
        self->need = mha_gemm_workspace(self->gemm);
        return status;
    case KIND_LAYER:
        status = mha_layer_create(&self->layer, self->context, given);
        self->need = mha_layer_workspace(self->layer);
        return status;
    case KIND_ENCODER:
        status = create_encoder(self, given);
        self->need = mha_encoder_workspace(self->encoder);
        return status;
    case KIND_DECODER:
        status = create_decoder(self, given);
        self->need = mha_decoder_workspace(self->decoder);
        return status;
    case KIND_ATTENTION:
    default:
        status = mha_attention_create(&self->attention, self->context, &given->attention);
        self->need = mha_attention_workspace(self->attention);
        return status;
    }
}

void problem_destroy(problem_ready *self)
{
    mha_attention_destroy(&self->attention);
    mha_layer_destroy(&self->layer);
    mha_encoder_destroy(&self->encoder);
    mha_decoder_destroy(&self->decoder);
    mha_gemm_destroy(&self->gemm);
}

static mha_tensor tensor_of(const problem_ready *self, problem_slot slot)
{
    const problem_tensor *const tensor = &self->tensors[slot];
    const size_t *const s = tensor->shape;
    mha_tensor result = { .buffer = tensor->memory };
    if (tensor->is_merged) {
        const size_t strides[4] = { s[2] * s[1] * s[3], s[3], s[1] * s[3], 1 };
        memcpy(result.strides, strides, sizeof strides);
    }
    return result;
}

static mha_norm_weights norm_of(const problem_ready *self, problem_slot slot)
{
    mha_norm_weights weights = { .weight = tensor_of(self, slot) };
    if (!(self->norm.uses & MHA_NORM_BIAS))
        return weights;
    weights.bias = weights.weight;
    weights.bias.offset = self->desc.query_width;
    return weights;
}

/* `first` is PROBLEM_WEIGHT_QUERY, or that of the attention to a memory. */
static mha_layer_weights layer_of(const problem_ready *self, problem_slot first)
{
    mha_tensor list[8];
    for (int i = 0; i < 8; i++)
        list[i] = tensor_of(self, (problem_slot)(first + i));
    return (mha_layer_weights){ list[0], list[1], list[2], list[3],
                                list[4], list[5], list[6], list[7] };
}

static mha_status load_decoder(problem_ready *self, const mha_encoder_weights *shared,
                               const mha_call *call)
{
    const mha_decoder_weights weights = {
        .self_attention = shared->self_attention,
        .cross_attention = layer_of(self, PROBLEM_CROSS_WEIGHT_QUERY),
        .feed_forward = shared->feed_forward,
        .norm_self_attention = shared->norm_self_attention,
        .norm_cross_attention = norm_of(self, PROBLEM_NORM_CROSS),
        .norm_feed_forward = shared->norm_feed_forward,
    };
    return mha_decoder_load(self->decoder, &weights, call);
}

static mha_status load_block(problem_ready *self, const mha_call *call)
{
    const mha_encoder_weights all = {
        .self_attention = layer_of(self, PROBLEM_WEIGHT_QUERY),
        .feed_forward = { .hidden = tensor_of(self, PROBLEM_FFN_HIDDEN),
                          .gate = tensor_of(self, PROBLEM_FFN_GATE),
                          .output = tensor_of(self, PROBLEM_FFN_OUTPUT),
                          .bias_hidden = tensor_of(self, PROBLEM_FFN_BIAS_HIDDEN),
                          .bias_gate = tensor_of(self, PROBLEM_FFN_BIAS_GATE),
                          .bias_output = tensor_of(self, PROBLEM_FFN_BIAS_OUTPUT) },
        .norm_self_attention = norm_of(self, PROBLEM_NORM_ATTENTION),
        .norm_feed_forward = norm_of(self, PROBLEM_NORM_FFN),
    };
    if (self->decoder)
        return load_decoder(self, &all, call);
    return self->encoder ? mha_encoder_load(self->encoder, &all, call)
                         : mha_layer_load(self->layer, &all.self_attention, call);
}

static mha_matrix matrix_of(const problem_ready *self, problem_slot slot)
{
    return (mha_matrix){ .buffer = self->tensors[slot].memory };
}

mha_status problem_load(problem_ready *self)
{
    cl_int status;
    cl_command_queue queue = clCreateCommandQueue(mha_context_cl(self->context),
                                                  mha_context_device(self->context), 0, &status);
    if (status)
        return status;
    const mha_call call = { .queue = queue };
    const mha_matrix b = matrix_of(self, PROBLEM_KEY);
    mha_status loaded = self->gemm ? mha_gemm_load(self->gemm, &b, &call) : load_block(self, &call);
    if (!loaded)
        loaded = clFinish(queue);
    clReleaseCommandQueue(queue);
    return loaded;
}

static mha_lengths lengths_of(const problem_ready *self, problem_slot slot)
{
    return (mha_lengths){ .buffer = self->tensors[slot].memory };
}

/* Rows of a tensor whose sequences lie end to end. */
static size_t total_of(const problem_ready *self, problem_slot offsets, problem_slot tensor)
{
    return self->tensors[offsets].used ? self->tensors[tensor].shape[2] : 0;
}

/* The block gives its attentions the rows. */
static mha_status enqueue_block(const problem_ready *self, const mha_attention_args *given,
                                const mha_call *call)
{
    mha_attention_args options = *given;
    const mha_tensor none = { 0 };
    options.query = options.key = options.value = options.output = none;
    if (self->encoder)
        return mha_encoder_enqueue(self->encoder,
                                   &(mha_encoder_args){ .input = given->query,
                                                        .output = given->output,
                                                        .self_attention = options },
                                   call);
    return mha_decoder_enqueue(self->decoder,
                               &(mha_decoder_args){ .input = given->query,
                                                    .output = given->output,
                                                    .memory = tensor_of(self, PROBLEM_KEY),
                                                    .self_attention = options,
                                                    .cross_attention.key_lengths =
                                                        lengths_of(self, PROBLEM_MEMORY_LENGTHS) },
                               call);
}

mha_status problem_enqueue(const problem_ready *self, cl_command_queue queue, mha_stage_fn *stage,
                           void *stage_data)
{
    const mha_attention_args args = {
        .query = tensor_of(self, PROBLEM_QUERY),
        .key = tensor_of(self, self->is_self ? PROBLEM_QUERY : PROBLEM_KEY),
        .value = tensor_of(self, self->is_self ? PROBLEM_QUERY : PROBLEM_VALUE),
        .bias = tensor_of(self, PROBLEM_BIAS),
        .mask = tensor_of(self, PROBLEM_MASK),
        .output = tensor_of(self, PROBLEM_OUTPUT),
        .probs = tensor_of(self, PROBLEM_PROBS),
        .lse = tensor_of(self, PROBLEM_LSE),
        .scores = tensor_of(self, PROBLEM_SCORES),
        .key_lengths = lengths_of(self, PROBLEM_LENGTHS),
        .key_lengths_per_query = lengths_of(self, PROBLEM_LENGTHS_PER_QUERY),
        .key_starts = lengths_of(self, PROBLEM_STARTS),
        .new_key = tensor_of(self, PROBLEM_NEW_KEY),
        .new_value = tensor_of(self, PROBLEM_NEW_VALUE),
        .append_positions = lengths_of(self, PROBLEM_POSITIONS),
        .rotary_cos = tensor_of(self, PROBLEM_COS),
        .rotary_sin = tensor_of(self, PROBLEM_SIN),
        .query_offsets = lengths_of(self, PROBLEM_QUERY_OFFSETS),
        .query_total = total_of(self, PROBLEM_QUERY_OFFSETS, PROBLEM_QUERY),
        .key_offsets = lengths_of(self, PROBLEM_KEY_OFFSETS),
        .key_total = total_of(self, PROBLEM_KEY_OFFSETS, PROBLEM_KEY),
        .dropout_seed = self->dropout_seed,
        .dropout_offset = self->dropout_offset,
        .alibi_slopes = tensor_of(self, PROBLEM_SLOPES),
        .sinks = tensor_of(self, PROBLEM_SINKS),
    };
    const mha_call call = {
        .queue = queue,
        .workspace = self->workspace,
        .stage = stage,
        .stage_data = stage_data,
    };
    const bool loads_b = self->gemm_desc.flags & MHA_GEMM_LOADED_B;
    const mha_gemm_args matrices = {
        .a = matrix_of(self, PROBLEM_QUERY),
        .b = loads_b ? (mha_matrix){ 0 } : matrix_of(self, PROBLEM_KEY),
        .c = matrix_of(self, PROBLEM_OUTPUT),
    };
    if (self->model)
        return problem_model_run(self, queue, stage, stage_data);
    if (self->gemm)
        return mha_gemm_enqueue(self->gemm, &matrices, &call);
    if (self->encoder || self->decoder)
        return enqueue_block(self, &args, &call);
    return self->layer ? mha_layer_enqueue(self->layer, &args, &call)
                       : mha_attention_enqueue(self->attention, &args, &call);
}

static size_t explain(const problem_ready *self, char *text, size_t capacity)
{
    if (self->model)
        return problem_model_explain(self->model, text, capacity);
    if (self->gemm)
        return 0; /* a product has nothing to choose from */
    if (self->encoder)
        return mha_encoder_explain(self->encoder, text, capacity);
    if (self->decoder)
        return mha_decoder_explain(self->decoder, text, capacity);
    return self->layer ? mha_layer_explain(self->layer, text, capacity)
                       : mha_attention_explain(self->attention, text, capacity);
}

char *problem_explain(const problem_ready *self)
{
    const size_t capacity = explain(self, NULL, 0) + 1;
    char *text = calloc(capacity, 1);
    if (text)
        explain(self, text, capacity);
    return text;
}
