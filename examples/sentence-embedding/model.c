/* A BERT: embeddings of tokens and places from the host, the layers on a device, the mean. */
#include "model.h"

#include "encoder.h"
#include "rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model {
    config shape;
    weights file;
    const safetensors_tensor *words; /* read row by row from the file */
    float *positions, *types;
    mha_context *context;
    bool owns_context;
    cl_command_queue queue;
    encoder encoder;
    char message[400]; /* the library's last one */
};

static void keep_message(void *data, mha_log_level level, const char *text)
{
    model *const self = data;
    if (level == MHA_LOG_ERROR)
        snprintf(self->message, sizeof self->message, "%s", text);
}

static mha_status make_context(model *self, const char *device)
{
    static const struct {
        const char *word;
        cl_device_type type;
    } types[] = {
        { "cpu", CL_DEVICE_TYPE_CPU },
        { "gpu", CL_DEVICE_TYPE_GPU },
        { "accelerator", CL_DEVICE_TYPE_ACCELERATOR },
    };
    mha_context_options options = { .device_name = device, .log = { keep_message, self, 0 } };
    for (size_t i = 0; device && i < sizeof types / sizeof types[0]; i++) {
        if (!strcmp(device, types[i].word)) {
            options.device_name = NULL;
            options.device_type = types[i].type;
        }
    }
    self->owns_context = true;
    return mha_context_create(&self->context, &options);
}

static mha_status open_device(model *self, const model_options *options)
{
    self->context = options->context;
    mha_status status = self->context ? MHA_OK : make_context(self, options->device);
    if (!status) {
        cl_int trouble = CL_SUCCESS;
        self->queue = clCreateCommandQueue(mha_context_cl(self->context),
                                           mha_context_device(self->context), 0, &trouble);
        status = (mha_status)trouble;
    }
    return status;
}

static bool read_embeddings(model *self, char *error, size_t error_size)
{
    const config *const shape = &self->shape;
    const size_t width = shape->hidden_size;
    const weights *const file = &self->file;
    self->words = weights_find(file, -1, "embeddings.word_embeddings.weight",
                               shape->vocabulary_size, width, error, error_size);
    if (self->words)
        self->positions = weights_read(file, -1, "embeddings.position_embeddings.weight",
                                       shape->max_positions, width, error, error_size);
    if (self->positions)
        self->types = weights_read(file, -1, "embeddings.token_type_embeddings.weight",
                                   shape->token_types, width, error, error_size);
    return self->types;
}

/* The sentence for a status: the reader's, the library's, or what the status says. */
static bool explain(const model *self, mha_status status, char *error, size_t error_size)
{
    if (status && !*error)
        snprintf(error, error_size, "%s", *self->message ? self->message : mha_status_text(status));
    return !status;
}

static bool load(model *self, const model_options *options, char *error, size_t error_size)
{
    const encoder_choice choice = { options->path, options->tiling, options->gemm };
    *error = '\0';
    mha_status status = open_device(self, options);
    if (!status)
        status = encoder_open(&self->encoder, &self->shape, options->batch, &choice, self->context,
                              self->queue, &self->file, error, error_size);
    return explain(self, status, error, error_size);
}

model *model_open(const char *folder, const config *shape, const model_options *options,
                  char *error, size_t error_size)
{
    model *const self = calloc(1, sizeof *self);
    if (!self) {
        snprintf(error, error_size, "the host is out of memory");
        return NULL;
    }
    self->shape = *shape;
    if (weights_open(folder, &self->file, error, error_size) &&
        read_embeddings(self, error, error_size) && load(self, options, error, error_size))
        return self;
    model_close(self);
    return NULL;
}

void model_close(model *self)
{
    if (!self)
        return;
    encoder_close(&self->encoder);
    if (self->queue)
        clReleaseCommandQueue(self->queue);
    if (self->owns_context)
        mha_context_destroy(&self->context);
    free(self->types);
    free(self->positions);
    weights_close(&self->file);
    free(self);
}

size_t model_explain(const model *self, char *text, size_t capacity)
{
    return mha_encoder_explain(self->encoder.layers[0], text, capacity);
}

void model_watch(model *self, cl_command_queue queue, mha_stage_fn *stage, void *stage_data)
{
    self->encoder.call.queue = queue;
    self->encoder.call.stage = stage;
    self->encoder.call.stage_data = stage_data;
}

/* A sequence's rows: the sums of its tokens', their places' and the first type's embeddings. */
static void embed_tokens(const model *self, const int32_t *ids, size_t length, float *rows)
{
    const size_t width = self->shape.hidden_size;
    for (size_t i = 0; i < length; i++) {
        float *const row = rows + i * width;
        safetensors_read(self->words, (size_t)ids[i] * width, width, row);
        for (size_t j = 0; j < width; j++)
            row[j] += self->positions[i * width + j] + self->types[j];
    }
}

/* Gives the encoder the sequences. What a smaller batch leaves free is of length 0. */
static void give(model *self, const token_batch *batch)
{
    const size_t values = batch->length * self->shape.hidden_size;
    float *const rows = self->encoder.host_rows;
    memset(rows, 0, self->encoder.batch * values * sizeof *rows);
    memset(self->encoder.lengths, 0, self->encoder.batch * sizeof *self->encoder.lengths);
    for (size_t i = 0; i < batch->count; i++) {
        embed_tokens(self, batch->ids + i * batch->length, batch->length, rows + i * values);
        self->encoder.lengths[i] = batch->lengths[i];
    }
}

/* Runs all layers, whose rows are the encoder's host_rows then. */
static bool run_all(model *self, const token_batch *batch, char *error, size_t error_size)
{
    *error = '\0';
    give(self, batch);
    return explain(self, encoder_run(&self->encoder, batch->count, batch->length), error,
                   error_size);
}

static bool embed(void *data, const token_batch *batch, float *embeddings, char *error,
                  size_t error_size)
{
    model *const self = data;
    const size_t width = self->shape.hidden_size;
    if (!run_all(self, batch, error, error_size))
        return false;
    for (size_t i = 0; i < batch->count; i++)
        rows_pool(self->encoder.host_rows + i * batch->length * width, (size_t)batch->lengths[i],
                  width, embeddings + i * width);
    return true;
}

bool model_last_rows(model *self, const token_batch *sequences, float *rows, char *error,
                     size_t error_size)
{
    const size_t values = sequences->count * sequences->length * self->shape.hidden_size;
    const bool good = run_all(self, sequences, error, error_size);
    if (good)
        memcpy(rows, self->encoder.host_rows, values * sizeof *rows);
    return good;
}

embedder model_embedder(model *self)
{
    return (embedder){ .width = self->shape.hidden_size, .data = self, .embed = embed };
}

bool model_attention(model *self, const int32_t *ids, size_t length, size_t layer, size_t head,
                     float *probs, char *error, size_t error_size)
{
    const size_t heads = self->shape.heads;
    if (layer >= self->shape.layers || head >= heads) {
        snprintf(error, error_size, "layer %zu, head %zu: the model has %zu layers of %zu heads",
                 layer, head, self->shape.layers, heads);
        return false;
    }
    *error = '\0';
    const int32_t own = (int32_t)length;
    give(self, &(token_batch){ 1, length, ids, &own });
    const mha_status status =
        encoder_probs(&self->encoder, layer, head, length, probs, error, error_size);
    return explain(self, status, error, error_size);
}
