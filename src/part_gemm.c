/* The public matrix product: the gemm stage behind the checks of a call. */
#include "bind.h"
#include "gemm.h"
#include "heads.h"
#include "log.h"
#include "shape.h"

#include <math.h>
#include <stdlib.h>

struct mha_gemm {
    mha_context *context;
    mha_gemm_desc desc; /* resolved */
    mha_gemm_stage stage;
    /* With MHA_GEMM_LOADED_B. */
    cl_mem loaded_b; /* packed for the stage, or float32 and otherwise as the caller's */
    mha_kernel copy; /* what makes the latter */
    bool loaded;
};

static mha_status resolve_types(const mha_log *log, const char *who, mha_gemm_desc *desc)
{
    mha_type *const others[] = { &desc->b_type, &desc->c_type, &desc->bias_type };
    static const char *const names[] = { "b_type", "c_type", "bias_type" };
    if (!desc->type)
        desc->type = MHA_FLOAT32;
    mha_status status = mha_shape_check_type(log, who, "type", desc->type);
    for (int i = 0; !status && i < 3; i++) {
        if (!*others[i])
            *others[i] = desc->type;
        status = mha_shape_check_type(log, who, names[i], *others[i]);
    }
    return status;
}

static mha_status resolve_activation(const mha_log *log, const char *who, mha_gemm_desc *desc)
{
    if ((int)desc->activation < MHA_ACTIVATION_NONE || desc->activation > MHA_ACTIVATION_SILU)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: activation is no mha_activation_kind: %d", who,
                            (int)desc->activation);
    if (!isfinite(desc->activation_alpha))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: activation_alpha is %g, it must be finite", who,
                            (double)desc->activation_alpha);
    if (desc->activation_alpha == 0)
        desc->activation_alpha = 1;
    if (desc->activation_alpha != 1 && desc->activation != MHA_ACTIVATION_SILU)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: activation_alpha is %g, and it is of MHA_ACTIVATION_SILU only",
                            who, (double)desc->activation_alpha);
    return MHA_OK;
}

static mha_status resolve_gemm(const mha_context *context, const mha_gemm_desc *given,
                               mha_gemm_desc *desc)
{
    static const char who[] = "mha_gemm_create";
    const unsigned known =
        MHA_GEMM_TRANSPOSE_A | MHA_GEMM_TRANSPOSE_B | MHA_GEMM_BIAS | MHA_GEMM_LOADED_B;
    *desc = *given;
    desc->batch = desc->batch ? desc->batch : 1;
    desc->alpha = desc->alpha == 0 ? 1 : desc->alpha;
    if (!desc->m || !desc->n)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: m is %zu and n is %zu, both must be at least 1", who, desc->m,
                            desc->n);
    if (desc->flags & ~known)
        return mha_log_fail(&context->log, MHA_UNSUPPORTED, "%s: flags has unknown bits: 0x%x", who,
                            desc->flags & ~known);
    if (desc->flags & MHA_GEMM_BIAS && desc->beta != 0)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: MHA_GEMM_BIAS needs beta 0, it is %g", who, (double)desc->beta);
    if (desc->by < MHA_GEMM_DEFAULT || desc->by > MHA_GEMM_KERNEL)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: by is no mha_gemm_by: %d",
                            who, (int)desc->by);
    const size_t most = INT32_MAX / 2;
    if (desc->m > most || desc->n > most || desc->k > most || desc->batch > most)
        return mha_log_fail(&context->log, MHA_TOO_LARGE,
                            "%s: m %zu, n %zu, k %zu, batch %zu: each may be at most %zu", who,
                            desc->m, desc->n, desc->k, desc->batch, most);
    const mha_status status = resolve_types(&context->log, who, desc);
    return status ? status : resolve_activation(&context->log, who, desc);
}

static bool loads(const mha_gemm *gemm)
{
    return gemm->desc.flags & MHA_GEMM_LOADED_B;
}

/* How B is stored: rows and columns. */
static void size_b(const mha_gemm_desc *desc, size_t shape[2])
{
    const bool turned = desc->flags & MHA_GEMM_TRANSPOSE_B;
    shape[0] = turned ? desc->n : desc->k;
    shape[1] = turned ? desc->k : desc->n;
}

/* Memory for B, and the kernel that fills it where the stage packs nothing. */
static mha_status make_loaded_b(mha_gemm *gemm)
{
    mha_context *context = gemm->context;
    const mha_size plain = mha_size_of((size_t[]){ sizeof(float), gemm->desc.k, gemm->desc.n }, 3);
    const size_t packed = mha_gemm_pack_bytes(&gemm->stage);
    size_t bytes = packed ? packed : plain.value;
    if (!packed && plain.overflows)
        return mha_log_fail(&context->log, MHA_TOO_LARGE,
                            "mha_gemm_create: a B of %zu x %zu is too large", gemm->desc.k,
                            gemm->desc.n);
    if (!bytes)
        bytes = sizeof(float); /* a buffer is never empty */
    cl_int error = CL_SUCCESS;
    gemm->loaded_b = clCreateBuffer(context->cl, CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (!gemm->loaded_b)
        return mha_log_fail(&context->log, error, "clCreateBuffer of %zu bytes for B failed",
                            bytes);
    return packed ? MHA_OK : mha_heads_setup(&gemm->copy, context, gemm->desc.b_type, MHA_FLOAT32);
}

mha_status mha_gemm_create(mha_gemm **out, mha_context *context, const mha_gemm_desc *desc)
{
    if (out)
        *out = NULL;
    mha_status status = mha_context_begin_create(context, "mha_gemm_create", desc, out);
    if (status)
        return status;
    mha_gemm *gemm = calloc(1, sizeof *gemm);
    if (!gemm)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a gemm");
    gemm->context = context;
    status = resolve_gemm(context, desc, &gemm->desc);
    if (!status) {
        const mha_gemm_shape shape = {
            .batch = gemm->desc.batch,
            .m = gemm->desc.m,
            .n = gemm->desc.n,
            .k = gemm->desc.k,
            .transpose_a = gemm->desc.flags & MHA_GEMM_TRANSPOSE_A,
            .transpose_b = gemm->desc.flags & MHA_GEMM_TRANSPOSE_B,
            .bias = gemm->desc.flags & MHA_GEMM_BIAS,
            .shared_b = loads(gemm),
            .packed_b = loads(gemm),
            .alpha = gemm->desc.alpha,
            .beta = gemm->desc.beta,
            .by = gemm->desc.by,
            .a_type = gemm->desc.type,
            .b_type = gemm->desc.b_type,
            .c_type = gemm->desc.c_type,
            .bias_type = gemm->desc.bias_type,
            .activation = gemm->desc.activation,
            .slope = gemm->desc.activation_alpha,
        };
        status = mha_gemm_setup(&gemm->stage, context, &shape);
        if (!status)
            status = mha_shape_check_workspace(context, gemm->stage.temp_bytes, "mha_gemm_create");
        if (!status && loads(gemm))
            status = mha_context_note(context, make_loaded_b(gemm));
    }
    if (status) {
        mha_gemm_destroy(&gemm);
        return status;
    }
    *out = gemm;
    return MHA_OK;
}

void mha_gemm_destroy(mha_gemm **gemm)
{
    mha_gemm *g = gemm ? *gemm : NULL;
    if (!g)
        return;
    *gemm = NULL;
    mha_gemm_release(&g->stage);
    mha_kernel_release(&g->copy);
    if (g->loaded_b)
        clReleaseMemObject(g->loaded_b);
    free(g);
}

mha_workspace mha_gemm_workspace(const mha_gemm *gemm)
{
    if (!gemm || !gemm->stage.temp_bytes)
        return (mha_workspace){ 0 };
    return (mha_workspace){ .bytes = gemm->stage.temp_bytes,
                            .alignment = gemm->context->alignment };
}

/* A matrix argument: [batch][1][rows][columns] with its row and batch strides. */
static mha_status bind_matrix(const mha_run *run, mha_view *view, mha_operand *operand,
                              const char *who, const char *name, const mha_matrix *matrix,
                              mha_type type, const size_t shape[4], mha_access access)
{
    const mha_log *log = &run->context->log;
    const size_t batch = shape[0], columns = shape[3];
    const size_t row = matrix->row_stride ? matrix->row_stride : columns;
    if (row < columns)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: %s.row_stride is %zu, below the %zu columns", who, name, row,
                            columns);
    if (access == MHA_WRITES && batch > 1 && !matrix->batch_stride)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: %s.batch_stride is 0 and there are %zu batches, which would write "
                            "one matrix at once; sum them with an explicit reduction",
                            who, name, batch);
    const mha_tensor tensor = { .buffer = matrix->buffer,
                                .offset = matrix->offset,
                                .strides = { matrix->batch_stride, 0, row, 1 } };
    *operand = (mha_operand){ .buffer = matrix->buffer,
                              .offset = matrix->offset,
                              .row = row,
                              .batch = matrix->batch_stride };
    return mha_bind_tensor(run, view, who, name, &tensor, shape, mha_bind_type_bytes(type), access);
}

static mha_status bind_load(const mha_gemm *gemm, const mha_run *run, const char *who,
                            const mha_matrix *b, mha_view *view)
{
    const mha_log *log = &run->context->log;
    if (!loads(gemm))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: MHA_GEMM_LOADED_B is not set, so that each call brings its B",
                            who);
    if (b->batch_stride)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: b.batch_stride is %zu, and one B is for all batches", who,
                            b->batch_stride);
    size_t shape[4] = { 1, 1 };
    size_b(&gemm->desc, &shape[2]);
    mha_operand operand;
    return bind_matrix(run, view, &operand, who, "b", b, gemm->desc.b_type, shape, MHA_READS);
}

static mha_status launch_load(const mha_gemm *gemm, mha_run *run, const mha_view *from)
{
    mha_heads_copy copy = { .shape = { 1, 1 }, .from = *from };
    size_b(&gemm->desc, &copy.shape[2]);
    if (!mha_gemm_pack_bytes(&gemm->stage)) {
        copy.to = mha_bind_packed(gemm->loaded_b, 0, copy.shape);
        return mha_heads_launch(&gemm->copy, run, "load B", &copy);
    }
    if (gemm->desc.flags & MHA_GEMM_TRANSPOSE_B) {
        copy.from.strides[2] = from->strides[3];
        copy.from.strides[3] = from->strides[2];
    }
    return mha_gemm_pack_launch(&gemm->stage, run, "load B", &copy.from, gemm->loaded_b, 0);
}

mha_status mha_gemm_load(mha_gemm *gemm, const mha_matrix *b, const mha_call *call)
{
    static const char who[] = "mha_gemm_load";
    mha_run_clear_event(call);
    if (!gemm)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = gemm->context;
    if (!b)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: b is NULL", who);
    mha_run run;
    mha_view view = { 0 };
    mha_status status = mha_run_begin(&run, context, call, who, 0);
    if (status)
        return mha_context_note(context, status);
    status = bind_load(gemm, &run, who, b, &view);
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        mha_run_will_write(&run, "the B of before");
        status = launch_load(gemm, &run, &view);
        mha_run_note_load(&run, status, &gemm->loaded);
    }
    return mha_run_end(&run, status);
}

/* B of a call: the caller's, or the one that is loaded, which overlaps nothing of his. */
static mha_status bind_b(const mha_gemm *gemm, const mha_run *run, const char *who,
                         const mha_matrix *given, mha_view *view, mha_operand *operand)
{
    const mha_gemm_desc *desc = &gemm->desc;
    size_t shape[4] = { desc->batch, 1 };
    size_b(desc, &shape[2]);
    if (!loads(gemm))
        return bind_matrix(run, view, operand, who, "b", given, desc->b_type, shape, MHA_READS);
    if (given->buffer)
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            "%s: b is given, and with MHA_GEMM_LOADED_B it comes from "
                            "mha_gemm_load",
                            who);
    *view = (mha_view){ 0 };
    *operand = (mha_operand){ .buffer = gemm->loaded_b, .row = shape[3] };
    return MHA_OK;
}

static mha_status bind_gemm(const mha_gemm *gemm, const mha_run *run, const char *who,
                            const mha_gemm_args *args, mha_gemm_launch_args *out)
{
    const mha_gemm_desc *desc = &gemm->desc;
    const size_t m = args->m ? args->m : desc->m;
    if (m > desc->m)
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            "%s: the call's m is %zu, above the desc's %zu", who, m, desc->m);
    *out = (mha_gemm_launch_args){ .batch = desc->batch, .m = m, .n = desc->n, .k = desc->k };
    const bool ta = desc->flags & MHA_GEMM_TRANSPOSE_A;
    const bool has_bias = desc->flags & MHA_GEMM_BIAS;
    const size_t shape_a[4] = { desc->batch, 1, ta ? desc->k : m, ta ? m : desc->k };
    const size_t shape_c[4] = { desc->batch, 1, m, desc->n };
    mha_view a, b, c, bias = { 0 };
    mha_status status =
        bind_matrix(run, &a, &out->a, who, "a", &args->a, desc->type, shape_a, MHA_READS);
    if (!status)
        status = bind_b(gemm, run, who, &args->b, &b, &out->b);
    if (!status)
        status =
            bind_matrix(run, &c, &out->c, who, "c", &args->c, desc->c_type, shape_c, MHA_WRITES);
    if (!status && has_bias != !!args->bias.buffer)
        status = mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                              "%s: bias is %s, and MHA_GEMM_BIAS is %s", who,
                              has_bias ? "not given" : "given", has_bias ? "set" : "not set");
    if (!status && has_bias)
        status = mha_bind_tensor(
            run, &bias, who, "bias", &(mha_tensor){ args->bias.buffer, args->bias.offset, { 0 } },
            (size_t[]){ 1, 1, 1, desc->n }, mha_bind_type_bytes(desc->bias_type), MHA_READS);
    out->bias = (mha_operand){ .buffer = bias.buffer, .offset = bias.offset };
    if (status)
        return status;
    const mha_view *views[] = { &c, &a, &b, &bias };
    static const char *const names[] = { "c", "a", "b", "bias" };
    static const mha_access accesses[] = { MHA_WRITES, MHA_READS, MHA_READS, MHA_READS };
    return mha_bind_apart(run, who, views, names, accesses, 4);
}

mha_status mha_gemm_enqueue(mha_gemm *gemm, const mha_gemm_args *args, const mha_call *call)
{
    static const char who[] = "mha_gemm_enqueue";
    mha_run_clear_event(call);
    if (!gemm)
        return MHA_INVALID_ARGUMENT;
    if (!args)
        return mha_log_fail(&gemm->context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    const mha_status lost = mha_context_check(gemm->context, who);
    if (lost)
        return lost;
    if (loads(gemm) && !gemm->loaded)
        return mha_log_fail(&gemm->context->log, MHA_NOT_LOADED,
                            "%s: the gemm has no B: call mha_gemm_load first", who);
    mha_run run;
    mha_gemm_launch_args launch;
    mha_status status = mha_run_begin(&run, gemm->context, call, who, gemm->stage.temp_bytes);
    if (status)
        return mha_context_note(gemm->context, status);
    status = bind_gemm(gemm, &run, who, args, &launch);
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        mha_run_will_write(&run, "c");
        status = mha_gemm_launch(&gemm->stage, &run, "gemm", &launch);
    }
    return mha_run_end(&run, status);
}
