/* A model word's problem: the network of examples/sentence-embedding, from tokens to vectors. */
#ifndef MHA_TOOLS_PROBLEM_MODEL_H
#define MHA_TOOLS_PROBLEM_MODEL_H

#include "problem.h"

/* Loads the model in the problem's context, for the batch and length of *desc, which becomes the
 * desc of a layer; the problem gets what a layer has beside it. Where it fails `reason` holds a
 * sentence. */
mha_status problem_model_open(problem_model **out, problem_ready *self,
                              const problem_options *options, mha_layer_desc *desc, char *reason,
                              size_t reason_size);
void problem_model_close(problem_model *self); /* NULL is fine */

/* Makes the tokens, how many of each sentence count, and room for the vectors. */
mha_status problem_model_fill(problem_ready *self, uint64_t seed);

/* From tokens to vectors in the output's host memory, by way of a queue. */
mha_status problem_model_run(const problem_ready *self, cl_command_queue queue, mha_stage_fn *stage,
                             void *stage_data);

size_t problem_model_explain(const problem_model *self, char *text, size_t capacity);

/* The vectors in double, [batch][width]. */
mha_status problem_model_expect(const problem_ready *ready, double *vectors);

#endif
