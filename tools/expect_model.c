/* What the reference says of a model: its tensors read from the file, its layers in double. */
#include "problem_model_parts.h"

#include "reference_layers.h"
#include "weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_TENSORS = 18 /* of a layer: 12 and two norms */
};

/* All that is read is freed at once. */
typedef struct reader {
    const problem_ready *ready;
    weights file;
    long layer; /* -1: the embeddings */
    float *read[MOST_TENSORS];
    size_t count;
    char error[600];
} reader;

/* NULL where it cannot be read: then the reader's error says why. */
static const float *read_tensor(reader *self, const char *name, size_t rows, size_t columns)
{
    if (*self->error)
        return NULL;
    float *const values = weights_read(&self->file, self->layer, name, rows, columns, self->error,
                                       sizeof self->error);
    if (values)
        self->read[self->count++] = values;
    return values;
}

/* [weight | bias][width] */
static const float *read_norm(reader *self, const char *name)
{
    const size_t width = self->ready->desc.query_width;
    char weight[80], bias[80];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    const float *const parts[2] = { read_tensor(self, weight, 0, width),
                                    read_tensor(self, bias, 0, width) };
    float *const both = calloc(2 * width, sizeof *both);
    if (!both)
        snprintf(self->error, sizeof self->error, "the host is out of memory");
    if (!*self->error)
        for (int i = 0; i < 2; i++)
            memcpy(both + (size_t)i * width, parts[i], width * sizeof *both);
    self->read[self->count++] = both;
    return both;
}

static void forget(reader *self)
{
    while (self->count)
        free(self->read[--self->count]);
}

static reference_decoder_weights read_layer(reader *self)
{
    const size_t width = self->ready->desc.query_width, wide = self->ready->ffn.hidden_width;
    reference_decoder_weights w = { 0 };
    w.self_attention.query = read_tensor(self, "attention.self.query.weight", width, width);
    w.self_attention.key = read_tensor(self, "attention.self.key.weight", width, width);
    w.self_attention.value = read_tensor(self, "attention.self.value.weight", width, width);
    w.self_attention.output = read_tensor(self, "attention.output.dense.weight", width, width);
    w.self_attention.bias_query = read_tensor(self, "attention.self.query.bias", 0, width);
    w.self_attention.bias_key = read_tensor(self, "attention.self.key.bias", 0, width);
    w.self_attention.bias_value = read_tensor(self, "attention.self.value.bias", 0, width);
    w.self_attention.bias_output = read_tensor(self, "attention.output.dense.bias", 0, width);
    w.feed_forward.hidden = read_tensor(self, "intermediate.dense.weight", wide, width);
    w.feed_forward.bias_hidden = read_tensor(self, "intermediate.dense.bias", 0, wide);
    w.feed_forward.output = read_tensor(self, "output.dense.weight", width, wide);
    w.feed_forward.bias_output = read_tensor(self, "output.dense.bias", 0, width);
    return w;
}

/* The normed sums of the embeddings, rows[batch * length][width]. */
static void embed(reader *self, double *rows)
{
    const problem_model *const made = self->ready->model;
    const size_t width = self->ready->desc.query_width, length = made->batch.length;
    const size_t count = made->batch.count * length;
    self->layer = -1;
    const float *const tokens =
        read_tensor(self, "embeddings.word_embeddings.weight", made->shape.vocabulary_size, width);
    const float *const places = read_tensor(self, "embeddings.position_embeddings.weight",
                                            made->shape.max_positions, width);
    const float *const types = read_tensor(self, "embeddings.token_type_embeddings.weight",
                                           made->shape.token_types, width);
    const float *const norm = read_norm(self, "embeddings.LayerNorm");
    float *const sums = calloc(count, width * sizeof *sums);
    if (!*self->error && sums) {
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < width; j++)
                sums[i * width + j] = tokens[(size_t)made->ids[i] * width + j] +
                                      places[i % length * width + j] + types[j];
        const mha_norm_desc desc = { .rows = count,
                                     .width = width,
                                     .epsilon = made->shape.layer_norm_eps };
        reference_norm(&desc,
                       &(reference_norm_args){
                           .input = sums, .weight = norm, .bias = norm + width, .output = rows });
    }
    free(sums);
    forget(self);
}

/* Layer by layer, each of what the one before it made, rounded to float32. */
static void run_layers(reader *self, double *rows, float *rounded)
{
    const problem_ready *const ready = self->ready;
    const size_t values =
        self->ready->model->batch.count * ready->model->batch.length * ready->desc.query_width;
    const mha_decoder_desc desc = { .self_attention = ready->desc,
                                    .feed_forward = ready->ffn,
                                    .norm = ready->norm,
                                    .norm_place = MHA_NORM_AFTER };
    for (self->layer = 0; self->layer < (long)ready->repeats && !*self->error; self->layer++) {
        reference_decoder_weights w = read_layer(self);
        w.norm_self_attention = read_norm(self, "attention.output.LayerNorm");
        w.norm_feed_forward = read_norm(self, "output.LayerNorm");
        for (size_t i = 0; i < values; i++)
            rounded[i] = (float)rows[i];
        const reference_decoder_args args = { .input = rounded,
                                              .self.key_lengths = ready->model->batch.lengths,
                                              .output = rows };
        if (!*self->error)
            reference_decoder(&desc, &w, &args);
        forget(self);
    }
}

/* Each sentence's mean, of length 1. */
static void pool(const problem_ready *ready, const double *rows, double *vectors)
{
    const token_batch *const batch = &ready->model->batch;
    const size_t width = ready->desc.query_width;
    for (size_t b = 0; b < batch->count; b++) {
        double squares = 0;
        for (size_t j = 0; j < width; j++) {
            double sum = 0;
            for (size_t i = 0; i < (size_t)batch->lengths[b]; i++)
                sum += rows[(b * batch->length + i) * width + j];
            vectors[b * width + j] = sum;
            squares += sum * sum;
        }
        for (size_t j = 0; j < width; j++)
            vectors[b * width + j] /= sqrt(squares);
    }
}

mha_status problem_model_expect(const problem_ready *ready, double *vectors)
{
    const token_batch *const batch = &ready->model->batch;
    const size_t values = batch->count * batch->length * ready->desc.query_width;
    reader self = { .ready = ready };
    double *const rows = calloc(values, sizeof *rows);
    float *const rounded = calloc(values, sizeof *rounded);
    if (!rows || !rounded)
        snprintf(self.error, sizeof self.error, "the host is out of memory");
    else if (weights_open(ready->model->folder, &self.file, self.error, sizeof self.error)) {
        embed(&self, rows);
        run_layers(&self, rows, rounded);
        pool(ready, rows, vectors);
        weights_close(&self.file);
    }
    free(rounded);
    free(rows);
    return *self.error ? MHA_OUT_OF_HOST_MEMORY : MHA_OK;
}
