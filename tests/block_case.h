/* An encoder or decoder layer: its weights on the host and on the device, and one call. */
#ifndef MHA_TESTS_BLOCK_CASE_H
#define MHA_TESTS_BLOCK_CASE_H

#include "ffn_case.h"
#include "reference_layers.h"

enum {
    BLOCK_MATRICES = 8 /* of a layer, with its biases */
};

typedef struct block_case {
    mha_decoder_desc desc; /* of an encoder: without the cross attention */
    bool is_encoder;
    size_t len; /* of the call; 0: the desc's */
    bool gaps;  /* between rows */
    uint64_t seed;
} block_case;

/* All that a case makes: host arrays for the caller to free by block_data_free. */
typedef struct block_data {
    block_case given;
    size_t rows, width, memory_len, memory_width;
    float *layers[2][BLOCK_MATRICES]; /* self and cross; weights, then biases */
    size_t shapes[2][BLOCK_MATRICES][4];
    ffn_weights ffns[2]; /* after, before */
    float *norms[4];     /* self, cross, after, before */
    float *input, *memory;
    double *want;
} block_data;

block_data *block_data_new(const block_case *given);
void block_data_free(block_data *data);

/* Weights on the device; those of an encoder are in the first fields of the same names. */
mha_decoder_weights block_place_decoder(device *d, const block_data *data);
mha_encoder_weights block_place_encoder(device *d, const block_data *data);
mha_encoder_desc block_encoder_desc(const mha_decoder_desc *desc);

/* The error that rounding may make, where norms keep rows at magnitudes of a few units. */
double block_limit(const block_data *data);

/* Of the memory's rows and of the output; 0 is float32. */
mha_type block_memory_type(const mha_decoder_desc *desc);
mha_type block_output_type(const mha_decoder_desc *desc);

/* Makes the block, loads it, makes the call and compares; and does the same on host arrays, which
 * must give the same bits. */
void block_case_check(device *d, const block_case *given, compare_worst *worst);

#endif
