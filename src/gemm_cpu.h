/* The host of cl/gemm_cpu.cl: matrix products in the shape that suits a CPU. */
#ifndef MHA_GEMM_CPU_H
#define MHA_GEMM_CPU_H

#include "bind.h"
#include "product.h"

typedef struct mha_gemm_cpu_stage {
    bool packed;          /* B comes as mha_gemm_cpu_pack has made it */
    bool staged;          /* A goes to local memory: it is stored [k][m], or of a half type */
    bool held;            /* so do the sums: C is of a half type */
    size_t rows, columns; /* of a tile of sums */
    size_t height, width; /* the most of a block of them, where local memory takes A or sums */
    mha_kernel multiply, pack;
} mha_gemm_cpu_stage;

/* Whether the device has the local memory that the product needs, and size_t holds its bytes. */
bool mha_gemm_cpu_can(const mha_context *context, const mha_gemm_shape *shape);

/* On failure the caller releases. */
mha_status mha_gemm_cpu_setup(mha_gemm_cpu_stage *gemm, mha_context *context,
                              const mha_gemm_shape *shape);
void mha_gemm_cpu_release(mha_gemm_cpu_stage *gemm);

mha_status mha_gemm_cpu_launch(const mha_gemm_cpu_stage *gemm, mha_run *run, const char *stage,
                               const mha_gemm_shape *shape, const mha_gemm_launch_args *args);

/* Of a B that is packed ahead; 0 where nothing is packed, or ever launched. */
size_t mha_gemm_cpu_pack_bytes(const mha_gemm_cpu_stage *gemm, const mha_gemm_shape *shape);
/* `from` is [1][1][k][n] of b_type by any strides; `to_offset` in floats. */
mha_status mha_gemm_cpu_pack(const mha_gemm_cpu_stage *gemm, mha_run *run, const char *stage,
                             const mha_gemm_shape *shape, const mha_view *from, cl_mem to,
                             size_t to_offset);

#endif
