/* The host of cl/scores.cl: scale * query key^T from any strides, where CLBlast is not used. */
#ifndef MHA_SCORES_H
#define MHA_SCORES_H

#include "bound.h"

mha_status mha_scores_setup(mha_kernel *kernel, mha_context *context);
/* Writes packed scores at an offset, in elements, of a buffer. */
mha_status mha_scores_launch(const mha_kernel *kernel, mha_run *run, const mha_attention_desc *desc,
                             const mha_bound *bound, cl_mem scores, size_t scores_offset);

#endif
