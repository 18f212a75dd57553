/* Device buffers between guards. */
#include "guarded.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* NaN as float32, float16 and bfloat16, negative as int32 and not 0 as a mask, and different from
 * element to element: a kernel that copies one guard over another is noticed too. The lowest byte
 * runs from 0xc1, since bfloat16 has a bit of its exponent there and 0xff80 is -inf. */
static void fill_with_nan(unsigned char *bytes, size_t items, size_t item_bytes)
{
    memset(bytes, 0xff, items * item_bytes);
    for (size_t i = 0; i < items; i++)
        bytes[i * item_bytes] = (unsigned char)(0xc1 + i % 63);
}

static cl_int queue_context(cl_command_queue queue, cl_context *context)
{
    return clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof *context, context, NULL);
}

cl_int guarded_create(guarded *out, cl_command_queue queue, const void *data, size_t item_bytes,
                      size_t before, size_t count, size_t after)
{
    *out = (guarded){ .item_bytes = item_bytes, .before = before, .count = count, .after = after };
    if (count > SIZE_MAX / item_bytes - before - after) {
        *out = (guarded){ 0 };
        return CL_INVALID_BUFFER_SIZE;
    }
    const size_t items = before + count + after, bytes = items * item_bytes;
    out->sent = malloc(bytes);
    out->got = malloc(bytes);
    cl_int error = out->sent && out->got ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    if (!error) {
        fill_with_nan(out->sent, items, item_bytes);
        if (data)
            memcpy(out->sent + before * item_bytes, data, count * item_bytes);
    }
    cl_context context = NULL;
    if (!error)
        error = queue_context(queue, &context);
    if (!error)
        out->memory = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (!error)
        error =
            clEnqueueWriteBuffer(queue, out->memory, CL_TRUE, 0, bytes, out->sent, 0, NULL, NULL);
    if (error)
        guarded_release(out);
    return error;
}

void guarded_release(guarded *buffer)
{
    if (buffer->memory)
        clReleaseMemObject(buffer->memory);
    free(buffer->sent);
    free(buffer->got);
    *buffer = (guarded){ 0 };
}

static size_t all_bytes(const guarded *buffer)
{
    return (buffer->before + buffer->count + buffer->after) * buffer->item_bytes;
}

cl_int guarded_fetch(guarded *buffer, cl_command_queue queue)
{
    return clEnqueueReadBuffer(queue, buffer->memory, CL_TRUE, 0, all_bytes(buffer), buffer->got, 0,
                               NULL, NULL);
}

const void *guarded_content(const guarded *buffer)
{
    return buffer->got + buffer->before * buffer->item_bytes;
}

bool guarded_edges_hold(const guarded *buffer)
{
    const size_t before = buffer->before * buffer->item_bytes;
    const size_t after = buffer->after * buffer->item_bytes;
    const size_t end = all_bytes(buffer) - after;
    return !memcmp(buffer->got, buffer->sent, before) &&
           !memcmp(buffer->got + end, buffer->sent + end, after);
}

bool guarded_unchanged(const guarded *buffer)
{
    return !memcmp(buffer->got, buffer->sent, all_bytes(buffer));
}
