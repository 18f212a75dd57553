/* The host of cl/attend_cpu.cl: streaming attention, a work-item by itself. */
#ifndef MHA_ATTEND_CPU_H
#define MHA_ATTEND_CPU_H

#include "bound.h"
#include "text.h"

typedef struct mha_attend_cpu_stage {
    mha_kernel rows;
    size_t queries; /* of a work-item */
} mha_attend_cpu_stage;

/* False, with a sentence's end in why_not, where the device's local memory is too small. */
bool mha_attend_cpu_can(const mha_context *context, const mha_attention_desc *desc,
                        mha_text *why_not);
mha_status mha_attend_cpu_setup(mha_attend_cpu_stage *attend, mha_context *context,
                                const mha_attention_desc *desc);
void mha_attend_cpu_release(mha_attend_cpu_stage *attend);
mha_status mha_attend_cpu_launch(const mha_attend_cpu_stage *attend, mha_run *run,
                                 const mha_attention_desc *desc, const mha_bound *bound);

#endif
