/* Matrix products: the only door to CLBlast, and the library's own kernel beside it. */
#ifndef MHA_GEMM_H
#define MHA_GEMM_H

#include "run.h"

/* What a product is made for. m, n, k and batch are the largest of any launch. */
typedef struct mha_gemm_shape {
    size_t batch, m, n, k;
    bool transpose_a, transpose_b; /* stored [k][m], [n][k] */
    bool bias;                     /* needs beta 0 */
    bool shared_b;                 /* one B for all batches: they may become one taller product */
    float alpha, beta;
    mha_gemm_by by; /* MHA_GEMM_DEFAULT is resolved by mha_gemm_setup */
} mha_gemm_shape;

typedef struct mha_gemm_stage {
    mha_gemm_shape shape;
    mha_kernel tile;      /* by MHA_GEMM_KERNEL, and for strides that CLBlast does not take */
    mha_kernel fill_bias; /* by MHA_GEMM_CLBLAST, where there is a bias */
    size_t temp_bytes;    /* of the workspace, from its very start: CLBlast takes no offset there */
    const char *reason;   /* why this one multiplies, as the end of a sentence */
} mha_gemm_stage;

/* Chooses, builds and warms up. On failure the stage is released. */
mha_status mha_gemm_setup(mha_gemm_stage *gemm, mha_context *context, const mha_gemm_shape *shape);
void mha_gemm_release(mha_gemm_stage *gemm);

/* One matrix a batch. Elements. batch 0: shared (a and b). */
typedef struct mha_operand {
    cl_mem buffer;
    size_t offset;
    size_t row;
    size_t batch;
} mha_operand;

typedef struct mha_gemm_launch_args {
    size_t batch, m, n, k; /* none 0, but k may be for MHA_GEMM_KERNEL */
    mha_operand a, b, c;
    mha_operand bias; /* buffer and offset */
} mha_gemm_launch_args;

mha_status mha_gemm_launch(mha_gemm_stage *gemm, mha_run *run, const char *stage,
                           const mha_gemm_launch_args *args);

/* "CLBlast" or "the library's kernel". */
const char *mha_gemm_by_name(const mha_gemm_stage *gemm);

#endif
