/* An OpenCL layer that makes a small device of any: 32 KiB of local memory and work-groups of 256.
 * It says so in clGetDeviceInfo, and it means it: a launch that needs more fails. SMALL_DEVICE=gpu
 * also calls it a GPU; SMALL_DEVICE=silent lets the device say its true limits, and still fails
 * launches; SMALL_DEVICE=whole leaves it its limits. SMALL_DEVICE_VENDOR is what it says of its
 * vendor, SMALL_DEVICE_WIDTH how many floats its registers hold. With SMALL_DEVICE_PROGRAMS, a
 * folder, it writes the text and the options of each program there, as 1.cl and 1.options and so
 * on, and no kernel runs. Use: OPENCL_LAYERS=libmha-small-device.so PROGRAM. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOCAL_BYTES = 32768,
    GROUP = 256
};

static const struct _cl_icd_dispatch *next;
static struct _cl_icd_dispatch mine;

static int mode_is(const char *mode)
{
    const char *given = getenv("SMALL_DEVICE");
    return given && !strcmp(given, mode);
}

/* clGetDeviceInfo of a text. */
static cl_int give_text(const char *text, size_t size, void *value, size_t *needed)
{
    const size_t length = strlen(text) + 1;
    if (needed)
        *needed = length;
    if (value && size < length)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, text, length);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info name, size_t size,
                                          void *value, size_t *needed)
{
    const char *vendor = getenv("SMALL_DEVICE_VENDOR");
    if (name == CL_DEVICE_VENDOR && vendor)
        return give_text(vendor, size, value, needed);
    const cl_int error = next->clGetDeviceInfo(device, name, size, value, needed);
    const char *width = getenv("SMALL_DEVICE_WIDTH");
    if (!error && value && width && name == CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT)
        memcpy(value, &(cl_uint){ (cl_uint)atoi(width) }, sizeof(cl_uint));
    if (error || !value || mode_is("silent") || mode_is("whole"))
        return error;
    if (name == CL_DEVICE_LOCAL_MEM_SIZE)
        memcpy(value, &(cl_ulong){ LOCAL_BYTES }, sizeof(cl_ulong));
    if (name == CL_DEVICE_MAX_WORK_GROUP_SIZE)
        memcpy(value, &(size_t){ GROUP }, sizeof(size_t));
    if (name == CL_DEVICE_MAX_WORK_ITEM_SIZES && size >= 3 * sizeof(size_t))
        memcpy(value, (size_t[3]){ GROUP, GROUP, GROUP }, 3 * sizeof(size_t));
    if (name == CL_DEVICE_TYPE && mode_is("gpu"))
        memcpy(value, &(cl_device_type){ CL_DEVICE_TYPE_GPU }, sizeof(cl_device_type));
    return error;
}

/* Writes PROGRAMS/NUMBER.SUFFIX. */
static void keep(const char *folder, unsigned number, const char *suffix, const char *text,
                 size_t length)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%u.%s", folder, number, suffix);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(text, 1, length, file) != length)
        fprintf(stderr, "small device: cannot write %s\n", path);
    if (file)
        fclose(file);
}

static cl_int CL_API_CALL build_program(cl_program program, cl_uint num_devices,
                                        const cl_device_id *devices, const char *options,
                                        void(CL_CALLBACK *notify)(cl_program, void *), void *data)
{
    static unsigned number; /* of the programs of the process, which has one thread */
    const char *folder = getenv("SMALL_DEVICE_PROGRAMS");
    char *text = NULL;
    size_t size = 0;
    if (folder && !next->clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &size) && size > 1)
        text = malloc(size);
    if (text && !next->clGetProgramInfo(program, CL_PROGRAM_SOURCE, size, text, NULL)) {
        number++;
        keep(folder, number, "cl", text, size - 1);
        keep(folder, number, "options", options ? options : "", options ? strlen(options) : 0);
    }
    free(text);
    return next->clBuildProgram(program, num_devices, devices, options, notify, data);
}

/* No binaries either: a driver may compile all kernels for them. */
static cl_int CL_API_CALL get_program_info(cl_program program, cl_program_info name, size_t size,
                                           void *value, size_t *needed)
{
    if (name == CL_PROGRAM_BINARY_SIZES && getenv("SMALL_DEVICE_PROGRAMS"))
        return CL_INVALID_OPERATION;
    return next->clGetProgramInfo(program, name, size, value, needed);
}

static cl_ulong local_bytes_of(cl_kernel kernel, cl_command_queue queue)
{
    cl_device_id device = NULL;
    cl_ulong bytes = 0;
    if (next->clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL) ||
        next->clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes,
                                       &bytes, NULL))
        return 0;
    return bytes;
}

static cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
                                         const size_t *offset, const size_t *global,
                                         const size_t *local, cl_uint num_waits,
                                         const cl_event *waits, cl_event *event)
{
    size_t items = 1;
    if (getenv("SMALL_DEVICE_PROGRAMS"))
        return CL_INVALID_OPERATION;
    for (cl_uint i = 0; local && i < dims; i++)
        items *= local[i];
    if (!mode_is("whole") && items > GROUP) {
        fprintf(stderr, "small device: a work-group of %zu\n", items);
        return CL_INVALID_WORK_GROUP_SIZE;
    }
    const cl_ulong bytes = local_bytes_of(kernel, queue);
    if (!mode_is("whole") && bytes > LOCAL_BYTES) {
        fprintf(stderr, "small device: %llu bytes of local memory\n", (unsigned long long)bytes);
        return CL_OUT_OF_RESOURCES;
    }
    return next->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, num_waits,
                                        waits, event);
}

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

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint num_entries,
                                            const struct _cl_icd_dispatch *target,
                                            cl_uint *num_entries_ret,
                                            const struct _cl_icd_dispatch **layer)
{
    /* The loader's table may be older, and shorter, than this header's. */
    const size_t bytes = num_entries * sizeof(void *);
    memcpy(&mine, target, bytes < sizeof mine ? bytes : sizeof mine);
    next = target;
    mine.clGetDeviceInfo = get_device_info;
    mine.clBuildProgram = build_program;
    mine.clGetProgramInfo = get_program_info;
    mine.clEnqueueNDRangeKernel = enqueue_kernel;
    *layer = &mine;
    *num_entries_ret = num_entries;
    return CL_SUCCESS;
}
