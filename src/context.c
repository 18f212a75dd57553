/* What the device fixes: OpenCL context, facts, programs by their build options. */
#include "context.h"

#include "device.h"
#include "log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct mha_program_memo {
    mha_program_memo *next;
    const char *room;
    char *options;
    cl_program program;
};

static mha_status adopt_cl(mha_context *context, const mha_context_options *options)
{
    cl_uint count = 0;
    cl_int error =
        clGetContextInfo(options->cl, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, NULL);
    cl_device_id *devices = error ? NULL : calloc(count ? count : 1, sizeof *devices);
    if (!error && !devices)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a context");
    if (!error)
        error = clGetContextInfo(options->cl, CL_CONTEXT_DEVICES, count * sizeof *devices, devices,
                                 NULL);
    bool found = false;
    for (cl_uint i = 0; !error && i < count; i++)
        found = found || devices[i] == options->device;
    free(devices);
    if (error)
        return mha_log_fail(&context->log, error,
                            "clGetContextInfo of the given cl_context failed");
    if (!found)
        return mha_log_fail(&context->log, MHA_WRONG_CONTEXT,
                            "mha_context_create: the device is not one of the given cl_context");
    error = clRetainContext(options->cl);
    if (error)
        return mha_log_fail(&context->log, error, "clRetainContext failed");
    context->cl = options->cl;
    error = clRetainDevice(options->device); /* counts for a sub-device only */
    if (error)
        return mha_log_fail(&context->log, error, "clRetainDevice failed");
    context->retained = options->device;
    return mha_device_facts(&context->log, options->device, &context->device);
}

static mha_status make_cl(mha_context *context, const mha_context_options *options)
{
    const mha_status status = mha_device_choose(&context->log, options->device_name,
                                                options->device_type, &context->device);
    if (status)
        return status;
    const cl_context_properties properties[] = { CL_CONTEXT_PLATFORM,
                                                 (cl_context_properties)context->device.platform,
                                                 0 };
    cl_int error = CL_SUCCESS;
    context->cl = clCreateContext(properties, 1, &context->device.device, NULL, NULL, &error);
    if (!context->cl)
        return mha_log_fail(&context->log, error, "clCreateContext on %s failed",
                            context->device.name);
    context->owns_cl = true;
    return MHA_OK;
}

static mha_status make_queue(mha_context *context)
{
    cl_uint bits = 0;
    cl_int error = clGetDeviceInfo(context->device.device, CL_DEVICE_MEM_BASE_ADDR_ALIGN,
                                   sizeof bits, &bits, NULL);
    if (error)
        return mha_log_fail(&context->log, error, "clGetDeviceInfo of %s failed",
                            context->device.name);
    context->alignment = bits / 8 ? bits / 8 : 1;
    cl_uint width = 0; /* where it is not told, 8 are right on any CPU */
    clGetDeviceInfo(context->device.device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof width,
                    &width, NULL);
    context->lanes = width >= 16 ? 16 : 8;
    context->queue = clCreateCommandQueue(context->cl, context->device.device, 0, &error);
    if (!context->queue)
        return mha_log_fail(&context->log, error, "clCreateCommandQueue on %s failed",
                            context->device.name);
    return MHA_OK;
}

static mha_status check_device(const mha_context *context)
{
    cl_bool usable = CL_FALSE;
    if (!clGetDeviceInfo(context->device.device, CL_DEVICE_COMPILER_AVAILABLE, sizeof usable,
                         &usable, NULL) &&
        !usable)
        return mha_log_fail(&context->log, MHA_UNSUPPORTED,
                            "the driver of %s has no OpenCL C compiler, which the kernels need",
                            context->device.name);
    return MHA_OK;
}

mha_status mha_context_create(mha_context **out, const mha_context_options *options)
{
    static const mha_context_options defaults = { 0 };
    options = options ? options : &defaults;
    if (!out)
        return mha_log_fail(&options->log, MHA_INVALID_ARGUMENT, "mha_context_create: out is NULL");
    *out = NULL;
    if (!options->cl != !options->device)
        return mha_log_fail(&options->log, MHA_INVALID_ARGUMENT,
                            "mha_context_create: cl and device go together, only %s is given",
                            options->cl ? "cl" : "device");
    if (options->cl && ((options->device_name && options->device_name[0]) || options->device_type))
        return mha_log_fail(&options->log, MHA_INVALID_ARGUMENT,
                            "mha_context_create: cl and device are given, so device_name and "
                            "device_type must be empty");

    mha_context *context = calloc(1, sizeof *context);
    if (!context)
        return mha_log_fail(&options->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a context");
    context->log = options->log;
    atomic_init(&context->lost, false);
    context->has_lock = mha_os_mutex_init(&context->lock);
    mha_status status = context->has_lock ? MHA_OK
                                          : mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                                                         "no lock for a context");
    if (!status)
        status = options->cl ? adopt_cl(context, options) : make_cl(context, options);
    if (!status)
        status = check_device(context);
    if (!status)
        status = make_queue(context);
    if (!status)
        status = mha_cache_open(&context->cache, &context->log, options->cache_dir);
    if (status) {
        mha_context_destroy(&context);
        return status;
    }
    mha_log_say(&context->log, MHA_LOG_INFO, "device %u:%u: %s (%s, driver %s)",
                context->device.platform_index, context->device.device_index, context->device.name,
                context->device.platform_name, context->device.driver_version);
    *out = context;
    return MHA_OK;
}

void mha_context_destroy(mha_context **context)
{
    mha_context *c = context ? *context : NULL;
    if (!c)
        return;
    *context = NULL;
    while (c->programs) {
        mha_program_memo *memo = c->programs;
        c->programs = memo->next;
        clReleaseProgram(memo->program);
        free(memo->options);
        free(memo);
    }
    if (c->queue)
        clReleaseCommandQueue(c->queue);
    if (c->owns_cl && c->forget)
        c->forget();
    if (c->cl)
        clReleaseContext(c->cl);
    if (c->retained)
        clReleaseDevice(c->retained);
    mha_cache_close(&c->cache);
    if (c->has_lock)
        mha_os_mutex_release(&c->lock);
    free(c);
}

cl_context mha_context_cl(const mha_context *context)
{
    return context ? context->cl : NULL;
}

cl_device_id mha_context_device(const mha_context *context)
{
    return context ? context->device.device : NULL;
}

mha_status mha_context_info(const mha_context *context, mha_device_info *info)
{
    if (!context || !info)
        return mha_log_fail(context ? &context->log : NULL, MHA_INVALID_ARGUMENT,
                            "mha_context_info: %s is NULL", context ? "info" : "context");
    *info = context->device;
    return MHA_OK;
}

/* The program of a room and options, built or remembered. The caller holds the lock. */
static mha_status find_program(mha_context *context, const char *room, const char *options,
                               cl_program *out)
{
    for (const mha_program_memo *memo = context->programs; memo; memo = memo->next)
        if (!strcmp(memo->room, room) && !strcmp(memo->options, options)) {
            *out = memo->program;
            return MHA_OK;
        }
    mha_program_memo *memo = calloc(1, sizeof *memo);
    char *copy = malloc(strlen(options) + 1);
    mha_status status = memo && copy ? MHA_OK
                                     : mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                                                    "no host memory for a program");
    if (!status)
        status = mha_program_build(&memo->program, &context->log, context->cl, &context->device,
                                   &context->cache, room, options);
    if (status) {
        free(copy);
        free(memo);
        return status;
    }
    memo->room = room;
    memo->options = strcpy(copy, options);
    memo->next = context->programs;
    context->programs = memo;
    *out = memo->program;
    return MHA_OK;
}

mha_status mha_context_kernel(mha_context *context, mha_kernel *out, const char *room,
                              const char *options, const char *name)
{
    assert(!strncmp(name, room, strlen(room)) && name[strlen(room)] == '_');
    cl_program program = NULL;
    mha_os_lock(&context->lock);
    mha_status status = find_program(context, room, options, &program);
    if (!status)
        status = mha_kernel_create(out, &context->log, program, context->device.device, name);
    mha_os_unlock(&context->lock);
    return mha_context_note(context, status);
}

mha_status mha_context_note(mha_context *context, mha_status status)
{
    if (status == CL_DEVICE_NOT_AVAILABLE)
        atomic_store(&context->lost, true);
    return status;
}

mha_status mha_context_begin_create(mha_context *context, const char *who, const void *desc,
                                    bool has_out)
{
    if (!context)
        return MHA_INVALID_ARGUMENT; /* and nobody to tell */
    if (!has_out || !desc)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: %s is NULL", who,
                            has_out ? "desc" : "out");
    return mha_context_check(context, who);
}

mha_status mha_context_check(const mha_context *context, const char *who)
{
    /* A cast, because C11's atomic_load takes no const object. */
    if (!atomic_load((atomic_bool *)(uintptr_t)&context->lost))
        return MHA_OK;
    return mha_log_fail(&context->log, MHA_DEVICE_LOST,
                        "%s: the device %s was lost in an earlier call: destroy what was made on "
                        "this context and make a new one",
                        who, context->device.name);
}
