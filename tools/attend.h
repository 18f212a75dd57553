/* What a case says about an attention, in the words of mha.h: shapes, who sees whom, outputs. */
#ifndef MHA_TOOLS_ATTEND_H
#define MHA_TOOLS_ATTEND_H

#include "check.h"

typedef struct attend {
    mha_attention_desc desc;
    mha_attention_args args;
    const case_tensor *key; /* as attend_bind was given it */
} attend;

/* Queries, keys and values: [batch][heads][len][dim], or [batch][len][heads * dim] seen so. Sets
 * the shape fields of the desc, its types, and the three tensors. */
void attend_bind(check *self, attend *call, const case_tensor *query, size_t heads,
                 const case_tensor *key, const case_tensor *value, size_t kv_heads);

/* A cache that takes the keys and values of attend_bind, which come before it, as new ones. */
typedef struct attend_cache {
    const char *key_name, *value_name; /* of the outputs that hold it after the call */
    case_type type;
    size_t rows;                              /* that it has room for */
    const case_tensor *past_key, *past_value; /* its first rows; NULL: none */
    size_t past_len;                          /* keys that it holds, of every batch */
    const case_tensor *totals;                /* or [batch]: with the new ones */
} attend_cache;
void attend_append(check *self, attend *call, const attend_cache *cache);

/* Rotates queries and new keys by tables [position][rotary_dim / 2]. */
void attend_rotate(check *self, attend *call, const case_tensor *cosine, const case_tensor *sine,
                   bool interleaved);

/* Reads the keys scale and softcap. */
void attend_read_scores(check *self, attend *call);

/* Reads left_window_size, right_window_size and is_causal, with ONNX's diagonal: at the top left,
 * or by the lengths that attend_see_lengths, or after the past that attend_append, has set before.
 */
void attend_read_onnx_diagonal(check *self, attend *call);

/* The rest take a tensor that may be NULL: then they do nothing. */

/* An additive bias or, where its type is bool, a mask (true takes part), aligned at the right with
 * [batch][heads][query_len][key_len]. `pad`: a last axis that is too short, which else may only be
 * 1, goes on with "not allowed". */
void attend_see_mask(check *self, attend *call, const case_tensor *mask, bool pad);

/* int32 or bool [batch][key_len]; keep: other than 0 takes part, else 0 does. */
void attend_see_keys(check *self, attend *call, const case_tensor *keys, bool keep);

/* int32 [batch][query_len][key_len], other than 0 takes part. */
void attend_see_pairs(check *self, attend *call, const case_tensor *pairs);

/* int32 [2 * batch]: the ends of the keys of all batches, then their starts. */
void attend_see_ranges(check *self, attend *call, const case_tensor *end_start);

/* Lengths [batch], or [batch][query_len]. */
void attend_see_lengths(check *self, attend *call, const case_tensor *lengths);

/* The output of that name: laid out as the queries are, probabilities (the case wants their mean
 * over the heads: `mean`), scores, or lse. The last three only where the case wants them. */
void attend_give_output(check *self, attend *call, const char *name, bool heads_apart);
void attend_give_probs(check *self, attend *call, const char *name, bool mean);
void attend_give_scores(check *self, attend *call, const char *name, mha_scores_stage stage);
void attend_give_lse(check *self, attend *call, const char *name);

/* Makes the attention, enqueues it once and destroys it. */
void attend_run(check *self, attend *call);

#endif
