/* The host of cl/activation.cl: activation functions of rows. */
#ifndef MHA_ACTIVATION_H
#define MHA_ACTIVATION_H

#include "bind.h"

typedef struct mha_activation_stage {
    mha_kernel rows;
    size_t lanes; /* elements a work-item */
} mha_activation_stage;

typedef struct mha_activation_rows {
    size_t rows;                  /* of this call */
    mha_view input, gate, output; /* a gate without a buffer: none */
} mha_activation_rows;

/* Reads of desc, which is resolved: kind, types and tiling. */
mha_status mha_activation_setup(mha_activation_stage *activation, mha_context *context,
                                const mha_activation_desc *desc);
void mha_activation_release(mha_activation_stage *activation);
mha_status mha_activation_launch(const mha_activation_stage *activation, mha_run *run,
                                 const mha_activation_desc *desc, const mha_activation_rows *rows);

#endif
