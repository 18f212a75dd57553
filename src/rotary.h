/* The host of cl/rotary.cl: rotary position embedding of rows between views. */
#ifndef MHA_ROTARY_H
#define MHA_ROTARY_H

#include "bound.h"

typedef struct mha_rotary_rows {
    size_t len; /* of this call */
    mha_view from, to, cos, sin;
    /* NULL or without a buffer: none. At most one of them. */
    const mha_bound_lengths *ids, *starts;
} mha_rotary_rows;

/* Reads of desc, which is resolved: rotary_dim, pairs and types. */
mha_status mha_rotary_setup(mha_kernel *kernel, mha_context *context, const mha_rotary_desc *desc);
mha_status mha_rotary_launch(const mha_kernel *kernel, mha_run *run, const mha_rotary_desc *desc,
                             const mha_rotary_rows *rows);

#endif
