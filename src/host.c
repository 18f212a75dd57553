/* Plain host arrays on their way to the device and back. */
#include "host.h"

#include "log.h"
#include "shape.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool is_packed(const size_t strides[4])
{
    return !strides[0] && !strides[1] && !strides[2] && !strides[3];
}

/* `from` is what the device starts with, `to` where the result goes; either may be NULL. */
static mha_status stage(mha_host_call *host, const char *who, const char *name, mha_tensor *tensor,
                        const void *from, void *to, const size_t shape[4], const size_t strides[4],
                        size_t element_bytes)
{
    mha_context *context = host->context;
    const mha_size reach = mha_shape_reach(shape, strides);
    if (reach.overflows || reach.value > SIZE_MAX / element_bytes)
        return mha_log_fail(&context->log, MHA_TOO_LARGE,
                            "%s: the strides of %s pass the largest size_t", who, name);
    memcpy(tensor->strides, strides, sizeof tensor->strides);
    const size_t bytes = reach.value * element_bytes;
    if (!bytes || (!from && !to))
        return MHA_OK;
    cl_int error = CL_SUCCESS;
    const cl_mem_flags flags =
        (to ? CL_MEM_READ_WRITE : CL_MEM_READ_ONLY) | (from ? CL_MEM_COPY_HOST_PTR : 0);
    /* OpenCL takes a pointer to const data as one to plain data, and only reads it here. */
    void *data = (void *)(uintptr_t)from;
    tensor->buffer = clCreateBuffer(context->cl, flags, bytes, data, &error);
    if (!tensor->buffer)
        return mha_context_note(context,
                                mha_log_fail(&context->log, error,
                                             "%s: clCreateBuffer of %zu bytes for %s failed", who,
                                             bytes, name));
    assert(host->count < MHA_HOST_MOST);
    mha_host_array *array = &host->arrays[host->count++];
    *array = (mha_host_array){ .name = name,
                               .to = to,
                               .bytes = bytes,
                               .buffer = &tensor->buffer,
                               .element_bytes = element_bytes };
    memcpy(array->shape, shape, sizeof array->shape);
    memcpy(array->strides, strides, sizeof array->strides);
    return MHA_OK;
}

mha_status mha_host_stage_input(mha_host_call *host, const char *who, const char *name,
                                mha_tensor *to, const mha_host_input *from, const size_t shape[4],
                                size_t element_bytes)
{
    return stage(host, who, name, to, from->data, NULL, shape, from->strides, element_bytes);
}

mha_status mha_host_stage_output(mha_host_call *host, const char *who, const char *name,
                                 mha_tensor *from, const mha_host_output *to, const size_t shape[4],
                                 size_t element_bytes, bool keeps)
{
    return stage(host, who, name, from, keeps ? to->data : NULL, to->data, shape, to->strides,
                 element_bytes);
}

mha_status mha_host_stage_weights(mha_host_call *host, const char *who, const mha_host_weight *list,
                                  size_t count, bool turned, mha_type type, const char *says)
{
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < count; i++) {
        const mha_host_weight *w = &list[i];
        const bool swaps = turned && w->in;
        const size_t rows = w->in ? w->in : 1;
        if (w->from.data && !w->exists)
            status = mha_log_fail(&host->context->log, MHA_INVALID_ARGUMENT,
                                  "%s: weights.%s is given, and %s that there is none", who,
                                  w->name, says);
        else if (w->exists)
            status = mha_host_stage_input(
                host, who, w->name, w->to, &w->from,
                (size_t[]){ 1, 1, swaps ? w->out : rows, swaps ? rows : w->out },
                mha_bind_type_bytes(type));
    }
    return status;
}

/* The tensor's own elements out of a copy of all that it spans: its gaps may be another array's. */
static void place_rows(const mha_host_array *array, const unsigned char *from)
{
    const size_t *shape = array->shape;
    const size_t *strides = array->strides;
    const size_t bytes = array->element_bytes;
    for (size_t row = 0; row < shape[0] * shape[1] * shape[2]; row++) {
        const size_t i = row % shape[2];
        const size_t h = row / shape[2] % shape[1];
        const size_t b = row / shape[2] / shape[1];
        const size_t at = b * (shape[0] > 1 ? strides[0] : 0) +
                          h * (shape[1] > 1 ? strides[1] : 0) + i * (shape[2] > 1 ? strides[2] : 0);
        memcpy((unsigned char *)array->to + at * bytes, from + at * bytes, shape[3] * bytes);
    }
}

static mha_status copy_one_back(const mha_context *context, const char *who, cl_command_queue queue,
                                const mha_host_array *array)
{
    const bool packed = is_packed(array->strides);
    void *to = packed ? array->to : malloc(array->bytes);
    if (!to)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                            "%s: no host memory for copying %s back", who, array->name);
    const cl_int error =
        clEnqueueReadBuffer(queue, *array->buffer, CL_TRUE, 0, array->bytes, to, 0, NULL, NULL);
    if (!packed && !error)
        place_rows(array, to);
    if (!packed)
        free(to);
    if (error)
        return mha_log_fail(&context->log, error, "%s: copying %s back failed", who, array->name);
    return MHA_OK;
}

static mha_status copy_back(const mha_host_call *host, const char *who, cl_command_queue queue)
{
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < host->count; i++)
        if (host->arrays[i].to)
            status = copy_one_back(host->context, who, queue, &host->arrays[i]);
    return status;
}

static mha_status run_queued(const mha_host_call *host, const char *who, mha_host_enqueue *enqueue,
                             void *object, const void *args, size_t workspace_bytes)
{
    mha_context *context = host->context;
    cl_int error = CL_SUCCESS;
    mha_call call = { 0 };
    call.queue = clCreateCommandQueue(context->cl, context->device.device, 0, &error);
    if (!call.queue)
        return mha_context_note(
            context, mha_log_fail(&context->log, error, "%s: clCreateCommandQueue failed", who));
    mha_status status = MHA_OK;
    if (workspace_bytes) {
        call.workspace =
            clCreateBuffer(context->cl, CL_MEM_READ_WRITE, workspace_bytes, NULL, &error);
        if (!call.workspace)
            status = mha_log_fail(&context->log, error,
                                  "%s: clCreateBuffer of a workspace of %zu bytes failed", who,
                                  workspace_bytes);
    }
    if (!status)
        status = enqueue(object, args, &call, who);
    /* Whatever was queued must end before the caller's arrays may go. */
    error = clFinish(call.queue);
    if (!status && error)
        status = mha_log_fail(&context->log, error, "%s: clFinish failed", who);
    if (!status)
        status = copy_back(host, who, call.queue);
    if (call.workspace)
        clReleaseMemObject(call.workspace);
    clReleaseCommandQueue(call.queue);
    return mha_context_note(context, status);
}

mha_status mha_host_end(mha_host_call *host, const char *who, mha_status status,
                        mha_host_enqueue *enqueue, void *object, const void *args,
                        size_t workspace_bytes)
{
    if (!status)
        status = run_queued(host, who, enqueue, object, args, workspace_bytes);
    for (size_t i = 0; i < host->count; i++)
        clReleaseMemObject(*host->arrays[i].buffer);
    host->count = 0;
    return status;
}
