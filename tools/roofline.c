/* What a device can do at best: the fastest of a few kernels each. */
#include "roofline_parts.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
    GROUPS_PER_UNIT = 8 /* work-groups of a compute unit, so that the last to end counts little */
};

static const size_t most_bytes = (size_t)256 << 20; /* beyond what most caches hold */
static const size_t unit_cache = (size_t)256 << 10; /* bytes that caches hold for a compute unit */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Written at once: of memory that never was, all addresses may be one page of zeros. */
static mha_status make_buffer(const roofline *self, size_t bytes, cl_mem *buffer)
{
    const cl_float zero = 0;
    cl_int status;
    *buffer = clCreateBuffer(self->context, CL_MEM_READ_WRITE, bytes, NULL, &status);
    if (status)
        return status;
    return clEnqueueFillBuffer(self->queue, *buffer, &zero, sizeof zero, 0, bytes, 0, NULL, NULL);
}

static mha_status make_buffers(roofline *self)
{
    const size_t page = 4096;
    cl_ulong memory = 0, allocation = 0, cache = 0;
    cl_uint units = 1;
    clGetDeviceInfo(self->device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL);
    clGetDeviceInfo(self->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof allocation, &allocation,
                    NULL);
    clGetDeviceInfo(self->device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof cache, &cache, NULL);
    clGetDeviceInfo(self->device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    self->groups = (size_t)units * GROUPS_PER_UNIT;
    const size_t most = smaller((size_t)allocation, (size_t)memory / 24);
    self->bytes = smaller(most_bytes, most) / page * page;
    self->cached_bytes = smaller(smaller(units * unit_cache, (size_t)cache / 2), self->bytes);
    const size_t returned = self->groups * ROOFLINE_MOST_RETURNED * sizeof(cl_float);
    const size_t written = self->bytes / 2 > returned ? self->bytes / 2 : returned;
    mha_status status = make_buffer(self, self->bytes, &self->data);
    if (!status)
        status = make_buffer(self, written, &self->written);
    return status ? status : clFinish(self->queue);
}

mha_status roofline_open(roofline **out, const mha_context *context)
{
    cl_int status;
    roofline *self = *out = calloc(1, sizeof *self);
    if (!self)
        return MHA_OUT_OF_HOST_MEMORY;
    self->context = mha_context_cl(context);
    self->device = mha_context_device(context);
    self->queue = clCreateCommandQueue(self->context, self->device, 0, &status);
    if (!status)
        status = make_buffers(self);
    if (status)
        roofline_close(out);
    return status;
}

void roofline_close(roofline **self)
{
    roofline *const closed = *self;
    *self = NULL;
    if (!closed)
        return;
    for (int i = 0; i < ROOFS; i++)
        if (closed->best[i].kernel)
            clReleaseKernel(closed->best[i].kernel);
    if (closed->data)
        clReleaseMemObject(closed->data);
    if (closed->written)
        clReleaseMemObject(closed->written);
    if (closed->queue)
        clReleaseCommandQueue(closed->queue);
    free(closed);
}

mha_status roofline_measure(roofline *self)
{
    mha_status status = MHA_OK;
    for (int which = 0; !status && which < ROOFS; which++) {
        double rate = 0;
        if (which == ROOF_CACHED && !self->cached_bytes)
            continue;
        if (!self->best[which].kernel)
            status = roofline_find_best(self, (roof)which);
        else
            status = roofline_try(self, (roof)which, roofline_bytes(self, (roof)which),
                                  &self->best[which], 0, &rate);
        self->rate[which] = fmax(self->rate[which], rate);
    }
    return status;
}

roofline_peaks roofline_best(const roofline *self)
{
    return (roofline_peaks){
        .gflops = self->rate[ROOF_FMA],
        .gbytes_per_s = fmax(self->rate[ROOF_READ], self->rate[ROOF_COPY]),
        .cached_gbytes_per_s = self->rate[ROOF_CACHED],
        .cached_bytes = (double)self->cached_bytes,
    };
}

mha_status roofline_read_rate(const roofline *self, double bytes, double *gbytes_per_s)
{
    const size_t read = bytes < (double)self->bytes ? (size_t)bytes : self->bytes;
    const mha_status status =
        roofline_try(self, ROOF_READ, read, &self->best[ROOF_READ], 0, gbytes_per_s);
    if (read >= self->bytes / 4) /* what a call itself takes does not show */
        *gbytes_per_s = fmax(*gbytes_per_s, self->rate[ROOF_READ]);
    return status;
}
