/* How the tools open, list and describe devices. */
#include "device.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void print_message(void *tool, mha_log_level level, const char *text)
{
    (void)level;
    fprintf(stderr, "%s: %s\n", (const char *)tool, text);
}

mha_context *device_open(const char *word, const char *cache_dir, const mha_log *log)
{
    static const struct {
        const char *word;
        cl_device_type type;
    } types[] = {
        { "cpu", CL_DEVICE_TYPE_CPU },
        { "gpu", CL_DEVICE_TYPE_GPU },
        { "accelerator", CL_DEVICE_TYPE_ACCELERATOR },
    };
    mha_context_options options = { .device_name = word, .cache_dir = cache_dir, .log = *log };
    for (size_t i = 0; word && i < sizeof types / sizeof types[0]; i++) {
        if (!strcmp(word, types[i].word)) {
            options.device_name = NULL;
            options.device_type = types[i].type;
        }
    }
    mha_context *context = NULL;
    mha_context_create(&context, &options);
    return context;
}

void device_print_line(FILE *out, const mha_context *context)
{
    mha_device_info info;
    if (mha_context_info(context, &info))
        return;
    fprintf(out, "device: %s (%s, %s, driver %s)\n", info.name, info.platform_name,
            info.device_version, info.driver_version);
}

static void print_text(FILE *out, cl_device_id device, const char *what, cl_device_info name)
{
    size_t bytes = 0;
    if (clGetDeviceInfo(device, name, 0, NULL, &bytes) || !bytes)
        return;
    char *const text = calloc(bytes + 1, 1);
    if (text && !clGetDeviceInfo(device, name, bytes, text, NULL))
        fprintf(out, "%s: %s\n", what, text);
    free(text);
}

static void print_uint(FILE *out, cl_device_id device, const char *what, cl_device_info name)
{
    cl_uint value = 0;
    if (!clGetDeviceInfo(device, name, sizeof value, &value, NULL))
        fprintf(out, "%s: %u\n", what, value);
}

static const char *type_name(cl_device_type type)
{
    return type & CL_DEVICE_TYPE_GPU           ? "GPU"
           : type & CL_DEVICE_TYPE_ACCELERATOR ? "accelerator"
           : type & CL_DEVICE_TYPE_CPU         ? "CPU"
                                               : "other";
}

void device_print_report(FILE *out, const mha_context *context)
{
    const unsigned version = mha_version();
    fprintf(out, "libmha: %u.%u.%u\n", version >> 16, version >> 8 & 255, version & 255);
    mha_device_info info;
    if (mha_context_info(context, &info))
        return;
    fprintf(out, "platform: %s\n", info.platform_name);
    fprintf(out, "vendor: %s\n", info.vendor);
    fprintf(out, "type: %s\n", type_name(info.type));
    fprintf(out, "compute units: %" PRIu32 "\n", info.compute_units);
    fprintf(out, "largest work-group: %" PRIu32 "\n", info.max_work_group_size);
    fprintf(out, "global memory: %" PRIu64 " bytes\n", info.global_memory_bytes);
    fprintf(out, "largest allocation: %" PRIu64 " bytes\n", info.max_allocation_bytes);
    fprintf(out, "local memory: %" PRIu64 " bytes\n", info.local_memory_bytes);
    const cl_device_id device = mha_context_device(context);
    print_uint(out, device, "address bits", CL_DEVICE_ADDRESS_BITS);
    print_uint(out, device, "base address alignment bits", CL_DEVICE_MEM_BASE_ADDR_ALIGN);
    print_uint(out, device, "preferred float vector", CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT);
    print_text(out, device, "OpenCL C", CL_DEVICE_OPENCL_C_VERSION);
    print_text(out, device, "extensions", CL_DEVICE_EXTENSIONS);
}

static void print_device(FILE *out, const mha_device_info *info)
{
    fprintf(out, "%c %u:%u  %s  (%s, %s, driver %s)\n", info->is_default ? '*' : ' ',
            info->platform_index, info->device_index, info->name, info->platform_name,
            info->device_version, info->driver_version);
}

int device_list(const char *tool, FILE *out)
{
    /* mha_log.data is not const, though print_message only reads the name. */
    const mha_log log = { .fn = print_message,
                          .data = (void *)(uintptr_t)tool,
                          .level = MHA_LOG_WARNING };
    size_t count = 0;
    if (mha_devices(&log, NULL, 0, &count))
        return 1;
    if (!count) {
        fprintf(stderr, "%s: OpenCL is installed, but no platform has a device\n", tool);
        return 1;
    }
    mha_device_info *const infos = calloc(count, sizeof *infos);
    size_t now = 0;
    if (!infos || mha_devices(&log, infos, count, &now)) {
        free(infos);
        return 1;
    }
    for (size_t i = 0; i < count && i < now; i++)
        print_device(out, &infos[i]);
    free(infos);
    return 0;
}
