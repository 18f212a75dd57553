/* The layer as the host-array calls and the rooms above it see it: what layer.c makes and
 * layer_call.c runs. */
#ifndef MHA_LAYER_H
#define MHA_LAYER_H

#include "attention.h"
#include "projection.h"

enum {
    MHA_LAYER_QUERY,
    MHA_LAYER_KEY,
    MHA_LAYER_VALUE,
    MHA_LAYER_OUTPUT,
    MHA_LAYER_PROJECTIONS
};

struct mha_layer {
    mha_context *context;
    mha_layer_desc desc; /* resolved */
    mha_attention *attention;
    bool exists[MHA_LAYER_PROJECTIONS];
    mha_projection projections[MHA_LAYER_PROJECTIONS];
    mha_projection joined; /* query, key and value of the same tokens, see mha_projection_joins */
    mha_kernel copy;
    bool loaded;
    /* The workspace: CLBlast's, then a region for the attention and one for each projection, of
     * what it writes [batch][len][out], or for the output's of what it reads; joined has those of
     * its parts, which follow each other. In bytes. */
    mha_needs needs;
    size_t attention_region, regions[MHA_LAYER_PROJECTIONS];
};

/* mha_layer_create for `who`, whose sentences it says; context and desc are there. */
mha_status mha_layer_make(mha_layer **out, mha_context *context, const mha_layer_desc *desc,
                          const char *who);

/* The resolved description. */
const mha_layer_desc *mha_layer_shape(const mha_layer *layer);
mha_context *mha_layer_context(const mha_layer *layer);
/* Of the tokens that keys and values are projected from: with a cache, the new ones. */
mha_type mha_layer_key_type(const mha_layer *layer);

/* Weights that have passed their checks. */
typedef struct mha_layer_load_views {
    mha_view weights[MHA_LAYER_PROJECTIONS];
    mha_view biases[MHA_LAYER_PROJECTIONS];
} mha_layer_load_views;

/* Refuses a call before the weights were loaded. */
mha_status mha_layer_check_loaded(const mha_layer *layer, const char *who);

mha_status mha_layer_bind_weights(const mha_layer *layer, const mha_run *run, const char *who,
                                  const mha_layer_weights *weights, mha_layer_load_views *views);
mha_status mha_layer_copy_weights(mha_layer *layer, mha_run *run,
                                  const mha_layer_load_views *views);

/* Tokens, [batch][1][len][width]. With a cache those of key and value are the new ones. */
typedef struct mha_layer_views {
    mha_view query, key, value, output;
} mha_layer_views;

/* Checks all arguments but the tokens: lengths, options, and the cache where there is one. */
mha_status mha_layer_take_options(const mha_layer *layer, const mha_run *run, mha_bound *bound,
                                  const char *who, const mha_attention_args *args);
/* Runs the layer within a run that has begun; `region` is that of needs in the run's workspace, in
 * bytes. `output` is what the caller calls views->output, NULL: it is in the workspace. */
mha_status mha_layer_forward(mha_layer *layer, mha_run *run, const mha_layer_views *views,
                             mha_bound *bound, size_t region, const char *output);
/* mha_layer_load and mha_layer_enqueue for `who`, whose sentences they say. */
mha_status mha_layer_load_as(mha_layer *layer, const mha_layer_weights *weights,
                             const mha_call *call, const char *who);
mha_status mha_layer_enqueue_as(mha_layer *layer, const mha_attention_args *args,
                                const mha_call *call, const char *who);

#endif
