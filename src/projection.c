/* y = x W + b with weights of its own: what a layer does four times. */
#include "projection.h"

#include "log.h"
#include "shape.h"

static mha_status check_sizes(const mha_context *context, const mha_projection_desc *desc,
                              const char *who)
{
    /* Rows, columns and terms are ints in the kernels, and rows of all batches one product. */
    const size_t most = INT32_MAX / 2;
    const mha_size rows = mha_size_of((size_t[]){ desc->batch, desc->len }, 2);
    const mha_size sizes[] = {
        mha_size_of((size_t[]){ sizeof(float), desc->in, desc->out }, 3),
        mha_size_of((size_t[]){ sizeof(float), rows.value, desc->in }, 3),
        mha_size_of((size_t[]){ sizeof(float), rows.value, desc->out }, 3),
    };
    if (rows.overflows || sizes[0].overflows || sizes[1].overflows || sizes[2].overflows ||
        rows.value > most || desc->in > most || desc->out > most)
        return mha_log_fail(&context->log, MHA_TOO_LARGE,
                            "%s: the projection of %s, batch %zu * %zu rows of %zu to %zu, is too "
                            "large",
                            who, desc->name, desc->batch, desc->len, desc->in, desc->out);
    return MHA_OK;
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

mha_status mha_projection_setup(mha_projection *projection, mha_context *context,
                                const mha_projection_desc *desc, const char *who)
{
    *projection = (mha_projection){ .desc = *desc };
    mha_status status = check_sizes(context, desc, who);
    if (status)
        return status;
    const mha_gemm_shape shape = {
        .batch = desc->batch,
        .m = desc->len,
        .n = desc->out,
        .k = desc->in,
        .bias = desc->has_bias,
        .shared_b = true,
        .packed_b = true,
        .alpha = 1,
        .by = desc->by,
    };
    status = mha_gemm_setup(&projection->gemm, context, &shape);
    const size_t packed = mha_gemm_pack_bytes(&projection->gemm);
    const size_t bytes = packed ? packed : desc->in * desc->out * sizeof(float);
    if (!status)
        status = make_buffer(context, &projection->weight, bytes, desc->name);
    if (!status && desc->has_bias)
        status =
            make_buffer(context, &projection->bias, desc->out * sizeof(float), desc->bias_name);
    return mha_context_note(context, status);
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
    mha_status status =
        mha_bind_tensor(run, weight_view, who, desc->name, weight,
                        (size_t[]){ 1, 1, rows, columns }, sizeof(float), MHA_READS);
    if (!status && desc->has_bias)
        status = mha_bind_tensor(run, bias_view, who, desc->bias_name,
                                 &(mha_tensor){ bias->buffer, bias->offset, { 0 } },
                                 (size_t[]){ 1, 1, 1, desc->out }, sizeof(float), MHA_READS);
    return status;
}

mha_status mha_projection_load(mha_projection *projection, mha_run *run, const mha_kernel *copy,
                               const mha_view *weight, const mha_view *bias)
{
    const mha_projection_desc *desc = &projection->desc;
    mha_heads_copy matrix = { .shape = { 1, 1, desc->in, desc->out }, .from = *weight };
    matrix.to = mha_bind_packed(projection->weight, 0, matrix.shape);
    if (desc->out_in) {
        matrix.from.strides[2] = weight->strides[3];
        matrix.from.strides[3] = weight->strides[2];
    }
    const bool packs = mha_gemm_pack_bytes(&projection->gemm) > 0;
    mha_status status = packs ? mha_gemm_pack_launch(&projection->gemm, run, "load weights",
                                                     &matrix.from, projection->weight)
                              : mha_heads_launch(copy, run, "load weights", &matrix);
    if (status || !desc->has_bias)
        return status;
    mha_heads_copy row = { .shape = { 1, 1, 1, desc->out }, .from = *bias };
    row.to = mha_bind_packed(projection->bias, 0, row.shape);
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
        .b = { .buffer = projection->weight, .row = desc->out },
        .c = *to,
        .bias = { .buffer = projection->bias },
    };
    if (!args.batch || !args.m)
        return MHA_OK;
    return mha_gemm_launch(&projection->gemm, run, desc->stage, &args);
}
