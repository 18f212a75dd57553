/* The host of cl/heads.cl: copies between views, which is what splitting and merging heads is. */
#ifndef MHA_HEADS_H
#define MHA_HEADS_H

#include "bound.h"

typedef struct mha_heads_copy {
    size_t shape[4];
    mha_view from; /* strides[3] may be anything: a transposed matrix is one such view */
    mha_view to;
    /* Rows before the batch's start, or from its length on, become 0. NULL or none: no. */
    const mha_bound_lengths *starts;
    mha_key_counts lengths;
} mha_heads_copy;

/* A kernel that copies from one type to another. */
mha_status mha_heads_setup(mha_kernel *kernel, mha_context *context, mha_type from, mha_type to);
mha_status mha_heads_launch(const mha_kernel *kernel, mha_run *run, const char *stage,
                            const mha_heads_copy *copy);

#endif
