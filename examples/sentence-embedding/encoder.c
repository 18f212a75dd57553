/* The layers of a BERT on a device. */
#include "encoder.h"

#include "rows.h"

#include <stdlib.h>

static size_t max_rows(const encoder *self)
{
    return self->batch * self->shape->max_tokens;
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

static mha_layer_desc describe_attention(const encoder *self, uint64_t uses)
{
    return (mha_layer_desc){ .attention = { .batch = self->batch,
                                            .heads = self->shape->heads,
                                            .query_len = self->shape->max_tokens,
                                            .key_len = self->shape->max_tokens,
                                            .uses = MHA_USES_KEY_LENGTHS | uses,
                                            .path = self->choice.path,
                                            .tiling = self->choice.tiling,
                                            .gemm = self->choice.gemm },
                             .projection = self->choice.gemm,
                             .model_width = self->shape->hidden_size,
                             .flags = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN };
}

/* One workspace serves all, since the queue runs one after the other. */
static mha_status make_workspace(encoder *self)
{
    mha_layer *attention = NULL;
    const mha_layer_desc desc = describe_attention(self, 0);
    mha_status status = mha_layer_create(&attention, self->context, &desc);
    if (status)
        return status;
    const size_t needs[] = { mha_layer_workspace(attention).bytes,
                             mha_gemm_workspace(self->widen).bytes,
                             mha_gemm_workspace(self->narrow).bytes };
    size_t bytes = 1;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        bytes = needs[i] > bytes ? needs[i] : bytes;
    mha_layer_destroy(&attention);
    self->workspace = make_buffer(self, bytes, NULL, &status);
    return status;
}

mha_status encoder_open(encoder *self, const config *shape, size_t batch,
                        const encoder_choice *choice, mha_context *context, cl_command_queue queue)
{
    *self = (encoder){
        .shape = shape, .batch = batch, .choice = *choice, .context = context, .queue = queue
    };
    const size_t rows = max_rows(self), hidden = shape->hidden_size,
                 wide = shape->intermediate_size;
    const unsigned flags = MHA_GEMM_TRANSPOSE_B | MHA_GEMM_BIAS;
    const mha_gemm_by by = choice->gemm;
    const mha_gemm_desc widen = { .m = rows, .n = wide, .k = hidden, .flags = flags, .by = by };
    const mha_gemm_desc narrow = { .m = rows, .n = hidden, .k = wide, .flags = flags, .by = by };
    mha_status status = mha_gemm_create(&self->widen, context, &widen);
    if (!status)
        status = mha_gemm_create(&self->narrow, context, &narrow);
    if (!status)
        status = make_workspace(self);
    self->rows = make_buffer(self, rows * hidden * sizeof(float), NULL, &status);
    self->added = make_buffer(self, rows * hidden * sizeof(float), NULL, &status);
    self->wide = make_buffer(self, rows * wide * sizeof(float), NULL, &status);
    self->host_rows = calloc(rows, hidden * sizeof(float));
    self->host_added = calloc(rows, hidden * sizeof(float));
    self->host_wide = calloc(rows, wide * sizeof(float));
    if (!status && !(self->host_rows && self->host_added && self->host_wide))
        status = MHA_OUT_OF_HOST_MEMORY;
    return status;
}

static void release(cl_mem *buffer)
{
    if (*buffer)
        clReleaseMemObject(*buffer);
    *buffer = NULL;
}

void encoder_close(encoder *self)
{
    free(self->host_wide);
    free(self->host_added);
    free(self->host_rows);
    release(&self->workspace);
    release(&self->wide);
    release(&self->added);
    release(&self->rows);
    mha_gemm_destroy(&self->narrow);
    mha_gemm_destroy(&self->widen);
}

/* Reads the tensors that the table names, all or none. */
typedef struct wanted {
    float **values;
    const char *name;
    size_t rows, columns;
} wanted;

static mha_status read_all(const weights *from, long index, const wanted *table, size_t count,
                           char *error, size_t error_size)
{
    bool good = true;
    for (size_t i = 0; i < count; i++)
        *table[i].values = NULL;
    for (size_t i = 0; i < count && good; i++) {
        *table[i].values = weights_read(from, index, table[i].name, table[i].rows, table[i].columns,
                                        error, error_size);
        good = *table[i].values;
    }
    for (size_t i = 0; i < count && !good; i++) {
        free(*table[i].values);
        *table[i].values = NULL;
    }
    return good ? MHA_OK : MHA_INVALID_ARGUMENT;
}

static mha_status load_attention(const encoder *self, mha_layer **attention, uint64_t uses,
                                 const weights *from, long index, char *error, size_t error_size)
{
    const size_t width = self->shape->hidden_size;
    float *values[8];
    const wanted table[] = {
        { &values[0], "attention.self.query.weight", width, width },
        { &values[1], "attention.self.key.weight", width, width },
        { &values[2], "attention.self.value.weight", width, width },
        { &values[3], "attention.output.dense.weight", width, width },
        { &values[4], "attention.self.query.bias", 0, width },
        { &values[5], "attention.self.key.bias", 0, width },
        { &values[6], "attention.self.value.bias", 0, width },
        { &values[7], "attention.output.dense.bias", 0, width },
    };
    mha_status status = read_all(from, index, table, 8, error, error_size);
    const mha_layer_desc desc = describe_attention(self, uses);
    if (!status)
        status = mha_layer_create(attention, self->context, &desc);
    const mha_layer_host_weights loaded = { .query.data = values[0],
                                            .key.data = values[1],
                                            .value.data = values[2],
                                            .output.data = values[3],
                                            .bias_query = values[4],
                                            .bias_key = values[5],
                                            .bias_value = values[6],
                                            .bias_output = values[7] };
    if (!status)
        status = mha_layer_load_host(*attention, &loaded);
    for (size_t i = 0; i < 8; i++)
        free(values[i]);
    return status;
}

static mha_status load_feed_forward(const encoder *self, encoder_layer *layer, const weights *from,
                                    long index, char *error, size_t error_size)
{
    const size_t hidden = self->shape->hidden_size, wide = self->shape->intermediate_size;
    float *values[4];
    const wanted table[] = {
        { &values[0], "intermediate.dense.weight", wide, hidden },
        { &values[1], "intermediate.dense.bias", 0, wide },
        { &values[2], "output.dense.weight", hidden, wide },
        { &values[3], "output.dense.bias", 0, hidden },
    };
    mha_status status = read_all(from, index, table, 4, error, error_size);
    layer->widen = make_buffer(self, wide * hidden * sizeof(float), values[0], &status);
    layer->widen_bias = make_buffer(self, wide * sizeof(float), values[1], &status);
    layer->narrow = make_buffer(self, wide * hidden * sizeof(float), values[2], &status);
    layer->narrow_bias = make_buffer(self, hidden * sizeof(float), values[3], &status);
    for (size_t i = 0; i < 4; i++)
        free(values[i]);
    return status;
}

mha_status encoder_load(const encoder *self, encoder_layer *layer, const weights *from, long index,
                        char *error, size_t error_size)
{
    const size_t width = self->shape->hidden_size;
    const wanted norms[] = {
        { &layer->attention_scale, "attention.output.LayerNorm.weight", 0, width },
        { &layer->attention_shift, "attention.output.LayerNorm.bias", 0, width },
        { &layer->output_scale, "output.LayerNorm.weight", 0, width },
        { &layer->output_shift, "output.LayerNorm.bias", 0, width },
    };
    *layer = (encoder_layer){ 0 };
    mha_status status = read_all(from, index, norms, 4, error, error_size);
    if (!status)
        status = load_attention(self, &layer->attention, 0, from, index, error, error_size);
    if (!status)
        status = load_feed_forward(self, layer, from, index, error, error_size);
    return status;
}

void encoder_unload(encoder_layer *layer)
{
    free(layer->output_shift);
    free(layer->output_scale);
    free(layer->attention_shift);
    free(layer->attention_scale);
    release(&layer->narrow_bias);
    release(&layer->narrow);
    release(&layer->widen_bias);
    release(&layer->widen);
    mha_layer_destroy(&layer->attention);
}

static mha_status send(const encoder *self, cl_mem buffer, const float *values, size_t count)
{
    return (mha_status)clEnqueueWriteBuffer(self->queue, buffer, CL_TRUE, 0, count * sizeof *values,
                                            values, 0, NULL, NULL);
}

static mha_status fetch(const encoder *self, cl_mem buffer, float *values, size_t count)
{
    return (mha_status)clEnqueueReadBuffer(self->queue, buffer, CL_TRUE, 0, count * sizeof *values,
                                           values, 0, NULL, NULL);
}

static mha_status attend(const encoder *self, const encoder_layer *layer, size_t length,
                         const int32_t *lengths)
{
    const mha_tensor rows = { .buffer = self->rows };
    const mha_attention_args args = { .query_len = length,
                                      .key_len = length,
                                      .query = rows,
                                      .key = rows,
                                      .value = rows,
                                      .output.buffer = self->added,
                                      .key_lengths.host = lengths };
    return mha_layer_enqueue(layer->attention, &args,
                             &(mha_call){ .queue = self->queue, .workspace = self->workspace });
}

/* to[count][n] = from[count][k] weight^T + bias */
static mha_status multiply(const encoder *self, mha_gemm *gemm, size_t count, cl_mem from,
                           cl_mem weight, cl_mem bias, cl_mem to)
{
    const mha_gemm_args args = {
        .m = count, .a.buffer = from, .b.buffer = weight, .c.buffer = to, .bias.buffer = bias
    };
    return mha_gemm_enqueue(gemm, &args,
                            &(mha_call){ .queue = self->queue, .workspace = self->workspace });
}

/* rows := norm(rows + added), on the host; `added` comes from the device. */
static mha_status add_and_normalize(encoder *self, size_t count, const float *scale,
                                    const float *shift)
{
    const size_t width = self->shape->hidden_size;
    const mha_status status = fetch(self, self->added, self->host_added, count * width);
    for (size_t i = 0; i < count * width; i++)
        self->host_rows[i] += self->host_added[i];
    rows_normalize(self->host_rows, count, width, scale, shift, self->shape->layer_norm_eps);
    return status;
}

static mha_status activate(encoder *self, size_t count)
{
    const size_t values = count * self->shape->intermediate_size;
    mha_status status = fetch(self, self->wide, self->host_wide, values);
    rows_activate(self->host_wide, values, self->shape->activation);
    if (!status)
        status = send(self, self->wide, self->host_wide, values);
    return status;
}

mha_status encoder_run(encoder *self, const encoder_layer *layer, size_t length,
                       const int32_t *lengths)
{
    const size_t count = self->batch * length, values = count * self->shape->hidden_size;
    mha_status status = send(self, self->rows, self->host_rows, values);
    if (!status)
        status = attend(self, layer, length, lengths);
    if (!status)
        status = add_and_normalize(self, count, layer->attention_scale, layer->attention_shift);
    if (!status)
        status = send(self, self->rows, self->host_rows, values);
    if (!status)
        status = multiply(self, self->widen, count, self->rows, layer->widen, layer->widen_bias,
                          self->wide);
    if (!status)
        status = activate(self, count);
    if (!status)
        status = multiply(self, self->narrow, count, self->wide, layer->narrow, layer->narrow_bias,
                          self->added);
    if (!status)
        status = add_and_normalize(self, count, layer->output_scale, layer->output_shift);
    return status;
}

mha_status encoder_probs(const encoder *self, const weights *from, long index, size_t length,
                         const int32_t *lengths, float *probs, char *error, size_t error_size)
{
    mha_layer *attention = NULL;
    mha_status status =
        load_attention(self, &attention, MHA_USES_PROBS, from, index, error, error_size);
    const mha_host_args args = { .query_len = length,
                                 .key_len = length,
                                 .query.data = self->host_rows,
                                 .key.data = self->host_rows,
                                 .value.data = self->host_rows,
                                 .output.data = self->host_added,
                                 .probs.data = probs,
                                 .key_lengths = lengths };
    if (!status)
        status = mha_layer_run(attention, &args);
    mha_layer_destroy(&attention);
    return status;
}
