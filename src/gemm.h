/* Matrix products: the only door to CLBlast, and to the library's own kernels beside it. */
#ifndef MHA_GEMM_H
#define MHA_GEMM_H

#include "activation.h"
#include "gemm_cpu.h"
#include "widen.h"

/* Who multiplies. */
typedef enum mha_gemm_way {
    MHA_GEMM_WAY_CLBLAST,
    MHA_GEMM_WAY_TILES, /* cl/gemm.cl: a work-group a tile, on every device */
    MHA_GEMM_WAY_CPU    /* cl/gemm_cpu.cl */
} mha_gemm_way;

typedef struct mha_gemm_stage {
    mha_gemm_shape shape;
    mha_gemm_way way;
    const char *reason;     /* why this one multiplies, as the end of a sentence */
    mha_gemm_cpu_stage cpu; /* by MHA_GEMM_WAY_CPU */
    mha_kernel tile;        /* by MHA_GEMM_WAY_TILES, and for strides that CLBlast does not take */
    mha_kernel fill_bias;   /* by MHA_GEMM_WAY_CLBLAST, where there is a bias */
    mha_widen_stage widen;  /* likewise, where a type is not float32 */
    mha_activation_desc activation_desc; /* likewise, where there is one */
    mha_activation_stage activation;
    size_t clblast_bytes; /* that CLBlast needs of the workspace's very start: it takes no offset */
    size_t temp_bytes;    /* of the workspace, from its start: these, then the float32 copies */
} mha_gemm_stage;

/* Who would multiply, and in *reason why. */
mha_gemm_way mha_gemm_choose(const mha_context *context, const mha_gemm_shape *shape,
                             const char **reason);

/* Chooses, builds and warms up. On failure the stage is released. The workspace of a launch must
 * not hold its operands before temp_bytes. */
mha_status mha_gemm_setup(mha_gemm_stage *gemm, mha_context *context, const mha_gemm_shape *shape);
void mha_gemm_release(mha_gemm_stage *gemm);

/* Of a B that is packed ahead. 0: launches take a plain float32 one; otherwise what
 * mha_gemm_pack_launch has filled. */
size_t mha_gemm_pack_bytes(const mha_gemm_stage *gemm);
/* So many columns of B are packed together, each such panel of k * columns floats behind the one
 * before it: what is packed in whole panels one after the other is one B. 1: B is not packed. */
size_t mha_gemm_pack_columns(const mha_gemm_stage *gemm);
/* `from` is [1][1][k][n] of b_type by any strides; `to_offset` in floats. */
mha_status mha_gemm_pack_launch(const mha_gemm_stage *gemm, mha_run *run, const char *stage,
                                const mha_view *from, cl_mem to, size_t to_offset);

mha_status mha_gemm_launch(mha_gemm_stage *gemm, mha_run *run, const char *stage,
                           const mha_gemm_launch_args *args);

/* Whether CLBlast multiplies float32 copies of matrices of half types. */
bool mha_gemm_widens(const mha_gemm_stage *gemm);

/* "CLBlast", "the library's tiles" or "the library's CPU kernel". */
const char *mha_gemm_way_name(mha_gemm_way way);

#endif
