/* A feed-forward network's weights and rows, on the host and on the device. */
#ifndef MHA_TESTS_FFN_CASE_H
#define MHA_TESTS_FFN_CASE_H

#include "compare.h"
#include "device_memory.h"
#include "fill.h"
#include "reference.h"
#include "reference_block.h"

enum {
    FFN_WEIGHTS = 6
};

/* The weights in the order of mha_ffn_weights; NULL where the desc has none. */
typedef struct ffn_weights {
    float *data[FFN_WEIGHTS];
    mha_type type; /* which holds them exactly */
    size_t shapes[FFN_WEIGHTS][4];
} ffn_weights;

/* Small enough that hidden rows and outputs are about as large as the input. */
ffn_weights ffn_weights_new(const mha_ffn_desc *desc, uint64_t seed);
void ffn_weights_free(ffn_weights *weights);
reference_ffn_weights ffn_weights_reference(const ffn_weights *weights);
/* On the device; `gaps`: between the rows of matrices. */
mha_ffn_weights ffn_weights_place(device *d, const ffn_weights *weights, bool gaps);
/* In host arrays. */
mha_ffn_host_weights ffn_host_weights(const ffn_weights *weights, bool gaps);

typedef struct ffn_case {
    mha_ffn_desc desc;
    size_t rows; /* of the call; 0: the desc's */
    bool gaps;   /* between rows, of weights as well */
    uint64_t seed;
} ffn_case;

/* Loads, makes the call and compares it with the reference; and does the same on host arrays, which
 * must give the same bits. */
void ffn_case_check(device *d, const ffn_case *c, compare_worst *worst);

#endif
