/* A problem made ready to run: the object that solves it, sizes, data, buffers, then weights. */
#include "problem_model.h"
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

/* As the library has it of a word: a decoder's attention to its memory has the heads, the weights
 * and the choices of the one to itself. */
static void describe_cross(problem_ready *self, const mha_layer_desc *own, const problem *subject)
{
    const mha_attention_desc *a = &own->attention;
    self->cross = (mha_layer_desc){
        .attention = { .heads = a->heads,
                       .kv_heads = a->kv_heads,
                       .key_len = subject->memory_len,
                       .value_dim = a->value_dim,
                       .uses = subject->cross_uses,
                       .path = a->path,
                       .tiling = a->tiling,
                       .gemm = a->gemm },
        .model_width = own->model_width,
        .flags = own->flags,
        .projection = own->projection,
        .weight_type = own->weight_type,
    };
    self->memory_length = subject->memory_length;
}

mha_status problem_open(problem_ready **out, mha_context *context, const problem *subject,
                        const problem_options *options, char *reason, size_t reason_size)
{
    problem_ready *self = calloc(1, sizeof *self);
    *out = NULL;
    *reason = '\0';
    if (!self)
        return MHA_OUT_OF_HOST_MEMORY;
    mha_layer_desc given = subject->desc;
    given.attention.path = options->path;
    given.attention.tiling = options->tiling;
    given.attention.gemm = options->gemm;
    given.projection = options->projection;
    if (given.attention.uses & MHA_USES_ROTARY)
        given.attention.rotary_positions = last_position(&given.attention);
    self->kind = subject->kind;
    self->gemm_desc = subject->gemm;
    self->gemm_desc.by = options->gemm;
    self->ffn = subject->ffn;
    self->ffn.projection = options->projection;
    self->ffn.weight_type = self->norm.weight_type = subject->desc.weight_type;
    self->ffn.tiling = self->norm.tiling = options->tiling;
    self->norm.kind = subject->is_rms ? MHA_NORM_RMS : MHA_NORM_LAYER;
    self->norm.uses = MHA_NORM_WEIGHT | (subject->is_rms ? 0 : MHA_NORM_BIAS);
    self->norm_place = subject->norms_before ? MHA_NORM_BEFORE : MHA_NORM_AFTER;
    describe_cross(self, &given, subject);
    self->mask_share = subject->mask_share;
    self->key_length = subject->key_length;
    self->draws_lengths = given.attention.uses & MHA_USES_KEY_LENGTHS && !subject->key_length;
    self->is_merged = subject->is_merged;
    self->is_scattered = subject->is_scattered;
    self->context = context;
    if (given.attention.uses & MHA_USES_DROPOUT) {
        self->dropout_seed = options->seed * 0x9e3779b97f4a7c15u; /* so that both halves count */
        self->dropout_offset = (uint32_t)options->seed;
    }

    self->repeats = 1;
    const bool is_model = self->kind == KIND_MODEL;
    mha_status status =
        is_model ? problem_model_open(&self->model, self, options, &given, reason, reason_size)
                 : problem_create(self, &given);
    if (!status)
        status = problem_size(self, &given, subject->is_cross, options->seed);
    if (!status)
        status =
            is_model ? problem_model_fill(self, options->seed) : make_tensors(self, options->seed);
    if (!status)
        status = make_workspace(self);
    if (!status && (self->layer || self->encoder || self->decoder ||
                    self->gemm_desc.flags & MHA_GEMM_LOADED_B))
        status = problem_load(self);
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
    problem_destroy(closed);
    problem_model_close(closed->model);
    free(closed);
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
