/* The layers of a BERT on a device: the norm of the embeddings and a stack of encoder layers, with
 * nothing of it on the host. */
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

typedef struct encoder {
    const config *shape;
    const weights *from;
    size_t batch;
    encoder_choice choice;
    mha_context *context;
    mha_call call;  /* whose queue all goes to; its workspace is that of the layers */
    mha_norm *norm; /* of the embeddings */
    mha_norm_weights norm_weights;
    mha_encoder **layers; /* [shape->layers] */
    /* Shared by the layers, since the queue runs one after the other: each reads one of the two
     * [batch][max_tokens][hidden_size] and writes the other. */
    cl_mem rows[2];
    /* What a call takes, written by the caller: host_rows[batch][length][hidden_size] and
     * lengths[batch]. */
    float *host_rows;
    int32_t *lengths;
} encoder;

/* For at most `batch` sequences, on what is given, which outlives it. Waits until the weights are
 * loaded, so that the calls may be put on other queues than this one. MHA_OK, or a status and the
 * library's message; either way the encoder may be closed. Where a tensor is not as it should be,
 * `error` holds a sentence; other troubles leave it as it is. */
mha_status encoder_open(encoder *self, const config *shape, size_t batch,
                        const encoder_choice *choice, mha_context *context, cl_command_queue queue,
                        const weights *from, char *error, size_t error_size);
void encoder_close(encoder *self);

/* Sums of embeddings in host_rows become what the last layer makes of them; of the first `count`
 * sequences, the others are not read back. */
mha_status encoder_run(encoder *self, size_t count, size_t length);

/* What a head of a layer makes of the first sequence: probs[length][length]. The layer is loaded
 * anew, since one that returns its probs is another one. */
mha_status encoder_probs(encoder *self, size_t layer, size_t head, size_t length, float *probs,
                         char *error, size_t error_size);

#endif
