/* The host of cl/attend_gpu.cl: attention in one pass over the keys, a work-group at a time. */
#ifndef MHA_ATTEND_GPU_H
#define MHA_ATTEND_GPU_H

#include "bound.h"
#include "text.h"

/* False, with a sentence's end in why_not, where the device's work-groups or local memory are too
 * small. */
bool mha_attend_gpu_can(const mha_context *context, mha_text *why_not);
typedef struct mha_attend_gpu_stage {
    mha_kernel tile;
    size_t lanes; /* how wide its work-groups are */
    size_t group; /* work-items of one */
} mha_attend_gpu_stage;

mha_status mha_attend_gpu_setup(mha_attend_gpu_stage *attend, mha_context *context,
                                const mha_attention_desc *desc);
void mha_attend_gpu_release(mha_attend_gpu_stage *attend);
/* Whether the output may be exactly the query's memory: not where several work-groups read the same
 * queries, each for a part of the value dims. */
bool mha_attend_gpu_may_overwrite(const mha_attend_gpu_stage *attend,
                                  const mha_attention_desc *desc);
/* Writes output, and lse where it is bound. query_len is at least 1. */
mha_status mha_attend_gpu_launch(const mha_attend_gpu_stage *attend, mha_run *run,
                                 const mha_attention_desc *desc, const mha_bound *bound);

#endif
