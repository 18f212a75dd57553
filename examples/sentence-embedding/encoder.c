/* The layers of a BERT on a device. */
#include "encoder.h"

#include <stdlib.h>

static size_t row_bytes(const encoder *self, size_t sequences, size_t length)
{
    return sequences * length * self->shape->hidden_size * sizeof(float);
}

static cl_mem make_buffer(const encoder *self, size_t bytes, const void *data, mha_status *status)
{
    cl_int trouble = CL_SUCCESS;
    if (*status)
        return NULL;
    const cl_mem_flags flags = data ? CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR : CL_MEM_READ_WRITE;
    /* The data are only copied, though the argument is not const. */
    const cl_mem buffer = clCreateBuffer(mha_context_cl(self->context), flags, bytes,
                                         (void *)(uintptr_t)data, &trouble);
    *status = (mha_status)trouble;
    return buffer;
}

static void release(cl_mem *buffer)
{
    if (*buffer)
        clReleaseMemObject(*buffer);
    *buffer = NULL;
}

/* A tensor of the file, and where it goes. */
typedef struct wanted {
    mha_tensor *place;
    const char *name;
    size_t rows, columns;
} wanted;

/* Puts the tensors on the device, up to the first that is not as it should be. */
static mha_status place_all(const encoder *self, long index, const wanted *table, size_t count,
                            char *error, size_t error_size)
{
    mha_status status = MHA_OK;
    for (const wanted *w = table; w < table + count && !status; w++) {
        const size_t values = (w->rows ? w->rows : 1) * w->columns;
        float *const read =
            weights_read(self->from, index, w->name, w->rows, w->columns, error, error_size);
        status = read ? MHA_OK : MHA_INVALID_ARGUMENT;
        w->place->buffer = make_buffer(self, values * sizeof *read, read, &status);
        free(read);
    }
    return status;
}

static mha_status load_layer(const encoder *self, mha_encoder *layer, size_t index, char *error,
                             size_t error_size)
{
    enum {
        COUNT = 16
    };
    const size_t hidden = self->shape->hidden_size, wide = self->shape->intermediate_size;
    mha_encoder_weights w = { 0 };
    mha_layer_weights *const attention = &w.self_attention;
    const wanted table[COUNT] = {
        { &attention->query, "attention.self.query.weight", hidden, hidden },
        { &attention->key, "attention.self.key.weight", hidden, hidden },
        { &attention->value, "attention.self.value.weight", hidden, hidden },
        { &attention->output, "attention.output.dense.weight", hidden, hidden },
        { &attention->bias_query, "attention.self.query.bias", 0, hidden },
        { &attention->bias_key, "attention.self.key.bias", 0, hidden },
        { &attention->bias_value, "attention.self.value.bias", 0, hidden },
        { &attention->bias_output, "attention.output.dense.bias", 0, hidden },
        { &w.norm_self_attention.weight, "attention.output.LayerNorm.weight", 0, hidden },
        { &w.norm_self_attention.bias, "attention.output.LayerNorm.bias", 0, hidden },
        { &w.feed_forward.hidden, "intermediate.dense.weight", wide, hidden },
        { &w.feed_forward.bias_hidden, "intermediate.dense.bias", 0, wide },
        { &w.feed_forward.output, "output.dense.weight", hidden, wide },
        { &w.feed_forward.bias_output, "output.dense.bias", 0, hidden },
        { &w.norm_feed_forward.weight, "output.LayerNorm.weight", 0, hidden },
        { &w.norm_feed_forward.bias, "output.LayerNorm.bias", 0, hidden },
    };
    mha_status status = place_all(self, (long)index, table, COUNT, error, error_size);
    if (!status)
        status = mha_encoder_load(layer, &w, &(mha_call){ .queue = self->call.queue });
    for (size_t i = 0; i < COUNT; i++)
        release(&table[i].place->buffer);
    return status;
}

static mha_norm_desc describe_norm(const encoder *self)
{
    return (mha_norm_desc){ .uses = MHA_NORM_WEIGHT | MHA_NORM_BIAS,
                            .epsilon = self->shape->layer_norm_eps,
                            .tiling = self->choice.tiling };
}

static mha_status make_layer(const encoder *self, mha_encoder **layer, uint64_t uses, size_t index,
                             char *error, size_t error_size)
{
    const config *const shape = self->shape;
    const encoder_choice *const choice = &self->choice;
    const mha_encoder_desc desc = {
        .self_attention = { .attention = { .batch = self->batch,
                                           .heads = shape->heads,
                                           .query_len = shape->max_tokens,
                                           .uses = MHA_USES_KEY_LENGTHS | uses,
                                           .path = choice->path,
                                           .tiling = choice->tiling,
                                           .gemm = choice->gemm },
                            .query_width = shape->hidden_size,
                            .flags = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN,
                            .projection = choice->gemm },
        .feed_forward = { .hidden_width = shape->intermediate_size,
                          .activation = shape->activation,
                          .flags = MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_OUTPUT | MHA_FFN_OUT_IN,
                          .projection = choice->gemm,
                          .tiling = choice->tiling },
        .norm = describe_norm(self),
        .norm_place = MHA_NORM_AFTER,
    };
    const mha_status status = mha_encoder_create(layer, self->context, &desc);
    return status ? status : load_layer(self, *layer, index, error, error_size);
}

static mha_status make_norm(encoder *self, char *error, size_t error_size)
{
    const size_t width = self->shape->hidden_size;
    const wanted table[] = {
        { &self->norm_weights.weight, "embeddings.LayerNorm.weight", 0, width },
        { &self->norm_weights.bias, "embeddings.LayerNorm.bias", 0, width },
    };
    mha_norm_desc desc = describe_norm(self);
    desc.rows = self->batch * self->shape->max_tokens;
    desc.width = width;
    const mha_status status = mha_norm_create(&self->norm, self->context, &desc);
    return status ? status : place_all(self, -1, table, 2, error, error_size);
}

mha_status encoder_open(encoder *self, const config *shape, size_t batch,
                        const encoder_choice *choice, mha_context *context, cl_command_queue queue,
                        const weights *from, char *error, size_t error_size)
{
    *self = (encoder){ .shape = shape,
                       .from = from,
                       .batch = batch,
                       .choice = *choice,
                       .context = context,
                       .call.queue = queue };
    const size_t bytes = row_bytes(self, batch, shape->max_tokens);
    self->layers = calloc(shape->layers, sizeof *self->layers);
    self->host_rows = calloc(1, bytes);
    self->lengths = calloc(batch, sizeof *self->lengths);
    if (!self->layers || !self->host_rows || !self->lengths)
        return MHA_OUT_OF_HOST_MEMORY;
    mha_status status = make_norm(self, error, error_size);
    for (size_t i = 0; i < shape->layers && !status; i++)
        status = make_layer(self, &self->layers[i], 0, i, error, error_size);
    for (size_t i = 0; i < 2; i++)
        self->rows[i] = make_buffer(self, bytes, NULL, &status);
    if (!status)
        self->call.workspace =
            make_buffer(self, mha_encoder_workspace(self->layers[0]).bytes, NULL, &status);
    const cl_int loaded = clFinish(queue);
    return status ? status : (mha_status)loaded;
}

void encoder_close(encoder *self)
{
    release(&self->call.workspace);
    for (size_t i = 0; i < 2; i++)
        release(&self->rows[i]);
    for (size_t i = 0; self->layers && i < self->shape->layers; i++)
        mha_encoder_destroy(&self->layers[i]);
    free(self->layers);
    release(&self->norm_weights.bias.buffer);
    release(&self->norm_weights.weight.buffer);
    mha_norm_destroy(&self->norm);
    free(self->lengths);
    free(self->host_rows);
    *self = (encoder){ 0 };
}

/* Layer `index`, or one like it: they read and write the two rows by turns. */
static mha_status run_layer(const encoder *self, mha_encoder *layer, size_t index, size_t length,
                            cl_mem workspace, cl_mem probs)
{
    const mha_encoder_args args = { .len = length,
                                    .input.buffer = self->rows[index % 2],
                                    .output.buffer = self->rows[(index + 1) % 2],
                                    .self_attention = { .key_lengths.host = self->lengths,
                                                        .probs.buffer = probs } };
    mha_call call = self->call;
    call.workspace = workspace;
    return mha_encoder_enqueue(layer, &args, &call);
}

/* From host_rows through the first `layers` layers to rows[layers % 2]. Nothing here blocks: what
 * the host gives must stay until the queue is done. */
static mha_status run_layers(const encoder *self, size_t length, size_t layers)
{
    const mha_tensor rows = { .buffer = self->rows[0] };
    const mha_norm_args norm = { .rows = self->batch * length,
                                 .input = rows,
                                 .weight = self->norm_weights.weight,
                                 .bias = self->norm_weights.bias,
                                 .output = rows };
    mha_status status = (mha_status)clEnqueueWriteBuffer(self->call.queue, rows.buffer, CL_FALSE, 0,
                                                         row_bytes(self, self->batch, length),
                                                         self->host_rows, 0, NULL, NULL);
    if (!status)
        status = mha_norm_enqueue(self->norm, &norm, &self->call);
    for (size_t i = 0; i < layers && !status; i++)
        status = run_layer(self, self->layers[i], i, length, self->call.workspace, NULL);
    return status;
}

/* Ends a call: reads its result, or waits for what it had queued. */
static mha_status finish(const encoder *self, mha_status status, cl_mem from, size_t offset,
                         size_t bytes, float *to)
{
    if (!status)
        status = (mha_status)clEnqueueReadBuffer(self->call.queue, from, CL_TRUE, offset, bytes, to,
                                                 0, NULL, NULL);
    if (status)
        clFinish(self->call.queue);
    return status;
}

mha_status encoder_run(encoder *self, size_t count, size_t length)
{
    const size_t layers = self->shape->layers;
    const mha_status status = run_layers(self, length, layers);
    return finish(self, status, self->rows[layers % 2], 0, row_bytes(self, count, length),
                  self->host_rows);
}

mha_status encoder_probs(encoder *self, size_t layer, size_t head, size_t length, float *probs,
                         char *error, size_t error_size)
{
    const size_t bytes = length * length * sizeof *probs;
    mha_encoder *seen = NULL;
    mha_status status = make_layer(self, &seen, MHA_USES_PROBS, layer, error, error_size);
    cl_mem workspace = make_buffer(self, mha_encoder_workspace(seen).bytes, NULL, &status);
    cl_mem all = make_buffer(self, self->batch * self->shape->heads * bytes, NULL, &status);
    if (!status)
        status = run_layers(self, length, layer);
    if (!status)
        status = run_layer(self, seen, layer, length, workspace, all);
    status = finish(self, status, all, head * bytes, bytes, probs);
    release(&all);
    release(&workspace);
    mha_encoder_destroy(&seen);
    return status;
}
