/* Does one planted fault, so that tools/sanitize can prove that it would notice a real one:
 * planted KERNEL PLANTED.CL      launches planted_KERNEL (clean, race, overrun)
 * planted heap|leak|undefined|threads    does that on the host */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS 8

/* Volatile, so that the compiler neither sees the fault nor removes it. */
static volatile size_t items = ITEMS;
static void *volatile kept;

static int counted;

static void *count_without_lock(void *data)
{
    for (size_t i = 0; i < items; i++)
        counted++;
    return data;
}

static void count_in_two_threads(void)
{
    pthread_t other;
    const int failed = pthread_create(&other, NULL, count_without_lock, NULL);
    count_without_lock(NULL);
    if (!failed)
        pthread_join(other, NULL);
}

static int do_host_fault(const char *fault)
{
    if (strcmp(fault, "heap") == 0) {
        char *bytes = malloc(items);
        if (bytes)
            *(volatile char *)(bytes + items) = 1;
        free(bytes);
    } else if (strcmp(fault, "leak") == 0) {
        kept = malloc(items);
        kept = NULL;
    } else if (strcmp(fault, "undefined") == 0) {
        volatile int most = INT32_MAX;
        most = most + (int)items;
    } else if (strcmp(fault, "threads") == 0) {
        count_in_two_threads();
    } else {
        fprintf(stderr, "usage: planted KERNEL PLANTED.CL | heap | leak | undefined | threads\n");
        return 2;
    }
    return 0;
}

static void need(cl_int code, const char *step)
{
    if (code == CL_SUCCESS)
        return;
    fprintf(stderr, "planted: %s: OpenCL status %d\n", step, code);
    exit(2);
}

static char *read_file(const char *path)
{
    static char text[8192];
    FILE *file = fopen(path, "r");
    const size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[length] = 0;
    if (file)
        fclose(file);
    return text;
}

/* One work-group of ITEMS on the first device of the first platform that has one. */
static cl_context make_context(cl_device_id *device)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    need(clGetPlatformIDs(16, platforms, &count), "clGetPlatformIDs");
    cl_int code = CL_DEVICE_NOT_FOUND;
    for (cl_uint i = 0; i < count && i < 16 && code != CL_SUCCESS; i++)
        code = clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, device, NULL);
    need(code, "clGetDeviceIDs");
    cl_context context = clCreateContext(NULL, 1, device, NULL, NULL, &code);
    need(code, "clCreateContext");
    return context;
}

static void launch(const char *fault, const char *path)
{
    cl_int code = CL_SUCCESS;
    cl_device_id device = NULL;
    cl_context context = make_context(&device);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    need(code, "clCreateCommandQueue");
    cl_mem out = clCreateBuffer(context, CL_MEM_READ_WRITE, ITEMS * sizeof(cl_int), NULL, &code);
    need(code, "clCreateBuffer");
    const char *text = read_file(path);
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
    need(code, "clCreateProgramWithSource");
    need(clBuildProgram(program, 1, &device, "-cl-std=CL1.2", NULL, NULL), "clBuildProgram");
    char name[64];
    snprintf(name, sizeof name, "planted_%s", fault);
    cl_kernel kernel = clCreateKernel(program, name, &code);
    need(code, name);
    need(clSetKernelArg(kernel, 0, sizeof out, &out), "clSetKernelArg 0");
    need(clSetKernelArg(kernel, 1, ITEMS * sizeof(cl_int), NULL), "clSetKernelArg 1");
    const size_t size = ITEMS;
    need(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &size, &size, 0, NULL, NULL), name);
    need(clFinish(queue), "clFinish");
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseMemObject(out);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return do_host_fault(argc == 2 ? argv[1] : "");
    launch(argv[1], argv[2]);
    return 0;
}
