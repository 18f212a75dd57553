/* One layer of a BERT: attention and feed-forward, each added to what came in and normalised. The
 * products run on the device; what each row does by itself, on the host. */
#ifndef ENCODER_H
#define ENCODER_H

#include "weights.h"

#include <mha.h>

/* Who computes; 0 in each is the library's choice. */
typedef struct encoder_choice {
    mha_path path;
    mha_tiling tiling;
    mha_gemm_by gemm; /* of all products */
} encoder_choice;

/* What the layers of a network share: made once, for at most `rows` rows. */
typedef struct encoder {
    const config *shape;
    size_t batch;
    encoder_choice choice;
    mha_context *context;
    cl_command_queue queue;
    mha_gemm *widen, *narrow;
    cl_mem rows, added, wide, workspace; /* [rows][hidden_size] twice, [rows][intermediate_size] */
    float *host_rows, *host_added, *host_wide;
} encoder;

typedef struct encoder_layer {
    mha_layer *attention;
    cl_mem widen, widen_bias, narrow, narrow_bias;
    float *attention_scale, *attention_shift, *output_scale, *output_shift;
} encoder_layer;

/* On a context and a queue that outlive it. MHA_OK, or a status and the library's message; either
 * way the encoder may be closed. */
mha_status encoder_open(encoder *self, const config *shape, size_t batch,
                        const encoder_choice *choice, mha_context *context, cl_command_queue queue);
void encoder_close(encoder *self);

/* Loads layer `index`; whatever comes of it, the layer may be unloaded. Where a tensor is not as it
 * should be, `error` holds a sentence; other troubles leave it as it is. */
mha_status encoder_load(const encoder *self, encoder_layer *layer, const weights *from, long index,
                        char *error, size_t error_size);
void encoder_unload(encoder_layer *layer);

/* host_rows[batch][length][hidden_size] through a layer; lengths[batch]. */
mha_status encoder_run(encoder *self, const encoder_layer *layer, size_t length,
                       const int32_t *lengths);

/* The same for what the heads of a layer make of host_rows as its input:
 * probs[batch][heads][length][length]. The weights are loaded anew, since an attention that returns
 * its probs is another one. */
mha_status encoder_probs(const encoder *self, const weights *from, long index, size_t length,
                         const int32_t *lengths, float *probs, char *error, size_t error_size);

#endif
