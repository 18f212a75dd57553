/* What the streaming kernels and decode share on the host: options and arguments. */
#ifndef MHA_ATTEND_H
#define MHA_ATTEND_H

#include "rules.h"

/* "-DQUERY_TYPE=1 ... -DHEAD_DIM=64 -DVALUE_DIM=64 " and the rules'; returns the length. */
int mha_attend_options(char *text, size_t size, const mha_attention_desc *desc);

enum {
    MHA_ATTEND_ARGS = 9 + MHA_RULES_ARGS /* at the most */
};
/* All arguments of a streaming kernel, as cl/attend.h has them; returns how many. */
size_t mha_attend_args(mha_arg args[MHA_ATTEND_ARGS], const mha_attention_desc *desc,
                       const mha_bound *bound);

#endif
