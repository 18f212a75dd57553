/* Which keys a query may see, and what becomes of its scores before the softmax: the one place where
 * lengths, diagonals, windows, softcap, bias, ALiBi and mask have their meaning on the device.
 *
 * Build options, each 0 or 1: USES_BIAS, USES_MASK, USES_SOFTCAP, USES_ALIBI, USES_CAUSAL,
 * USES_WINDOW_LEFT, USES_WINDOW_RIGHT, BOTTOM_RIGHT; and BIAS_TYPE, see types.h.
 *
 * bias, mask  [batch][heads][query_len][key_len], strides in elements, 0 where broadcast
 * key_lengths, key_starts  [batch] or NULL; per_query [batch][query_len] or NULL
 * slopes      [batch][heads] with a stride of batches that may be 0, or NULL
 * sinks       [heads] or NULL */
#include "types.h"

/* Rules that look at one score at a time. */
#define USES_EACH (USES_BIAS || USES_MASK || USES_SOFTCAP || USES_ALIBI)

/* A kernel's arguments that are all for this file; mha_rules_args of src/rules.c lists them. */
#define RULES_PARAMETERS                                                                           \
    __global const STORED(BIAS_TYPE) *bias, ulong bias_offset, ulong bias_batch, ulong bias_head,  \
        ulong bias_row, ulong bias_column, __global const uchar *mask, ulong mask_offset,          \
        ulong mask_batch, ulong mask_head, ulong mask_row, ulong mask_column,                      \
        __global const int *key_lengths, ulong key_lengths_offset,                                 \
        __global const int *key_starts, ulong key_starts_offset, __global const int *per_query,    \
        ulong per_query_offset, __global const float *slopes, ulong slopes_offset,                 \
        ulong slopes_batch, __global const float *sinks, ulong sinks_offset, int query_len,        \
        int key_len, int window_left, int window_right, float softcap

/* What the rules say of one query of one batch and head. */
typedef struct rules_row {
    int first, end; /* keys outside first <= j < end are excluded */
    int diagonal;
    float slope;
    __global const STORED(BIAS_TYPE) *bias; /* of this row */
    __global const uchar *mask;
    ulong bias_column, mask_column;
    float softcap;
} rules_row;

static rules_row rules_of(int b, int h, int i, RULES_PARAMETERS)
{
    rules_row row;
    const int length = key_lengths ? clamp(key_lengths[key_lengths_offset + b], 0, key_len) : key_len;
    row.first = key_starts ? clamp(key_starts[key_starts_offset + b], 0, key_len) : 0;
    row.end = length;
    if (per_query)
        row.end = min(row.end, per_query[per_query_offset + (ulong)b * query_len + i]);
    row.diagonal = BOTTOM_RIGHT ? i + length - query_len : i;
    /* In long: a window may be as wide as an int, to say no limit. */
    if (USES_CAUSAL)
        row.end = min(row.end, row.diagonal + 1);
    if (USES_WINDOW_RIGHT)
        row.end = (int)min((long)row.end, (long)row.diagonal + window_right + 1);
    if (USES_WINDOW_LEFT)
        row.first = (int)max((long)row.first, (long)row.diagonal - window_left);
    row.slope = USES_ALIBI ? slopes[slopes_offset + b * slopes_batch + h] : 0.0f;
    row.bias = bias + bias_offset + b * bias_batch + h * bias_head + i * bias_row;
    row.mask = mask + mask_offset + b * mask_batch + h * mask_head + i * mask_row;
    row.bias_column = bias_column;
    row.mask_column = mask_column;
    row.softcap = softcap;
    return row;
}
#define RULES_OF(b, h, i)                                                                          \
    rules_of(b, h, i, bias, bias_offset, bias_batch, bias_head, bias_row, bias_column, mask,       \
             mask_offset, mask_batch, mask_head, mask_row, mask_column, key_lengths,               \
             key_lengths_offset, key_starts, key_starts_offset, per_query, per_query_offset,       \
             slopes, slopes_offset, slopes_batch, sinks, sinks_offset, query_len, key_len,         \
             window_left, window_right, softcap)

static float rules_cap(const rules_row *row, float score)
{
    return USES_SOFTCAP ? row->softcap * tanh(score / row->softcap) : score;
}

/* A capped score of key j, first <= j < end, after bias, ALiBi and mask: -INFINITY is excluded. */
static float rules_bias(const rules_row *row, float score, int j)
{
    if (USES_BIAS) {
        const float add = LOAD(BIAS_TYPE, row->bias, j * row->bias_column);
        /* -inf excludes whatever the score is, NaN as well. */
        score = add == -INFINITY ? -INFINITY : score + add;
    }
    if (USES_ALIBI)
        score -= row->slope * (float)abs(row->diagonal - j);
    if (USES_MASK)
        score = row->mask[j * row->mask_column] ? score : -INFINITY;
    return score;
}
