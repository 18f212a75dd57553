/* From the text of a kernel to its launch. Knows OpenCL and the cache; nothing of attention. */
#ifndef MHA_KERNEL_H
#define MHA_KERNEL_H

#include "cache.h"
#include "mha.h"

/* Builds the program of a room (see source.h) for one device. A failed build says the device's
 * build log, in which lines are those of the files in cl/. */
mha_status mha_program_build(cl_program *out, const mha_log *log, cl_context cl,
                             const mha_device_info *device, const mha_cache *cache,
                             const char *room, const char *options);

/* The most work-items in a group of a kernel that does not say its own size. */
#define MHA_FREE_GROUP 64

typedef struct mha_kernel {
    cl_kernel cl;
    const char *name; /* a static string */
    cl_uint num_args;
    size_t free_group; /* of such a kernel: MHA_FREE_GROUP, or less where the device takes less */
} mha_kernel;

/* MHA_UNSUPPORTED where the device cannot run groups as large as the kernel needs. */
mha_status mha_kernel_create(mha_kernel *out, const mha_log *log, cl_program program,
                             cl_device_id device, const char *name);
void mha_kernel_release(mha_kernel *kernel);

/* One argument of a kernel. A launch lists all of them, in the kernel's order. */
typedef struct mha_arg {
    size_t size;
    union {
        cl_mem mem;
        cl_int integer;
        cl_uint natural;
        cl_ulong size;
        cl_float real;
        cl_int integers[8]; /* a vector */
        cl_uint naturals[4];
        cl_ulong sizes[16];
        cl_float reals[2];
    } as;
} mha_arg;

/* clang-format off */
#define MHA_ARG_MEM(x)   { .size = sizeof(cl_mem),   .as.mem = (x) }
#define MHA_ARG_INT(x)   { .size = sizeof(cl_int),   .as.integer = (cl_int)(x) }
#define MHA_ARG_UINT(x)  { .size = sizeof(cl_uint),  .as.natural = (cl_uint)(x) }
#define MHA_ARG_SIZE(x)  { .size = sizeof(cl_ulong), .as.size = (cl_ulong)(x) }
#define MHA_ARG_FLOAT(x) { .size = sizeof(cl_float), .as.real = (x) }
/* Vectors of n, a multiple of 2; what is not listed is 0. */
#define MHA_ARG_INTS(n, ...)   { .size = (n) * sizeof(cl_int),   .as.integers = { __VA_ARGS__ } }
#define MHA_ARG_UINTS(n, ...)  { .size = (n) * sizeof(cl_uint),  .as.naturals = { __VA_ARGS__ } }
#define MHA_ARG_SIZES(n, ...)  { .size = (n) * sizeof(cl_ulong), .as.sizes = { __VA_ARGS__ } }
#define MHA_ARG_FLOATS(n, ...) { .size = (n) * sizeof(cl_float), .as.reals = { __VA_ARGS__ } }
/* clang-format on */

typedef struct mha_grid {
    cl_uint dims;
    size_t global[3]; /* a multiple of local where that is given */
    size_t local[3];  /* local[0] 0: the driver chooses */
} mha_grid;

/* `event` may be NULL. */
mha_status mha_kernel_launch(const mha_kernel *kernel, const mha_log *log, cl_command_queue queue,
                             const mha_arg *args, size_t num_args, const mha_grid *grid,
                             cl_event *event);

#endif
