/* From a call's arguments to views that kernels may trust: every rule that drivers do not check. */
#ifndef MHA_BIND_H
#define MHA_BIND_H

#include "run.h"

/* A tensor that has passed its checks. A length-1 or broadcast axis has stride 0. */
typedef struct mha_view {
    cl_mem buffer;
    size_t offset; /* elements */
    size_t strides[4];
    /* What it touches: bytes of the memory object at the root, for the overlap rule. */
    cl_mem root;
    size_t first_byte, end_byte; /* equal where it is empty */
} mha_view;

typedef enum mha_access {
    MHA_READS = 1,
    MHA_WRITES = 2,
    MHA_UPDATES = MHA_READS | MHA_WRITES
} mha_access;

/* Checks a tensor of `shape` whose elements have `bytes` each. `name` is that of the argument. */
mha_status mha_bind_tensor(const mha_run *run, mha_view *out, const char *who, const char *name,
                           const mha_tensor *tensor, const size_t shape[4], size_t bytes,
                           mha_access access);

/* Bytes of an element of a resolved type. */
size_t mha_bind_type_bytes(mha_type type);

/* A view of packed float32 memory that is known to be right: a region of the workspace. */
mha_view mha_bind_packed(cl_mem buffer, size_t offset_bytes, const size_t shape[4]);

/* int32 lengths on the device; buffer NULL: none. Where the caller gave host memory it is checked,
 * and copied to the workspace by mha_bind_upload_one once all checks have passed. */
typedef struct mha_bound_lengths {
    cl_mem buffer;
    size_t offset; /* elements */
    const int32_t *host;
    size_t count;
    cl_mem root;
    size_t first_byte, end_byte;
} mha_bound_lengths;

/* An argument and its bit of uses go together. */
mha_status mha_bind_check_pair(const mha_run *run, const char *who, const char *name, bool used,
                               bool given);

/* int32 numbers [count] from 0 to `most`, which host memory must keep to; `most_name` is what the
 * sentence calls it. Given if and only if `used`, unless there are none. */
mha_status mha_bind_lengths(const mha_run *run, mha_bound_lengths *out, const char *who,
                            const char *name, bool used, const mha_lengths *lengths, size_t count,
                            size_t most, const char *most_name);

/* Queues the copy of a host array into the workspace, to offset_bytes. Nothing where the array is
 * the device's. */
mha_status mha_bind_upload_one(mha_run *run, mha_bound_lengths *lengths, const char *stage,
                               size_t offset_bytes);

/* Exactly the same elements: a kernel that has read a row of the one may write the other there. */
bool mha_bind_coincide(const mha_view *a, const mha_view *b);
/* Refuses a view that is written and shares memory with another one, or with the workspace;
 * names[i] says what views[i] is, accesses[i] whether it is written. */
mha_status mha_bind_apart(const mha_run *run, const char *who, const mha_view *const *views,
                          const char *const *names, const mha_access *accesses, size_t count);

#endif
