/* The public head transposes: the heads stage behind the checks of a call. */
#include "bind.h"
#include "heads.h"
#include "log.h"
#include "shape.h"

#include <stdlib.h>

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
    mha_status status = mha_context_begin_create(context, who, desc, out);
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
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                            "no host memory for a head transpose");
    heads->context = context;
    heads->desc = *desc;
    status = mha_heads_setup(&heads->copy, context, MHA_FLOAT32, MHA_FLOAT32);
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
    mha_run_clear_event(call);
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
        mha_run_will_write(&run, splits ? "split" : "merged");
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
