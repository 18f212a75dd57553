/* The decode path: few queries, whose keys are split over work-groups and merged, by the kernels
 * that suit the device. */
#include "decode.h"

#include "attend.h"
#include "grid.h"
#include "log.h"
#include "path.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct decode {
    mha_attention_desc desc;
    const mha_decode_kind *kind;
    size_t rows;  /* query rows of a key head */
    size_t parts; /* of the keys, at the most; 1: nothing to merge */
    mha_kernel part, merge;
    size_t bytes; /* of the parts in the workspace */
} decode;

enum {
    MOST_ROWS = 64,
    FEW_KEYS = 64 /* by measurement on PoCL: below, the streaming path has less to set up */
};

static size_t rows_of(const mha_attention_desc *desc)
{
    const size_t group = desc->heads / desc->kv_heads;
    return desc->query_len > MOST_ROWS || group > MOST_ROWS ? MOST_ROWS + 1
                                                            : group * desc->query_len;
}

static bool fits(const mha_context *context, const mha_attention_desc *desc,
                 const mha_decode_kind *kind)
{
    return kind->group <= context->device.max_work_group_size &&
           kind->local_bytes(desc, rows_of(desc)) <= context->device.local_memory_bytes;
}

/* The kernels that a desc gets: as asked, else by the kind of device. A CPU whose local memory is
 * too small for its own can run the others. */
static const mha_decode_kind *kind_of(const mha_context *context, const mha_attention_desc *desc)
{
    if (desc->tiling != MHA_TILING_DEFAULT)
        return desc->tiling == MHA_TILING_CPU ? &mha_decode_cpu : &mha_decode_gpu;
    return context->device.type & CL_DEVICE_TYPE_CPU && fits(context, desc, &mha_decode_cpu)
               ? &mha_decode_cpu
               : &mha_decode_gpu;
}

/* Work-groups for each part of the keys. */
static size_t count_tiles(const mha_decode_kind *kind, const mha_attention_desc *desc)
{
    return kind->one_each ? mha_grid_divide_up(rows_of(desc), kind->tile(desc, rows_of(desc))) : 1;
}

/* As many as keep the device busy, of no fewer keys than are worth it. */
static size_t count_parts(const mha_context *context, const mha_attention_desc *desc,
                          size_t key_len)
{
    const mha_decode_kind *kind = kind_of(context, desc);
    const size_t groups = desc->batch * desc->kv_heads * count_tiles(kind, desc);
    const size_t busy = kind->groups_per_unit * (size_t)context->device.compute_units;
    const size_t wanted = groups ? mha_grid_divide_up(busy, groups) : 1;
    const size_t most = key_len / kind->least_share;
    const size_t parts = wanted < most ? wanted : most;
    return parts ? parts : 1;
}

static bool can(const mha_context *context, const mha_attention_desc *desc, mha_text *why_not)
{
    if (desc->uses & (MHA_USES_PROBS | MHA_USES_SCORES)) {
        mha_text_add(why_not, "it never stores the scores, so it cannot return %s",
                     desc->uses & MHA_USES_PROBS ? "probs" : "scores");
        return false;
    }
    if (!desc->key_len || !desc->query_len) {
        mha_text_add(why_not, "there are no %s", desc->key_len ? "queries" : "keys to go over");
        return false;
    }
    if (rows_of(desc) > MOST_ROWS) {
        mha_text_add(why_not,
                     "it is for few queries, and %zu of each of the %zu heads of a key head are "
                     "more than %d",
                     desc->query_len, desc->heads / desc->kv_heads, MOST_ROWS);
        return false;
    }
    const mha_decode_kind *kind = kind_of(context, desc);
    if (!fits(context, desc, kind)) {
        mha_text_add(why_not,
                     "it needs work-groups of %zu and %zu bytes of local memory, and %s gives %u "
                     "and %llu",
                     kind->group, kind->local_bytes(desc, rows_of(desc)), context->device.name,
                     (unsigned)context->device.max_work_group_size,
                     (unsigned long long)context->device.local_memory_bytes);
        return false;
    }
    return true;
}

static bool suits(const mha_context *context, const mha_attention_desc *desc, mha_text *why_not)
{
    (void)context;
    if (desc->key_len < FEW_KEYS) {
        mha_text_add(why_not, "%zu keys are fewer than %d, so nothing is won by splitting them",
                     desc->key_len, FEW_KEYS);
        return false;
    }
    if (rows_of(desc) > MHA_PATH_FEW_ROWS) {
        mha_text_add(why_not,
                     "%zu queries of the heads of one key head are more than %d, enough to fill "
                     "the streaming path's tiles",
                     rows_of(desc), MHA_PATH_FEW_ROWS);
        return false;
    }
    return true;
}

static size_t stores(const mha_context *context, const mha_attention_desc *desc)
{
    const size_t parts = count_parts(context, desc, desc->key_len);
    const size_t rows = desc->batch * desc->heads * desc->query_len;
    return parts > 1 ? rows * parts * (desc->value_dim + 2) * sizeof(cl_float) : 0;
}

static void destroy(void *given)
{
    decode *path = given;
    if (!path)
        return;
    mha_kernel_release(&path->part);
    mha_kernel_release(&path->merge);
    free(path);
}

static mha_status create(void **out, mha_context *context, const mha_attention_desc *desc)
{
    decode *path = calloc(1, sizeof *path);
    *out = path;
    if (!path)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a path");
    path->desc = *desc;
    path->rows = rows_of(desc);
    path->parts = count_parts(context, desc, desc->key_len);
    path->bytes = stores(context, desc);
    path->kind = kind_of(context, desc);
    char options[512];
    const int used =
        snprintf(options, sizeof options, "%s-DGROUP=%zu -DROWS=%zu -DTILE=%zu -DMERGES=%d ",
                 path->kind->options, path->kind->group, path->rows,
                 path->kind->tile(desc, path->rows), path->parts > 1);
    mha_attend_options(options + used, sizeof options - (size_t)used, desc);
    const char *room = path->kind->room;
    mha_status status = mha_context_kernel(context, &path->part, room, options, path->kind->part);
    if (!status && path->parts > 1)
        status = mha_context_kernel(context, &path->merge, room, options, path->kind->merge);
    return status;
}

static mha_needs needs(const void *path)
{
    return (mha_needs){ .region_bytes = ((const decode *)path)->bytes };
}

static void explain(const void *given, mha_text *text)
{
    const decode *path = given;
    const mha_decode_kind *kind = path->kind;
    mha_text_add(text, "decode: kernel %s, %s: %zu %s of a key head together, ", kind->part,
                 path->desc.tiling != MHA_TILING_DEFAULT ? "as asked"
                 : kind == &mha_decode_cpu
                     ? "the device is a CPU"
                     : "the device is no CPU, or one with little local memory",
                 path->rows, path->rows == 1 ? "query" : "queries");
    if (path->parts > 1)
        mha_text_add(text, "their keys in up to %zu parts, and kernel %s\n", path->parts,
                     kind->merge);
    else
        mha_text_add(text, "their keys in one part, %s\n",
                     path->desc.key_len < 2 * kind->least_share ? "since they are too few to split"
                                                                : "which is enough for the device");
}

/* A work-group has read its queries before it writes, or the merge writes, and nobody else reads
 * them.
 */
static bool may_overwrite(const void *path)
{
    (void)path;
    return true;
}

static mha_grid grid_of_parts(const decode *path, size_t parts)
{
    const mha_decode_kind *kind = path->kind;
    const size_t heads = path->desc.batch * path->desc.kv_heads;
    if (!kind->one_each)
        return mha_grid_parts(parts, kind->group, heads);
    const size_t groups = heads * parts * count_tiles(kind, &path->desc);
    return (mha_grid){ .dims = 1, .global = { groups * kind->group }, .local = { kind->group } };
}

static mha_status launch_part(decode *path, mha_run *run, const mha_bound *bound, size_t parts,
                              size_t region)
{
    enum {
        OWN = 2
    };
    mha_arg args[OWN + MHA_ATTEND_ARGS] = {
        MHA_ARG_MEM(path->parts > 1 ? run->workspace : NULL),
        MHA_ARG_SIZE(region / sizeof(cl_float)),
    };
    const size_t count = OWN + mha_attend_args(args + OWN, &path->desc, bound);
    const mha_grid grid = grid_of_parts(path, parts);
    return mha_run_launch(run, "decode", &path->part, args, count, &grid);
}

static mha_status launch_merge(decode *path, mha_run *run, const mha_bound *bound, size_t parts,
                               size_t region)
{
    enum {
        OWN = 3
    };
    mha_arg args[OWN + MHA_ATTEND_ARGS] = {
        MHA_ARG_MEM(run->workspace),
        MHA_ARG_SIZE(region / sizeof(cl_float)),
        MHA_ARG_INT(parts),
    };
    const size_t count = OWN + mha_attend_args(args + OWN, &path->desc, bound);
    const size_t rows = path->desc.heads / path->desc.kv_heads * bound->query_len;
    const mha_grid grid =
        mha_grid_parts(rows, path->kind->group, path->desc.batch * path->desc.kv_heads);
    return mha_run_launch(run, "merge parts", &path->merge, args, count, &grid);
}

static mha_status enqueue(void *given, mha_run *run, const mha_bound *bound, size_t region)
{
    decode *path = given;
    if (!path->desc.batch || !bound->query_len)
        return MHA_OK;
    const bool merges = path->parts > 1;
    const size_t parts =
        merges ? count_parts(run->context, &path->desc, bound->key_len) : path->parts;
    /* An output in the workspace, a layer's on its way to W_o, has no root. */
    const char *output = bound->output.root ? "output" : NULL;
    const char *lse = bound->lse.buffer ? "lse" : NULL;
    mha_run_will_write(run, merges ? NULL : output);
    mha_run_will_write(run, merges ? NULL : lse);
    const mha_status status = launch_part(path, run, bound, parts, region);
    if (status || !merges)
        return status;
    mha_run_will_write(run, output);
    mha_run_will_write(run, lse);
    return launch_merge(path, run, bound, parts, region);
}

const mha_path_room mha_path_decode = {
    .id = MHA_PATH_DECODE,
    .name = "decode",
    .can = can,
    .suits = suits,
    .stores = stores,
    .create = create,
    .destroy = destroy,
    .needs = needs,
    .explain = explain,
    .may_overwrite = may_overwrite,
    .enqueue = enqueue,
};
