/* The composed path, the article's way: split the heads, scores, masked softmax, probs value,
 * merge. It stores the scores, so it can return the probs; it is the reference on every device. */
#include "gemm.h"
#include "heads.h"
#include "log.h"
#include "path.h"
#include "scores.h"
#include "shape.h"
#include "softmax.h"
#include "weigh.h"

#include <limits.h>
#include <stdlib.h>

typedef struct composed {
    mha_attention_desc desc;
    bool clblast_scores, clblast_values; /* else the library's kernels, from any strides */
    mha_gemm_stage scores_gemm, values_gemm;
    mha_kernel scores, weigh, copy;
    mha_softmax_stage softmax;
    /* Where things lie in the region, in bytes. */
    size_t query, key, value, output, probs;
    mha_needs needs;
} composed;

static size_t bytes_of(size_t a, size_t b, size_t c, size_t d)
{
    return a * b * c * d * sizeof(float); /* mha_shape_resolve has checked these products */
}

/* CLBlast multiplies unless the caller says otherwise: tuned on GPUs, and on PoCL no slower than
 * the library's tiles at any size tried (4 x 6 to 512 x 512 scores). It has no product of no terms.
 */
static bool uses_clblast_scores(const mha_attention_desc *desc)
{
    return desc->key_len && desc->gemm != MHA_GEMM_KERNEL;
}

/* A product cannot skip a key for one query and count it for another: 0 * NaN is NaN. */
static bool uses_clblast_values(const mha_attention_desc *desc)
{
    return uses_clblast_scores(desc) && !(desc->uses & MHA_EXCLUDES_BY_QUERY);
}

static size_t lay_out(composed *path, const mha_attention_desc *desc)
{
    size_t end = 0;
    if (uses_clblast_scores(desc)) {
        path->query = mha_layout_add(
            &end, bytes_of(desc->batch, desc->heads, desc->query_len, desc->head_dim));
        path->key = mha_layout_add(
            &end, bytes_of(desc->batch, desc->kv_heads, desc->key_len, desc->head_dim));
    }
    if (uses_clblast_values(desc)) {
        path->value = mha_layout_add(
            &end, bytes_of(desc->batch, desc->kv_heads, desc->key_len, desc->value_dim));
        path->output = mha_layout_add(
            &end, bytes_of(desc->batch, desc->heads, desc->query_len, desc->value_dim));
    }
    path->probs =
        mha_layout_add(&end, bytes_of(desc->batch, desc->heads, desc->query_len, desc->key_len));
    return end;
}

static bool can(const mha_context *context, const mha_attention_desc *desc, mha_text *why_not)
{
    composed layout;
    const size_t bytes = lay_out(&layout, desc);
    if (bytes > context->device.max_allocation_bytes) {
        mha_text_add(why_not,
                     "it stores the scores and would need %.1f MiB of workspace in one buffer, and "
                     "%s gives at most %.1f MiB",
                     (double)bytes / 1048576, context->device.name,
                     (double)context->device.max_allocation_bytes / 1048576);
        return false;
    }
    return true;
}

static void destroy(void *given)
{
    composed *path = given;
    if (!path)
        return;
    mha_gemm_release(&path->scores_gemm);
    mha_gemm_release(&path->values_gemm);
    mha_kernel_release(&path->scores);
    mha_kernel_release(&path->weigh);
    mha_kernel_release(&path->copy);
    mha_softmax_release(&path->softmax);
    free(path);
}

/* Query heads that share a key head are rows of one product: [heads / kv_heads * query_len]. */
static mha_status set_up_scores(composed *path, mha_context *context)
{
    const mha_attention_desc *desc = &path->desc;
    if (!path->clblast_scores)
        return mha_scores_setup(&path->scores, context);
    const mha_gemm_shape shape = {
        .batch = desc->batch * desc->kv_heads,
        .m = desc->heads / desc->kv_heads * desc->query_len,
        .n = desc->key_len,
        .k = desc->head_dim,
        .transpose_b = true,
        .alpha = desc->scale,
        .by = MHA_GEMM_CLBLAST,
    };
    return mha_gemm_setup(&path->scores_gemm, context, &shape);
}

static mha_status set_up_values(composed *path, mha_context *context)
{
    const mha_attention_desc *desc = &path->desc;
    if (!path->clblast_values)
        return mha_weigh_setup(&path->weigh, context);
    const mha_gemm_shape shape = {
        .batch = desc->batch * desc->kv_heads,
        .m = desc->heads / desc->kv_heads * desc->query_len,
        .n = desc->value_dim,
        .k = desc->key_len,
        .alpha = 1,
        .by = MHA_GEMM_CLBLAST,
    };
    return mha_gemm_setup(&path->values_gemm, context, &shape);
}

static mha_status create(void **out, mha_context *context, const mha_attention_desc *desc)
{
    composed *path = calloc(1, sizeof *path);
    *out = path;
    if (!path)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a path");
    path->desc = *desc;
    path->clblast_scores = uses_clblast_scores(desc);
    path->clblast_values = uses_clblast_values(desc);
    path->needs.region_bytes = lay_out(path, desc);
    mha_status status = set_up_scores(path, context);
    if (!status)
        status = mha_softmax_setup(&path->softmax, context, desc);
    if (!status)
        status = set_up_values(path, context);
    if (!status)
        status = mha_heads_setup(&path->copy, context);
    path->needs.temp_bytes = path->scores_gemm.temp_bytes > path->values_gemm.temp_bytes
                                 ? path->scores_gemm.temp_bytes
                                 : path->values_gemm.temp_bytes;
    return status;
}

static mha_needs needs(const void *path)
{
    return ((const composed *)path)->needs;
}

static void explain(const void *given, mha_text *text)
{
    const composed *path = given;
    const mha_attention_desc *desc = &path->desc;
    const char *why = desc->key_len ? "as asked" : "there are no keys";
    if (path->clblast_scores)
        mha_text_add(text, "scores: CLBlast, after copying query and key where their heads are not "
                           "one matrix each\n");
    else
        mha_text_add(text, "scores: kernel scores_tile, from any strides: %s\n", why);
    mha_text_add(text, "softmax: kernel softmax_rows, %zu work-items a row\n", path->softmax.group);
    if (path->clblast_values)
        mha_text_add(text, "probs value: CLBlast%s\n",
                     desc->uses & MHA_USES_KEY_LENGTHS
                         ? ", after copying value with zeros where no query may see it"
                         : "");
    else if (path->clblast_scores)
        mha_text_add(text, "probs value: kernel weigh_tile, because a product cannot skip a key "
                           "that only some queries may see\n");
    else
        mha_text_add(text, "probs value: kernel weigh_tile: %s\n", why);
}

/* Whether the heads of a view, `group` of them as rows of one matrix, are matrices at one distance
 * from each other, as a batched product needs them. */
static bool as_matrices(mha_operand *out, const mha_view *view, size_t batch, size_t heads,
                        size_t group, size_t len, size_t columns)
{
    const size_t *strides = view->strides;
    const size_t matrices = heads / group;
    if (group > 1 && len > 1 && strides[1] != len * strides[2])
        return false;
    if (batch > 1 && matrices > 1 && strides[0] != heads * strides[1])
        return false;
    const size_t row = len > 1 ? strides[2] : group > 1 ? strides[1] : columns;
    *out = (mha_operand){ .buffer = view->buffer,
                          .offset = view->offset,
                          .row = row,
                          .batch = matrices > 1 ? group * strides[1] : strides[0] };
    return row >= columns;
}

/* The matrices of a view: in place where they can be, else copied to the workspace. */
static mha_status gather(composed *path, mha_run *run, mha_operand *out, const char *stage,
                         const mha_view *view, const size_t shape[4], size_t group, size_t region,
                         const mha_bound_lengths *lengths)
{
    const bool in_place = !(lengths && lengths->buffer);
    if (in_place && as_matrices(out, view, shape[0], shape[1], group, shape[2], shape[3]))
        return MHA_OK;
    mha_heads_copy copy = {
        .shape = { shape[0], shape[1], shape[2], shape[3] },
        .from = *view,
        .to = mha_bind_packed(run->workspace, region, shape),
        .lengths = lengths,
    };
    const bool can_now = as_matrices(out, &copy.to, shape[0], shape[1], group, shape[2], shape[3]);
    (void)can_now; /* packed memory always can */
    return mha_heads_launch(&path->copy, run, stage, &copy);
}

static mha_status enqueue_scores(composed *path, mha_run *run, const mha_bound *bound,
                                 size_t region, cl_mem scores, size_t scores_offset)
{
    const mha_attention_desc *desc = &path->desc;
    if (!bound->key_len)
        return MHA_OK;
    if (!path->clblast_scores)
        return mha_scores_launch(&path->scores, run, desc, bound, scores, scores_offset);

    const size_t group = desc->heads / desc->kv_heads;
    const size_t rows = group * bound->query_len;
    const size_t query[4] = { desc->batch, desc->heads, bound->query_len, desc->head_dim };
    const size_t key[4] = { desc->batch, desc->kv_heads, bound->key_len, desc->head_dim };
    mha_gemm_launch_args args = {
        .batch = desc->batch * desc->kv_heads,
        .m = rows,
        .n = bound->key_len,
        .k = desc->head_dim,
        .c = { scores, scores_offset, bound->key_len, rows * bound->key_len },
    };
    mha_status status = gather(path, run, &args.a, "split query", &bound->query, query, group,
                               region + path->query, NULL);
    if (!status)
        status =
            gather(path, run, &args.b, "split key", &bound->key, key, 1, region + path->key, NULL);
    if (!status)
        status = mha_gemm_launch(&path->scores_gemm, run, "scores", &args);
    return status;
}

static mha_status enqueue_values(composed *path, mha_run *run, const mha_bound *bound,
                                 size_t region, cl_mem probs, size_t probs_offset)
{
    const mha_attention_desc *desc = &path->desc;
    run->wrote = "output";
    if (!path->clblast_values)
        return mha_weigh_launch(&path->weigh, run, desc, bound, probs, probs_offset);

    const size_t group = desc->heads / desc->kv_heads;
    const size_t rows = group * bound->query_len;
    const size_t value[4] = { desc->batch, desc->kv_heads, bound->key_len, desc->value_dim };
    const size_t output[4] = { desc->batch, desc->heads, bound->query_len, desc->value_dim };
    mha_heads_copy merge = {
        .shape = { output[0], output[1], output[2], output[3] },
        .from = mha_bind_packed(run->workspace, region + path->output, output),
        .to = bound->output,
    };
    mha_gemm_launch_args args = {
        .batch = desc->batch * desc->kv_heads,
        .m = rows,
        .n = desc->value_dim,
        .k = bound->key_len,
        .a = { probs, probs_offset, bound->key_len, rows * bound->key_len },
    };
    const bool in_place =
        as_matrices(&args.c, &bound->output, output[0], output[1], group, output[2], output[3]);
    if (!in_place) {
        as_matrices(&args.c, &merge.from, output[0], output[1], group, output[2], output[3]);
    }
    mha_status status = gather(path, run, &args.b, "split value", &bound->value, value, 1,
                               region + path->value, &bound->key_lengths);
    if (!status)
        status = mha_gemm_launch(&path->values_gemm, run, "probs value", &args);
    if (!status && !in_place)
        status = mha_heads_launch(&path->copy, run, "merge heads", &merge);
    return status;
}

static bool is_packed(const mha_view *view, const size_t shape[4])
{
    const mha_view packed = mha_bind_packed(view->buffer, 0, shape);
    for (int axis = 0; axis < 4; axis++)
        if (view->strides[axis] != packed.strides[axis])
            return false;
    return true;
}

static mha_status enqueue(void *given, mha_run *run, const mha_bound *bound, size_t region)
{
    composed *path = given;
    const mha_attention_desc *desc = &path->desc;
    if (!desc->batch || !bound->query_len)
        return MHA_OK;
    const size_t shape[4] = { desc->batch, desc->heads, bound->query_len, bound->key_len };
    const bool wants_probs = bound->probs.buffer;
    const bool in_place = wants_probs && is_packed(&bound->probs, shape);
    const mha_view probs =
        in_place ? bound->probs : mha_bind_packed(run->workspace, region + path->probs, shape);

    mha_status status = enqueue_scores(path, run, bound, region, probs.buffer, probs.offset);
    if (!status) {
        run->wrote = in_place ? "probs" : bound->lse.buffer ? "lse" : run->wrote;
        status = mha_softmax_launch(&path->softmax, run, desc, bound, probs.buffer, probs.offset,
                                    probs.buffer, probs.offset);
    }
    if (!status && wants_probs && !in_place) {
        const mha_heads_copy copy = {
            .shape = { shape[0], shape[1], shape[2], shape[3] },
            .from = probs,
            .to = bound->probs,
        };
        run->wrote = "probs";
        status = mha_heads_launch(&path->copy, run, "copy probs", &copy);
    }
    if (!status)
        status = enqueue_values(path, run, bound, region, probs.buffer, probs.offset);
    return status;
}

const mha_path_room mha_path_composed = {
    .id = MHA_PATH_COMPOSED,
    .name = "composed",
    .can = can,
    .create = create,
    .destroy = destroy,
    .needs = needs,
    .explain = explain,
    .enqueue = enqueue,
};
