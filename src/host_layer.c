/* A layer on host arrays: its weights, and one call. */
#include "host.h"

#include "log.h"

static mha_status enqueue_layer(void *object, const void *args, const mha_call *call,
                                const char *who)
{
    return mha_layer_enqueue_as(object, args, call, who);
}

static mha_status load_layer(void *object, const void *weights, const mha_call *call,
                             const char *who)
{
    return mha_layer_load_as(object, weights, call, who);
}

mha_status mha_layer_run(mha_layer *layer, const mha_host_args *args)
{
    static const char who[] = "mha_layer_run";
    if (!layer)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = mha_layer_context(layer);
    const mha_layer_desc *desc = mha_layer_shape(layer);
    const mha_attention_desc *d = &desc->attention;
    size_t q = 0, k = 0;
    mha_status status = mha_host_check_call(context, who, "mha_layer_enqueue", d, args, &q, &k);
    if (!status)
        status = mha_layer_check_loaded(layer, who);
    if (status)
        return status;
    const mha_host_shapes shapes = {
        .query = { d->batch, 1, q, desc->query_width },
        .key = { d->batch, 1, k, desc->key_width },
        .value = { d->batch, 1, k, desc->value_width },
        .output = { d->batch, 1, q, desc->output_width },
        .query_len = q,
        .key_len = k,
    };
    return mha_host_attend(context, who, d, args, &shapes, enqueue_layer, layer,
                           mha_layer_workspace(layer).bytes);
}

mha_status mha_host_stage_layer(mha_host_call *host, const char *who, const mha_layer *layer,
                                const mha_layer_host_weights *weights, mha_layer_weights *to)
{
    const mha_layer_desc *desc = mha_layer_shape(layer);
    const mha_attention_desc *d = &desc->attention;
    const size_t query = d->heads * d->head_dim, key = d->kv_heads * d->head_dim;
    const size_t value = d->kv_heads * d->value_dim, merged = d->heads * d->value_dim;
    const unsigned flags = desc->flags;
    const mha_host_weight list[] = {
        { "query", weights->query, &to->query, desc->query_width, query, true },
        { "key", weights->key, &to->key, desc->key_width, key, true },
        { "value", weights->value, &to->value, desc->value_width, value, true },
        { "output", weights->output, &to->output, merged, desc->output_width,
          !(flags & MHA_LAYER_MERGED_OUTPUT) },
        { "bias_query",
          { .data = weights->bias_query },
          &to->bias_query,
          0,
          query,
          flags & MHA_LAYER_BIAS_QUERY },
        { "bias_key",
          { .data = weights->bias_key },
          &to->bias_key,
          0,
          key,
          flags & MHA_LAYER_BIAS_KEY },
        { "bias_value",
          { .data = weights->bias_value },
          &to->bias_value,
          0,
          value,
          flags & MHA_LAYER_BIAS_VALUE },
        { "bias_output",
          { .data = weights->bias_output },
          &to->bias_output,
          0,
          desc->output_width,
          flags & MHA_LAYER_BIAS_OUTPUT },
    };
    return mha_host_stage_weights(host, who, list, sizeof list / sizeof list[0],
                                  flags & MHA_LAYER_OUT_IN, desc->weight_type, "the flags say");
}

mha_status mha_layer_load_host(mha_layer *layer, const mha_layer_host_weights *weights)
{
    static const char who[] = "mha_layer_load_host";
    if (!layer)
        return MHA_INVALID_ARGUMENT;
    mha_host_call host = { .context = mha_layer_context(layer) };
    if (!weights)
        return mha_log_fail(&host.context->log, MHA_INVALID_ARGUMENT, "%s: weights is NULL", who);
    mha_status status = mha_context_check(host.context, who);
    if (status)
        return status;
    mha_layer_weights to = { 0 };
    status = mha_host_stage_layer(&host, who, layer, weights, &to);
    return mha_host_end(&host, who, status, load_layer, layer, &to, 0);
}
