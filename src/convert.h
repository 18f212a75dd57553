/* The host of cl/convert.cl: rows from one type to another. */
#ifndef MHA_CONVERT_H
#define MHA_CONVERT_H

#include "product.h"

typedef struct mha_convert_stage {
    mha_kernel rows;
    size_t lanes; /* elements a work-item */
} mha_convert_stage;

mha_status mha_convert_setup(mha_convert_stage *convert, mha_context *context, mha_type from,
                             mha_type to);
void mha_convert_release(mha_convert_stage *convert);
/* A matrix [len][width] a batch. */
mha_status mha_convert_launch(const mha_convert_stage *convert, mha_run *run, size_t batch,
                              size_t len, size_t width, const mha_operand *from,
                              const mha_operand *to);

#endif
