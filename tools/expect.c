/* What the reference says of a problem. It knows one rectangle for each batch: sequences that lie
 * end to end are laid out as one, and a cache is shown as it is after the call. */
#include "expect_cache.h"

#include "problem_model.h"
#include "reference_layers.h"

#include <stdlib.h>
#include <string.h>

/* Rows of `bytes` each, of sequences end to end, [heads][total] -> [batch][heads][len], or back. */
static void move_rows(const problem_ready *ready, problem_slot offsets_slot, size_t heads,
                      size_t len, size_t bytes, const void *from, void *to, bool into_sequences)
{
    const int32_t *offsets = ready->tensors[offsets_slot].host;
    const size_t batch = ready->desc.attention.batch, total = (size_t)offsets[batch];
    for (size_t b = 0; b < batch; b++) {
        const size_t first = (size_t)offsets[b], count = (size_t)offsets[b + 1] - first;
        for (size_t h = 0; h < heads; h++) {
            const size_t padded = (b * heads + h) * len * bytes;
            const size_t packed = (h * total + first) * bytes;
            memcpy((char *)to + (into_sequences ? packed : padded),
                   (const char *)from + (into_sequences ? padded : packed), count * bytes);
        }
    }
}

/* A tensor of sequences end to end as a new rectangle for each batch; what is between is 0. */
static float *lay_out(const problem_ready *ready, problem_slot slot, problem_slot offsets,
                      size_t len)
{
    const problem_tensor *tensor = &ready->tensors[slot];
    const size_t heads = tensor->shape[1], dim = tensor->shape[3];
    float *made = calloc(ready->desc.attention.batch * heads * len * dim + 1, sizeof *made);
    if (made)
        move_rows(ready, offsets, heads, len, dim * sizeof *made, tensor->host, made, false);
    return made;
}

static mha_status lay_out_sequences(const problem_ready *ready, expect_inputs *made)
{
    const mha_attention_desc *d = &ready->desc.attention;
    if (d->uses & MHA_USES_QUERY_OFFSETS) {
        const size_t rows = d->batch * d->heads * d->query_len;
        made->query = lay_out(ready, PROBLEM_QUERY, PROBLEM_QUERY_OFFSETS, d->query_len);
        made->output = calloc(rows * d->value_dim + 1, sizeof *made->output);
        made->lse = calloc(rows + 1, sizeof *made->lse);
        if (!made->query || !made->output || !made->lse)
            return MHA_OUT_OF_HOST_MEMORY;
    }
    if (d->uses & MHA_USES_KEY_OFFSETS) {
        made->key = lay_out(ready, PROBLEM_KEY, PROBLEM_KEY_OFFSETS, d->key_len);
        made->value = lay_out(ready, PROBLEM_VALUE, PROBLEM_KEY_OFFSETS, d->key_len);
        if (!made->key || !made->value)
            return MHA_OUT_OF_HOST_MEMORY;
    }
    return MHA_OK;
}

/* Where batches have keys or queries of their own. */
static mha_status count_rows(const problem_ready *ready, expect_inputs *made)
{
    const mha_attention_desc *d = &ready->desc.attention;
    made->query_lengths = calloc(d->batch + 1, sizeof(int32_t));
    made->key_lengths = calloc(d->batch + 1, sizeof(int32_t));
    if (!made->query_lengths || !made->key_lengths)
        return MHA_OUT_OF_HOST_MEMORY;
    for (size_t b = 0; b < d->batch; b++) {
        const size_t keys = problem_keys(ready, b);
        made->query_lengths[b] = (int32_t)problem_queries(ready, b);
        made->key_lengths[b] = (int32_t)(keys < d->key_len ? keys : d->key_len);
    }
    return MHA_OK;
}

/* `first` is PROBLEM_WEIGHT_QUERY, or that of the attention to a memory. */
static reference_layer_weights layer_of(const problem_ready *ready, problem_slot first)
{
    const problem_tensor *t = ready->tensors + first;
    return (reference_layer_weights){ .query = t[0].host,
                                      .key = t[1].host,
                                      .value = t[2].host,
                                      .output = t[3].host,
                                      .bias_query = t[4].host,
                                      .bias_key = t[5].host,
                                      .bias_value = t[6].host,
                                      .bias_output = t[7].host };
}

/* An encoder layer is a decoder layer without a memory. */
static void run_block(const problem_ready *ready, const mha_layer_desc *attention,
                      const reference_args *args)
{
    const problem_tensor *t = ready->tensors;
    const mha_decoder_desc desc = { .self_attention = *attention,
                                    .cross_attention = ready->cross,
                                    .feed_forward = ready->ffn,
                                    .norm = ready->norm,
                                    .norm_place = ready->norm_place };
    const reference_decoder_weights all = {
        .self_attention = layer_of(ready, PROBLEM_WEIGHT_QUERY),
        .cross_attention = layer_of(ready, PROBLEM_CROSS_WEIGHT_QUERY),
        .feed_forward = { .hidden = t[PROBLEM_FFN_HIDDEN].host,
                          .gate = t[PROBLEM_FFN_GATE].host,
                          .output = t[PROBLEM_FFN_OUTPUT].host,
                          .bias_hidden = t[PROBLEM_FFN_BIAS_HIDDEN].host,
                          .bias_gate = t[PROBLEM_FFN_BIAS_GATE].host,
                          .bias_output = t[PROBLEM_FFN_BIAS_OUTPUT].host },
        .norm_self_attention = t[PROBLEM_NORM_ATTENTION].host,
        .norm_cross_attention = t[PROBLEM_NORM_CROSS].host,
        .norm_feed_forward = t[PROBLEM_NORM_FFN].host,
    };
    reference_decoder(
        &desc, &all,
        &(reference_decoder_args){ .input = args->query,
                                   .memory = t[PROBLEM_KEY].host,
                                   .self = *args,
                                   .cross.key_lengths = t[PROBLEM_MEMORY_LENGTHS].host,
                                   .output = args->output });
}

static void run_reference(const problem_ready *ready, const expect_inputs *made,
                          double *wanted[PROBLEM_SLOTS])
{
    const problem_tensor *t = ready->tensors;
    mha_layer_desc desc = ready->desc;
    desc.attention.uses |= MHA_USES_KEY_LENGTHS;
    const float *query = t[PROBLEM_QUERY].host;
    const reference_args args = {
        .query = made->query ? made->query : query,
        .key = made->key        ? made->key
               : ready->is_self ? query
                                : (const float *)t[PROBLEM_KEY].host,
        .value = made->value      ? made->value
                 : ready->is_self ? query
                                  : (const float *)t[PROBLEM_VALUE].host,
        .bias = t[PROBLEM_BIAS].host,
        .mask = t[PROBLEM_MASK].host,
        .query_lengths = made->query_lengths,
        .key_lengths = made->key_lengths,
        .key_lengths_per_query = t[PROBLEM_LENGTHS_PER_QUERY].host,
        .key_starts = t[PROBLEM_STARTS].host,
        .slopes = t[PROBLEM_SLOPES].host,
        .sinks = t[PROBLEM_SINKS].host,
        .dropout_p = desc.attention.dropout_p,
        .dropout_seed = ready->dropout_seed,
        .dropout_offset = ready->dropout_offset,
        .output = made->output ? made->output : wanted[PROBLEM_OUTPUT],
        .scores = wanted[PROBLEM_SCORES],
        .probs = wanted[PROBLEM_PROBS],
        .lse = made->lse ? made->lse : wanted[PROBLEM_LSE],
    };
    const reference_layer_weights weights = layer_of(ready, PROBLEM_WEIGHT_QUERY);
    if (ready->kind == KIND_GEMM)
        reference_gemm(&ready->gemm_desc, &(reference_gemm_args){
                                              .a = args.query, .b = args.key, .out = args.output });
    else if (ready->kind == KIND_ENCODER || ready->kind == KIND_DECODER)
        run_block(ready, &desc, &args);
    else if (ready->kind == KIND_LAYER)
        reference_layer(&desc, &weights, &args);
    else
        reference_attention(&desc.attention, &args);
}

/* The rows that exist, out of all. */
static void pack_outputs(const problem_ready *ready, const expect_inputs *made,
                         double *wanted[PROBLEM_SLOTS])
{
    const mha_attention_desc *d = &ready->desc.attention;
    if (!made->output)
        return;
    move_rows(ready, PROBLEM_QUERY_OFFSETS, d->heads, d->query_len,
              d->value_dim * sizeof *made->output, made->output, wanted[PROBLEM_OUTPUT], true);
    if (wanted[PROBLEM_LSE])
        move_rows(ready, PROBLEM_QUERY_OFFSETS, d->heads, d->query_len, sizeof *made->lse,
                  made->lse, wanted[PROBLEM_LSE], true);
}

mha_status expect(const problem_ready *ready, double *wanted[PROBLEM_SLOTS])
{
    expect_inputs made = { 0 };
    mha_status status = MHA_OK;
    for (int slot = 0; slot < PROBLEM_SLOTS; slot++) {
        wanted[slot] = NULL;
        if (slot < PROBLEM_OUTPUT || !ready->tensors[slot].used)
            continue;
        wanted[slot] = calloc(ready->tensors[slot].count + 1, sizeof *wanted[slot]);
        if (!wanted[slot])
            status = MHA_OUT_OF_HOST_MEMORY;
    }
    if (ready->model)
        return status ? status : problem_model_expect(ready, wanted[PROBLEM_OUTPUT]);
    if (!status)
        status = lay_out_sequences(ready, &made);
    if (!status)
        status = expect_cache(ready, &made, wanted);
    if (!status)
        status = count_rows(ready, &made);
    if (!status) {
        run_reference(ready, &made, wanted);
        pack_outputs(ready, &made, wanted);
    }
    void *const all[] = { made.query, made.key,           made.value,      made.output,
                          made.lse,   made.query_lengths, made.key_lengths };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    return status;
}

void expect_free(double *wanted[PROBLEM_SLOTS])
{
    for (int slot = 0; slot < PROBLEM_SLOTS; slot++)
        free(wanted[slot]);
}
