/* y = x W + b with weights of its own: what a layer does four times. Projections of the same rows
 * can share their weights' memory, so that one product does them all. */
#ifndef MHA_PROJECTION_H
#define MHA_PROJECTION_H

#include "bind.h"
#include "gemm.h"
#include "heads.h"
#include "text.h"

typedef struct mha_projection_desc {
    const char *name;      /* of its weight among the caller's: "query" */
    const char *bias_name; /* "bias_query" */
    const char *stage;     /* "project query" */
    size_t batch, len;     /* the largest of any launch */
    size_t in, out;
    bool has_bias;
    bool out_in;                    /* the caller's weight is [out][in] */
    mha_activation_kind activation; /* of y */
    float slope;                    /* its alpha */
    mha_gemm_by by;
    mha_type type, output_type; /* of the rows that come in, and of those that go out */
    mha_type weight_type;       /* of the caller's weight and bias; they are kept in float32 */
} mha_projection_desc;

typedef struct mha_projection {
    mha_projection_desc desc;
    mha_gemm_stage gemm;
    /* Packed for the product, or [in][columns]: whatever the caller has, once, at load. */
    cl_mem weight;
    cl_mem bias;            /* [columns], or NULL */
    size_t column, columns; /* where its own begin in these, and how many there are in all */
} mha_projection;

/* Checks sizes, allocates the weights, builds. On failure the caller releases. `who` is the public
 * function. */
mha_status mha_projection_setup(mha_projection *projection, mha_context *context,
                                const mha_projection_desc *desc, const char *who);
void mha_projection_release(mha_projection *projection);

/* The same for `count` projections, and for one `joined` of them all, to rows of [out of the
 * first][out of the second] and on: it has the weights of the parts, which still can be launched
 * one by one. Where their sizes do not allow it `joined` stays without, see mha_projection_joins.
 * `stage` is joined's. */
mha_status mha_projection_setup_parts(mha_projection *parts, mha_projection *joined,
                                      mha_context *context, const mha_projection_desc *descs,
                                      size_t count, const char *stage, const char *who);
bool mha_projection_joins(const mha_projection *joined);

/* Checks the caller's weight and bias. */
mha_status mha_projection_bind(const mha_projection *projection, const mha_run *run,
                               const char *who, const mha_tensor *weight, const mha_tensor *bias,
                               mha_view *weight_view, mha_view *bias_view);
/* Copies or packs them; `copy` is the heads stage's kernel, from weight_type to float32. */
mha_status mha_projection_load(mha_projection *projection, mha_run *run, const mha_kernel *copy,
                               const mha_view *weight, const mha_view *bias);

/* The rows of a view [batch][1][len][width] as matrices. */
mha_operand mha_projection_rows(const mha_view *view, size_t len, size_t width);

/* Rows [batch][len][in] to rows [batch][len][out]. */
mha_status mha_projection_launch(mha_projection *projection, mha_run *run, size_t len,
                                 const mha_operand *from, const mha_operand *to);

/* Who multiplies and why: a line. */
void mha_projection_explain(const mha_projection *projection, mha_text *text);

#endif
