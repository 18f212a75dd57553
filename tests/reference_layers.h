/* Encoder and decoder layers in double precision, of the references of their steps: see
 * reference.h. Rows are rounded to float32 between the steps. */
#ifndef MHA_TESTS_REFERENCE_LAYERS_H
#define MHA_TESTS_REFERENCE_LAYERS_H

#include "reference.h"
#include "reference_block.h"

/* Of a step that the desc does not have, nothing is read. */
typedef struct reference_decoder_weights {
    reference_layer_weights self_attention, cross_attention;
    reference_ffn_weights feed_forward, feed_forward_before;
    const float *norm_self_attention, *norm_cross_attention; /* [weight | bias][width] */
    const float *norm_feed_forward, *norm_feed_forward_before;
} reference_decoder_weights;

typedef struct reference_decoder_args {
    const float *input;         /* [batch][len][width] */
    const float *memory;        /* [batch][key_len][key_width]; NULL: an encoder layer */
    reference_args self, cross; /* options */
    double *output;             /* [batch][len][width] */
} reference_decoder_args;

/* At the desc's lengths. An encoder layer is a decoder layer without a memory. */
void reference_decoder(const mha_decoder_desc *desc, const reference_decoder_weights *weights,
                       const reference_decoder_args *args);

#endif
