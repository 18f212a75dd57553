/* Attention as the rooms above it see it: a checked description on a chosen path. */
#ifndef MHA_ATTENTION_H
#define MHA_ATTENTION_H

#include "path.h"

/* mha_attention_create for `who`, whose sentences it says; context and desc are there. */
mha_status mha_attention_make(mha_attention **out, mha_context *context,
                              const mha_attention_desc *desc, const char *who);

/* The resolved description. */
const mha_attention_desc *mha_attention_shape(const mha_attention *attention);
mha_context *mha_attention_context(const mha_attention *attention);
mha_needs mha_attention_needs(const mha_attention *attention);
/* Attends within a run that has begun, from views that have passed their checks; `region` is that
 * of mha_attention_needs in the run's workspace, in bytes. */
mha_status mha_attention_forward(mha_attention *attention, mha_run *run, mha_bound *bound,
                                 size_t region);
/* mha_attention_enqueue for `who`, whose sentences it says. */
mha_status mha_attention_enqueue_as(mha_attention *attention, const mha_attention_args *args,
                                    const mha_call *call, const char *who);

#endif
