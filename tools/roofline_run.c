/* The kernels of a roof, built in several shapes and run. */
#include "roofline_parts.h"

#include "os.h"
#include "roofline_cl.h"

#include <math.h>
#include <stdio.h>

enum {
    RUNS = 3
};

static const double enough_ms = 5; /* of a run */

static const shape fma_shapes[] = {
    { 16, 12, 1 }, { 16, 8, 1 },  { 8, 12, 1 },  { 8, 8, 1 },
    { 4, 24, 64 }, { 4, 12, 64 }, { 2, 24, 64 }, { 1, 24, 64 },
};
static const shape move_shapes[] = { { 16, 8, 1 }, { 4, 4, 256 } };

static const struct {
    const char *kernel;
    const shape *shapes;
    size_t num_shapes;
} ways[ROOFS] = {
    [ROOF_FMA] = { "roofline_fma", fma_shapes, sizeof fma_shapes / sizeof fma_shapes[0] },
    [ROOF_READ] = { "roofline_read", move_shapes, sizeof move_shapes / sizeof move_shapes[0] },
    [ROOF_COPY] = { "roofline_copy", move_shapes, sizeof move_shapes / sizeof move_shapes[0] },
    [ROOF_CACHED] = { "roofline_read", move_shapes, sizeof move_shapes / sizeof move_shapes[0] },
};

/* What one run does. */
typedef struct load {
    size_t groups, calls;
    cl_uint steps, passes;
} load;

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static mha_status build(const roofline *self, roof which, const shape *s, cl_kernel *kernel)
{
    const char *const text = (const char *)(const void *)roofline_cl;
    const size_t bytes = sizeof roofline_cl;
    char options[80]; /* those of the library, so that its kernels are held against the same */
    const int length =
        snprintf(options, sizeof options, "-cl-std=CL1.2 -cl-mad-enable -DSUMS=%u ", s->sums);
    snprintf(options + length, sizeof options - (size_t)length,
             s->width > 1 ? "-DFLOATS=float%u" : "-DFLOATS=float", s->width);
    cl_int status;
    cl_program program =
        clCreateProgramWithSource(self->context, 1, &(const char *){ text }, &bytes, &status);
    if (status)
        return status;
    status = clBuildProgram(program, 1, &self->device, options, NULL, NULL);
    if (!status)
        *kernel = clCreateKernel(program, ways[which].kernel, &status);
    clReleaseProgram(program);
    return status;
}

/* Bytes that one step of one group goes over. */
static size_t step_bytes(const shape *s)
{
    return s->group * s->sums * s->width * sizeof(cl_float);
}

size_t roofline_bytes(const roofline *self, roof which)
{
    return which == ROOF_CACHED ? self->cached_bytes
           : which == ROOF_COPY ? self->bytes / 2
                                : self->bytes;
}

/* The shortest run: few steps of computing, all of the bytes once. */
static load least_load(const roofline *self, roof which, size_t bytes, const shape *s)
{
    if (which == ROOF_FMA)
        return (load){ .groups = self->groups, .calls = 1, .steps = 64, .passes = 1 };
    const size_t steps = larger(bytes / step_bytes(s), 1);
    const size_t groups = smaller(self->groups, steps);
    return (load){ .groups = groups, .calls = 1, .steps = (cl_uint)(steps / groups), .passes = 1 };
}

/* A call takes time of its own, so as much as possible goes into one. Memory is gone over by calls:
 * what a work-item has just read may still lie in its cache. */
static void grow(load *l, roof which)
{
    if (which == ROOF_FMA)
        l->steps *= 4;
    else if (which == ROOF_CACHED)
        l->passes *= 4;
    else
        l->calls *= 4;
}

/* Operations or bytes of a run: of a copy, each byte is read and written. */
static double work_of(roof which, const shape *s, const load *l)
{
    const double steps = (double)l->calls * (double)l->groups * l->steps * l->passes;
    const double bytes = steps * (double)step_bytes(s);
    return which == ROOF_FMA    ? 2 * bytes / sizeof(cl_float)
           : which == ROOF_COPY ? 2 * bytes
                                : bytes;
}

static cl_int set_arguments(const roofline *self, roof which, cl_kernel kernel, const load *l)
{
    const cl_float factor = 0.5f, addend = 1;
    cl_int status = clSetKernelArg(kernel, 0, sizeof self->written, &self->written);
    status |= clSetKernelArg(kernel, 1, sizeof l->steps, &l->steps);
    if (which == ROOF_FMA) {
        status |= clSetKernelArg(kernel, 2, sizeof factor, &factor);
        status |= clSetKernelArg(kernel, 3, sizeof addend, &addend);
        return status;
    }
    status |= clSetKernelArg(kernel, 2, sizeof self->data, &self->data);
    if (which != ROOF_COPY)
        status |= clSetKernelArg(kernel, 3, sizeof l->passes, &l->passes);
    return status;
}

static mha_status run(const roofline *self, roof which, const way *w, const load *l, double *ms)
{
    const size_t global = l->groups * w->shape.group;
    cl_int status = set_arguments(self, which, w->kernel, l);
    const double start = os_now_ms();
    for (size_t i = 0; !status && i < l->calls; i++)
        status = clEnqueueNDRangeKernel(self->queue, w->kernel, 1, NULL, &global, &w->shape.group,
                                        0, NULL, NULL);
    const cl_int finished = clFinish(self->queue);
    *ms = os_now_ms() - start;
    return status ? status : finished;
}

mha_status roofline_try(const roofline *self, roof which, size_t bytes, const way *w,
                        double hopeless, double *rate)
{
    load l = least_load(self, which, bytes, &w->shape);
    double ms = 0;
    mha_status status = run(self, which, w, &l, &ms); /* not counted: drivers finish building */
    if (!status)
        status = run(self, which, w, &l, &ms);
    while (!status && ms < enough_ms) {
        grow(&l, which);
        status = run(self, which, w, &l, &ms);
    }
    const double work = work_of(which, &w->shape, &l) * 1e-6;
    *rate = work / ms;
    for (int i = 1; !status && i < RUNS && *rate >= hopeless; i++) {
        status = run(self, which, w, &l, &ms);
        *rate = fmax(*rate, work / ms);
    }
    return status;
}

mha_status roofline_find_best(roofline *self, roof which)
{
    mha_status status = MHA_OK;
    for (size_t i = 0; i < ways[which].num_shapes; i++) {
        way tried = { .shape = ways[which].shapes[i] };
        double rate = 0;
        status = build(self, which, &tried.shape, &tried.kernel);
        if (!status)
            status = roofline_try(self, which, roofline_bytes(self, which), &tried,
                                  self->rate[which] / 2, &rate);
        if (!status && rate > self->rate[which]) {
            const way worse = self->best[which];
            self->best[which] = tried;
            self->rate[which] = rate;
            tried = worse;
        }
        if (tried.kernel)
            clReleaseKernel(tried.kernel);
    }
    return self->best[which].kernel ? MHA_OK : status;
}
