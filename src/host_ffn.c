/* A feed-forward network on host arrays: its weights, and one call. */
#include "host.h"

#include "log.h"

static mha_status enqueue_ffn(void *object, const void *args, const mha_call *call, const char *who)
{
    return mha_ffn_enqueue_as(object, args, call, who);
}

static mha_status load_ffn(void *object, const void *weights, const mha_call *call, const char *who)
{
    return mha_ffn_load_as(object, weights, call, who);
}

mha_status mha_host_stage_ffn(mha_host_call *host, const char *who, const mha_ffn *ffn,
                              const mha_ffn_host_weights *weights, mha_ffn_weights *to)
{
    const mha_ffn_desc *desc = &ffn->desc;
    const size_t in = desc->width, hidden = desc->hidden_width, out = desc->output_width;
    const unsigned flags = desc->flags;
    const mha_host_weight list[] = {
        { "hidden", weights->hidden, &to->hidden, in, hidden, true },
        { "gate", weights->gate, &to->gate, in, hidden, flags & MHA_FFN_GATE },
        { "output", weights->output, &to->output, hidden, out, true },
        { "bias_hidden",
          { .data = weights->bias_hidden },
          &to->bias_hidden,
          0,
          hidden,
          flags & MHA_FFN_BIAS_HIDDEN },
        { "bias_gate",
          { .data = weights->bias_gate },
          &to->bias_gate,
          0,
          hidden,
          flags & MHA_FFN_BIAS_GATE },
        { "bias_output",
          { .data = weights->bias_output },
          &to->bias_output,
          0,
          out,
          flags & MHA_FFN_BIAS_OUTPUT },
    };
    return mha_host_stage_weights(host, who, list, sizeof list / sizeof list[0],
                                  flags & MHA_FFN_OUT_IN, desc->weight_type, "the flags say");
}

mha_status mha_ffn_load_host(mha_ffn *ffn, const mha_ffn_host_weights *weights)
{
    static const char who[] = "mha_ffn_load_host";
    if (!ffn)
        return MHA_INVALID_ARGUMENT;
    mha_host_call host = { .context = ffn->context };
    if (!weights)
        return mha_log_fail(&host.context->log, MHA_INVALID_ARGUMENT, "%s: weights is NULL", who);
    mha_status status = mha_context_check(host.context, who);
    if (status)
        return status;
    mha_ffn_weights to = { 0 };
    status = mha_host_stage_ffn(&host, who, ffn, weights, &to);
    return mha_host_end(&host, who, status, load_ffn, ffn, &to, 0);
}

mha_status mha_ffn_run(mha_ffn *ffn, const mha_ffn_host_args *args)
{
    static const char who[] = "mha_ffn_run";
    if (!ffn)
        return MHA_INVALID_ARGUMENT;
    mha_host_call host = { .context = ffn->context };
    const mha_log *log = &host.context->log;
    const mha_ffn_desc *desc = &ffn->desc;
    if (!args)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    mha_status status = mha_context_check(host.context, who);
    if (status)
        return status;
    size_t rows = 0;
    status = mha_ffn_check_call(ffn, who, args->rows, &rows);
    if (status)
        return status;
    mha_ffn_args to = { .rows = args->rows };
    status = mha_host_stage_input(&host, who, "input", &to.input, &args->input,
                                  (size_t[]){ 1, 1, rows, desc->width },
                                  mha_bind_type_bytes(desc->type));
    if (!status)
        status = mha_host_stage_output(&host, who, "output", &to.output, &args->output,
                                       (size_t[]){ 1, 1, rows, desc->output_width },
                                       mha_bind_type_bytes(desc->output_type), false);
    return mha_host_end(&host, who, status, enqueue_ffn, ffn, &to, mha_ffn_workspace(ffn).bytes);
}
