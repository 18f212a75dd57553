/* A product's half matrices as float32 ones in the workspace, for CLBlast, which sums half types in
 * half. */
#ifndef MHA_WIDEN_H
#define MHA_WIDEN_H

#include "convert.h"

enum {
    MHA_WIDEN_A,
    MHA_WIDEN_B,
    MHA_WIDEN_C,
    MHA_WIDEN_MATRICES
};

typedef struct mha_widen_stage {
    mha_convert_stage into[MHA_WIDEN_MATRICES]; /* of C where it is read, too */
    mha_convert_stage back;                     /* of C */
    size_t regions[MHA_WIDEN_MATRICES];         /* bytes from the workspace's start */
} mha_widen_stage;

/* Whether there is anything to do for these types. */
bool mha_widen_is_needed(const mha_gemm_shape *shape);

/* Types of the shape are resolved. Adds its regions to a workspace that ends at *end. On failure
 * the caller releases. */
mha_status mha_widen_setup(mha_widen_stage *widen, mha_context *context,
                           const mha_gemm_shape *shape, size_t *end);
void mha_widen_release(mha_widen_stage *widen);

/* The arguments with the float32 matrices in the place of the half ones. */
mha_gemm_launch_args mha_widen_args(const mha_widen_stage *widen, const mha_run *run,
                                    const mha_gemm_shape *shape, const mha_gemm_launch_args *args);
/* Fills those that the product reads; and, after it, C from its own. */
mha_status mha_widen_inputs(const mha_widen_stage *widen, mha_run *run, const mha_gemm_shape *shape,
                            const mha_gemm_launch_args *args);
mha_status mha_widen_output(const mha_widen_stage *widen, mha_run *run, const mha_gemm_shape *shape,
                            const mha_gemm_launch_args *args);

#endif
