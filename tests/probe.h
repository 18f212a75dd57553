/* Kernels that show what a header of cl/ computes, on a device: a text that the build has made of
 * tests/NAME.cl, outside of the library. */
#ifndef MHA_TESTS_PROBE_H
#define MHA_TESTS_PROBE_H

#include "device_memory.h"
#include "kernel.h"

typedef struct probe {
    device d;
    cl_program program;
} probe;

/* Opens the default device and builds the text for it, with `options` behind -cl-std. */
void probe_open(probe *p, const char *name, const char *options);
void probe_close(probe *p);
/* In groups of the driver's choice; then looks at the guards. */
void probe_launch(probe *p, const char *kernel, const mha_arg *args, size_t num_args,
                  const mha_grid *grid);

#endif
