/* Device buffers between guards: what a kernel reads outside a tensor is NaN, and what it writes
 * there is noticed. */
#ifndef MHA_TOOLS_GUARDED_H
#define MHA_TOOLS_GUARDED_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>

/* Guard elements on each side. At least 64, as the format asks, and odd, so that no tensor starts
 * at a round address by luck. */
#define GUARDED_EDGE 65

typedef struct guarded {
    cl_mem memory;
    size_t item_bytes;
    size_t before, count, after; /* elements: guards, content, guards */
    unsigned char *sent;         /* what the buffer held before the call */
    unsigned char *got;          /* what it held at the last guarded_fetch */
} guarded;

/* Makes and fills a buffer; `data` NULL fills the content with NaN too. `before` and `after` are
 * GUARDED_EDGE for tensors. On failure *out is all zero. */
cl_int guarded_create(guarded *out, cl_command_queue queue, const void *data, size_t item_bytes,
                      size_t before, size_t count, size_t after);
void guarded_release(guarded *buffer);

/* Reads the whole buffer back, waiting for the queue. */
cl_int guarded_fetch(guarded *buffer, cl_command_queue queue);

/* Of the fetched bytes: the content; are the guards, is everything as it was sent? */
const void *guarded_content(const guarded *buffer);
bool guarded_edges_hold(const guarded *buffer);
bool guarded_unchanged(const guarded *buffer);

#endif
