/* The host of cl/rules.h: its build options and arguments, the same in every kernel that includes
 * it. */
#include "rules.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int mha_rules_options(char *text, size_t size, const mha_attention_desc *desc)
{
    const uint64_t uses = desc->uses;
    return snprintf(text, size,
                    "-DBIAS_TYPE=%d -DUSES_BIAS=%d -DUSES_MASK=%d -DUSES_SOFTCAP=%d "
                    "-DUSES_ALIBI=%d -DUSES_CAUSAL=%d -DUSES_WINDOW_LEFT=%d "
                    "-DUSES_WINDOW_RIGHT=%d -DDIAGONAL=%d -DUSES_RING=%d -DUSES_DROPOUT=%d",
                    (int)desc->bias_type, !!(uses & MHA_USES_BIAS), !!(uses & MHA_USES_MASK),
                    desc->softcap != 0, !!(uses & MHA_USES_ALIBI), !!(uses & MHA_USES_CAUSAL),
                    !!(uses & MHA_USES_WINDOW_LEFT), !!(uses & MHA_USES_WINDOW_RIGHT),
                    (int)desc->diagonal, !!(uses & MHA_USES_RING), !!(uses & MHA_USES_DROPOUT));
}

/* A window wider than any row is no limit. */
static size_t clamp_window(size_t window)
{
    return window < INT_MAX ? window : INT_MAX;
}

/* A word below it drops: dropout_p * 2^32 to the nearest. */
static uint32_t dropout_threshold(const mha_attention_desc *desc)
{
    return (uint32_t)fmin(round((double)desc->dropout_p * 4294967296.0), UINT32_MAX);
}

/* A buffer, its offset and its strides. */
static size_t view_args(mha_arg args[2], const mha_view *view)
{
    args[0] = (mha_arg)MHA_ARG_MEM(view->buffer);
    args[1] = (mha_arg)MHA_ARG_SIZES(8, view->offset, view->strides[0], view->strides[1],
                                     view->strides[2], view->strides[3]);
    return 2;
}

/* What only some builds of a kernel are given. */
static size_t optional_args(mha_arg *args, const mha_attention_desc *desc, const mha_bound *bound)
{
    size_t n = 0;
    if (desc->uses & MHA_USES_BIAS)
        n += view_args(args + n, &bound->bias);
    if (desc->uses & MHA_USES_MASK)
        n += view_args(args + n, &bound->mask);
    if (desc->uses & MHA_USES_ALIBI)
        args[n++] = (mha_arg)MHA_ARG_MEM(bound->slopes.buffer);
    if (desc->uses & MHA_USES_DROPOUT)
        args[n++] =
            (mha_arg)MHA_ARG_UINTS(4, dropout_threshold(desc), (cl_uint)bound->dropout_seed,
                                   (cl_uint)(bound->dropout_seed >> 32), bound->dropout_offset);
    return n;
}

size_t mha_rules_args(mha_arg args[MHA_RULES_ARGS], const mha_attention_desc *desc,
                      const mha_bound *bound)
{
    enum {
        OPTIONAL = 6
    };
    const mha_key_counts counts = mha_bound_key_counts(desc, bound);
    const mha_arg list[] = {
        MHA_ARG_MEM(counts.buffer),
        MHA_ARG_MEM(bound->key_starts.buffer),
        MHA_ARG_MEM(bound->per_query.buffer),
        MHA_ARG_MEM(bound->sinks.buffer),
        MHA_ARG_MEM(bound->query_offsets.buffer),
        MHA_ARG_MEM(bound->key_offsets.buffer),
        MHA_ARG_SIZES(8, counts.offset, bound->key_starts.offset, bound->per_query.offset,
                      bound->slopes.offset, bound->slopes.strides[0], bound->sinks.offset,
                      bound->query_offsets.offset, bound->key_offsets.offset),
        MHA_ARG_INTS(8, (cl_int)counts.more, (cl_int)bound->query_total, (cl_int)bound->key_total,
                     (cl_int)bound->query_len, (cl_int)bound->key_len,
                     (cl_int)clamp_window(desc->window_left),
                     (cl_int)clamp_window(desc->window_right)),
        MHA_ARG_FLOATS(2, desc->softcap, (cl_float)(1 / (1 - (double)desc->dropout_p))),
    };
    _Static_assert(sizeof list == (MHA_RULES_ARGS - OPTIONAL) * sizeof *list,
                   "callers make room for them all");
    memcpy(args, list, sizeof list);
    const size_t n = sizeof list / sizeof *list;
    return n + optional_args(args + n, desc, bound);
}
