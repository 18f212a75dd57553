/* A model word's problem: its model, its tokens, a call. */
#include "problem_model_parts.h"

#include "fill.h"
#include "model_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What all layers are. */
static void describe(const config *shape, problem_ready *self, mha_layer_desc *desc)
{
    desc->attention.heads = shape->heads;
    desc->attention.uses |= MHA_USES_KEY_LENGTHS;
    desc->model_width = shape->hidden_size;
    desc->flags = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN;
    self->ffn.hidden_width = shape->intermediate_size;
    self->ffn.activation = shape->activation;
    self->ffn.flags = MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_OUTPUT | MHA_FFN_OUT_IN;
    self->norm.epsilon = shape->layer_norm_eps;
    self->norm.uses = MHA_NORM_WEIGHT | MHA_NORM_BIAS;
    self->repeats = shape->layers;
}

static bool load(problem_model *made, const problem_ready *self, const problem_options *options,
                 const mha_attention_desc *wanted, char *reason, size_t reason_size)
{
    if (!model_folder(options->model, made->folder, sizeof made->folder, reason, reason_size) ||
        !config_read(made->folder, &made->shape, reason, reason_size))
        return false;
    if (!wanted->batch || !wanted->query_len || wanted->query_len > made->shape.max_tokens) {
        snprintf(reason, reason_size, "the model takes at least 1 sentence of 1 to %zu tokens",
                 made->shape.max_tokens);
        return false;
    }
    const model_options choices = { .context = self->context,
                                    .batch = wanted->batch,
                                    .path = options->path,
                                    .tiling = options->tiling,
                                    .gemm = options->projection };
    made->network = model_open(made->folder, &made->shape, &choices, reason, reason_size);
    return made->network;
}

mha_status problem_model_open(problem_model **out, problem_ready *self,
                              const problem_options *options, mha_layer_desc *desc, char *reason,
                              size_t reason_size)
{
    problem_model *const made = *out = calloc(1, sizeof *made);
    if (!made)
        return MHA_OUT_OF_HOST_MEMORY;
    if (!load(made, self, options, &desc->attention, reason, reason_size))
        return strstr(reason, mha_status_text(MHA_UNSUPPORTED)) ? MHA_UNSUPPORTED
                                                                : MHA_INVALID_ARGUMENT;
    describe(&made->shape, self, desc);
    return MHA_OK;
}

void problem_model_close(problem_model *self)
{
    if (!self)
        return;
    model_close(self->network);
    free(self->ids);
    free(self);
}

mha_status problem_model_fill(problem_ready *self, uint64_t seed)
{
    problem_model *const made = self->model;
    const size_t count = self->desc.attention.batch, length = self->desc.attention.query_len;
    int32_t *const lengths = calloc(count, sizeof *lengths);
    made->ids = calloc(count, length * sizeof *made->ids);
    self->tensors[PROBLEM_LENGTHS].host = lengths;
    self->tensors[PROBLEM_OUTPUT].host = calloc(count, self->desc.output_width * sizeof(float));
    if (!lengths || !made->ids || !self->tensors[PROBLEM_OUTPUT].host)
        return MHA_OUT_OF_HOST_MEMORY;
    fill_lengths(made->ids, count * length, seed, (int32_t)made->shape.vocabulary_size - 1);
    fill_lengths(lengths, count, seed + 1, (int32_t)length - 1);
    for (size_t i = 0; i < count; i++) { /* a sentence has a token */
        if (!self->draws_lengths)
            lengths[i] = (int32_t)(self->key_length ? self->key_length : length);
        else
            lengths[i]++;
        for (size_t j = (size_t)lengths[i]; j < length; j++)
            made->ids[i * length + j] = made->shape.pad_token;
    }
    made->batch = (token_batch){ count, length, made->ids, lengths };
    return MHA_OK;
}

mha_status problem_model_run(const problem_ready *self, cl_command_queue queue, mha_stage_fn *stage,
                             void *stage_data)
{
    char said[600]; /* by the library too, to the context's log */
    const embedder maker = model_embedder(self->model->network);
    model_watch(self->model->network, queue, stage, stage_data);
    const bool good = maker.embed(maker.data, &self->model->batch,
                                  self->tensors[PROBLEM_OUTPUT].host, said, sizeof said);
    return good ? MHA_OK : CL_INVALID_OPERATION;
}

size_t problem_model_explain(const problem_model *self, char *text, size_t capacity)
{
    return model_explain(self->network, text, capacity);
}
