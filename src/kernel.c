/* From the text of a kernel to its launch. */
#include "kernel.h"

#include "log.h"
#include "source.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What every kernel is built with, whatever its room adds. */
#define COMMON_OPTIONS "-cl-std=CL1.2 -cl-mad-enable"

static const mha_source *find_source(const char *room)
{
    for (size_t i = 0; i < mha_num_sources; i++)
        if (!strcmp(mha_sources[i].room, room))
            return &mha_sources[i];
    assert(!"every room that is asked for is in cl/meson.build");
    return NULL;
}

static void say_build_log(const mha_log *log, mha_log_level level, cl_program program,
                          cl_device_id device)
{
    size_t size = 0;
    if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) || !size)
        return;
    char *text = calloc(1, size + 1);
    if (text && !clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, text, NULL)) {
        for (size_t end = strlen(text); end && (text[end - 1] == '\n' || text[end - 1] == ' ');
             end--)
            text[end - 1] = '\0';
        if (text[0])
            mha_log_text(log, level, text);
    }
    free(text);
}

/* A program from a binary of the cache; NULL if the driver does not take it. */
static cl_program from_binary(cl_context cl, cl_device_id device, const char *options,
                              const unsigned char *binary, size_t size)
{
    cl_int verdict = CL_SUCCESS, error = CL_SUCCESS;
    cl_program program =
        clCreateProgramWithBinary(cl, 1, &device, &size, &binary, &verdict, &error);
    if (!program)
        return NULL;
    if (!error && !verdict && !clBuildProgram(program, 1, &device, options, NULL, NULL))
        return program;
    clReleaseProgram(program);
    return NULL;
}

/* The binary for one device, for the caller to free: a program has one for each device of its
 * context, and those that are not asked for are not written. */
static unsigned char *get_binary(cl_program program, cl_device_id device, size_t *size)
{
    cl_uint count = 0;
    unsigned char *binary = NULL;
    if (clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof count, &count, NULL) || !count)
        return NULL;
    cl_device_id *devices = calloc(count, sizeof *devices);
    size_t *sizes = calloc(count, sizeof *sizes);
    unsigned char **binaries = calloc(count, sizeof *binaries);
    if (devices && sizes && binaries &&
        !clGetProgramInfo(program, CL_PROGRAM_DEVICES, count * sizeof *devices, devices, NULL) &&
        !clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, count * sizeof *sizes, sizes, NULL)) {
        cl_uint at = 0;
        while (at < count && devices[at] != device)
            at++;
        if (at < count && sizes[at])
            binary = binaries[at] = malloc(sizes[at]);
        if (binary && clGetProgramInfo(program, CL_PROGRAM_BINARIES, count * sizeof *binaries,
                                       binaries, NULL)) {
            free(binary);
            binary = NULL;
        }
        *size = binary ? sizes[at] : 0;
    }
    free(binaries);
    free(sizes);
    free(devices);
    return binary;
}

static void store_binary(const mha_log *log, cl_program program, cl_device_id device,
                         const mha_cache *cache, const mha_cache_key *key, const char *room)
{
    if (!cache->folder)
        return;
    size_t size = 0;
    unsigned char *binary = get_binary(program, device, &size);
    if (binary && !mha_cache_store(cache, key, binary, size))
        mha_log_say(log, MHA_LOG_WARNING,
                    "the compiled program %s cannot be written to %s: it is compiled anew in each "
                    "process",
                    room, cache->folder);
    free(binary);
}

static mha_status from_source(cl_program *out, const mha_log *log, cl_context cl,
                              cl_device_id device, const mha_source *source, const char *options)
{
    cl_int error = CL_SUCCESS;
    cl_program program =
        clCreateProgramWithSource(cl, 1, (const char *[]){ source->text }, &source->length, &error);
    if (!program)
        return mha_log_fail(log, error, "clCreateProgramWithSource of cl/%s.cl failed",
                            source->room);
    error = clBuildProgram(program, 1, &device, options, NULL, NULL);
    if (error) {
        say_build_log(log, MHA_LOG_ERROR, program, device);
        clReleaseProgram(program);
        const int is_text = error == CL_BUILD_PROGRAM_FAILURE;
        return mha_log_fail(log, is_text ? MHA_BUILD_FAILED : error,
                            "cl/%s.cl did not build with \"%s\"", source->room, options);
    }
    say_build_log(log, MHA_LOG_DEBUG, program, device); /* a driver's warnings, if any */
    *out = program;
    return MHA_OK;
}

mha_status mha_program_build(cl_program *out, const mha_log *log, cl_context cl,
                             const mha_device_info *device, const mha_cache *cache,
                             const char *room, const char *options)
{
    *out = NULL;
    const mha_source *source = find_source(room);
    char whole[512];
    const int used =
        snprintf(whole, sizeof whole, COMMON_OPTIONS "%s%s", options[0] ? " " : "", options);
    assert(used > 0 && (size_t)used < sizeof whole);
    (void)used;

    const mha_cache_key key = mha_cache_key_of(device, whole, source->text, source->length);
    size_t size = 0;
    unsigned char *binary = mha_cache_load(cache, &key, &size);
    if (binary)
        *out = from_binary(cl, device->device, whole, binary, size);
    free(binary);
    mha_log_say(log, MHA_LOG_DEBUG, "program %s \"%s\": %s", room, whole,
                *out ? "from the cache" : "compiling");
    if (*out)
        return MHA_OK;

    const mha_status status = from_source(out, log, cl, device->device, source, whole);
    if (!status)
        store_binary(log, *out, device->device, cache, &key, room);
    return status;
}

/* How large the groups of a kernel may be. One that says its size itself is compiled for that, so
 * only the device's limit counts: rusticl of Mesa 22.3 says 32 of every kernel and runs more. */
static mha_status check_group(mha_kernel *kernel, const mha_log *log, cl_device_id device)
{
    size_t needs[3] = { 0 };
    size_t most = 0, device_most = 0;
    cl_int error = clGetKernelWorkGroupInfo(kernel->cl, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                            sizeof needs, needs, NULL);
    if (!error)
        error = clGetKernelWorkGroupInfo(kernel->cl, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most,
                                         &most, NULL);
    if (!error)
        error = clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof device_most,
                                &device_most, NULL);
    if (error)
        return mha_log_fail(log, error, "the work-group sizes of %s cannot be asked for",
                            kernel->name);
    kernel->free_group = most < MHA_FREE_GROUP ? most : MHA_FREE_GROUP;
    const size_t items = needs[0] ? needs[0] * needs[1] * needs[2] : 1;
    if (items > device_most)
        return mha_log_fail(log, MHA_UNSUPPORTED,
                            "the device runs work-groups of at most %zu, and kernel %s needs %zu",
                            device_most, kernel->name, items);
    return MHA_OK;
}

mha_status mha_kernel_create(mha_kernel *out, const mha_log *log, cl_program program,
                             cl_device_id device, const char *name)
{
    cl_int error = CL_SUCCESS;
    *out = (mha_kernel){ .cl = clCreateKernel(program, name, &error), .name = name };
    if (!out->cl)
        return mha_log_fail(log, error, "clCreateKernel of %s failed", name);
    error =
        clGetKernelInfo(out->cl, CL_KERNEL_NUM_ARGS, sizeof out->num_args, &out->num_args, NULL);
    if (error) {
        mha_kernel_release(out);
        return mha_log_fail(log, error, "clGetKernelInfo of %s failed", name);
    }
    const mha_status status = check_group(out, log, device);
    if (status)
        mha_kernel_release(out);
    return status;
}

void mha_kernel_release(mha_kernel *kernel)
{
    if (kernel->cl)
        clReleaseKernel(kernel->cl);
    *kernel = (mha_kernel){ 0 };
}

mha_status mha_kernel_launch(const mha_kernel *kernel, const mha_log *log, cl_command_queue queue,
                             const mha_arg *args, size_t num_args, const mha_grid *grid,
                             cl_event *event)
{
    assert(num_args == kernel->num_args);
    for (size_t i = 0; i < num_args; i++) {
        const cl_int error = clSetKernelArg(kernel->cl, (cl_uint)i, args[i].size, &args[i].as);
        if (error)
            return mha_log_fail(log, error, "clSetKernelArg %zu of %s failed", i, kernel->name);
    }
    const cl_int error =
        clEnqueueNDRangeKernel(queue, kernel->cl, grid->dims, NULL, grid->global,
                               grid->local[0] ? grid->local : NULL, 0, NULL, event);
    if (error)
        return mha_log_fail(log, error, "clEnqueueNDRangeKernel of %s failed", kernel->name);
    return MHA_OK;
}
