/* The decode path, and the host of cl/decode.cl: few queries, whose keys are split over work-items
 * and merged. */
#include "attend.h"
#include "grid.h"
#include "log.h"
#include "path.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct decode {
    mha_attention_desc desc;
    size_t rows;  /* query rows of a key head */
    size_t parts; /* of the keys, at the most; 1: nothing to merge */
    mha_kernel part, merge;
    size_t bytes; /* of the parts in the workspace */
} decode;

enum {
    BLOCK = 128, /* keys between two looks at the maximum: with their values they stay in L2 */
    LEAST_SHARE = 128,  /* keys that are worth a part of their own */
    ITEMS_PER_UNIT = 4, /* work-items that keep a compute unit busy while others end */
    MOST_ROWS = 64,
    FEW_KEYS = 64 /* by measurement on PoCL: below, the streaming path has less to set up */
};

static size_t rows_of(const mha_attention_desc *desc)
{
    const size_t group = desc->heads / desc->kv_heads;
    return desc->query_len > MOST_ROWS || group > MOST_ROWS ? MOST_ROWS + 1
                                                            : group * desc->query_len;
}

static size_t tile_of(size_t rows)
{
    return rows < 3 ? rows : 4;
}

static size_t local_bytes(const mha_attention_desc *desc)
{
    const size_t tile = tile_of(rows_of(desc));
    const size_t rows = mha_grid_divide_up(rows_of(desc), tile) * tile;
    return (rows * ((desc->head_dim + 7) / 8 * 8 + desc->value_dim) + tile * BLOCK) *
           sizeof(cl_float);
}

/* As many as keep the device busy, of no fewer keys than are worth it. */
static size_t count_parts(const mha_context *context, const mha_attention_desc *desc,
                          size_t key_len)
{
    const size_t matrices = desc->batch * desc->kv_heads;
    const size_t items = ITEMS_PER_UNIT * (size_t)context->device.compute_units;
    const size_t wanted = matrices ? mha_grid_divide_up(items, matrices) : 1;
    const size_t most = key_len / LEAST_SHARE;
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
    if (local_bytes(desc) > context->device.local_memory_bytes) {
        mha_text_add(why_not, "it needs %zu bytes of local memory, and %s gives %llu",
                     local_bytes(desc), context->device.name,
                     (unsigned long long)context->device.local_memory_bytes);
        return false;
    }
    return true;
}

static bool suits(const mha_context *context, const mha_attention_desc *desc, mha_text *why_not)
{
    if (desc->tiling != MHA_TILING_DEFAULT) {
        mha_text_add(why_not, "a tiling of the streaming path was asked for");
        return false;
    }
    if (!(context->device.type & CL_DEVICE_TYPE_CPU)) {
        mha_text_add(why_not, "its work-items are laid out for CPUs");
        return false;
    }
    if (desc->key_len < FEW_KEYS) {
        mha_text_add(why_not, "%zu keys are fewer than %d, so nothing is won by splitting them",
                     desc->key_len, FEW_KEYS);
        return false;
    }
    if (rows_of(desc) > MHA_PATH_FEW_ROWS) {
        mha_text_add(why_not,
                     "%zu queries of the heads of one key head are more than %d, so the "
                     "streaming path has its lanes full",
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
    char options[512];
    const int used =
        snprintf(options, sizeof options, "-DLANES=8 -DROWS=%zu -DTILE=%zu -DBLOCK=%d -DMERGES=%d ",
                 path->rows, tile_of(path->rows), BLOCK, path->parts > 1);
    mha_attend_options(options + used, sizeof options - (size_t)used, desc);
    mha_status status = mha_context_kernel(context, &path->part, "decode", options, "decode_part");
    if (!status && path->parts > 1)
        status = mha_context_kernel(context, &path->merge, "decode", options, "decode_merge");
    return status;
}

static mha_needs needs(const void *path)
{
    return (mha_needs){ .region_bytes = ((const decode *)path)->bytes };
}

static void explain(const void *given, mha_text *text)
{
    const decode *path = given;
    mha_text_add(text, "decode: kernel decode_part, %zu %s of a key head together, ", path->rows,
                 path->rows == 1 ? "query" : "queries");
    if (path->parts > 1)
        mha_text_add(text, "their keys in up to %zu parts, and kernel decode_merge\n", path->parts);
    else
        mha_text_add(text, "their keys in one part, %s\n",
                     path->desc.key_len < 2 * LEAST_SHARE ? "since they are too few to split"
                                                          : "which is enough for the device");
}

/* A work-item has read its queries before it writes, or the merge writes, and nobody else reads
 * them.
 */
static bool may_overwrite(const void *path)
{
    (void)path;
    return true;
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
    const mha_grid grid = mha_grid_parts(parts, 1, path->desc.batch * path->desc.kv_heads);
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
    const mha_grid grid = mha_grid_parts(rows, 1, path->desc.batch * path->desc.kv_heads);
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
