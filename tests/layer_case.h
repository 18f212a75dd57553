/* One multi-head attention layer on device memory and what the reference says of it. */
#ifndef MHA_TESTS_LAYER_CASE_H
#define MHA_TESTS_LAYER_CASE_H

#include "attention_place.h"

/* Where the weights come from. */
typedef enum layer_weights {
    WEIGHTS_APART,    /* a packed matrix each */
    WEIGHTS_GAPS,     /* rows with something between them */
    WEIGHTS_TOGETHER, /* query, key and value are ranges of one matrix, their biases of one vector,
                       * as in PyTorch's in_proj_weight; WEIGHTS_APART where the widths differ */
    NUM_WEIGHTS
} layer_weights;

typedef struct layer_case {
    mha_layer_desc desc;
    size_t query_len, key_len; /* of the call; 0: the desc's */
    attention_layout layout;   /* of the inputs and the output: packed, len first or gaps */
    layer_weights weights;
    bool self; /* query, key and value are the same memory; needs equal widths and lengths */
    bool lengths_on_device;
    uint64_t seed;
} layer_case;

typedef struct layer_data {
    char name[256];
    layer_case given;
    mha_layer_desc desc;       /* resolved */
    attention_data *attention; /* options, probs and lse; its tensors are not used */
    float *query, *key, *value;
    float *matrices[4], *biases[4]; /* of query, key, value and output; NULL: none */
    float *output;
    double *want;
    device_tensor result;
    attention_tensors tensors;
} layer_data;

/* Of the tokens of keys and values, and of the output; 0 is float32. */
mha_type layer_key_type(const mha_layer_desc *desc);
mha_type layer_output_type(const mha_layer_desc *desc);

/* NaN is in all rows of keys and values that no query sees, unless they are queries as well. */
layer_data *layer_data_new(const layer_case *given);
void layer_data_free(layer_data *data);
/* New weights, by another seed; asks the reference again. */
void layer_data_fill_weights(layer_data *data, uint64_t seed);

/* What a load is given. */
mha_layer_weights layer_place_weights(device *d, const layer_data *data);
/* The arguments of a call are in data->tensors.args. */
void layer_place(device *d, layer_data *data);

/* Loads; then looks at the guards, and overwrites and releases the caller's weights. */
void layer_load(device *d, mha_layer *layer, const layer_data *data);
/* Enqueues, reads, compares, looks at the guards; releases all tensors. */
bool layer_run(device *d, mha_layer *layer, layer_data *data, compare_worst *worst);

/* All of it. */
bool layer_check(device *d, const layer_case *given, compare_worst *worst);

#endif
