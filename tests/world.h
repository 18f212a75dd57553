/* A small attention, layer, rotary embedding, norm, activation and decoder layer on a device, and
 * an attention with a cache, with all the memory that their calls need: for tests of what happens
 * around the calls. */
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
    WORLD_ROWS = WORLD_BATCH * WORLD_HEADS * WORLD_QUERIES,
    WORLD_NORM_ROWS = WORLD_BATCH * WORLD_QUERIES, /* of WORLD_WIDTH */
    /* With the cache: one key head, two new keys and queries a call, and so many keys that a device
     * of one compute unit takes them in parts, too. */
    WORLD_NEW = 2,
    WORLD_CAPACITY = 300,
    WORLD_CACHED = WORLD_BATCH * WORLD_CAPACITY * WORLD_DIM,
    WORLD_NEW_OUTPUTS = WORLD_BATCH * WORLD_HEADS * WORLD_NEW * WORLD_DIM,
    WORLD_NEW_ROWS = WORLD_BATCH * WORLD_HEADS * WORLD_NEW
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
    float cached_key[WORLD_CACHED], cached_value[WORLD_CACHED]; /* before a call */
    float table[2][WORLD_CAPACITY * WORLD_DIM / 2];             /* cos and sin */
    int32_t positions[WORLD_BATCH];
} world_data;

/* What a call with the cache leaves. */
typedef struct world_cache {
    float out[WORLD_NEW_OUTPUTS], lse[WORLD_NEW_ROWS];
    float key[WORLD_CACHED], value[WORLD_CACHED];
} world_cache;

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
    mha_norm_desc norm_desc; /* of queries and keys, with all that it can write */
    mha_norm *norm;
    device_tensor norm_output, norm_sum, norm_mean, norm_inv_std;
    mha_norm_args norm_args;
    mha_activation_desc activation_desc; /* of the queries, gated by the keys */
    mha_activation *activation;
    device_tensor activation_output;
    mha_activation_args activation_args;
    mha_decoder_desc decoder_desc; /* norms before, networks around; the keys are its memory */
    mha_decoder *decoder;          /* not loaded */
    device_tensor decoder_output;
    mha_decoder_weights decoder_weights;
    mha_decoder_args decoder_args;
    mha_call decoder_call;
    mha_attention_desc cache_desc;
    mha_attention *cache; /* decodes after appending, rotates, merges; positions in host memory */
    device_tensor cache_key, cache_value, cache_output, cache_lse;
    mha_attention_args cache_args;
    device_tensor output, lse, layer_output, layer_lse, rotary_output;
    mha_attention_args args, layer_args;
    mha_layer_weights weights;
    mha_rotary_args rotary_args; /* position ids in host memory */
    mha_call call, layer_call, load_call, rotary_call, norm_call, activation_call, cache_call;
} world;

/* `by` does all products. The descs and the data are the same for both. */
void world_open(world *w, mha_gemm_by by);
void world_close(world *w);

/* The attention, the layer, the embedding, the norm or the activation: NaN into its outputs, the
 * call, the results in out and lse (of WORLD_OUTPUTS and WORLD_ROWS), guards looked at. */
mha_status world_attend(world *w, float *out, float *lse);
mha_status world_rotate(world *w, float *out);
mha_status world_normalise(world *w, float *out);
mha_status world_activate(world *w, float *out);
mha_status world_load(world *w);
mha_status world_run_layer(world *w, float *out, float *lse);
mha_status world_load_decoder(world *w);
mha_status world_decode(world *w, float *out);
mha_status world_append(world *w, world_cache *got);
/* NaN into all outputs, and the caches as they were. */
void world_clear(world *w);

/* The same calls with host arrays. */
mha_status world_attend_host(world *w, mha_attention *attention, float *out, float *lse);
mha_status world_load_host(world *w, mha_layer *layer);
mha_status world_run_layer_host(world *w, mha_layer *layer, float *out, float *lse);
mha_status world_load_decoder_host(world *w);
mha_status world_decode_host(world *w, float *out);

#endif
