/* The public parts: the stages of attention behind checks of their own. */
#include "bind.h"
#include "gemm.h"
#include "heads.h"
#include "log.h"
#include "shape.h"
#include "softmax.h"

#include <stdlib.h>

/* What every create begins with; *part is what calloc gave for it. */
static mha_status check_create(mha_context *context, const char *who, const void *desc,
                               const void *out)
{
    if (!context)
        return MHA_INVALID_ARGUMENT;
    if (!out || !desc)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: %s is NULL", who,
                            out ? "desc" : "out");
    return mha_context_check(context);
}

static mha_status no_memory(const mha_context *context)
{
    return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a part");
}

/* --- gemm --- */

struct mha_gemm {
    mha_context *context;
    mha_gemm_desc desc; /* resolved */
    mha_gemm_stage stage;
};

static mha_status resolve_gemm(const mha_context *context, const mha_gemm_desc *given,
                               mha_gemm_desc *desc)
{
    static const char who[] = "mha_gemm_create";
    const unsigned known = MHA_GEMM_TRANSPOSE_A | MHA_GEMM_TRANSPOSE_B | MHA_GEMM_BIAS;
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
    return MHA_OK;
}

mha_status mha_gemm_create(mha_gemm **out, mha_context *context, const mha_gemm_desc *desc)
{
    if (out)
        *out = NULL;
    mha_status status = check_create(context, "mha_gemm_create", desc, out);
    if (status)
        return status;
    mha_gemm *gemm = calloc(1, sizeof *gemm);
    if (!gemm)
        return no_memory(context);
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
            .alpha = gemm->desc.alpha,
            .beta = gemm->desc.beta,
            .by = gemm->desc.by,
        };
        status = mha_gemm_setup(&gemm->stage, context, &shape);
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
                              const char *name, const mha_matrix *matrix, size_t batch, size_t rows,
                              size_t columns, mha_access access)
{
    static const char who[] = "mha_gemm_enqueue";
    const mha_log *log = &run->context->log;
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
    return mha_bind_tensor(run, view, who, name, &tensor, (size_t[]){ batch, 1, rows, columns },
                           sizeof(float), access);
}

static mha_status bind_gemm(const mha_run *run, const mha_gemm_desc *desc,
                            const mha_gemm_args *args, mha_gemm_launch_args *out)
{
    static const char who[] = "mha_gemm_enqueue";
    const size_t m = args->m ? args->m : desc->m;
    if (m > desc->m)
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            "%s: the call's m is %zu, above the desc's %zu", who, m, desc->m);
    *out = (mha_gemm_launch_args){ .batch = desc->batch, .m = m, .n = desc->n, .k = desc->k };
    const bool ta = desc->flags & MHA_GEMM_TRANSPOSE_A;
    const bool tb = desc->flags & MHA_GEMM_TRANSPOSE_B;
    const bool has_bias = desc->flags & MHA_GEMM_BIAS;
    mha_view a, b, c, bias = { 0 };
    mha_status status = bind_matrix(run, &a, &out->a, "a", &args->a, desc->batch, ta ? desc->k : m,
                                    ta ? m : desc->k, MHA_READS);
    if (!status)
        status = bind_matrix(run, &b, &out->b, "b", &args->b, desc->batch, tb ? desc->n : desc->k,
                             tb ? desc->k : desc->n, MHA_READS);
    if (!status)
        status = bind_matrix(run, &c, &out->c, "c", &args->c, desc->batch, m, desc->n, MHA_WRITES);
    if (!status && has_bias != !!args->bias.buffer)
        status = mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                              "%s: bias is %s, and MHA_GEMM_BIAS is %s", who,
                              has_bias ? "not given" : "given", has_bias ? "set" : "not set");
    if (!status && has_bias)
        status = mha_bind_tensor(run, &bias, who, "bias",
                                 &(mha_tensor){ args->bias.buffer, args->bias.offset, { 0 } },
                                 (size_t[]){ 1, 1, 1, desc->n }, sizeof(float), MHA_READS);
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
    if (!gemm)
        return MHA_INVALID_ARGUMENT;
    if (!args)
        return mha_log_fail(&gemm->context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    mha_run run;
    mha_gemm_launch_args launch;
    mha_status status = mha_run_begin(&run, gemm->context, call, who, gemm->stage.temp_bytes);
    if (status)
        return mha_context_note(gemm->context, status);
    status = bind_gemm(&run, &gemm->desc, args, &launch);
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        run.wrote = "c";
        status = mha_gemm_launch(&gemm->stage, &run, "gemm", &launch);
    }
    return mha_run_end(&run, status);
}

/* --- heads --- */

struct mha_heads {
    mha_context *context;
    mha_heads_desc desc;
    mha_kernel copy;
};

mha_status mha_heads_create(mha_heads **out, mha_context *context, const mha_heads_desc *desc)
{
    static const char who[] = "mha_heads_create";
    if (out)
        *out = NULL;
    mha_status status = check_create(context, who, desc, out);
    if (status)
        return status;
    const size_t axes[] = { desc->batch, desc->heads, desc->len, desc->dim };
    for (int i = 0; i < 4; i++)
        if (axes[i] > INT32_MAX / 2)
            return mha_log_fail(&context->log, MHA_TOO_LARGE, "%s: an axis of %zu is too long", who,
                                axes[i]);
    if (mha_size_of((size_t[]){ sizeof(float), axes[0], axes[1], axes[2], axes[3] }, 5).overflows)
        return mha_log_fail(&context->log, MHA_TOO_LARGE, "%s: the bytes pass the largest size_t",
                            who);
    mha_heads *heads = calloc(1, sizeof *heads);
    if (!heads)
        return no_memory(context);
    heads->context = context;
    heads->desc = *desc;
    status = mha_heads_setup(&heads->copy, context);
    if (status) {
        mha_heads_destroy(&heads);
        return status;
    }
    *out = heads;
    return MHA_OK;
}

void mha_heads_destroy(mha_heads **heads)
{
    mha_heads *h = heads ? *heads : NULL;
    if (!h)
        return;
    *heads = NULL;
    mha_kernel_release(&h->copy);
    free(h);
}

/* Splitting reads what merging writes. */
static mha_status transpose_heads(mha_heads *heads, const char *who, const mha_tensor *merged,
                                  const mha_tensor *split, bool splits, const mha_call *call)
{
    if (!heads)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = heads->context;
    if (!merged || !split)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: %s is NULL", who,
                            merged ? "split" : "merged");
    const mha_heads_desc *d = &heads->desc;
    mha_run run;
    mha_status status = mha_run_begin(&run, context, call, who, 0);
    if (status)
        return mha_context_note(context, status);
    mha_view rows, parts;
    status = mha_bind_tensor(&run, &rows, who, "merged", merged,
                             (size_t[]){ d->batch, 1, d->len, d->heads * d->dim }, sizeof(float),
                             splits ? MHA_READS : MHA_WRITES);
    if (!status)
        status = mha_bind_tensor(&run, &parts, who, "split", split,
                                 (size_t[]){ d->batch, d->heads, d->len, d->dim }, sizeof(float),
                                 splits ? MHA_WRITES : MHA_READS);
    if (!status) {
        const mha_view *views[] = { &rows, &parts };
        static const char *const names[] = { "merged", "split" };
        static const mha_access accesses[] = { MHA_WRITES, MHA_READS };
        status = mha_bind_apart(&run, who, views, names, accesses, 2);
    }
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        rows.strides[1] = d->dim;
        rows.strides[3] = 1;
        parts.strides[3] = 1;
        const mha_heads_copy copy = {
            .shape = { d->batch, d->heads, d->len, d->dim },
            .from = splits ? rows : parts,
            .to = splits ? parts : rows,
        };
        run.wrote = splits ? "split" : "merged";
        status =
            mha_heads_launch(&heads->copy, &run, splits ? "split heads" : "merge heads", &copy);
    }
    return mha_run_end(&run, status);
}

mha_status mha_heads_split_enqueue(mha_heads *heads, const mha_tensor *merged,
                                   const mha_tensor *split, const mha_call *call)
{
    return transpose_heads(heads, "mha_heads_split_enqueue", merged, split, true, call);
}

mha_status mha_heads_merge_enqueue(mha_heads *heads, const mha_tensor *split,
                                   const mha_tensor *merged, const mha_call *call)
{
    return transpose_heads(heads, "mha_heads_merge_enqueue", merged, split, false, call);
}

/* --- softmax --- */

struct mha_softmax {
    mha_context *context;
    mha_attention_desc desc; /* resolved */
    mha_softmax_stage stage;
};

mha_status mha_softmax_create(mha_softmax **out, mha_context *context,
                              const mha_attention_desc *desc)
{
    static const char who[] = "mha_softmax_create";
    if (out)
        *out = NULL;
    mha_status status = check_create(context, who, desc, out);
    if (status)
        return status;
    mha_softmax *softmax = calloc(1, sizeof *softmax);
    if (!softmax)
        return no_memory(context);
    softmax->context = context;
    /* The fields that a softmax ignores are set to what cannot break a rule. */
    mha_attention_desc only = {
        .batch = desc->batch,
        .heads = desc->heads,
        .query_len = desc->query_len,
        .key_len = desc->key_len,
        .head_dim = 1,
        .uses = desc->uses | MHA_USES_PROBS,
        .diagonal = desc->diagonal,
        .window_left = desc->window_left,
        .window_right = desc->window_right,
        .bias_broadcast = desc->bias_broadcast,
        .mask_broadcast = desc->mask_broadcast,
        .scale = 1,
        .softcap = desc->softcap,
    };
    status = mha_shape_resolve(context, &only, who, &softmax->desc);
    if (!status && desc->scale != 0 && desc->scale != 1)
        status = mha_log_fail(&context->log, MHA_UNSUPPORTED,
                              "%s: scale is %g; the scores must come scaled, so 0 or 1", who,
                              (double)desc->scale);
    if (!status)
        status = mha_softmax_setup(&softmax->stage, context, &softmax->desc);
    if (status) {
        mha_softmax_destroy(&softmax);
        return status;
    }
    *out = softmax;
    return MHA_OK;
}

void mha_softmax_destroy(mha_softmax **softmax)
{
    mha_softmax *s = softmax ? *softmax : NULL;
    if (!s)
        return;
    *softmax = NULL;
    mha_softmax_release(&s->stage);
    free(s);
}

mha_workspace mha_softmax_workspace(const mha_softmax *softmax)
{
    if (!softmax || !mha_bind_lengths_bytes(&softmax->desc))
        return (mha_workspace){ 0 };
    return (mha_workspace){ .bytes = mha_bind_lengths_bytes(&softmax->desc),
                            .alignment = softmax->context->alignment };
}

static mha_status require_packed(const mha_run *run, const char *who, const char *name,
                                 const mha_tensor *tensor)
{
    for (int axis = 0; axis < 4; axis++)
        if (tensor->strides[axis])
            return mha_log_fail(&run->context->log, MHA_UNSUPPORTED,
                                "%s: %s must be packed, with strides 0", who, name);
    return MHA_OK;
}

/* scores may be probs in place; any other overlap is refused. */
static mha_status bind_scores(const mha_run *run, const char *who, mha_bound *bound,
                              const mha_attention_desc *desc, const mha_tensor *scores)
{
    mha_status status = require_packed(run, who, "scores", scores);
    if (!status)
        status = mha_bind_tensor(
            run, &bound->query, who, "scores", scores,
            (size_t[]){ desc->batch, desc->heads, bound->query_len, bound->key_len }, sizeof(float),
            MHA_READS);
    if (status)
        return status;
    const mha_view *probs = &bound->probs;
    mha_bound rest = *bound;
    if (probs->root == bound->query.root && probs->first_byte == bound->query.first_byte)
        rest.query = (mha_view){ 0 };
    return mha_bind_overlap(run, &rest, who);
}

mha_status mha_softmax_enqueue(mha_softmax *softmax, const mha_tensor *scores,
                               const mha_attention_args *args, const mha_call *call)
{
    static const char who[] = "mha_softmax_enqueue";
    if (!softmax)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = softmax->context;
    const mha_attention_desc *desc = &softmax->desc;
    if (!scores || !args)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: %s is NULL", who,
                            scores ? "args" : "scores");
    mha_run run;
    mha_bound bound = { 0 };
    mha_status status =
        mha_run_begin(&run, context, call, who, mha_softmax_workspace(softmax).bytes);
    if (status)
        return mha_context_note(context, status);
    status = mha_bind_call_lengths(&run, &bound, who, desc, args);
    if (!status)
        status = require_packed(&run, who, "probs", &args->probs);
    if (!status)
        status = mha_bind_options(&run, &bound, who, desc, args);
    if (!status)
        status = bind_scores(&run, who, &bound, desc, scores);
    if (!status)
        status = mha_run_wait(&run);
    if (!status)
        status = mha_bind_upload(&run, &bound, desc, 0);
    if (!status && desc->batch && bound.query_len) {
        run.wrote = "probs";
        status = mha_softmax_launch(&softmax->stage, &run, desc, &bound, bound.query.buffer,
                                    bound.query.offset, bound.probs.buffer, bound.probs.offset);
    }
    return mha_run_end(&run, status);
}
