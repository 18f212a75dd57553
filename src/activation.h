/* The host of cl/activation.cl: activation functions of rows. */
#ifndef MHA_ACTIVATION_H
#define MHA_ACTIVATION_H

#include "bind.h"

typedef struct mha_activation_stage {
    mha_kernel rows;
    size_t lanes; /* elements that are computed at once; 1: by work-items side by side */
} mha_activation_stage;

typedef struct mha_activation_rows {
    size_t rows;                  /* of this call */
    mha_view input, gate, output; /* a gate without a buffer: none */
} mha_activation_rows;

/* Writes desc to *out with its defaults put in, or says which rule it breaks. */
mha_status mha_activation_resolve(const mha_context *context, const char *who,
                                  const mha_activation_desc *desc, mha_activation_desc *out);

/* Reads of desc, which is resolved: kind, types and tiling. */
mha_status mha_activation_setup(mha_activation_stage *activation, mha_context *context,
                                const mha_activation_desc *desc);
void mha_activation_release(mha_activation_stage *activation);
mha_status mha_activation_launch(const mha_activation_stage *activation, mha_run *run,
                                 const mha_activation_desc *desc, const mha_activation_rows *rows);

#endif
