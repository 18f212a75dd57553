/* The public masked softmax: the softmax stage behind the checks of a call. */
#include "bound.h"
#include "log.h"
#include "shape.h"
#include "softmax.h"

#include <stdlib.h>

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
    mha_status status = mha_context_begin_create(context, who, desc, out);
    if (status)
        return status;
    mha_softmax *softmax = calloc(1, sizeof *softmax);
    if (!softmax)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a softmax");
    softmax->context = context;
    /* The fields that a softmax ignores are set to what cannot break a rule. */
    mha_attention_desc only = {
        .batch = desc->batch,
        .heads = desc->heads,
        .query_len = desc->query_len,
        .key_len = desc->key_len,
        .head_dim = 1,
        .bias_type = desc->bias_type,
        .scores_stage = desc->scores_stage,
        .uses = desc->uses | MHA_USES_PROBS,
        .diagonal = desc->diagonal,
        .window_left = desc->window_left,
        .window_right = desc->window_right,
        .bias_broadcast = desc->bias_broadcast,
        .mask_broadcast = desc->mask_broadcast,
        .scale = 1,
        .softcap = desc->softcap,
        .dropout_p = desc->dropout_p,
    };
    if (desc->uses & MHA_USES_OF_ATTENTION_ONLY)
        status =
            mha_log_fail(&context->log, MHA_UNSUPPORTED,
                         "%s: caches, rotary positions and offsets are no part of a softmax", who);
    if (!status)
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
    if (!softmax || !mha_bound_upload_bytes(&softmax->desc))
        return (mha_workspace){ 0 };
    return (mha_workspace){ .bytes = mha_bound_upload_bytes(&softmax->desc),
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
    return mha_bound_check_overlap(run, &rest, who, "scores", false);
}

mha_status mha_softmax_enqueue(mha_softmax *softmax, const mha_tensor *scores,
                               const mha_attention_args *args, const mha_call *call)
{
    static const char who[] = "mha_softmax_enqueue";
    mha_run_clear_event(call);
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
    status = mha_bound_take_lengths(&run, &bound, who, desc, args);
    if (!status) /* which a softmax does not use, so that none may be given */
        status = mha_bound_take_offsets(&run, &bound, who, desc, args);
    if (!status)
        status = require_packed(&run, who, "probs", &args->probs);
    if (!status)
        status = mha_bound_take_options(&run, &bound, who, desc, args);
    if (!status) /* likewise */
        status = mha_bound_take_new(&run, &bound, who, desc, args);
    if (!status)
        status = bind_scores(&run, who, &bound, desc, scores);
    if (!status)
        status = mha_run_wait(&run);
    if (!status)
        status = mha_bound_upload(&run, &bound, desc, 0);
    if (!status && desc->batch && bound.query_len) {
        mha_run_will_write(&run, "probs");
        mha_run_will_write(&run, bound.scores.buffer ? "scores" : NULL);
        mha_run_will_write(&run, bound.lse.buffer ? "lse" : NULL);
        status = mha_softmax_launch(&softmax->stage, &run, desc, &bound, bound.query.buffer,
                                    bound.query.offset, bound.probs.buffer, bound.probs.offset);
    }
    return mha_run_end(&run, status);
}
