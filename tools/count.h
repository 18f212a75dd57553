/* What a problem's times are divided by. */
#ifndef MHA_TOOLS_COUNT_H
#define MHA_TOOLS_COUNT_H

#include "problem.h"

/* Floating-point operations of one call: 2 head_dim + 2 value_dim for each head and pair of query
 * and key that lengths, causal and windows leave (not for a softmax's own), and 2 for each
 * product in a projection or a gemm (not for norms and activations). */
double count_flops(const problem_ready *ready);

/* Those of them that a stage of this name (see mha_stage_fn) does, whatever the path: "attend" does
 * what "scores" and "probs value" do together. is_cross: of a decoder's attention to its memory. 0:
 * it does none. */
double count_stage_flops(const problem_ready *ready, const char *stage, bool is_cross);

/* Bytes that any implementation moves: each input and output once, of a model the embeddings of
 * tokens, the weights and the vectors; of an attention's keys and
 * values, those that a query of their batch sees, and of a cache the new rows as they come in and
 * as they are stored. */
double count_bytes(const problem_ready *ready);

#endif
