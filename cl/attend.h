/* What the streaming kernels and decode share: their arguments, dropout, and how a row is finished.
 */
#include "rules.h"
#include "dropout.h"

/* query  [batch][heads][query_len][HEAD_DIM], key [batch][kv_heads][key_len][HEAD_DIM],
 * value  [batch][kv_heads][key_len][VALUE_DIM], output [batch][heads][query_len][VALUE_DIM],
 * lse    [batch][heads][query_len][1] or NULL: strides in elements, the last axis contiguous;
 * mha_attend_args of src/attend.c lists them. */
#define ATTEND_PARAMETERS                                                                          \
    __global const STORED(QUERY_TYPE) *query, ulong query_offset, ulong query_batch,               \
        ulong query_head, ulong query_row, __global const STORED(KEY_TYPE) *key, ulong key_offset, \
        ulong key_batch, ulong key_head, ulong key_row,                                            \
        __global const STORED(KEY_TYPE) *value, ulong value_offset, ulong value_batch,             \
        ulong value_head, ulong value_row, __global STORED(OUTPUT_TYPE) *output,                   \
        ulong output_offset, ulong output_batch, ulong output_head, ulong output_row,              \
        __global float *lse, ulong lse_offset, ulong lse_batch, ulong lse_head, ulong lse_row,     \
        int batch, int heads, int group, float scale, RULES_PARAMETERS
#define ATTEND_ARGUMENTS                                                                           \
    query, query_offset, query_batch, query_head, query_row, key, key_offset, key_batch, key_head, \
        key_row, value, value_offset, value_batch, value_head, value_row, output, output_offset,   \
        output_batch, output_head, output_row, lse, lse_offset, lse_batch, lse_head, lse_row,      \
        batch, heads, group, scale, RULES_ARGUMENTS
/* As given to a kernel, see rules.h: rows_at is offset, batch, head and row of query, key, value and
 * output, lse_at those of lse; counts is batch, heads and group. */
#define ATTEND_GIVEN                                                                               \
    __global const STORED(QUERY_TYPE) *query, __global const STORED(KEY_TYPE) *key,                \
        __global const STORED(KEY_TYPE) *value, __global STORED(OUTPUT_TYPE) *output,              \
        ulongs16 rows_at, __global float *lse, ulongs4 lse_at, int4 counts, float scale, RULES_GIVEN
#define ATTEND_TAKE                                                                                \
    const ulong query_offset = rows_at.s0, query_batch = rows_at.s1, query_head = rows_at.s2,      \
                query_row = rows_at.s3, key_offset = rows_at.s4, key_batch = rows_at.s5,           \
                key_head = rows_at.s6, key_row = rows_at.s7, value_offset = rows_at.s8,            \
                value_batch = rows_at.s9, value_head = rows_at.sa, value_row = rows_at.sb,         \
                output_offset = rows_at.sc, output_batch = rows_at.sd,                             \
                output_head = rows_at.se, output_row = rows_at.sf, lse_offset = lse_at.s0,         \
                lse_batch = lse_at.s1, lse_head = lse_at.s2, lse_row = lse_at.s3;                  \
    const int batch = counts.s0, heads = counts.s1, group = counts.s2;                             \
    RULES_TAKE

/* What a row's output, summed up at the maximum top, is multiplied by: 1 / sum, with a sink in the
 * sum; 0 where nothing was summed up. *log_sum, if given, becomes the row's lse. sink: -INFINITY is
 * none. */
static float attend_divide(float *log_sum, float top, float sum, float sink)
{
    float scale_by = 1.0f;
    if (sink != -INFINITY) {
        const float joint = fmax(top, sink);
        scale_by = top == -INFINITY ? 0.0f : exp(top - joint);
        sum = sum * scale_by + exp(sink - joint);
        top = joint;
    }
    if (log_sum)
        *log_sum = sum == 0.0f ? -INFINITY : top + log(sum);
    return sum == 0.0f ? 0.0f : scale_by / sum;
}

#if USES_DROPOUT
/* Probs of keys k0 .. k0 + count - 1 of query i of batch and head g, `pitch` from one to the next:
 * each becomes 0 or is scaled. */
static void attend_drop(__local float *probs, int pitch, int g, int i, int k0, int count,
                        RULES_PARAMETERS)
{
    for (int j = k0 & ~3; j < k0 + count; j += 4) {
        uint words[4];
        vstore4(dropout_words(g, i, j, dropout_low, dropout_high, dropout_offset), 0, words);
        for (int n = max(k0 - j, 0); n < min(4, k0 + count - j); n++)
            probs[(j + n - k0) * pitch] *= dropout_keep(words[n], dropout_threshold, dropout_scale);
    }
}
#endif
