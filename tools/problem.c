/* A problem made ready to run: sizes, data, buffers, then the object and its weights. */
#include "problem.h"

#include "fill.h"
#include "reference.h"
#include "stored.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double mask_probability = 0.75;

/* SIZE_MAX where it overflows. */
static size_t multiply(size_t a, size_t b)
{
    return b && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

static void use(problem_ready *self, problem_slot slot, size_t item_bytes, size_t a, size_t b,
                size_t c, size_t d)
{
    self->tensors[slot] = (problem_tensor){
        .used = true,
        .count = multiply(multiply(a, b), multiply(c, d)),
        .item_bytes = item_bytes,
        .shape = { a, b, c, d },
    };
}

/* `type` 0: float32. */
static void use_type(problem_ready *self, problem_slot slot, mha_type type, size_t a, size_t b,
                     size_t c, size_t d)
{
    use(self, slot, stored_bytes(type), a, b, c, d);
    self->tensors[slot].type = type ? type : MHA_FLOAT32;
}

static void use_floats(problem_ready *self, problem_slot slot, size_t a, size_t b, size_t c,
                       size_t d)
{
    use_type(self, slot, MHA_FLOAT32, a, b, c, d);
}

/* A bias or, without a type, a mask: its broadcast axes have length 1. */
static void use_pairs(problem_ready *self, problem_slot slot, mha_type type, unsigned broadcast)
{
    const mha_attention_desc *d = &self->desc.attention;
    use(self, slot, type ? stored_bytes(type) : 1, broadcast & MHA_AXIS_BATCH ? 1 : d->batch,
        broadcast & MHA_AXIS_HEADS ? 1 : d->heads, broadcast & MHA_AXIS_QUERY ? 1 : d->query_len,
        broadcast & MHA_AXIS_KEY ? 1 : d->key_len);
    self->tensors[slot].type = type;
}

static void size_options(problem_ready *self)
{
    const mha_attention_desc *d = &self->desc.attention;
    if (d->uses & MHA_USES_BIAS)
        use_pairs(self, PROBLEM_BIAS, d->type ? d->type : MHA_FLOAT32, d->bias_broadcast);
    if (d->uses & MHA_USES_MASK)
        use_pairs(self, PROBLEM_MASK, MHA_TYPE_DEFAULT, d->mask_broadcast);
    if (d->uses & MHA_USES_KEY_LENGTHS)
        use(self, PROBLEM_LENGTHS, sizeof(int32_t), d->batch, 1, 1, 1);
    if (d->uses & MHA_USES_KEY_LENGTHS_PER_QUERY)
        use(self, PROBLEM_LENGTHS_PER_QUERY, sizeof(int32_t), d->batch, d->query_len, 1, 1);
    if (d->uses & MHA_USES_KEY_STARTS)
        use(self, PROBLEM_STARTS, sizeof(int32_t), d->batch, 1, 1, 1);
    if (d->uses & MHA_USES_ALIBI)
        use_floats(self, PROBLEM_SLOPES, d->heads, 1, 1, 1);
    if (d->uses & MHA_USES_SINKS)
        use_floats(self, PROBLEM_SINKS, d->heads, 1, 1, 1);
    if (d->uses & MHA_USES_PROBS)
        use_floats(self, PROBLEM_PROBS, d->batch, d->heads, d->query_len, d->key_len);
    if (d->uses & MHA_USES_LSE)
        use_floats(self, PROBLEM_LSE, d->batch, d->heads, d->query_len, 1);
}

static void size_attention(problem_ready *self)
{
    const mha_attention_desc *d = &self->desc.attention;
    const mha_type keys = d->key_value_type ? d->key_value_type : d->type;
    use_type(self, PROBLEM_QUERY, d->type, d->batch, d->heads, d->query_len, d->head_dim);
    use_type(self, PROBLEM_KEY, keys, d->batch, d->kv_heads, d->key_len, d->head_dim);
    use_type(self, PROBLEM_VALUE, keys, d->batch, d->kv_heads, d->key_len, d->value_dim);
    use_type(self, PROBLEM_OUTPUT, d->type, d->batch, d->heads, d->query_len, d->value_dim);
    self->tensors[PROBLEM_QUERY].is_merged = self->tensors[PROBLEM_KEY].is_merged =
        self->tensors[PROBLEM_VALUE].is_merged = self->tensors[PROBLEM_OUTPUT].is_merged =
            self->is_merged;
}

static void size_weights(problem_ready *self)
{
    const mha_layer_desc *layer = &self->desc;
    const mha_attention_desc *d = &layer->attention;
    use_floats(self, PROBLEM_WEIGHT_QUERY, layer->query_width, d->heads, d->head_dim, 1);
    use_floats(self, PROBLEM_WEIGHT_KEY, layer->key_width, d->kv_heads, d->head_dim, 1);
    use_floats(self, PROBLEM_WEIGHT_VALUE, layer->value_width, d->kv_heads, d->value_dim, 1);
    if (!(layer->flags & MHA_LAYER_MERGED_OUTPUT))
        use_floats(self, PROBLEM_WEIGHT_OUTPUT, d->heads, d->value_dim, layer->output_width, 1);
    if (layer->flags & MHA_LAYER_BIAS_QUERY)
        use_floats(self, PROBLEM_BIAS_QUERY, d->heads, d->head_dim, 1, 1);
    if (layer->flags & MHA_LAYER_BIAS_KEY)
        use_floats(self, PROBLEM_BIAS_KEY, d->kv_heads, d->head_dim, 1, 1);
    if (layer->flags & MHA_LAYER_BIAS_VALUE)
        use_floats(self, PROBLEM_BIAS_VALUE, d->kv_heads, d->value_dim, 1, 1);
    if (layer->flags & MHA_LAYER_BIAS_OUTPUT)
        use_floats(self, PROBLEM_BIAS_OUTPUT, layer->output_width, 1, 1, 1);
}

static void size_layer(problem_ready *self)
{
    const mha_layer_desc *layer = &self->desc;
    const mha_attention_desc *d = &layer->attention;
    use_floats(self, PROBLEM_QUERY, d->batch, d->query_len, layer->query_width, 1);
    if (!self->is_self) {
        use_floats(self, PROBLEM_KEY, d->batch, d->key_len, layer->key_width, 1);
        use_floats(self, PROBLEM_VALUE, d->batch, d->key_len, layer->value_width, 1);
    }
    use_floats(self, PROBLEM_OUTPUT, d->batch, d->query_len, layer->output_width, 1);
    size_weights(self);
}

/* Weights of a size that keeps the deviation of what they are multiplied with. */
static void fill_weight(float *data, size_t count, uint64_t seed, size_t rows)
{
    const float most = sqrtf(3.0f / (float)rows);
    fill_uniform(data, count, seed, -most, most);
}

/* The geometric sequence of Press et al., section 3. */
static void fill_slopes(float *data, size_t heads)
{
    for (size_t h = 0; h < heads; h++)
        data[h] = (float)exp2(-8.0 * (double)(h + 1) / (double)heads);
}

static void fill_slot(problem_ready *self, problem_slot slot, uint64_t seed)
{
    const mha_layer_desc *layer = &self->desc;
    const mha_attention_desc *d = &layer->attention;
    void *data = self->tensors[slot].host;
    const size_t count = self->tensors[slot].count;

    switch (slot) {
    case PROBLEM_QUERY:
    case PROBLEM_KEY:
    case PROBLEM_VALUE:
    case PROBLEM_BIAS:
    case PROBLEM_SINKS:
        fill_floats(data, count, seed, FILL_NORMAL);
        break;
    case PROBLEM_MASK:
        fill_mask(data, count, seed, mask_probability);
        break;
    case PROBLEM_LENGTHS:
    case PROBLEM_LENGTHS_PER_QUERY:
    case PROBLEM_STARTS:
        fill_lengths(data, count, seed, (int32_t)d->key_len);
        break;
    case PROBLEM_SLOPES:
        fill_slopes(data, count);
        break;
    case PROBLEM_WEIGHT_QUERY:
        fill_weight(data, count, seed, layer->query_width);
        break;
    case PROBLEM_WEIGHT_KEY:
        fill_weight(data, count, seed, layer->key_width);
        break;
    case PROBLEM_WEIGHT_VALUE:
        fill_weight(data, count, seed, layer->value_width);
        break;
    case PROBLEM_WEIGHT_OUTPUT:
        fill_weight(data, count, seed, d->heads * d->value_dim);
        break;
    default:
        fill_floats(data, count, seed, FILL_UNIFORM);
    }
}

static bool is_output(problem_slot slot)
{
    return slot >= PROBLEM_OUTPUT;
}

void problem_reorder(const problem_tensor *tensor, const float *from, float *to, bool into_memory)
{
    const size_t *const s = tensor->shape;
    for (size_t row = 0; row < s[0] * s[1] * s[2]; row++) {
        const size_t b = row / s[2] / s[1], h = row / s[2] % s[1], i = row % s[2];
        const size_t moved = tensor->is_merged ? (b * s[2] + i) * s[1] + h : row;
        const size_t source = into_memory ? row : moved, target = into_memory ? moved : row;
        memcpy(to + target * s[3], from + source * s[3], s[3] * sizeof *to);
    }
}

/* Fills the host data of an input, and makes what the buffer starts with: *stored, which may be the
 * same. */
static mha_status make_data(problem_ready *self, problem_slot slot, uint64_t seed, void **stored)
{
    problem_tensor *tensor = &self->tensors[slot];
    const size_t size = tensor->type ? sizeof(float) : tensor->item_bytes;
    tensor->host = calloc(tensor->count + 4, size);
    if (!tensor->host)
        return MHA_OUT_OF_HOST_MEMORY;
    fill_slot(self, slot, seed);
    *stored = tensor->host;
    if (tensor->type)
        stored_round(tensor->type, tensor->host, tensor->count);
    if (!tensor->is_merged && tensor->item_bytes == size)
        return MHA_OK;
    float *const reordered = calloc(tensor->count + 4, sizeof *reordered);
    if (!reordered)
        return MHA_OUT_OF_HOST_MEMORY;
    problem_reorder(tensor, tensor->host, reordered, true);
    *stored = stored_pack(tensor->type, reordered, tensor->count + 4);
    free(reordered);
    return MHA_OK;
}

/* Host data of an input, and the buffer. OpenCL refuses a buffer of no bytes: such a one gets 4. */
static mha_status make_tensor(problem_ready *self, problem_slot slot, uint64_t seed)
{
    problem_tensor *tensor = &self->tensors[slot];
    const size_t bytes = multiply(tensor->count, tensor->item_bytes);
    void *stored = NULL;
    mha_device_info info;
    const mha_status asked = mha_context_info(self->context, &info);
    if (asked || bytes > info.max_allocation_bytes)
        return asked ? asked : MHA_TOO_LARGE;
    const mha_status filled = is_output(slot) ? MHA_OK : make_data(self, slot, seed, &stored);
    if (filled)
        return filled;
    cl_int status;
    const cl_mem_flags flags = stored ? CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR : CL_MEM_READ_WRITE;
    tensor->memory =
        clCreateBuffer(mha_context_cl(self->context), flags, bytes ? bytes : 4, stored, &status);
    if (stored != tensor->host)
        free(stored);
    return status;
}

static mha_status make_tensors(problem_ready *self, uint64_t seed)
{
    mha_status status = MHA_OK;
    for (int slot = 0; !status && slot < PROBLEM_SLOTS; slot++) {
        if (self->tensors[slot].used)
            status = make_tensor(self, (problem_slot)slot, seed * PROBLEM_SLOTS + (uint64_t)slot);
    }
    return status;
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

static mha_status load_weights(problem_ready *self, cl_command_queue queue)
{
    const mha_layer_weights weights = {
        .query = tensor_of(self, PROBLEM_WEIGHT_QUERY),
        .key = tensor_of(self, PROBLEM_WEIGHT_KEY),
        .value = tensor_of(self, PROBLEM_WEIGHT_VALUE),
        .output = tensor_of(self, PROBLEM_WEIGHT_OUTPUT),
        .bias_query = tensor_of(self, PROBLEM_BIAS_QUERY),
        .bias_key = tensor_of(self, PROBLEM_BIAS_KEY),
        .bias_value = tensor_of(self, PROBLEM_BIAS_VALUE),
        .bias_output = tensor_of(self, PROBLEM_BIAS_OUTPUT),
    };
    mha_status status = mha_layer_load(self->layer, &weights, &(mha_call){ .queue = queue });
    if (!status)
        status = clFinish(queue);
    return status;
}

static mha_status load(problem_ready *self)
{
    cl_int status;
    cl_command_queue queue = clCreateCommandQueue(mha_context_cl(self->context),
                                                  mha_context_device(self->context), 0, &status);
    if (status)
        return status;
    const mha_status loaded = load_weights(self, queue);
    clReleaseCommandQueue(queue);
    return loaded;
}

/* The library sees the desc as the word has it, and says what is wrong with it. */
static mha_status create(problem_ready *self, const mha_layer_desc *given)
{
    mha_status status;
    if (self->is_layer) {
        status = mha_layer_create(&self->layer, self->context, given);
        if (!status)
            self->need = mha_layer_workspace(self->layer);
    } else {
        status = mha_attention_create(&self->attention, self->context, &given->attention);
        if (!status)
            self->need = mha_attention_workspace(self->attention);
    }
    return status;
}

static void size_tensors(problem_ready *self, const mha_layer_desc *given, bool is_cross)
{
    if (self->is_layer) {
        const mha_layer_desc d = reference_layer_resolve(given);
        self->desc = d;
        self->is_self = !is_cross && d.attention.query_len == d.attention.key_len &&
                        d.query_width == d.key_width && d.key_width == d.value_width;
        size_layer(self);
    } else {
        self->desc.attention = reference_attention_resolve(&given->attention);
        size_attention(self);
    }
    size_options(self);
}

static mha_status make_workspace(problem_ready *self)
{
    cl_int status = CL_SUCCESS;
    if (self->need.bytes)
        self->workspace = clCreateBuffer(mha_context_cl(self->context), CL_MEM_READ_WRITE,
                                         self->need.bytes, NULL, &status);
    return status;
}

mha_status problem_open(problem_ready **out, mha_context *context, const problem *subject,
                        const problem_options *options)
{
    problem_ready *self = calloc(1, sizeof *self);
    *out = NULL;
    if (!self)
        return MHA_OUT_OF_HOST_MEMORY;
    mha_layer_desc given = subject->desc;
    given.attention.path = options->path;
    given.attention.tiling = options->tiling;
    given.attention.gemm = options->gemm;
    given.projection = options->projection;
    self->is_layer = subject->is_layer;
    self->is_merged = subject->is_merged;
    self->context = context;

    mha_status status = create(self, &given);
    if (!status) {
        size_tensors(self, &given, subject->is_cross);
        status = make_tensors(self, options->seed);
    }
    if (!status)
        status = make_workspace(self);
    if (!status && self->is_layer)
        status = load(self);
    if (status)
        problem_close(&self);
    *out = self;
    return status;
}

void problem_close(problem_ready **self)
{
    problem_ready *closed = *self;
    *self = NULL;
    if (!closed)
        return;
    for (int slot = 0; slot < PROBLEM_SLOTS; slot++) {
        free(closed->tensors[slot].host);
        if (closed->tensors[slot].memory)
            clReleaseMemObject(closed->tensors[slot].memory);
    }
    if (closed->workspace)
        clReleaseMemObject(closed->workspace);
    mha_attention_destroy(&closed->attention);
    mha_layer_destroy(&closed->layer);
    free(closed);
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
        .key_lengths.buffer = self->tensors[PROBLEM_LENGTHS].memory,
        .key_lengths_per_query.buffer = self->tensors[PROBLEM_LENGTHS_PER_QUERY].memory,
        .key_starts.buffer = self->tensors[PROBLEM_STARTS].memory,
        .alibi_slopes = tensor_of(self, PROBLEM_SLOPES),
        .sinks = tensor_of(self, PROBLEM_SINKS),
    };
    const mha_call call = {
        .queue = queue,
        .workspace = self->workspace,
        .stage = stage,
        .stage_data = stage_data,
    };
    return self->layer ? mha_layer_enqueue(self->layer, &args, &call)
                       : mha_attention_enqueue(self->attention, &args, &call);
}

static size_t explain(const problem_ready *self, char *text, size_t capacity)
{
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
