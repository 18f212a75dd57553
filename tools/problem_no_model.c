/* Model words where examples/sentence-embedding cannot be built. */
#include "problem_model.h"

#include <stdio.h>

mha_status problem_model_open(problem_model **out, problem_ready *self,
                              const problem_options *options, mha_layer_desc *desc, char *reason,
                              size_t reason_size)
{
    (void)self, (void)options, (void)desc;
    *out = NULL;
    snprintf(reason, reason_size, "model words need a build with jansson and utf8proc");
    return MHA_UNSUPPORTED;
}

void problem_model_close(problem_model *self)
{
    (void)self;
}

/* No model is ever open. */
mha_status problem_model_fill(problem_ready *self, uint64_t seed)
{
    (void)self, (void)seed;
    return MHA_UNSUPPORTED;
}

mha_status problem_model_run(const problem_ready *self, cl_command_queue queue, mha_stage_fn *stage,
                             void *stage_data)
{
    (void)self, (void)queue, (void)stage, (void)stage_data;
    return MHA_UNSUPPORTED;
}

size_t problem_model_explain(const problem_model *self, char *text, size_t capacity)
{
    (void)self, (void)text, (void)capacity;
    return 0;
}

mha_status problem_model_expect(const problem_ready *ready, double *vectors)
{
    (void)ready, (void)vectors;
    return MHA_UNSUPPORTED;
}
