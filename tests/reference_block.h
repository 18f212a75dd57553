/* What stands beside attention in a transformer block, in double precision: see reference.h. */
#ifndef MHA_TESTS_REFERENCE_BLOCK_H
#define MHA_TESTS_REFERENCE_BLOCK_H

#include <mha.h>

/* Packed host arrays. Inputs: NULL where not given; an output is written where it is not NULL. */
typedef struct reference_norm_args {
    size_t rows;                   /* of this call; 0: the desc's */
    const float *input, *residual; /* [rows][width] */
    const float *input_bias;       /* [width] */
    const float *weight, *bias;    /* [width] */
    double *output, *sum;          /* [rows][width] */
    double *mean, *inv_std;        /* [rows] */
} reference_norm_args;

/* Layer norm: "Layer normalization", 2016, equation 4; RMS norm: "Root mean square layer
 * normalization", 2019, equation 4. The desc's uses are not read. */
void reference_norm(const mha_norm_desc *desc, const reference_norm_args *args);

/* Packed host arrays, [rows][width]. */
typedef struct reference_activation_args {
    size_t rows;               /* of this call; 0: the desc's */
    const float *input, *gate; /* a gate of NULL: none */
    double *output;
} reference_activation_args;

/* "Gaussian error linear units", 2016; "GLU variants improve transformer", 2020. At an infinity the
 * limit. */
void reference_activation(const mha_activation_desc *desc, const reference_activation_args *args);

#endif
