/* y = x W + b with weights of its own: what a layer does four times. */
#ifndef MHA_PROJECTION_H
#define MHA_PROJECTION_H

#include "bind.h"
#include "gemm.h"
#include "heads.h"

typedef struct mha_projection_desc {
    const char *name;      /* of its weight among the caller's: "query" */
    const char *bias_name; /* "bias_query" */
    const char *stage;     /* "project query" */
    size_t batch, len;     /* the largest of any launch */
    size_t in, out;
    bool has_bias;
    bool out_in; /* the caller's weight is [out][in] */
    mha_gemm_by by;
} mha_projection_desc;

typedef struct mha_projection {
    mha_projection_desc desc;
    mha_gemm_stage gemm;
    cl_mem
        weight;  /* packed for the product, or [in][out]: whatever the caller has, once, at load */
    cl_mem bias; /* [out], or NULL */
} mha_projection;

/* Checks sizes, allocates the weights, builds. On failure the caller releases. `who` is the public
 * function. */
mha_status mha_projection_setup(mha_projection *projection, mha_context *context,
                                const mha_projection_desc *desc, const char *who);
void mha_projection_release(mha_projection *projection);

/* Checks the caller's weight and bias. */
mha_status mha_projection_bind(const mha_projection *projection, const mha_run *run,
                               const char *who, const mha_tensor *weight, const mha_tensor *bias,
                               mha_view *weight_view, mha_view *bias_view);
/* Copies or packs them; `copy` is the heads stage's kernel. */
mha_status mha_projection_load(mha_projection *projection, mha_run *run, const mha_kernel *copy,
                               const mha_view *weight, const mha_view *bias);

/* The rows of a view [batch][1][len][width] as matrices. */
mha_operand mha_projection_rows(const mha_view *view, size_t len, size_t width);

/* Rows [batch][len][in] to rows [batch][len][out]. */
mha_status mha_projection_launch(mha_projection *projection, mha_run *run, size_t len,
                                 const mha_operand *from, const mha_operand *to);

#endif
