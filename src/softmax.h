/* The host of cl/softmax.cl: softcap, bias, exclusion and softmax over rows of scores. */
#ifndef MHA_SOFTMAX_H
#define MHA_SOFTMAX_H

#include "bound.h"

typedef struct mha_softmax_stage {
    mha_kernel rows;
    size_t group; /* work-items a row */
} mha_softmax_stage;

/* Reads of desc: key_len, uses, diagonal, windows, softcap, bias_type and what scores are shown. */
mha_status mha_softmax_setup(mha_softmax_stage *softmax, mha_context *context,
                             const mha_attention_desc *desc);
void mha_softmax_release(mha_softmax_stage *softmax);
/* Packed scores to packed probs, which may be the same; of bound all that rules.h reads, lse and
 * scores. */
mha_status mha_softmax_launch(const mha_softmax_stage *softmax, mha_run *run,
                              const mha_attention_desc *desc, const mha_bound *bound, cl_mem scores,
                              size_t scores_offset, cl_mem probs, size_t probs_offset);

#endif
