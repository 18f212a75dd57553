/* The OpenCL layer of layer.h. It needs a loader that knows OPENCL_LAYERS (ocl-icd 2.3, Khronos).
 */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "layer.h"

/* Every watched function, once. STATUS returns a code only; EVENT also makes an event if the caller
 * wants one; OBJECT returns a new object; REFERENCE adds to the references of one. Not watched:
 * images, pipes, SVM and other calls that neither the library nor CLBlast makes. */
#define WAITS cl_uint num_events, const cl_event *events
#define CALLS(STATUS, EVENT, OBJECT, REFERENCE)                                                   \
    STATUS(clGetPlatformIDs, (cl_uint n, cl_platform_id * ids, cl_uint * count), (n, ids, count)) \
    STATUS(clGetPlatformInfo,                                                                     \
           (cl_platform_id platform, cl_platform_info name, size_t size, void *value,             \
            size_t *needed),                                                                      \
           (platform, name, size, value, needed))                                                 \
    STATUS(clGetDeviceIDs,                                                                        \
           (cl_platform_id platform, cl_device_type type, cl_uint n, cl_device_id * ids,          \
            cl_uint * count),                                                                     \
           (platform, type, n, ids, count))                                                       \
    STATUS(clGetContextInfo,                                                                      \
           (cl_context context, cl_context_info name, size_t size, void *value, size_t *needed),  \
           (context, name, size, value, needed))                                                  \
    STATUS(clGetCommandQueueInfo,                                                                 \
           (cl_command_queue queue, cl_command_queue_info name, size_t size, void *value,         \
            size_t *needed),                                                                      \
           (queue, name, size, value, needed))                                                    \
    STATUS(clGetMemObjectInfo,                                                                    \
           (cl_mem mem, cl_mem_info name, size_t size, void *value, size_t *needed),              \
           (mem, name, size, value, needed))                                                      \
    STATUS(clGetProgramInfo,                                                                      \
           (cl_program program, cl_program_info name, size_t size, void *value, size_t *needed),  \
           (program, name, size, value, needed))                                                  \
    STATUS(clGetProgramBuildInfo,                                                                 \
           (cl_program program, cl_device_id device, cl_program_build_info name, size_t size,     \
            void *value, size_t *needed),                                                         \
           (program, device, name, size, value, needed))                                          \
    STATUS(clGetKernelInfo,                                                                       \
           (cl_kernel kernel, cl_kernel_info name, size_t size, void *value, size_t *needed),     \
           (kernel, name, size, value, needed))                                                   \
    STATUS(clGetKernelWorkGroupInfo,                                                              \
           (cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info name, size_t size,   \
            void *value, size_t *needed),                                                         \
           (kernel, device, name, size, value, needed))                                           \
    STATUS(clGetEventInfo,                                                                        \
           (cl_event e, cl_event_info name, size_t size, void *value, size_t *needed),            \
           (e, name, size, value, needed))                                                        \
    STATUS(clGetEventProfilingInfo,                                                               \
           (cl_event e, cl_profiling_info name, size_t size, void *value, size_t *needed),        \
           (e, name, size, value, needed))                                                        \
    STATUS(clBuildProgram,                                                                        \
           (cl_program program, cl_uint n, const cl_device_id *devices, const char *options,      \
            void(CL_CALLBACK * notify)(cl_program, void *), void *data),                          \
           (program, n, devices, options, notify, data))                                          \
    STATUS(clSetKernelArg, (cl_kernel kernel, cl_uint index, size_t size, const void *value),     \
           (kernel, index, size, value))                                                          \
    STATUS(clSetEventCallback,                                                                    \
           (cl_event e, cl_int type, void(CL_CALLBACK * notify)(cl_event, cl_int, void *),        \
            void *data),                                                                          \
           (e, type, notify, data))                                                               \
    STATUS(clSetUserEventStatus, (cl_event e, cl_int status), (e, status))                        \
    STATUS(clWaitForEvents, (WAITS), (num_events, events))                                        \
    STATUS(clFlush, (cl_command_queue queue), (queue))                                            \
    STATUS(clFinish, (cl_command_queue queue), (queue))                                           \
    EVENT(clEnqueueNDRangeKernel,                                                                 \
          (cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,          \
           const size_t *global, const size_t *local, WAITS, cl_event *event),                    \
          (queue, kernel, dims, offset, global, local, num_events, events, event))                \
    EVENT(clEnqueueTask, (cl_command_queue queue, cl_kernel kernel, WAITS, cl_event * event),     \
          (queue, kernel, num_events, events, event))                                             \
    EVENT(clEnqueueReadBuffer,                                                                    \
          (cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset, size_t size,      \
           void *host, WAITS, cl_event *event),                                                   \
          (queue, mem, blocking, offset, size, host, num_events, events, event))                  \
    EVENT(clEnqueueWriteBuffer,                                                                   \
          (cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset, size_t size,      \
           const void *host, WAITS, cl_event *event),                                             \
          (queue, mem, blocking, offset, size, host, num_events, events, event))                  \
    EVENT(clEnqueueReadBufferRect,                                                                \
          (cl_command_queue queue, cl_mem mem, cl_bool blocking, const size_t *from,              \
           const size_t *to, const size_t *region, size_t row, size_t slice, size_t host_row,     \
           size_t host_slice, void *host, WAITS, cl_event *event),                                \
          (queue, mem, blocking, from, to, region, row, slice, host_row, host_slice, host,        \
           num_events, events, event))                                                            \
    EVENT(clEnqueueWriteBufferRect,                                                               \
          (cl_command_queue queue, cl_mem mem, cl_bool blocking, const size_t *to,                \
           const size_t *from, const size_t *region, size_t row, size_t slice, size_t host_row,   \
           size_t host_slice, const void *host, WAITS, cl_event *event),                          \
          (queue, mem, blocking, to, from, region, row, slice, host_row, host_slice, host,        \
           num_events, events, event))                                                            \
    EVENT(clEnqueueCopyBuffer,                                                                    \
          (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset,  \
           size_t size, WAITS, cl_event * event),                                                 \
          (queue, from, to, from_offset, to_offset, size, num_events, events, event))             \
    EVENT(clEnqueueCopyBufferRect,                                                                \
          (cl_command_queue queue, cl_mem from, cl_mem to, const size_t *from_origin,             \
           const size_t *to_origin, const size_t *region, size_t from_row, size_t from_slice,     \
           size_t to_row, size_t to_slice, WAITS, cl_event *event),                               \
          (queue, from, to, from_origin, to_origin, region, from_row, from_slice, to_row,         \
           to_slice, num_events, events, event))                                                  \
    EVENT(clEnqueueFillBuffer,                                                                    \
          (cl_command_queue queue, cl_mem mem, const void *pattern, size_t pattern_size,          \
           size_t offset, size_t size, WAITS, cl_event *event),                                   \
          (queue, mem, pattern, pattern_size, offset, size, num_events, events, event))           \
    EVENT(clEnqueueUnmapMemObject,                                                                \
          (cl_command_queue queue, cl_mem mem, void *mapped, WAITS, cl_event *event),             \
          (queue, mem, mapped, num_events, events, event))                                        \
    EVENT(clEnqueueMigrateMemObjects,                                                             \
          (cl_command_queue queue, cl_uint n, const cl_mem *mems, cl_mem_migration_flags flags,   \
           WAITS, cl_event *event),                                                               \
          (queue, n, mems, flags, num_events, events, event))                                     \
    EVENT(clEnqueueMarkerWithWaitList, (cl_command_queue queue, WAITS, cl_event * event),         \
          (queue, num_events, events, event))                                                     \
    EVENT(clEnqueueBarrierWithWaitList, (cl_command_queue queue, WAITS, cl_event * event),        \
          (queue, num_events, events, event))                                                     \
    OBJECT(clCreateContext, cl_context,                                                           \
           (const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,      \
            void(CL_CALLBACK * notify)(const char *, const void *, size_t, void *), void *data,   \
            cl_int *error),                                                                       \
           (properties, n, devices, notify, data, error))                                         \
    OBJECT(clCreateContextFromType, cl_context,                                                   \
           (const cl_context_properties *properties, cl_device_type type,                         \
            void(CL_CALLBACK * notify)(const char *, const void *, size_t, void *), void *data,   \
            cl_int *error),                                                                       \
           (properties, type, notify, data, error))                                               \
    OBJECT(clCreateCommandQueue, cl_command_queue,                                                \
           (cl_context context, cl_device_id device, cl_command_queue_properties properties,      \
            cl_int * error),                                                                      \
           (context, device, properties, error))                                                  \
    OBJECT(clCreateCommandQueueWithProperties, cl_command_queue,                                  \
           (cl_context context, cl_device_id device, const cl_queue_properties *properties,       \
            cl_int *error),                                                                       \
           (context, device, properties, error))                                                  \
    OBJECT(clCreateBuffer, cl_mem,                                                                \
           (cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *error),      \
           (context, flags, size, host, error))                                                   \
    OBJECT(clCreateSubBuffer, cl_mem,                                                             \
           (cl_mem mem, cl_mem_flags flags, cl_buffer_create_type type, const void *region,       \
            cl_int *error),                                                                       \
           (mem, flags, type, region, error))                                                     \
    OBJECT(                                                                                       \
        clCreateProgramWithSource, cl_program,                                                    \
        (cl_context context, cl_uint n, const char **text, const size_t *lengths, cl_int *error), \
        (context, n, text, lengths, error))                                                       \
    OBJECT(clCreateProgramWithBinary, cl_program,                                                 \
           (cl_context context, cl_uint n, const cl_device_id *devices, const size_t *lengths,    \
            const unsigned char **binaries, cl_int *status, cl_int *error),                       \
           (context, n, devices, lengths, binaries, status, error))                               \
    OBJECT(clCreateKernel, cl_kernel, (cl_program program, const char *name, cl_int *error),      \
           (program, name, error))                                                                \
    OBJECT(clCreateUserEvent, cl_event, (cl_context context, cl_int * error), (context, error))   \
    REFERENCE(clRetainContext, cl_context, 1)                                                     \
    REFERENCE(clReleaseContext, cl_context, -1)                                                   \
    REFERENCE(clRetainCommandQueue, cl_command_queue, 1)                                          \
    REFERENCE(clReleaseCommandQueue, cl_command_queue, -1)                                        \
    REFERENCE(clRetainMemObject, cl_mem, 1)                                                       \
    REFERENCE(clReleaseMemObject, cl_mem, -1)                                                     \
    REFERENCE(clRetainProgram, cl_program, 1)                                                     \
    REFERENCE(clReleaseProgram, cl_program, -1)                                                   \
    REFERENCE(clRetainKernel, cl_kernel, 1)                                                       \
    REFERENCE(clReleaseKernel, cl_kernel, -1)                                                     \
    REFERENCE(clRetainEvent, cl_event, 1)                                                         \
    REFERENCE(clReleaseEvent, cl_event, -1)
/* Two that fit no pattern: one answer may be changed, and one makes an event and a pointer. */
#define OTHERS(STATUS) STATUS(clGetDeviceInfo, , ) STATUS(clEnqueueMapBuffer, , )

#define STATUS_ENUM(name, params, args) at_##name,
#define OBJECT_ENUM(name, type, params, args) at_##name,
#define REFERENCE_ENUM(name, type, delta) at_##name,
enum function {
    CALLS(STATUS_ENUM, STATUS_ENUM, OBJECT_ENUM, REFERENCE_ENUM) OTHERS(STATUS_ENUM) functions
};

#define STATUS_NAME(name, params, args) #name,
#define OBJECT_NAME(name, type, params, args) #name,
#define REFERENCE_NAME(name, type, delta) #name,
static const char *const function_names[] = { CALLS(STATUS_NAME, STATUS_NAME, OBJECT_NAME,
                                                    REFERENCE_NAME) OTHERS(STATUS_NAME) };

enum type {
    of_cl_context,
    of_cl_command_queue,
    of_cl_mem,
    of_cl_program,
    of_cl_kernel,
    of_cl_event,
    types
};
static const char *const type_names[types] = { "cl_context", "cl_command_queue", "cl_mem",
                                               "cl_program", "cl_kernel",        "cl_event" };

/* Static storage: all zero at the start. */
static atomic_long counts[functions];  /* calls since the reset */
static atomic_long fail_in[functions]; /* n > 0: the nth call from now fails */
static atomic_int fail_code[functions];
static atomic_long live[types];
static struct {
    atomic_uint name; /* 0: a free place */
    atomic_size_t value;
} answers[8];
static atomic_bool active;
static const struct _cl_icd_dispatch *next; /* the loader's own functions, or another layer's */
static struct _cl_icd_dispatch mine;

/* Counts a call and says whether it is the one to fail. Two threads may both step below zero, but
 * only one of them takes it from 1 to 0. */
static bool fails(enum function at, cl_int *code)
{
    atomic_fetch_add(&counts[at], 1);
    if (atomic_load(&fail_in[at]) <= 0 || atomic_fetch_sub(&fail_in[at], 1) != 1)
        return false;
    *code = atomic_load(&fail_code[at]);
    return true;
}

#define STATUS_BODY(name, params, args)                          \
    static cl_int CL_API_CALL name##_watched params              \
    {                                                            \
        cl_int code;                                             \
        return fails(at_##name, &code) ? code : next->name args; \
    }
#define EVENT_BODY(name, params, args)               \
    static cl_int CL_API_CALL name##_watched params  \
    {                                                \
        cl_int code;                                 \
        if (fails(at_##name, &code))                 \
            return code;                             \
        code = next->name args;                      \
        if (code == CL_SUCCESS && event)             \
            atomic_fetch_add(&live[of_cl_event], 1); \
        return code;                                 \
    }
#define OBJECT_BODY(name, type, params, args)      \
    static type CL_API_CALL name##_watched params  \
    {                                              \
        cl_int code;                               \
        if (fails(at_##name, &code)) {             \
            if (error)                             \
                *error = code;                     \
            return NULL;                           \
        }                                          \
        type object = next->name args;             \
        if (object)                                \
            atomic_fetch_add(&live[of_##type], 1); \
        return object;                             \
    }
#define REFERENCE_BODY(name, type, delta)                 \
    static cl_int CL_API_CALL name##_watched(type object) \
    {                                                     \
        cl_int code;                                      \
        if (fails(at_##name, &code))                      \
            return code;                                  \
        code = next->name(object);                        \
        if (code == CL_SUCCESS)                           \
            atomic_fetch_add(&live[of_##type], delta);    \
        return code;                                      \
    }
CALLS(STATUS_BODY, EVENT_BODY, OBJECT_BODY, REFERENCE_BODY)

static void change_answer(cl_device_info name, void *value, size_t size)
{
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        if (atomic_load(&answers[i].name) != name)
            continue;
        cl_ulong wide = atomic_load(&answers[i].value);
        cl_uint narrow = (cl_uint)wide;
        if (size == sizeof wide)
            memcpy(value, &wide, size);
        else if (size == sizeof narrow)
            memcpy(value, &narrow, size);
    }
}

static cl_int CL_API_CALL clGetDeviceInfo_watched(cl_device_id device, cl_device_info name,
                                                  size_t size, void *value, size_t *needed)
{
    cl_int code;
    if (fails(at_clGetDeviceInfo, &code))
        return code;
    size_t written = 0;
    code = next->clGetDeviceInfo(device, name, size, value, &written);
    if (needed)
        *needed = written;
    if (code == CL_SUCCESS && value)
        change_answer(name, value, written);
    return code;
}

static void *CL_API_CALL clEnqueueMapBuffer_watched(cl_command_queue queue, cl_mem mem,
                                                    cl_bool blocking, cl_map_flags flags,
                                                    size_t offset, size_t size, WAITS,
                                                    cl_event *event, cl_int *error)
{
    cl_int code;
    if (fails(at_clEnqueueMapBuffer, &code)) {
        if (error)
            *error = code;
        return NULL;
    }
    void *mapped = next->clEnqueueMapBuffer(queue, mem, blocking, flags, offset, size, num_events,
                                            events, event, error);
    if (mapped && event)
        atomic_fetch_add(&live[of_cl_event], 1);
    return mapped;
}

/* ---------------------------------------------------------------- what the loader looks for -- */

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value,
                                               size_t *needed)
{
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (name != CL_LAYER_API_VERSION || (value && size < sizeof version))
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, &version, sizeof version);
    if (needed)
        *needed = sizeof version;
    return CL_SUCCESS;
}

#define STATUS_SET(name, params, args) mine.name = name##_watched;
#define OBJECT_SET(name, type, params, args) mine.name = name##_watched;
#define REFERENCE_SET(name, type, delta) mine.name = name##_watched;
CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint num_entries,
                                            const struct _cl_icd_dispatch *target,
                                            cl_uint *num_entries_ret,
                                            const struct _cl_icd_dispatch **layer)
{
    /* The loader's table may be older, and shorter, than this header's. */
    const size_t bytes = num_entries * sizeof(void *);
    memcpy(&mine, target, bytes < sizeof mine ? bytes : sizeof mine);
    next = target;
    CALLS(STATUS_SET, STATUS_SET, OBJECT_SET, REFERENCE_SET)
    OTHERS(STATUS_SET)
    *layer = &mine;
    *num_entries_ret = num_entries;
    atomic_store(&active, true);
    return CL_SUCCESS;
}

/* --------------------------------------------------------------------------- for the tests -- */

static size_t find(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            return i;
    }
    fprintf(stderr, "layer: %s is not watched; see CALLS in layer.c\n", name);
    abort();
}

void layer_start(void)
{
    Dl_info here;
    /* By address, since only the dynamic linker knows where this file was found. The loader opens
     * the same file again and gets this very object. */
    if (!dladdr(&mine, &here) || setenv("OPENCL_LAYERS", here.dli_fname, 1)) {
        fprintf(stderr, "layer: cannot set OPENCL_LAYERS\n");
        abort();
    }
}

bool layer_active(void)
{
    return atomic_load(&active);
}

void layer_reset(void)
{
    for (size_t i = 0; i < functions; i++) {
        atomic_store(&counts[i], 0);
        atomic_store(&fail_in[i], 0);
    }
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        atomic_store(&answers[i].name, 0);
}

long layer_count(const char *function)
{
    return atomic_load(&counts[find(function_names, functions, function)]);
}

void layer_fail(const char *function, long nth, cl_int code)
{
    const size_t at = find(function_names, functions, function);
    atomic_store(&fail_code[at], code);
    atomic_store(&fail_in[at], nth);
}

long layer_pending(void)
{
    long pending = 0;
    for (size_t i = 0; i < functions; i++)
        pending += atomic_load(&fail_in[i]) > 0;
    return pending;
}

long layer_live(const char *type)
{
    if (type)
        return atomic_load(&live[find(type_names, types, type)]);
    long all = 0;
    for (size_t i = 0; i < types; i++)
        all += atomic_load(&live[i]);
    return all;
}

void layer_answer(cl_device_info name, size_t value)
{
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const cl_uint there = atomic_load(&answers[i].name);
        if (there != 0 && there != name)
            continue;
        atomic_store(&answers[i].value, value);
        atomic_store(&answers[i].name, name);
        return;
    }
    fprintf(stderr, "layer: too many answers\n");
    abort();
}

const char *layer_function(size_t index)
{
    return index < functions ? function_names[index] : NULL;
}
