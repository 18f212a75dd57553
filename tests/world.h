/* A small attention, layer and rotary embedding on a device, with all the memory that their calls
 * need: for tests of what happens around the calls. */
#ifndef MHA_TESTS_WORLD_H
#define MHA_TESTS_WORLD_H

#include "device_memory.h"

#include <stdint.h>

enum {
    WORLD_BATCH = 2,
    WORLD_HEADS = 4,
    WORLD_KV_HEADS = 2,
    WORLD_QUERIES = 5,
    WORLD_KEYS = 7,
    WORLD_DIM = 8,
    WORLD_WIDTH = WORLD_HEADS * WORLD_DIM,
    WORLD_KV_WIDTH = WORLD_KV_HEADS * WORLD_DIM,
    WORLD_OUTPUTS = WORLD_BATCH * WORLD_QUERIES * WORLD_WIDTH, /* of attention and of layer */
    WORLD_ROWS = WORLD_BATCH * WORLD_HEADS * WORLD_QUERIES
};

/* What the calls read, in packed host arrays. */
typedef struct world_data {
    float query[WORLD_OUTPUTS];
    float key[WORLD_BATCH * WORLD_KEYS * WORLD_WIDTH]; /* the attention needs less of it */
    float value[WORLD_BATCH * WORLD_KEYS * WORLD_WIDTH];
    float weights[4][WORLD_WIDTH * WORLD_WIDTH];
    float biases[4][WORLD_WIDTH];
    int32_t key_lengths[WORLD_BATCH];
    int32_t position_ids[WORLD_BATCH * WORLD_QUERIES];
} world_data;

/* Key lengths in host memory, lse; with CLBlast, both products and all projections by it. */
typedef struct world {
    device d;
    world_data data;
    mha_attention_desc desc;
    mha_layer_desc layer_desc;
    mha_rotary_desc rotary_desc; /* of the queries; its tables are keys and values */
    mha_attention *attention;
    mha_layer *layer; /* not loaded */
    mha_rotary *rotary;
    device_tensor output, lse, layer_output, layer_lse, rotary_output;
    mha_attention_args args, layer_args;
    mha_layer_weights weights;
    mha_rotary_args rotary_args; /* position ids in host memory */
    mha_call call, layer_call, load_call, rotary_call;
} world;

/* `by` does all products. The descs and the data are the same for both. */
void world_open(world *w, mha_gemm_by by);
void world_close(world *w);

/* The attention, the layer or the embedding: NaN into its outputs, the call, the results in out and
 * lse (of WORLD_OUTPUTS and WORLD_ROWS), guards looked at. */
mha_status world_attend(world *w, float *out, float *lse);
mha_status world_rotate(world *w, float *out);
mha_status world_load(world *w);
mha_status world_run_layer(world *w, float *out, float *lse);
/* NaN into all outputs. */
void world_clear(world *w);

/* The same calls with host arrays. */
mha_status world_attend_host(world *w, mha_attention *attention, float *out, float *lse);
mha_status world_load_host(world *w, mha_layer *layer);
mha_status world_run_layer_host(world *w, mha_layer *layer, float *out, float *lse);

#endif
