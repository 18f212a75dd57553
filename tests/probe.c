#include "probe.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* For the caller to free. */
static char *read_text(const char *name)
{
    enum {
        MOST = 1 << 16
    };
    char path[512];
    snprintf(path, sizeof path, "%s/tests/%s.cl", BUILD_DIR, name);
    char *text = calloc(1, MOST);
    FILE *file = fopen(path, "r");
    cr_assert(text && file, "cannot read %s", path);
    cr_assert_lt(fread(text, 1, MOST, file), MOST, "%s is too long", path);
    fclose(file);
    return text;
}

void probe_open(probe *p, const char *name, const char *options)
{
    device_open(&p->d);
    const cl_device_id id = mha_context_device(p->d.context);
    char *text = read_text(name);
    char all[256];
    snprintf(all, sizeof all, "-cl-std=CL1.2 %s", options);
    cl_int error = CL_SUCCESS;
    p->program = clCreateProgramWithSource(p->d.cl, 1, (const char *[]){ text }, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS);
    error = clBuildProgram(p->program, 1, &id, all, NULL, NULL);
    char log[4096] = "";
    clGetProgramBuildInfo(p->program, id, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
    cr_assert_eq(error, CL_SUCCESS, "%s: %s", mha_status_name(error), log);
    free(text);
}

void probe_close(probe *p)
{
    clReleaseProgram(p->program);
    device_close(&p->d);
}

void probe_launch(probe *p, const char *kernel, const mha_arg *args, size_t num_args,
                  const mha_grid *grid)
{
    const mha_log log = device_log(&p->d);
    cl_int error = CL_SUCCESS;
    mha_kernel made = { .cl = clCreateKernel(p->program, kernel, &error),
                        .name = kernel,
                        .num_args = (cl_uint)num_args };
    cr_assert_eq(error, CL_SUCCESS, "%s: %s", kernel, mha_status_name(error));
    const mha_status status =
        mha_kernel_launch(&made, &log, p->d.queue, args, num_args, grid, NULL);
    cr_assert_eq(status, MHA_OK, "%s: %s", kernel, p->d.sentence);
    device_expect_guards(&p->d, kernel);
    mha_kernel_release(&made);
}
