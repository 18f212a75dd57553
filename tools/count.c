/* What a problem's times are divided by. */
#include "count.h"

#include <string.h>

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

/* Pairs of query and key in one head of all batches. */
static double count_pairs(const problem_ready *ready)
{
    double pairs = 0;
    for (size_t b = 0; b < ready->desc.attention.batch; b++)
        for (size_t i = 0; i < problem_queries(ready, b); i++) {
            const key_span span = seen_keys(ready, b, i);
            pairs += (double)(span.end - span.first);
        }
    return pairs;
}

/* The same of a decoder's tokens and its memory. */
static double count_memory_pairs(const problem_ready *ready)
{
    const mha_attention_desc *d = &ready->cross.attention;
    const int32_t *lengths = ready->tensors[PROBLEM_MEMORY_LENGTHS].host;
    double rows = 0;
    for (size_t b = 0; b < d->batch; b++)
        rows += lengths ? (double)lengths[b] : (double)d->key_len;
    return rows * (double)d->query_len;
}

/* Multiplications that go with an addition in a projection of a layer, or of a decoder's attention
 * to its memory. */
static double projected_products(const problem_ready *ready, const char *stage, bool is_cross)
{
    const mha_layer_desc *layer = is_cross ? &ready->cross : &ready->desc;
    const mha_attention_desc *d = &layer->attention;
    const size_t network_rows = is_cross ? 0 : d->query_len;
    const mha_ffn_desc *ffn = &ready->ffn;
    const bool has_output = !(layer->flags & MHA_LAYER_MERGED_OUTPUT);
    const bool has_gate = ffn->flags & MHA_FFN_GATE;
    const struct {
        const char *stage;
        size_t rows, in, out;
    } list[] = {
        { "project query", d->query_len, layer->query_width, d->heads * d->head_dim },
        { "project key", d->key_len, layer->key_width, d->kv_heads * d->head_dim },
        { "project value", d->key_len, layer->value_width, d->kv_heads * d->value_dim },
        { "project query, key, value", d->query_len, layer->query_width,
          d->heads * d->head_dim + d->kv_heads * (d->head_dim + d->value_dim) },
        { "project output", has_output ? d->query_len : 0, d->heads * d->value_dim,
          layer->output_width },
        { "feed-forward hidden", network_rows, ffn->width, ffn->hidden_width },
        { "feed-forward gate", has_gate ? network_rows : 0, ffn->width, ffn->hidden_width },
        { "feed-forward hidden, gate", has_gate ? network_rows : 0, ffn->width,
          2 * ffn->hidden_width },
        { "feed-forward output", network_rows, ffn->hidden_width, ffn->width },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (!strcmp(stage, list[i].stage))
            return (double)d->batch * (double)list[i].rows * (double)list[i].in *
                   (double)list[i].out;
    return 0;
}

/* The same in any stage. */
static double stage_products(const problem_ready *ready, const char *stage, bool is_cross)
{
    const mha_attention_desc *d = &(is_cross ? &ready->cross : &ready->desc)->attention;
    const mha_gemm_desc *g = &ready->gemm_desc;
    const bool attends = !strcmp(stage, "attend") || !strcmp(stage, "decode");
    const bool scores = attends || !strcmp(stage, "scores");
    const bool weighs = attends || !strcmp(stage, "probs value");
    if (ready->kind == KIND_GEMM)
        return strcmp(stage, "gemm") ? 0 : (double)g->m * (double)g->n * (double)g->k;
    if (scores || weighs)
        return (is_cross ? count_memory_pairs(ready) : count_pairs(ready)) * (double)d->heads *
               (double)((scores ? d->head_dim : 0) + (weighs ? d->value_dim : 0));
    return ready->kind == KIND_ATTENTION ? 0 : projected_products(ready, stage, is_cross);
}

double count_stage_flops(const problem_ready *ready, const char *stage, bool is_cross)
{
    return 2 * stage_products(ready, stage, is_cross) * (double)ready->repeats;
}

double count_flops(const problem_ready *ready)
{
    static const char *const stages[] = {
        "gemm",
        "attend",
        "project query",
        "project key",
        "project value",
        "project output",
        "feed-forward hidden",
        "feed-forward gate",
        "feed-forward output",
    };
    double flops = 0;
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        for (int is_cross = 0; is_cross <= (ready->kind == KIND_DECODER); is_cross++)
            flops += count_stage_flops(ready, stages[i], is_cross);
    return flops;
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

/* Which each layer has of its own. */
static bool is_weight(int slot)
{
    return slot >= PROBLEM_WEIGHT_QUERY && slot <= PROBLEM_NORM_FFN;
}

double count_bytes(const problem_ready *ready)
{
    const problem_tensor *t = ready->tensors;
    const mha_attention_desc *d = &ready->desc.attention;
    const double heads = (double)d->kv_heads, joined = (double)(d->batch * d->new_len);
    double bytes = 0;
    for (int slot = 0; slot < PROBLEM_SLOTS; slot++) {
        const bool is_partly =
            (slot == PROBLEM_KEY || slot == PROBLEM_VALUE) && ready->kind == KIND_ATTENTION;
        if (is_partly)
            bytes += heads * bytes_of_row(&t[slot]) * (count_seen_keys(ready) + joined);
        else if (slot == PROBLEM_COS || slot == PROBLEM_SIN)
            bytes += joined * bytes_of_row(&t[slot]);
        else
            bytes += (double)t[slot].count * (double)t[slot].item_bytes *
                     (double)(is_weight(slot) ? ready->repeats : 1);
    }
    return bytes;
}
