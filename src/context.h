/* What the device fixes: OpenCL context, facts, programs by their build options. */
#ifndef MHA_CONTEXT_H
#define MHA_CONTEXT_H

#include "cache.h"
#include "kernel.h"
#include "mha.h"
#include "os.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct mha_program_memo mha_program_memo;

struct mha_context {
    mha_log log;
    mha_device_info device;
    cl_context cl;
    cl_device_id retained;  /* the caller's device, or NULL */
    bool owns_cl;           /* the library made it */
    size_t alignment;       /* of a sub-buffer's origin, in bytes */
    size_t lanes;           /* floats in a vector of the kernels for CPUs, 8 or 16 */
    cl_command_queue queue; /* in-order; for work at create, under the lock, never in an enqueue */
    mha_cache cache;        /* read-only after create */
    atomic_bool lost;       /* the device is gone: every later call says so */
    mha_mutex lock;         /* guards all below */
    bool has_lock;
    mha_program_memo *programs;
    unsigned warm;              /* bits that a stage sets once it has warmed up what it uses */
    mha_status (*forget)(void); /* set by the stage whose memory outlives the context: makes it let
                                 * go of a cl_context that nobody else knows */
};

/* A kernel of its own for the caller, from the program of a room and options, built once a context.
 */
mha_status mha_context_kernel(mha_context *context, mha_kernel *out, const char *room,
                              const char *options, const char *name);

/* Notes a status that an OpenCL call gave, and returns it: a lost device poisons the context. */
mha_status mha_context_note(mha_context *context, mha_status status);

/* What every create of an object begins with, after *out = NULL: context, desc and out are given,
 * and the device is there. `who` is the public function. */
mha_status mha_context_begin_create(mha_context *context, const char *who, const void *desc,
                                    bool has_out);
/* MHA_DEVICE_LOST, said for `who`, if the device is lost. */
mha_status mha_context_check(const mha_context *context, const char *who);

#endif
