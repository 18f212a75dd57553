/* A problem made ready to run: sizes, data, buffers, then the object and its weights. */
#include "problem_parts.h"

#include <stdlib.h>
#include <string.h>

/* Host data of an input, and the buffer. OpenCL refuses a buffer of no bytes: such a one gets 4. */
static mha_status make_tensor(problem_ready *self, problem_slot slot, uint64_t seed)
{
    problem_tensor *tensor = &self->tensors[slot];
    const size_t bytes = problem_multiply(tensor->count, tensor->item_bytes);
    void *stored = NULL;
    mha_device_info info;
    const mha_status asked = mha_context_info(self->context, &info);
    if (asked || bytes > info.max_allocation_bytes)
        return asked ? asked : MHA_TOO_LARGE;
    const mha_status filled =
        slot >= PROBLEM_OUTPUT ? MHA_OK : problem_fill(self, slot, seed, &stored);
    if (filled)
        return filled;
    cl_int status;
    const bool changes = slot >= PROBLEM_OUTPUT || self->tensors[PROBLEM_POSITIONS].used;
    const cl_mem_flags flags =
        (changes ? CL_MEM_READ_WRITE : CL_MEM_READ_ONLY) | (stored ? CL_MEM_COPY_HOST_PTR : 0);
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
    if (self->is_gemm) {
        status = mha_gemm_create(&self->gemm, self->context, &self->gemm_desc);
        if (!status)
            self->need = mha_gemm_workspace(self->gemm);
    } else if (self->is_layer) {
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

static mha_status make_workspace(problem_ready *self)
{
    cl_int status = CL_SUCCESS;
    if (self->need.bytes)
        self->workspace = clCreateBuffer(mha_context_cl(self->context), CL_MEM_READ_WRITE,
                                         self->need.bytes, NULL, &status);
    return status;
}

/* Rows that the tables of rotary positions need. A ring goes round three times, and begins a
 * fourth. */
static size_t last_position(const mha_attention_desc *desc)
{
    return desc->uses & MHA_USES_RING ? 4 * desc->key_len : desc->key_len;
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
    if (given.attention.uses & MHA_USES_ROTARY)
        given.attention.rotary_positions = last_position(&given.attention);
    self->is_gemm = subject->is_gemm;
    self->is_layer = subject->is_layer;
    self->gemm_desc = subject->gemm;
    self->gemm_desc.by = options->gemm;
    self->mask_share = subject->mask_share;
    self->key_length = subject->key_length;
    self->is_merged = subject->is_merged;
    self->is_scattered = subject->is_scattered;
    self->context = context;
    if (given.attention.uses & MHA_USES_DROPOUT) {
        self->dropout_seed = options->seed * 0x9e3779b97f4a7c15u; /* so that both halves count */
        self->dropout_offset = (uint32_t)options->seed;
    }

    mha_status status = create(self, &given);
    if (!status) {
        status = problem_size(self, &given, subject->is_cross, options->seed);
    }
    if (!status)
        status = make_tensors(self, options->seed);
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
    mha_gemm_destroy(&closed->gemm);
    free(closed);
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
    const mha_gemm_args matrices = {
        .a.buffer = self->tensors[PROBLEM_QUERY].memory,
        .b.buffer = self->tensors[PROBLEM_KEY].memory,
        .c.buffer = self->tensors[PROBLEM_OUTPUT].memory,
    };
    if (self->gemm)
        return mha_gemm_enqueue(self->gemm, &matrices, &call);
    return self->layer ? mha_layer_enqueue(self->layer, &args, &call)
                       : mha_attention_enqueue(self->attention, &args, &call);
}

static const int32_t *integers(const problem_ready *self, problem_slot slot)
{
    return self->tensors[slot].host;
}

size_t problem_queries(const problem_ready *self, size_t b)
{
    const int32_t *offsets = integers(self, PROBLEM_QUERY_OFFSETS);
    return offsets ? (size_t)(offsets[b + 1] - offsets[b]) : self->desc.attention.query_len;
}

size_t problem_keys(const problem_ready *self, size_t b)
{
    const int32_t *offsets = integers(self, PROBLEM_KEY_OFFSETS);
    const int32_t *positions = integers(self, PROBLEM_POSITIONS);
    const int32_t *lengths = integers(self, PROBLEM_LENGTHS);
    const mha_attention_desc *d = &self->desc.attention;
    const size_t most = offsets ? (size_t)(offsets[b + 1] - offsets[b]) : d->key_len;
    if (lengths)
        return (size_t)lengths[b] < most ? (size_t)lengths[b] : most;
    return positions ? (size_t)positions[b] + d->new_len : most;
}

static size_t explain(const problem_ready *self, char *text, size_t capacity)
{
    if (self->gemm)
        return 0; /* a product has nothing to choose from */
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
