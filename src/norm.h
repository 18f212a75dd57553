/* The host of cl/norm.cl: layer norm and RMS norm of rows. */
#ifndef MHA_NORM_H
#define MHA_NORM_H

#include "bind.h"

typedef struct mha_norm_stage {
    mha_kernel rows;
    size_t group;       /* work-items a row */
    size_t most_groups; /* that a launch has */
} mha_norm_stage;

/* What is not used has no buffer. */
typedef struct mha_norm_rows {
    size_t rows; /* of this call */
    mha_view input, residual, input_bias, weight, bias, output, sum, mean, inv_std;
} mha_norm_rows;

/* Writes desc to *out with its defaults put in, or says which rule it breaks. */
mha_status mha_norm_resolve(const mha_context *context, const char *who, const mha_norm_desc *desc,
                            mha_norm_desc *out);

/* Reads of desc, which is resolved: width, kind, uses, types and tiling. */
mha_status mha_norm_setup(mha_norm_stage *norm, mha_context *context, const mha_norm_desc *desc);
void mha_norm_release(mha_norm_stage *norm);
mha_status mha_norm_launch(const mha_norm_stage *norm, mha_run *run, const mha_norm_desc *desc,
                           const mha_norm_rows *rows);

#endif
