/* What a problem's times are divided by. */
#include "count.h"

/* Keys from `first` to before `end`. */
typedef struct key_span {
    int64_t first, end;
} key_span;

/* The keys that query i of batch b sees by lengths, causal and windows. */
static key_span seen_keys(const problem_ready *ready, size_t b, size_t i)
{
    const mha_attention_desc *d = &ready->desc.attention;
    const int32_t *per_query = ready->tensors[PROBLEM_LENGTHS_PER_QUERY].host;
    const int32_t *starts = ready->tensors[PROBLEM_STARTS].host;
    const int64_t length = (int64_t)problem_keys(ready, b);
    const int64_t queries = (int64_t)problem_queries(ready, b);
    const int64_t diagonal = (int64_t)i + (d->diagonal == MHA_BOTTOM_RIGHT ? length - queries : 0);
    key_span span = { starts ? starts[b] : 0, length };
    if (length - (int64_t)d->key_len > span.first) /* a ring that went round */
        span.first = length - (int64_t)d->key_len;
    if (per_query && per_query[b * d->query_len + i] < span.end)
        span.end = per_query[b * d->query_len + i];
    if (d->uses & MHA_USES_CAUSAL && diagonal + 1 < span.end)
        span.end = diagonal + 1;
    if (d->uses & MHA_USES_WINDOW_RIGHT && diagonal + (int64_t)d->window_right + 1 < span.end)
        span.end = diagonal + (int64_t)d->window_right + 1;
    if (d->uses & MHA_USES_WINDOW_LEFT && diagonal - (int64_t)d->window_left > span.first)
        span.first = diagonal - (int64_t)d->window_left;
    if (span.end < span.first)
        span.end = span.first;
    return span;
}

/* Multiplications that go with an addition in the layer's projections of one batch. */
static double projected_products(const mha_layer_desc *layer)
{
    const mha_attention_desc *d = &layer->attention;
    const double queries = (double)d->query_len;
    const double keys = (double)d->key_len;
    double products = queries * (double)layer->query_width * (double)(d->heads * d->head_dim);
    products += keys * (double)layer->key_width * (double)(d->kv_heads * d->head_dim);
    products += keys * (double)layer->value_width * (double)(d->kv_heads * d->value_dim);
    if (!(layer->flags & MHA_LAYER_MERGED_OUTPUT))
        products += queries * (double)(d->heads * d->value_dim) * (double)layer->output_width;
    return products;
}

double count_flops(const problem_ready *ready)
{
    const mha_attention_desc *d = &ready->desc.attention;
    const mha_gemm_desc *g = &ready->gemm_desc;
    double pairs = 0;
    if (ready->is_gemm)
        return 2 * (double)g->m * (double)g->n * (double)g->k;
    for (size_t b = 0; b < d->batch; b++)
        for (size_t i = 0; i < problem_queries(ready, b); i++) {
            const key_span span = seen_keys(ready, b, i);
            pairs += (double)(span.end - span.first);
        }
    double products = pairs * (double)d->heads * (double)(d->head_dim + d->value_dim);
    if (ready->is_layer)
        products += (double)d->batch * projected_products(&ready->desc);
    return 2 * products;
}

/* Keys of all batches that some query sees: from the first such one to the last. */
static double count_seen_keys(const problem_ready *ready)
{
    const mha_attention_desc *d = &ready->desc.attention;
    double keys = 0;
    for (size_t b = 0; b < d->batch; b++) {
        key_span all = { INT64_MAX, 0 };
        for (size_t i = 0; i < problem_queries(ready, b); i++) {
            const key_span span = seen_keys(ready, b, i);
            if (span.end > span.first && span.first < all.first)
                all.first = span.first;
            if (span.end > span.first && span.end > all.end)
                all.end = span.end;
        }
        keys += all.end > all.first ? (double)(all.end - all.first) : 0;
    }
    return keys;
}

static double bytes_of_row(const problem_tensor *tensor)
{
    return (double)tensor->shape[3] * (double)tensor->item_bytes;
}

double count_bytes(const problem_ready *ready)
{
    const problem_tensor *t = ready->tensors;
    const mha_attention_desc *d = &ready->desc.attention;
    const double heads = (double)d->kv_heads, joined = (double)(d->batch * d->new_len);
    double bytes = 0;
    for (int slot = 0; slot < PROBLEM_SLOTS; slot++) {
        const bool is_partly =
            (slot == PROBLEM_KEY || slot == PROBLEM_VALUE) && !ready->is_layer && !ready->is_gemm;
        if (is_partly)
            bytes += heads * bytes_of_row(&t[slot]) * (count_seen_keys(ready) + joined);
        else if (slot == PROBLEM_COS || slot == PROBLEM_SIN)
            bytes += joined * bytes_of_row(&t[slot]);
        else
            bytes += (double)t[slot].count * (double)t[slot].item_bytes;
    }
    return bytes;
}
