/* What a matrix product is made for and what it is launched with: the words that gemm and the rooms
 * below it share. */
#ifndef MHA_PRODUCT_H
#define MHA_PRODUCT_H

#include "run.h"

/* What a product is made for. m, n, k and batch are the largest of any launch. */
typedef struct mha_gemm_shape {
    size_t batch, m, n, k;
    bool transpose_a, transpose_b; /* stored [k][m], [n][k] */
    bool bias;                     /* needs beta 0 */
    bool shared_b;                 /* one B for all batches: they may become one taller product */
    /* B may be packed ahead of the launches, see mha_gemm_pack_bytes: b_type is then that of what
     * is packed, and launches take float32. */
    bool packed_b;
    mha_type a_type, b_type, c_type, bias_type; /* 0: float32 */
    float alpha, beta;
    mha_activation_kind activation; /* of alpha a b + beta c + bias */
    float slope;                    /* its alpha, of MHA_ACTIVATION_SILU */
    mha_gemm_by by;                 /* MHA_GEMM_DEFAULT: the library chooses */
    mha_tiling tiling; /* of the library's kernels; MHA_TILING_DEFAULT: by the kind of device */
} mha_gemm_shape;

bool mha_product_is_half(mha_type type);

/* The build options that the library's kernels have in common; returns them. */
enum {
    MHA_PRODUCT_OPTIONS = 96
};
const char *mha_product_options(char options[MHA_PRODUCT_OPTIONS], const mha_gemm_shape *shape);

/* One matrix a batch. Elements. batch 0: shared (a and b). */
typedef struct mha_operand {
    cl_mem buffer;
    size_t offset;
    size_t row;
    size_t batch;
} mha_operand;

typedef struct mha_gemm_launch_args {
    size_t batch, m, n, k; /* none 0, but k may be for the library's kernels */
    mha_operand a, b, c;
    mha_operand bias; /* buffer and offset */
} mha_gemm_launch_args;

enum {
    MHA_PRODUCT_ARGS = 20,  /* the first of all */
    MHA_PRODUCT_FACTORS = 3 /* the last of all */
};
/* The arguments that the library's kernels have in common: a, b and c with their strides, bias,
 * batch, m, n, k; and alpha, beta, slope. */
void mha_product_args(mha_arg list[MHA_PRODUCT_ARGS], const mha_gemm_shape *shape,
                      const mha_gemm_launch_args *args);
void mha_product_factors(mha_arg list[MHA_PRODUCT_FACTORS], const mha_gemm_shape *shape);

#endif
