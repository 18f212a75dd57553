/* How right a problem runs. */
#include "verify.h"

#include "expect.h"
#include "half.h"
#include "reference.h"
#include "stored.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is not written stays NaN, which no comparison passes. */
static mha_status poison_outputs(const problem_ready *ready, cl_command_queue queue)
{
    const cl_ushort nan = 0xffff; /* twice it is a NaN too */
    cl_int status = CL_SUCCESS;
    for (int slot = PROBLEM_OUTPUT; !status && slot < PROBLEM_SLOTS; slot++) {
        const problem_tensor *tensor = &ready->tensors[slot];
        if (tensor->count && !tensor->memory)
            memset(tensor->host, 0xff, tensor->count * tensor->item_bytes); /* the same */
        else if (tensor->count)
            status = clEnqueueFillBuffer(queue, tensor->memory, &nan, sizeof nan, 0,
                                         tensor->count * tensor->item_bytes, 0, NULL, NULL);
    }
    return status;
}

static size_t attended_length(const mha_attention_desc *d)
{
    return d->head_dim + d->key_len;
}

static size_t layer_length(const mha_layer_desc *layer)
{
    const mha_attention_desc *d = &layer->attention;
    return attended_length(d) + layer->query_width + layer->key_width + layer->value_width +
           d->heads * d->value_dim;
}

/* How many numbers are summed on the way to an output element, one sum after the other. */
static size_t summed_length(const problem_ready *ready)
{
    if (ready->kind == KIND_GEMM)
        return ready->gemm_desc.k;
    if (ready->kind == KIND_ATTENTION)
        return attended_length(&ready->desc.attention);
    size_t length = layer_length(&ready->desc);
    if (ready->kind != KIND_LAYER) /* two projections and norms */
        length += 3 * ready->ffn.width + ready->ffn.hidden_width;
    if (ready->kind == KIND_DECODER)
        length += layer_length(&ready->cross) + ready->ffn.width;
    return length * ready->repeats;
}

/* How far off the scores may be because a rotated query or key, which is rounded to its type before
 * it is used, was rounded the other way: of the few that are, each half a step of its element. */
static double turned_limit(const problem_ready *ready)
{
    const mha_attention_desc *d = &ready->desc.attention;
    const mha_type keys = d->key_value_type ? d->key_value_type : d->type;
    return d->uses & MHA_USES_ROTARY ? 2 * fmax(half_epsilon(d->type), half_epsilon(keys)) : 0;
}

/* The element that is worst by its limit: what float32 sums may lose, and the rounding of the
 * result to its type. */
static verify_error compare(const problem_ready *ready, int slot, const float *got,
                            const double *want)
{
    const size_t count = ready->tensors[slot].count;
    const mha_type type = ready->tensors[slot].type;
    /* The size of the data: outputs are smaller where values cancel out. */
    double largest = 1 / (1 - (double)ready->desc.attention.dropout_p);
    for (size_t i = 0; i < count; i++)
        largest = isfinite(want[i]) ? fmax(largest, fabs(want[i])) : largest;
    const double sums = slot < PROBLEM_OUTPUT /* of a cache, whose rows are turned at most */
                            ? reference_limit(2, largest)
                            : reference_limit(summed_length(ready), largest) + turned_limit(ready);
    verify_error worst = { .limit = sums };
    for (size_t i = 0; i < count; i++) {
        const double limit = sums + stored_limit(type, want[i]);
        const double difference = got[i] == want[i] ? 0 : fabs(got[i] - want[i]);
        const double error = isfinite(difference) ? difference : INFINITY;
        if (error / limit > worst.error / worst.limit)
            worst = (verify_error){ .error = error, .limit = limit };
    }
    return worst;
}

/* Reads an output back into floats in the order of its shape. */
static mha_status read_output(const problem_tensor *tensor, cl_command_queue queue, float *got)
{
    if (!tensor->memory) {
        memcpy(got, tensor->host, tensor->count * sizeof *got);
        return MHA_OK;
    }
    float *const moved = calloc(tensor->count, sizeof *moved);
    void *const stored = calloc(tensor->count, tensor->item_bytes);
    cl_int status = MHA_OUT_OF_HOST_MEMORY;
    if (moved && stored)
        status = clEnqueueReadBuffer(queue, tensor->memory, CL_TRUE, 0,
                                     tensor->count * tensor->item_bytes, stored, 0, NULL, NULL);
    if (!status) {
        stored_unpack(tensor->type, moved, stored, tensor->count);
        problem_reorder(tensor, moved, got, false);
    }
    free(moved);
    free(stored);
    return status;
}

/* Reads one output back and compares it; keeps the result in *out if it is the worst so far. */
static mha_status compare_output(const problem_ready *ready, cl_command_queue queue, int slot,
                                 const double *want, verify_error *out)
{
    const problem_tensor *tensor = &ready->tensors[slot];
    if (!tensor->count)
        return MHA_OK;
    float *got = calloc(tensor->count, sizeof *got);
    if (!got)
        return MHA_OUT_OF_HOST_MEMORY;
    const mha_status status = read_output(tensor, queue, got);
    if (!status) {
        const verify_error found = compare(ready, slot, got, want);
        if (out->limit == 0 || found.error / found.limit > out->error / out->limit)
            *out = found;
    }
    free(got);
    return status;
}

/* One call, with nothing before it. */
static mha_status run(const problem_ready *ready, cl_command_queue queue)
{
    mha_status status = poison_outputs(ready, queue);
    if (!status)
        status = problem_enqueue(ready, queue, NULL, NULL);
    const cl_int finished = clFinish(queue);
    return status ? status : finished;
}

mha_status verify(const problem_ready *ready, verify_error *out)
{
    double *wanted[PROBLEM_SLOTS] = { NULL };
    cl_int status;
    *out = (verify_error){ 0 };
    cl_command_queue queue = clCreateCommandQueue(mha_context_cl(ready->context),
                                                  mha_context_device(ready->context), 0, &status);
    if (status)
        return status;
    status = run(ready, queue);
    if (!status)
        status = expect(ready, wanted);
    for (int slot = 0; !status && slot < PROBLEM_SLOTS; slot++)
        if (wanted[slot])
            status = compare_output(ready, queue, slot, wanted[slot], out);
    expect_free(wanted);
    clReleaseCommandQueue(queue);
    return status;
}
