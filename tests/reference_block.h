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
double reference_activate(const mha_activation_desc *desc, double x);
void reference_activation(const mha_activation_desc *desc, const reference_activation_args *args);

/* Packed; out x in with MHA_FFN_OUT_IN, else in x out. Read where the desc has them. */
typedef struct reference_ffn_weights {
    const float *hidden, *gate;           /* [width][hidden_width] */
    const float *output;                  /* [hidden_width][output_width] */
    const float *bias_hidden, *bias_gate; /* [hidden_width] */
    const float *bias_output;             /* [output_width] */
} reference_ffn_weights;

/* "Attention is all you need", 2017, equation 2; "GLU variants improve transformer", 2020, equation
 * 6. Packed rows. */
void reference_ffn(const mha_ffn_desc *desc, const reference_ffn_weights *weights, size_t rows,
                   const float *input, double *output);

#endif
