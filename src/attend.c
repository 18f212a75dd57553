/* What the streaming kernels and decode share on the host: options and arguments. */
#include "attend.h"

#include <stdio.h>

int mha_attend_options(char *text, size_t size, const mha_attention_desc *desc)
{
    const int used =
        snprintf(text, size,
                 "-DQUERY_TYPE=%d -DKEY_TYPE=%d -DOUTPUT_TYPE=%d -DHEAD_DIM=%zu -DVALUE_DIM=%zu ",
                 (int)desc->type, (int)desc->key_value_type, (int)desc->output_type, desc->head_dim,
                 desc->value_dim);
    return used + mha_rules_options(text + used, size - (size_t)used, desc);
}

void mha_attend_args(mha_arg args[MHA_ATTEND_ARGS], const mha_attention_desc *desc,
                     const mha_bound *bound)
{
    const mha_view *views[] = { &bound->query, &bound->key, &bound->value, &bound->output,
                                &bound->lse };
    size_t n = 0;
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        args[n++] = (mha_arg)MHA_ARG_MEM(views[i]->buffer);
        args[n++] = (mha_arg)MHA_ARG_SIZES(4, views[i]->offset, views[i]->strides[0],
                                           views[i]->strides[1], views[i]->strides[2]);
    }
    args[n++] = (mha_arg)MHA_ARG_INTS(4, (cl_int)desc->batch, (cl_int)desc->heads,
                                      (cl_int)(desc->heads / desc->kv_heads));
    args[n++] = (mha_arg)MHA_ARG_FLOAT(desc->scale);
    mha_rules_args(args + n, desc, bound);
}
