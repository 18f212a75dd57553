/* Devices: what they are, and which one a word means. */
#include "device.h"

#include "log.h"
#include "os.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The loader's limits in practice are far below these. */
enum {
    MOST_PLATFORMS = 64,
    MOST_DEVICES = 256
};

static void device_text(cl_device_id device, cl_device_info what, char *text, size_t size)
{
    if (clGetDeviceInfo(device, what, size, text, NULL))
        strcpy(text, "?");
    text[size - 1] = '\0';
}

static void platform_text(cl_platform_id platform, cl_platform_info what, char *text, size_t size)
{
    if (clGetPlatformInfo(platform, what, size, text, NULL))
        strcpy(text, "?");
    text[size - 1] = '\0';
}

static void fill_facts(cl_platform_id platform, cl_device_id device, mha_device_info *info)
{
    *info = (mha_device_info){ .platform = platform, .device = device };
    cl_ulong global = 0, largest = 0, local = 0;
    cl_uint units = 0;
    size_t group = 0;
    /* A driver that cannot answer one of these leaves it 0: the device is listed all the same. The
     * two that others divide by are at least 1. */
    clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof info->type, &info->type, NULL);
    clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof global, &global, NULL);
    clGetDeviceInfo(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof largest, &largest, NULL);
    clGetDeviceInfo(device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
    clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof group, &group, NULL);
    info->global_memory_bytes = global;
    info->max_allocation_bytes = largest;
    info->local_memory_bytes = local;
    info->compute_units = units ? units : 1;
    info->max_work_group_size = group ? (uint32_t)group : 1;
    device_text(device, CL_DEVICE_NAME, info->name, sizeof info->name);
    device_text(device, CL_DEVICE_VENDOR, info->vendor, sizeof info->vendor);
    device_text(device, CL_DEVICE_VERSION, info->device_version, sizeof info->device_version);
    device_text(device, CL_DRIVER_VERSION, info->driver_version, sizeof info->driver_version);
    platform_text(platform, CL_PLATFORM_NAME, info->platform_name, sizeof info->platform_name);
}

static bool is_fast(const mha_device_info *info)
{
    return info->type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR);
}

/* All devices of all platforms into a new array; *count may be 0. The caller holds the lock. */
static mha_status list_locked(const mha_log *log, mha_device_info **out, size_t *count)
{
    *out = NULL;
    *count = 0;
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint num_platforms = 0;
    const cl_int error = clGetPlatformIDs(MOST_PLATFORMS, platforms, &num_platforms);
    if (error == -1001 || (!error && !num_platforms))
        return mha_log_fail(
            log, MHA_NO_PLATFORM,
            "no OpenCL platform found: install a driver (pocl-opencl-icd runs on any "
            "CPU); the loader looks in /etc/OpenCL/vendors, or where OCL_ICD_VENDORS "
            "or OCL_ICD_FILENAMES point");
    if (error)
        return mha_log_fail(log, error, "clGetPlatformIDs failed");

    if (num_platforms > MOST_PLATFORMS)
        num_platforms = MOST_PLATFORMS;
    mha_device_info *infos = calloc(MOST_DEVICES, sizeof *infos);
    if (!infos)
        return mha_log_fail(log, MHA_OUT_OF_HOST_MEMORY, "no host memory to list the devices");
    size_t n = 0;
    size_t chosen = 0;
    for (cl_uint p = 0; p < num_platforms; p++) {
        cl_device_id devices[MOST_DEVICES];
        cl_uint num_devices = 0;
        /* A platform with no device answers CL_DEVICE_NOT_FOUND; a broken one says something else.
         */
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MOST_DEVICES, devices, &num_devices))
            continue;
        for (cl_uint d = 0; d < num_devices && d < MOST_DEVICES && n < MOST_DEVICES; d++, n++) {
            fill_facts(platforms[p], devices[d], &infos[n]);
            infos[n].platform_index = p;
            infos[n].device_index = d;
            if (is_fast(&infos[n]) && !is_fast(&infos[chosen]))
                chosen = n;
        }
    }
    if (n)
        infos[chosen].is_default = 1;
    *out = infos;
    *count = n;
    return MHA_OK;
}

/* PoCL 3.1 starts up in the first call of the process that asks it anything, and two threads in
 * there at once crash it or find no device. */
static mha_mutex first_call_lock = MHA_MUTEX_INIT;

static mha_status list_all(const mha_log *log, mha_device_info **out, size_t *count)
{
    mha_os_lock(&first_call_lock);
    const mha_status status = list_locked(log, out, count);
    mha_os_unlock(&first_call_lock);
    return status;
}

mha_status mha_devices(const mha_log *log, mha_device_info *infos, size_t capacity, size_t *count)
{
    if (!count)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "mha_devices: count is NULL");
    *count = 0;
    if (capacity && !infos)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "mha_devices: infos is NULL");
    mha_device_info *all = NULL;
    size_t found = 0;
    const mha_status status = list_all(log, &all, &found);
    for (size_t i = 0; !status && i < found && i < capacity; i++)
        infos[i] = all[i];
    free(all);
    *count = found;
    return status;
}

mha_status mha_device_facts(const mha_log *log, cl_device_id device, mha_device_info *info)
{
    mha_device_info *all = NULL;
    size_t count = 0;
    const mha_status status = list_all(NULL, &all, &count);
    bool found = false;
    for (size_t i = 0; !status && !found && i < count; i++) {
        found = all[i].device == device;
        if (found)
            *info = all[i];
    }
    free(all);
    if (found)
        return MHA_OK;
    /* A sub-device, or one of a platform that the loader does not list. */
    cl_platform_id platform = NULL;
    const cl_int error =
        clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    if (error)
        return mha_log_fail(log, error, "clGetDeviceInfo of the given device failed");
    fill_facts(platform, device, info);
    info->platform_index = info->device_index = UINT_MAX;
    return MHA_OK;
}

static bool contains(const char *text, const char *part)
{
    const size_t length = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < length && text[i] &&
               tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (i == length)
            return true;
    }
    return false;
}

/* Reads "platform:device"; false if the word is no such pair. */
static bool read_pair(const char *word, unsigned long *platform, unsigned long *device)
{
    char *end = NULL;
    if (!isdigit((unsigned char)word[0]))
        return false;
    *platform = strtoul(word, &end, 10);
    if (*end != ':' || !isdigit((unsigned char)end[1]))
        return false;
    *device = strtoul(end + 1, &end, 10);
    return !*end;
}

static bool is_meant(const mha_device_info *info, const char *name, cl_device_type type)
{
    if (type && !(info->type & type))
        return false;
    if (!name || !name[0])
        return type || info->is_default;
    unsigned long platform = 0, device = 0;
    if (read_pair(name, &platform, &device))
        return info->platform_index == platform && info->device_index == device;
    return contains(info->name, name) || contains(info->platform_name, name) ||
           contains(info->vendor, name);
}

mha_status mha_device_choose(const mha_log *log, const char *name, cl_device_type type,
                             mha_device_info *info)
{
    mha_device_info *all = NULL;
    size_t count = 0;
    const mha_status status = list_all(log, &all, &count);
    if (status)
        return status;
    /* Among several that fit, a GPU or accelerator goes before a CPU here too. */
    const mha_device_info *best = NULL;
    for (size_t i = 0; i < count; i++)
        if (is_meant(&all[i], name, type) && (!best || (is_fast(&all[i]) && !is_fast(best))))
            best = &all[i];
    if (best)
        *info = *best;
    free(all);
    if (best)
        return MHA_OK;
    if (!count)
        return mha_log_fail(log, MHA_NO_DEVICE,
                            "OpenCL is installed but no platform has a device: install a driver "
                            "(pocl-opencl-icd runs on any CPU), or check that you may use the GPU");
    return mha_log_fail(
        log, MHA_NO_DEVICE,
        "no OpenCL device fits %s%s%s%s: list the devices with mha_devices() or "
        "mha-bench --list-devices",
        name && name[0] ? "the name \"" : "", name ? name : "", name && name[0] ? "\"" : "",
        type ? (name && name[0] ? " and the type asked for" : "the type asked for") : "");
}
