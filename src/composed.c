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
    bool product_scores, product_values; /* by gemm; else by scores and weigh, from any strides */
    mha_gemm_stage scores_gemm, values_gemm;
    mha_kernel scores, weigh;
    bool copies_query, copies_key, copies_value, copies_output; /* or may have to */
    /* Copies, from and to their types. */
    mha_kernel split_query, split_key_value, merge, copy_probs;
    mha_softmax_stage softmax;
    /* Where things lie in the region, in bytes. */
    size_t query, key, value, output, probs;
    mha_needs needs;
} composed;

static size_t bytes_of(size_t a, size_t b, size_t c, size_t d)
{
    return a * b * c * d * sizeof(float); /* mha_shape_resolve has checked these products */
}

/* Query heads that share a key head are rows of one product: [heads / kv_heads * query_len]. */
static mha_gemm_shape shape_of_scores(const mha_attention_desc *desc)
{
    return (mha_gemm_shape){
        .batch = desc->batch * desc->kv_heads,
        .m = desc->heads / desc->kv_heads * desc->query_len,
        .n = desc->key_len,
        .k = desc->head_dim,
        .transpose_b = true,
        .alpha = desc->scale,
        .by = desc->gemm,
        .tiling = desc->tiling,
    };
}

static mha_gemm_shape shape_of_values(const mha_attention_desc *desc)
{
    mha_gemm_shape shape = shape_of_scores(desc);
    shape.n = desc->value_dim;
    shape.k = desc->key_len;
    shape.transpose_b = false;
    shape.alpha = 1;
    return shape;
}

/* The CPU kernel and CLBlast take matrices: worth a copy of heads that are none, since on a CPU the
 * first is ten times as fast as scores and weigh, and the second no slower than them at any size
 * tried. The tiles of gemm are no faster, so scores and weigh, which read any strides, take their
 * place. A product has no more rows than an int counts. */
static bool multiplies_scores(const mha_context *context, const mha_attention_desc *desc)
{
    const size_t group = desc->heads / desc->kv_heads;
    const bool is_tall = desc->query_len && group > INT_MAX / 2 / desc->query_len;
    const mha_gemm_shape shape = shape_of_scores(desc);
    const char *reason;
    return desc->key_len && !is_tall &&
           mha_gemm_choose(context, &shape, &reason) != MHA_GEMM_WAY_TILES;
}

/* A product cannot skip a key for one query and count it for another: 0 * NaN is NaN. */
static bool multiplies_values(const mha_context *context, const mha_attention_desc *desc)
{
    return multiplies_scores(context, desc) && !(desc->uses & MHA_EXCLUDES_BY_QUERY);
}

/* Who multiplies, and where things lie. What is not float32, or not one matrix a head as a product
 * needs it, is copied to the workspace. */
static void lay_out(composed *path, const mha_context *context, const mha_attention_desc *desc)
{
    const size_t b = desc->batch;
    path->desc = *desc;
    path->product_scores = multiplies_scores(context, desc);
    path->product_values = multiplies_values(context, desc);
    path->copies_query = path->product_scores || desc->type != MHA_FLOAT32;
    path->copies_key = path->product_scores || desc->key_value_type != MHA_FLOAT32;
    path->copies_value = path->product_values || desc->key_value_type != MHA_FLOAT32;
    path->copies_output = path->product_values || desc->output_type != MHA_FLOAT32;
    size_t end = 0;
    if (path->copies_query)
        path->query =
            mha_layout_add(&end, bytes_of(b, desc->heads, desc->query_len, desc->head_dim));
    if (path->copies_key)
        path->key =
            mha_layout_add(&end, bytes_of(b, desc->kv_heads, desc->key_len, desc->head_dim));
    if (path->copies_value)
        path->value =
            mha_layout_add(&end, bytes_of(b, desc->kv_heads, desc->key_len, desc->value_dim));
    if (path->copies_output)
        path->output =
            mha_layout_add(&end, bytes_of(b, desc->heads, desc->query_len, desc->value_dim));
    path->probs = mha_layout_add(&end, bytes_of(b, desc->heads, desc->query_len, desc->key_len));
    path->needs.region_bytes = end;
}

static size_t stores(const mha_context *context, const mha_attention_desc *desc)
{
    composed layout = { 0 };
    lay_out(&layout, context, desc);
    return layout.needs.region_bytes;
}

static bool can(const mha_context *context, const mha_attention_desc *desc, mha_text *why_not)
{
    if (desc->uses & (MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS | MHA_USES_RING)) {
        mha_text_add(why_not, "its scores are one rectangle for each batch, from the first key on, "
                              "so it takes no offsets and no ring");
        return false;
    }
    const size_t bytes = stores(context, desc);
    const uint64_t most = context->device.max_allocation_bytes; /* 0: the driver did not say */
    if (most && bytes > most) {
        mha_text_add(why_not,
                     "it stores the scores and would need %.1f MiB of workspace in one buffer, and "
                     "%s gives at most %.1f MiB",
                     (double)bytes / 1048576, context->device.name, (double)most / 1048576);
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
    mha_kernel_release(&path->split_query);
    mha_kernel_release(&path->split_key_value);
    mha_kernel_release(&path->merge);
    mha_kernel_release(&path->copy_probs);
    mha_softmax_release(&path->softmax);
    free(path);
}

static mha_status set_up_scores(composed *path, mha_context *context)
{
    const mha_gemm_shape shape = shape_of_scores(&path->desc);
    return path->product_scores ? mha_gemm_setup(&path->scores_gemm, context, &shape)
                                : mha_scores_setup(&path->scores, context);
}

static mha_status set_up_values(composed *path, mha_context *context)
{
    const mha_gemm_shape shape = shape_of_values(&path->desc);
    return path->product_values ? mha_gemm_setup(&path->values_gemm, context, &shape)
                                : mha_weigh_setup(&path->weigh, context);
}

static mha_status set_up_copies(composed *path, mha_context *context)
{
    const mha_attention_desc *desc = &path->desc;
    mha_status status = MHA_OK;
    if (path->copies_query)
        status = mha_heads_setup(&path->split_query, context, desc->type, MHA_FLOAT32);
    if (!status && (path->copies_key || path->copies_value))
        status =
            mha_heads_setup(&path->split_key_value, context, desc->key_value_type, MHA_FLOAT32);
    if (!status && path->copies_output)
        status = mha_heads_setup(&path->merge, context, MHA_FLOAT32, desc->output_type);
    if (!status && desc->uses & MHA_USES_PROBS)
        status = mha_heads_setup(&path->copy_probs, context, MHA_FLOAT32, desc->scores_type);
    return status;
}

static mha_status create(void **out, mha_context *context, const mha_attention_desc *desc)
{
    composed *path = calloc(1, sizeof *path);
    *out = path;
    if (!path)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a path");
    lay_out(path, context, desc);
    mha_status status = set_up_scores(path, context);
    if (!status)
        status = mha_softmax_setup(&path->softmax, context, desc);
    if (!status)
        status = set_up_values(path, context);
    if (!status)
        status = set_up_copies(path, context);
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
    if (path->product_scores)
        mha_text_add(text,
                     "scores: %s, %s, after copying query and key where their heads are not one "
                     "matrix each\n",
                     mha_gemm_way_name(path->scores_gemm.way), path->scores_gemm.reason);
    else
        mha_text_add(text, "scores: kernel scores_tile, from any strides: %s\n", why);
    mha_text_add(text, "softmax: kernel softmax_rows, %zu work-items a row\n", path->softmax.group);
    if (path->product_values)
        mha_text_add(text, "probs value: %s%s\n", mha_gemm_way_name(path->values_gemm.way),
                     desc->uses & (MHA_USES_KEY_LENGTHS | MHA_USES_APPEND)
                         ? ", after copying value with zeros where no query may see it"
                         : "");
    else if (path->product_scores)
        mha_text_add(text, "probs value: kernel weigh_tile, because a product cannot skip a key "
                           "that only some queries may see\n");
    else
        mha_text_add(text, "probs value: kernel weigh_tile: %s\n", why);
}

/* The scores have read the query before the output is written. */
static bool may_overwrite(const void *path)
{
    (void)path;
    return true;
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

/* A tensor of the call on its way into a product. */
typedef struct gathered {
    const char *stage;
    const mha_kernel *copy;
    mha_type type;
    const mha_view *view;
    size_t shape[4];
    size_t group;  /* heads that are rows of one matrix */
    size_t region; /* for the copy */
    bool by_product;
    const mha_bound_lengths *starts; /* before them, or from the lengths on, a copy holds zeros */
    mha_key_counts lengths;
} gathered;

/* Puts the tensor where and how the product can read it: in place, or a copy in the workspace.
 * Writes the view, and the matrices if it is for a product. */
static mha_status gather(mha_run *run, const gathered *from, mha_view *view, mha_operand *matrices)
{
    const size_t *shape = from->shape;
    const bool must_copy =
        from->type != MHA_FLOAT32 || (from->starts && from->starts->buffer) || from->lengths.buffer;
    *view = *from->view;
    if (!must_copy && !from->by_product)
        return MHA_OK;
    if (!must_copy &&
        as_matrices(matrices, view, shape[0], shape[1], from->group, shape[2], shape[3]))
        return MHA_OK;
    mha_heads_copy copy = {
        .shape = { shape[0], shape[1], shape[2], shape[3] },
        .from = *from->view,
        .to = mha_bind_packed(run->workspace, from->region, shape),
        .starts = from->starts,
        .lengths = from->lengths,
    };
    *view = copy.to;
    as_matrices(matrices, view, shape[0], shape[1], from->group, shape[2], shape[3]);
    return mha_heads_launch(from->copy, run, from->stage, &copy);
}

/* `output` names the caller's output whose memory holds the scores until they are probs, if one. */
static mha_status enqueue_scores(composed *path, mha_run *run, const mha_bound *bound,
                                 size_t region, const mha_view *scores, const char *output)
{
    const mha_attention_desc *desc = &path->desc;
    if (!bound->key_len)
        return MHA_OK;
    const size_t group = desc->heads / desc->kv_heads;
    const size_t rows = group * bound->query_len;
    const gathered query = {
        .stage = "split query",
        .copy = &path->split_query,
        .type = desc->type,
        .view = &bound->query,
        .shape = { desc->batch, desc->heads, bound->query_len, desc->head_dim },
        .group = group,
        .region = region + path->query,
        .by_product = path->product_scores,
    };
    const gathered key = {
        .stage = "split key",
        .copy = &path->split_key_value,
        .type = desc->key_value_type,
        .view = &bound->key,
        .shape = { desc->batch, desc->kv_heads, bound->key_len, desc->head_dim },
        .group = 1,
        .region = region + path->key,
        .by_product = path->product_scores,
    };
    mha_bound from = *bound;
    mha_gemm_launch_args args = {
        .batch = desc->batch * desc->kv_heads,
        .m = rows,
        .n = bound->key_len,
        .k = desc->head_dim,
        .c = { scores->buffer, scores->offset, bound->key_len, rows * bound->key_len },
    };
    mha_status status = gather(run, &query, &from.query, &args.a);
    if (!status)
        status = gather(run, &key, &from.key, &args.b);
    mha_run_will_write(run, output);
    if (!status && path->product_scores)
        status = mha_gemm_launch(&path->scores_gemm, run, "scores", &args);
    else if (!status)
        status = mha_scores_launch(&path->scores, run, desc, &from, scores->buffer, scores->offset);
    return status;
}

static mha_status enqueue_values(composed *path, mha_run *run, const mha_bound *bound,
                                 size_t region, cl_mem probs, size_t probs_offset)
{
    const mha_attention_desc *desc = &path->desc;
    const size_t group = desc->heads / desc->kv_heads;
    const size_t rows = group * bound->query_len;
    const size_t output[4] = { desc->batch, desc->heads, bound->query_len, desc->value_dim };
    const gathered value = {
        .stage = "split value",
        .copy = &path->split_key_value,
        .type = desc->key_value_type,
        .view = &bound->value,
        .shape = { desc->batch, desc->kv_heads, bound->key_len, desc->value_dim },
        .group = 1,
        .region = region + path->value,
        .by_product = path->product_values,
        /* The library's kernel skips what is excluded. */
        .starts = path->product_values ? &bound->key_starts : NULL,
        .lengths = path->product_values ? mha_bound_key_counts(desc, bound) : (mha_key_counts){ 0 },
    };
    mha_bound from = *bound;
    mha_gemm_launch_args args = {
        .batch = desc->batch * desc->kv_heads,
        .m = rows,
        .n = desc->value_dim,
        .k = bound->key_len,
        .a = { probs, probs_offset, bound->key_len, rows * bound->key_len },
    };
    const bool in_place =
        desc->output_type == MHA_FLOAT32 &&
        (!path->product_values ||
         as_matrices(&args.c, &bound->output, output[0], output[1], group, output[2], output[3]));
    if (!in_place) {
        from.output = mha_bind_packed(run->workspace, region + path->output, output);
        as_matrices(&args.c, &from.output, output[0], output[1], group, output[2], output[3]);
    }
    mha_status status = bound->key_len ? gather(run, &value, &from.value, &args.b) : MHA_OK;
    /* An output in the workspace, a layer's on its way to W_o, has no root. */
    const char *name = bound->output.root ? "output" : NULL;
    mha_run_will_write(run, in_place ? name : NULL);
    if (!status && path->product_values)
        status = mha_gemm_launch(&path->values_gemm, run, "probs value", &args);
    else if (!status)
        status = mha_weigh_launch(&path->weigh, run, desc, &from, probs, probs_offset);
    if (status || in_place)
        return status;
    const mha_heads_copy merge = {
        .shape = { output[0], output[1], output[2], output[3] },
        .from = from.output,
        .to = bound->output,
    };
    mha_run_will_write(run, name);
    return mha_heads_launch(&path->merge, run, "merge heads", &merge);
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
    const bool in_place =
        wants_probs && desc->scores_type == MHA_FLOAT32 && is_packed(&bound->probs, shape);
    const mha_view probs =
        in_place ? bound->probs : mha_bind_packed(run->workspace, region + path->probs, shape);

    mha_status status = enqueue_scores(path, run, bound, region, &probs, in_place ? "probs" : NULL);
    if (!status) {
        mha_run_will_write(run, in_place ? "probs" : NULL);
        mha_run_will_write(run, bound->scores.buffer ? "scores" : NULL);
        mha_run_will_write(run, bound->lse.buffer ? "lse" : NULL);
        status = mha_softmax_launch(&path->softmax, run, desc, bound, probs.buffer, probs.offset,
                                    probs.buffer, probs.offset);
    }
    if (!status && wants_probs && !in_place && bound->key_len) {
        const mha_heads_copy copy = {
            .shape = { shape[0], shape[1], shape[2], shape[3] },
            .from = probs,
            .to = bound->probs,
        };
        mha_run_will_write(run, "probs");
        status = mha_heads_launch(&path->copy_probs, run, "copy probs", &copy);
    }
    if (!status)
        status = enqueue_values(path, run, bound, region, probs.buffer, probs.offset);
    return status;
}

const mha_path_room mha_path_composed = {
    .id = MHA_PATH_COMPOSED,
    .name = "composed",
    .can = can,
    .stores = stores,
    .create = create,
    .destroy = destroy,
    .needs = needs,
    .explain = explain,
    .may_overwrite = may_overwrite,
    .enqueue = enqueue,
};
