/* y = x W + b with weights of its own: what a layer does four times. */
#include "projection.h"

#include "log.h"
#include "shape.h"

/* Rows, columns and terms are ints in the kernels, and rows of all batches one product. */
static bool fits(const mha_projection_desc *desc)
{
    const size_t most = INT32_MAX / 2;
    const mha_size rows = mha_size_of((size_t[]){ desc->batch, desc->len }, 2);
    const mha_size sizes[] = {
        mha_size_of((size_t[]){ sizeof(float), desc->in, desc->out }, 3),
        mha_size_of((size_t[]){ sizeof(float), rows.value, desc->in }, 3),
        mha_size_of((size_t[]){ sizeof(float), rows.value, desc->out }, 3),
    };
    return !rows.overflows && !sizes[0].overflows && !sizes[1].overflows && !sizes[2].overflows &&
           rows.value <= most && desc->in <= most && desc->out <= most;
}

static mha_status set_up_product(mha_projection *projection, mha_context *context, const char *who)
{
    const mha_projection_desc *desc = &projection->desc;
    if (!fits(desc))
        return mha_log_fail(&context->log, MHA_TOO_LARGE,
                            "%s: the projection of %s, batch %zu * %zu rows of %zu to %zu, is too "
                            "large",
                            who, desc->name, desc->batch, desc->len, desc->in, desc->out);
    const mha_gemm_shape shape = {
        .batch = desc->batch,
        .m = desc->len,
        .n = desc->out,
        .k = desc->in,
        .bias = desc->has_bias,
        .shared_b = true,
        .packed_b = true,
        .alpha = 1,
        .activation = desc->activation,
        .slope = desc->slope,
        .by = desc->by,
        .a_type = desc->type,
        .b_type = desc->weight_type,
        .c_type = desc->output_type,
    };
    return mha_gemm_setup(&projection->gemm, context, &shape);
}

static mha_status make_buffer(const mha_context *context, cl_mem *out, size_t bytes,
                              const char *name)
{
    cl_int error = CL_SUCCESS;
    *out = clCreateBuffer(context->cl, CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (!*out)
        return mha_log_fail(&context->log, error,
                            "clCreateBuffer of %zu bytes for weights of %s failed", bytes, name);
    return MHA_OK;
}

static mha_status make_weights(mha_projection *projection, const mha_context *context)
{
    const mha_projection_desc *desc = &projection->desc;
    const size_t packed = mha_gemm_pack_bytes(&projection->gemm);
    const size_t bytes = packed ? packed : desc->in * desc->out * sizeof(float);
    mha_status status = make_buffer(context, &projection->weight, bytes, desc->name);
    if (!status && desc->has_bias)
        status =
            make_buffer(context, &projection->bias, desc->out * sizeof(float), desc->bias_name);
    return status;
}

mha_status mha_projection_setup(mha_projection *projection, mha_context *context,
                                const mha_projection_desc *desc, const char *who)
{
    *projection = (mha_projection){ .desc = *desc, .columns = desc->out };
    mha_status status = set_up_product(projection, context, who);
    if (!status)
        status = make_weights(projection, context);
    return mha_context_note(context, status);
}

static mha_status share(mha_context *context, cl_mem *to, cl_mem buffer, const char *name)
{
    const cl_int error = clRetainMemObject(buffer);
    if (error)
        return mha_log_fail(&context->log, error, "clRetainMemObject for %s failed", name);
    *to = buffer;
    return MHA_OK;
}

/* A projection with a column of another one's weights and on. */
static mha_status set_up_part(mha_projection *part, mha_context *context,
                              const mha_projection_desc *desc, const mha_projection *joined,
                              size_t column, const char *who)
{
    *part = (mha_projection){ .desc = *desc, .column = column, .columns = joined->columns };
    mha_status status = set_up_product(part, context, who);
    if (!status)
        status = share(context, &part->weight, joined->weight, desc->name);
    if (!status && joined->bias)
        status = share(context, &part->bias, joined->bias, desc->bias_name);
    return mha_context_note(context, status);
}

/* Whether the parts can be columns of one product, and in *out that product's desc. */
static bool describe_joined(const mha_projection_desc *descs, size_t count, const char *stage,
                            mha_projection_desc *out)
{
    *out = descs[0];
    out->stage = stage;
    for (size_t i = 1; i < count; i++) {
        if (descs[i].batch != out->batch || descs[i].len != out->len || descs[i].in != out->in ||
            descs[i].has_bias != out->has_bias || descs[i].by != out->by ||
            descs[i].activation != out->activation || descs[i].slope != out->slope ||
            descs[i].type != out->type)
            return false;
        out->out += descs[i].out; /* no overflow: the kernels hold each in an int */
    }
    return fits(out);
}

/* Packed weights are joined by whole panels only. */
static bool ends_panels(const mha_gemm_stage *gemm, const mha_projection_desc *descs, size_t count)
{
    for (size_t i = 0; i + 1 < count; i++)
        if (descs[i].out % mha_gemm_pack_columns(gemm))
            return false;
    return true;
}

static mha_status set_up_joined(mha_projection *joined, mha_context *context,
                                const mha_projection_desc *descs, size_t count, const char *stage,
                                const char *who)
{
    mha_projection_desc desc;
    *joined = (mha_projection){ 0 };
    for (size_t i = 0; i < count; i++)
        if (!fits(&descs[i]))
            return MHA_OK; /* which the part says by itself */
    if (!describe_joined(descs, count, stage, &desc))
        return MHA_OK;
    *joined = (mha_projection){ .desc = desc, .columns = desc.out };
    mha_status status = set_up_product(joined, context, who);
    if (!status && !ends_panels(&joined->gemm, descs, count)) {
        mha_projection_release(joined);
        return MHA_OK;
    }
    if (!status)
        status = make_weights(joined, context);
    return mha_context_note(context, status);
}

mha_status mha_projection_setup_parts(mha_projection *parts, mha_projection *joined,
                                      mha_context *context, const mha_projection_desc *descs,
                                      size_t count, const char *stage, const char *who)
{
    mha_status status = set_up_joined(joined, context, descs, count, stage, who);
    size_t column = 0;
    for (size_t i = 0; !status && i < count; i++) {
        status = mha_projection_joins(joined)
                     ? set_up_part(&parts[i], context, &descs[i], joined, column, who)
                     : mha_projection_setup(&parts[i], context, &descs[i], who);
        column += descs[i].out;
    }
    return status;
}

bool mha_projection_joins(const mha_projection *joined)
{
    return joined->weight != NULL;
}

void mha_projection_release(mha_projection *projection)
{
    mha_gemm_release(&projection->gemm);
    if (projection->weight)
        clReleaseMemObject(projection->weight);
    if (projection->bias)
        clReleaseMemObject(projection->bias);
    *projection = (mha_projection){ 0 };
}

mha_status mha_projection_bind(const mha_projection *projection, const mha_run *run,
                               const char *who, const mha_tensor *weight, const mha_tensor *bias,
                               mha_view *weight_view, mha_view *bias_view)
{
    const mha_projection_desc *desc = &projection->desc;
    *bias_view = (mha_view){ 0 };
    if (desc->has_bias != !!bias->buffer)
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            desc->has_bias
                                ? "%s: weights.%s is not given, and the flags say that there is one"
                                : "%s: weights.%s is given, and the flags say that there is none",
                            who, desc->bias_name);
    const size_t rows = desc->out_in ? desc->out : desc->in;
    const size_t columns = desc->out_in ? desc->in : desc->out;
    mha_status status = mha_bind_tensor(run, weight_view, who, desc->name, weight,
                                        (size_t[]){ 1, 1, rows, columns },
                                        mha_bind_type_bytes(desc->weight_type), MHA_READS);
    if (!status && desc->has_bias)
        status = mha_bind_tensor(run, bias_view, who, desc->bias_name,
                                 &(mha_tensor){ bias->buffer, bias->offset, { 0 } },
                                 (size_t[]){ 1, 1, 1, desc->out },
                                 mha_bind_type_bytes(desc->weight_type), MHA_READS);
    return status;
}

static bool packs(const mha_projection *projection)
{
    return mha_gemm_pack_bytes(&projection->gemm) > 0;
}

/* In floats. Panels of packed columns lie one behind the other. */
static size_t offset_of_weight(const mha_projection *projection)
{
    return packs(projection) ? projection->column * projection->desc.in : projection->column;
}

mha_status mha_projection_load(mha_projection *projection, mha_run *run, const mha_kernel *copy,
                               const mha_view *weight, const mha_view *bias)
{
    const mha_projection_desc *desc = &projection->desc;
    mha_heads_copy matrix = { .shape = { 1, 1, desc->in, desc->out }, .from = *weight };
    matrix.to = (mha_view){ .buffer = projection->weight,
                            .offset = offset_of_weight(projection),
                            .strides = { 0, 0, projection->columns, 1 } };
    if (desc->out_in) {
        matrix.from.strides[2] = weight->strides[3];
        matrix.from.strides[3] = weight->strides[2];
    }
    mha_status status = packs(projection)
                            ? mha_gemm_pack_launch(&projection->gemm, run, "load weights",
                                                   &matrix.from, matrix.to.buffer, matrix.to.offset)
                            : mha_heads_launch(copy, run, "load weights", &matrix);
    if (status || !desc->has_bias)
        return status;
    mha_heads_copy row = { .shape = { 1, 1, 1, desc->out }, .from = *bias };
    row.to = mha_bind_packed(projection->bias, projection->column * sizeof(float), row.shape);
    return mha_heads_launch(copy, run, "load bias", &row);
}

mha_operand mha_projection_rows(const mha_view *view, size_t len, size_t width)
{
    return (mha_operand){ .buffer = view->buffer,
                          .offset = view->offset,
                          .row = len > 1 ? view->strides[2] : width, /* a single row has none */
                          .batch = view->strides[0] };
}

mha_status mha_projection_launch(mha_projection *projection, mha_run *run, size_t len,
                                 const mha_operand *from, const mha_operand *to)
{
    const mha_projection_desc *desc = &projection->desc;
    const mha_gemm_launch_args args = {
        .batch = desc->batch,
        .m = len,
        .n = desc->out,
        .k = desc->in,
        .a = *from,
        .b = { .buffer = projection->weight,
               .offset = offset_of_weight(projection),
               .row = projection->columns },
        .c = *to,
        .bias = { .buffer = projection->bias, .offset = projection->column },
    };
    if (!args.batch || !args.m)
        return MHA_OK;
    return mha_gemm_launch(&projection->gemm, run, desc->stage, &args);
}

void mha_projection_explain(const mha_projection *projection, mha_text *text)
{
    const mha_gemm_stage *gemm = &projection->gemm;
    mha_text_add(text, "%s: %s, %s%s\n", projection->desc.stage, mha_gemm_way_name(gemm->way),
                 gemm->reason,
                 mha_gemm_widens(gemm) ? ", on float32 copies of half types in the workspace" : "");
}
