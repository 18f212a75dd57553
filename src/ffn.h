/* The feed-forward network as the rooms above it see it: two or three projections with an
 * activation between them, and their weights. */
#ifndef MHA_FFN_H
#define MHA_FFN_H

#include "activation.h"
#include "path.h"
#include "projection.h"

enum {
    MHA_FFN_HIDDEN,
    MHA_FFN_GATED, /* the hidden rows that the activation goes over, where there is a gate */
    MHA_FFN_OUTPUT,
    MHA_FFN_PROJECTIONS
};

struct mha_ffn {
    mha_context *context;
    mha_ffn_desc desc; /* resolved */
    bool exists[MHA_FFN_PROJECTIONS];
    mha_projection projections[MHA_FFN_PROJECTIONS];
    mha_projection joined; /* the hidden rows and the gate's, see mha_projection_joins */
    mha_activation_desc activation_desc; /* resolved */
    mha_activation_stage activation;
    mha_kernel copy;
    bool loaded;
    mha_needs needs;
    size_t gated_region; /* within that of needs, which begins with the hidden rows; bytes. Joined
                          * rows take the place of both, which follow each other */
};

/* Weights that have passed their checks. */
typedef struct mha_ffn_load_views {
    mha_view weights[MHA_FFN_PROJECTIONS];
    mha_view biases[MHA_FFN_PROJECTIONS];
} mha_ffn_load_views;

/* mha_ffn_create for `who`, whose sentences it says; context and desc are there. */
mha_status mha_ffn_make(mha_ffn **out, mha_context *context, const mha_ffn_desc *desc,
                        const char *who);

/* What calls on device memory and on host arrays refuse alike: one before the weights were loaded,
 * and more rows than the desc's; `given` 0: all of them. */
mha_status mha_ffn_check_call(const mha_ffn *ffn, const char *who, size_t given, size_t *rows);

mha_status mha_ffn_bind_weights(const mha_ffn *ffn, const mha_run *run, const char *who,
                                const mha_ffn_weights *weights, mha_ffn_load_views *views);
mha_status mha_ffn_copy_weights(mha_ffn *ffn, mha_run *run, const mha_ffn_load_views *views);

/* Rows to rows within a run that has begun; `region` is that of needs in the run's workspace, in
 * bytes. `output` is what the caller calls what the last launch writes, NULL: the workspace. */
mha_status mha_ffn_forward(mha_ffn *ffn, mha_run *run, size_t rows, const mha_operand *from,
                           const mha_operand *to, size_t region, const char *output);
/* mha_ffn_load and mha_ffn_enqueue for `who`, whose sentences they say. */
mha_status mha_ffn_load_as(mha_ffn *ffn, const mha_ffn_weights *weights, const mha_call *call,
                           const char *who);
mha_status mha_ffn_enqueue_as(mha_ffn *ffn, const mha_ffn_args *args, const mha_call *call,
                              const char *who);

#endif
