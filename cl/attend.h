/* The arguments that the streaming kernels and decode share. */
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
