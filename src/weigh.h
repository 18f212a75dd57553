/* The host of cl/weigh.cl: probs value, where a key that one query sees and another does not may
 * hold anything, or where CLBlast is not used. */
#ifndef MHA_WEIGH_H
#define MHA_WEIGH_H

#include "bound.h"

mha_status mha_weigh_setup(mha_kernel *kernel, mha_context *context);
/* Reads packed probs at an offset, in elements, of a buffer. */
mha_status mha_weigh_launch(const mha_kernel *kernel, mha_run *run, const mha_attention_desc *desc,
                            const mha_bound *bound, cl_mem probs, size_t probs_offset);

#endif
