/* What the streaming kernels and decode share on the host: options and arguments. */
#include "attend.h"

#include <stdio.h>
#include <string.h>

int mha_attend_options(char *text, size_t size, const mha_attention_desc *desc)
{
    const int used =
        snprintf(text, size,
                 "-DQUERY_TYPE=%d -DKEY_TYPE=%d -DOUTPUT_TYPE=%d -DHEAD_DIM=%zu -DVALUE_DIM=%zu ",
                 (int)desc->type, (int)desc->key_value_type, (int)desc->output_type, desc->head_dim,
                 desc->value_dim);
    return used + mha_rules_options(text + used, size - (size_t)used, desc);
}

size_t mha_attend_args(mha_arg args[MHA_ATTEND_ARGS], const mha_attention_desc *desc,
                       const mha_bound *bound)
{
    const mha_view *q = &bound->query, *k = &bound->key, *v = &bound->value, *o = &bound->output;
    const mha_view *lse = &bound->lse;
    const mha_arg list[] = {
        MHA_ARG_MEM(q->buffer),
        MHA_ARG_MEM(k->buffer),
        MHA_ARG_MEM(v->buffer),
        MHA_ARG_MEM(o->buffer),
        MHA_ARG_SIZES(16, q->offset, q->strides[0], q->strides[1], q->strides[2], k->offset,
                      k->strides[0], k->strides[1], k->strides[2], v->offset, v->strides[0],
                      v->strides[1], v->strides[2], o->offset, o->strides[0], o->strides[1],
                      o->strides[2]),
        MHA_ARG_MEM(lse->buffer),
        MHA_ARG_SIZES(4, lse->offset, lse->strides[0], lse->strides[1], lse->strides[2]),
        MHA_ARG_INTS(4, (cl_int)desc->batch, (cl_int)desc->heads,
                     (cl_int)(desc->heads / desc->kv_heads)),
        MHA_ARG_FLOAT(desc->scale),
    };
    _Static_assert(sizeof list == (MHA_ATTEND_ARGS - MHA_RULES_ARGS) * sizeof *list,
                   "callers make room for them all");
    memcpy(args, list, sizeof list);
    const size_t n = sizeof list / sizeof *list;
    return n + mha_rules_args(args + n, desc, bound);
}
