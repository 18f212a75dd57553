/* Attention on host arrays, and its options, which layers and blocks have too. */
#include "host.h"

#include "log.h"
#include "shape.h"

/* An array that nobody asked for may be of any size, so it is refused before it is read. */
static mha_status refuse_unasked(const mha_context *context, const char *who,
                                 const mha_attention_desc *desc, const mha_host_args *args)
{
    const struct {
        const char *name;
        uint64_t bit;
        const void *data;
    } options[] = {
        { "bias", MHA_USES_BIAS, args->bias.data },
        { "mask", MHA_USES_MASK, args->mask.data },
        { "alibi_slopes", MHA_USES_ALIBI, args->alibi_slopes.data },
        { "sinks", MHA_USES_SINKS, args->sinks.data },
        { "probs", MHA_USES_PROBS, args->probs.data },
        { "scores", MHA_USES_SCORES, args->scores.data },
        { "lse", MHA_USES_LSE, args->lse.data },
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].data && !(desc->uses & options[i].bit))
            return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                                "%s: %s is given, but desc.uses does not say that it takes part",
                                who, options[i].name);
    return MHA_OK;
}

mha_status mha_host_check_options(const mha_context *context, const char *who, const char *enqueue,
                                  const mha_attention_desc *desc, const mha_host_args *args)
{
    if (desc->uses & MHA_USES_APPEND)
        return mha_log_fail(&context->log, MHA_UNSUPPORTED,
                            "%s: MHA_USES_APPEND keeps a cache on the device, so it goes with %s",
                            who, enqueue);
    return refuse_unasked(context, who, desc, args);
}

mha_status mha_host_check_call(const mha_context *context, const char *who, const char *enqueue,
                               const mha_attention_desc *desc, const mha_host_args *args,
                               size_t *query_len, size_t *key_len)
{
    if (!args)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    const mha_status lost = mha_context_check(context, who);
    if (lost)
        return lost;
    *query_len = args->query_len ? args->query_len : desc->query_len;
    *key_len = args->key_len ? args->key_len : desc->key_len;
    if (*query_len > desc->query_len || *key_len > desc->key_len)
        return mha_log_fail(
            &context->log, MHA_INVALID_ARGUMENT,
            "%s: the call's query_len %zu and key_len %zu may be at most the desc's %zu and %zu",
            who, *query_len, *key_len, desc->query_len, desc->key_len);
    return mha_host_check_options(context, who, enqueue, desc, args);
}

mha_status mha_host_stage_options(mha_host_call *host, const char *who,
                                  const mha_attention_desc *desc, const mha_host_args *args,
                                  const mha_host_shapes *shapes, mha_attention_args *to)
{
    const size_t scores[4] = { desc->batch, desc->heads, shapes->query_len, shapes->key_len };
    const size_t rows[4] = { shapes->query[0], desc->heads, shapes->query[2], 1 };
    const size_t heads[4] = { 1, 1, 1, desc->heads };
    const size_t slopes[4] = { args->alibi_slopes.strides[0] ? desc->batch : 1, 1, 1, desc->heads };
    size_t bias[4], mask[4];
    mha_shape_narrow(bias, scores, desc->bias_broadcast);
    mha_shape_narrow(mask, scores, desc->mask_broadcast);
    const size_t *by = args->alibi_slopes.strides;
    const mha_host_input alibi_slopes = { args->alibi_slopes.data,
                                          { by[0], 0, 0, by[3] ? by[3] : 1 } };
    const mha_host_input sinks = { args->sinks.data, { 0, 0, 0, args->sinks.strides[3] } };
    const size_t scores_bytes = mha_bind_type_bytes(desc->scores_type);
    to->key_lengths.host = args->key_lengths;
    to->key_lengths_per_query.host = args->key_lengths_per_query;
    to->key_starts.host = args->key_starts;
    to->query_offsets.host = args->query_offsets;
    to->key_offsets.host = args->key_offsets;
    to->dropout_seed = args->dropout_seed;
    to->dropout_offset = args->dropout_offset;
    const struct {
        const char *name;
        mha_tensor *tensor;
        const mha_host_input *from;
        const size_t *shape;
        size_t bytes;
    } inputs[] = {
        { "bias", &to->bias, &args->bias, bias, mha_bind_type_bytes(desc->bias_type) },
        { "mask", &to->mask, &args->mask, mask, 1 },
        { "alibi_slopes", &to->alibi_slopes, &alibi_slopes, slopes, sizeof(float) },
        { "sinks", &to->sinks, &sinks, heads, sizeof(float) },
    };
    const struct {
        const char *name;
        mha_tensor *tensor;
        const mha_host_output *to;
        const size_t *shape;
        size_t bytes;
    } outputs[] = {
        { "probs", &to->probs, &args->probs, scores, scores_bytes },
        { "scores", &to->scores, &args->scores, scores, scores_bytes },
        { "lse", &to->lse, &args->lse, rows, sizeof(float) },
    };
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < sizeof inputs / sizeof inputs[0]; i++)
        status = mha_host_stage_input(host, who, inputs[i].name, inputs[i].tensor, inputs[i].from,
                                      inputs[i].shape, inputs[i].bytes);
    for (size_t i = 0; !status && i < sizeof outputs / sizeof outputs[0]; i++)
        status = mha_host_stage_output(host, who, outputs[i].name, outputs[i].tensor, outputs[i].to,
                                       outputs[i].shape, outputs[i].bytes,
                                       desc->uses & MHA_USES_QUERY_OFFSETS);
    return status;
}

mha_status mha_host_attend(mha_context *context, const char *who, const mha_attention_desc *desc,
                           const mha_host_args *args, const mha_host_shapes *shapes,
                           mha_host_enqueue *enqueue, void *object, size_t workspace_bytes)
{
    mha_host_call host = { .context = context };
    mha_attention_args to = { .query_len = args->query_len, .key_len = args->key_len };
    const size_t kv_bytes = mha_bind_type_bytes(desc->key_value_type);
    mha_status status = mha_host_stage_input(&host, who, "query", &to.query, &args->query,
                                             shapes->query, mha_bind_type_bytes(desc->type));
    if (!status)
        status =
            mha_host_stage_input(&host, who, "key", &to.key, &args->key, shapes->key, kv_bytes);
    if (!status)
        status = mha_host_stage_input(&host, who, "value", &to.value, &args->value, shapes->value,
                                      kv_bytes);
    if (!status)
        status = mha_host_stage_output(&host, who, "output", &to.output, &args->output,
                                       shapes->output, mha_bind_type_bytes(desc->output_type),
                                       desc->uses & MHA_USES_QUERY_OFFSETS);
    if (!status)
        status = mha_host_stage_options(&host, who, desc, args, shapes, &to);
    return mha_host_end(&host, who, status, enqueue, object, &to, workspace_bytes);
}

/* Rows of a tensor whose batches may lie end to end: then as many as the last offset says. Nothing
 * of that size is read before all offsets are known to be in order. */
static mha_status count_rows(const mha_context *context, const char *who, const char *name,
                             bool packs, const int32_t *offsets, size_t batch, size_t len,
                             size_t *rows)
{
    *rows = packs ? 0 : len;
    if (!packs || !batch)
        return MHA_OK;
    if (!offsets)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: %s is not given, but desc.uses says that it takes part", who,
                            name);
    for (size_t i = 0; i <= batch; i++) {
        const size_t least = *rows; /* the offset before, or 0 */
        if (offsets[i] < 0 || (size_t)offsets[i] < least || (i && offsets[i] - least > len))
            return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                                "%s: %s[%zu] is %ld, and before it is %zu: offsets ascend from 0, "
                                "and a sequence has at most %zu rows",
                                who, name, i, (long)offsets[i], least, len);
        *rows = (size_t)offsets[i];
    }
    return MHA_OK;
}

static mha_status enqueue_attention(void *object, const void *args, const mha_call *call,
                                    const char *who)
{
    return mha_attention_enqueue_as(object, args, call, who);
}

mha_status mha_attention_run(mha_attention *attention, const mha_host_args *args)
{
    static const char who[] = "mha_attention_run";
    if (!attention)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = mha_attention_context(attention);
    const mha_attention_desc *d = mha_attention_shape(attention);
    const bool packs_queries = d->uses & MHA_USES_QUERY_OFFSETS;
    const bool packs_keys = d->uses & MHA_USES_KEY_OFFSETS;
    const size_t qb = packs_queries ? 1 : d->batch, kb = packs_keys ? 1 : d->batch;
    size_t query_len = 0, key_len = 0, q_rows = 0, k_rows = 0;
    mha_status status =
        mha_host_check_call(context, who, "mha_attention_enqueue", d, args, &query_len, &key_len);
    if (!status)
        status = count_rows(context, who, "query_offsets", packs_queries, args->query_offsets,
                            d->batch, query_len, &q_rows);
    if (!status)
        status = count_rows(context, who, "key_offsets", packs_keys, args->key_offsets, d->batch,
                            key_len, &k_rows);
    if (status)
        return status;
    const mha_host_shapes shapes = {
        .query = { qb, d->heads, q_rows, d->head_dim },
        .key = { kb, d->kv_heads, k_rows, d->head_dim },
        .value = { kb, d->kv_heads, k_rows, d->value_dim },
        .output = { qb, d->heads, q_rows, d->value_dim },
        .query_len = query_len,
        .key_len = key_len,
    };
    return mha_host_attend(context, who, d, args, &shapes, enqueue_attention, attention,
                           mha_attention_workspace(attention).bytes);
}
