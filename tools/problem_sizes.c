/* Which tensors a problem has, and their shapes. */
#include "fill.h"
#include "problem_parts.h"
#include "reference.h"
#include "stored.h"

#include <stdlib.h>

size_t problem_multiply(size_t a, size_t b)
{
    return b && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

static void use(problem_ready *self, problem_slot slot, size_t item_bytes, size_t a, size_t b,
                size_t c, size_t d)
{
    self->tensors[slot] = (problem_tensor){
        .used = true,
        .count = problem_multiply(problem_multiply(a, b), problem_multiply(c, d)),
        .item_bytes = item_bytes,
        .shape = { a, b, c, d },
    };
}

/* `type` 0: float32. */
static void use_type(problem_ready *self, problem_slot slot, mha_type type, size_t a, size_t b,
                     size_t c, size_t d)
{
    use(self, slot, stored_bytes(type), a, b, c, d);
    self->tensors[slot].type = type ? type : MHA_FLOAT32;
}

static void use_floats(problem_ready *self, problem_slot slot, size_t a, size_t b, size_t c,
                       size_t d)
{
    use_type(self, slot, MHA_FLOAT32, a, b, c, d);
}

/* A bias or, without a type, a mask: its broadcast axes have length 1. */
static void use_pairs(problem_ready *self, problem_slot slot, mha_type type, unsigned broadcast)
{
    const mha_attention_desc *d = &self->desc.attention;
    use(self, slot, type ? stored_bytes(type) : 1, broadcast & MHA_AXIS_BATCH ? 1 : d->batch,
        broadcast & MHA_AXIS_HEADS ? 1 : d->heads, broadcast & MHA_AXIS_QUERY ? 1 : d->query_len,
        broadcast & MHA_AXIS_KEY ? 1 : d->key_len);
    self->tensors[slot].type = type;
}

/* Lengths of the first and third axis of a tensor. */
typedef struct axis_rows {
    size_t batch, len;
} axis_rows;

static void size_options(problem_ready *self, const axis_rows *queries)
{
    const mha_attention_desc *d = &self->desc.attention;
    if (d->uses & MHA_USES_BIAS)
        use_pairs(self, PROBLEM_BIAS, d->type ? d->type : MHA_FLOAT32, d->bias_broadcast);
    if (d->uses & MHA_USES_MASK)
        use_pairs(self, PROBLEM_MASK, MHA_TYPE_DEFAULT, d->mask_broadcast);
    if (d->uses & MHA_USES_KEY_LENGTHS)
        use(self, PROBLEM_LENGTHS, sizeof(int32_t), d->batch, 1, 1, 1);
    if (d->uses & MHA_USES_KEY_LENGTHS_PER_QUERY)
        use(self, PROBLEM_LENGTHS_PER_QUERY, sizeof(int32_t), d->batch, d->query_len, 1, 1);
    if (d->uses & MHA_USES_KEY_STARTS)
        use(self, PROBLEM_STARTS, sizeof(int32_t), d->batch, 1, 1, 1);
    if (d->uses & MHA_USES_ALIBI)
        use_floats(self, PROBLEM_SLOPES, d->heads, 1, 1, 1);
    if (d->uses & MHA_USES_SINKS)
        use_floats(self, PROBLEM_SINKS, d->heads, 1, 1, 1);
    if (d->uses & MHA_USES_SCORES)
        use_floats(self, PROBLEM_SCORES, d->batch, d->heads, d->query_len, d->key_len);
    if (d->uses & MHA_USES_PROBS)
        use_floats(self, PROBLEM_PROBS, d->batch, d->heads, d->query_len, d->key_len);
    if (d->uses & MHA_USES_LSE)
        use_floats(self, PROBLEM_LSE, queries->batch, d->heads, queries->len, 1);
}

/* The sequences of all batches end to end, of random lengths up to `most`; the first one's is that,
 * so that no word is of nothing. */
static mha_status draw_offsets(problem_ready *self, problem_slot slot, size_t most, uint64_t seed)
{
    const size_t batch = self->desc.attention.batch;
    if (problem_multiply(batch, most) > INT32_MAX)
        return MHA_TOO_LARGE;
    int32_t *const offsets = calloc(batch + 1, sizeof *offsets);
    if (!offsets)
        return MHA_OUT_OF_HOST_MEMORY;
    fill_lengths(offsets + 1, batch, seed, (int32_t)most);
    offsets[batch ? 1 : 0] = batch ? (int32_t)most : 0;
    for (size_t b = 0; b < batch; b++)
        offsets[b + 1] += offsets[b];
    use(self, slot, sizeof *offsets, batch + 1, 1, 1, 1);
    self->tensors[slot].host = offsets;
    return MHA_OK;
}

/* The two axes of queries or of keys: of batches, or of all their sequences. */
static axis_rows rows_of(const problem_ready *self, problem_slot slot, size_t len)
{
    const size_t batch = self->desc.attention.batch;
    const int32_t *offsets = self->tensors[slot].host;
    return offsets ? (axis_rows){ 1, (size_t)offsets[batch] } : (axis_rows){ batch, len };
}

static void size_cache(problem_ready *self)
{
    const mha_attention_desc *d = &self->desc.attention;
    if (!(d->uses & MHA_USES_APPEND))
        return;
    use(self, PROBLEM_POSITIONS, sizeof(int32_t), d->batch, 1, 1, 1);
    use_type(self, PROBLEM_NEW_KEY, d->type, d->batch, d->kv_heads, d->new_len, d->head_dim);
    use_type(self, PROBLEM_NEW_VALUE, d->type, d->batch, d->kv_heads, d->new_len, d->value_dim);
    if (d->uses & MHA_USES_ROTARY) {
        use_floats(self, PROBLEM_COS, 1, 1, d->rotary_positions, d->rotary_dim / 2);
        use_floats(self, PROBLEM_SIN, 1, 1, d->rotary_positions, d->rotary_dim / 2);
    }
}

static mha_status size_attention(problem_ready *self, uint64_t seed)
{
    static const problem_slot merged[] = { PROBLEM_QUERY,   PROBLEM_KEY,       PROBLEM_VALUE,
                                           PROBLEM_NEW_KEY, PROBLEM_NEW_VALUE, PROBLEM_OUTPUT };
    const mha_attention_desc *d = &self->desc.attention;
    const mha_type keys = d->key_value_type ? d->key_value_type : d->type;
    mha_status status = MHA_OK;
    if (d->uses & MHA_USES_QUERY_OFFSETS)
        status = draw_offsets(self, PROBLEM_QUERY_OFFSETS, d->query_len, seed);
    /* With one seed equal lengths give equal sequences. */
    if (!status && d->uses & MHA_USES_KEY_OFFSETS)
        status = draw_offsets(self, PROBLEM_KEY_OFFSETS, d->key_len,
                              seed + (d->query_len != d->key_len));
    if (status)
        return status;
    const axis_rows q = rows_of(self, PROBLEM_QUERY_OFFSETS, d->query_len);
    const axis_rows k = rows_of(self, PROBLEM_KEY_OFFSETS, d->key_len);
    use_type(self, PROBLEM_QUERY, d->type, q.batch, d->heads, q.len, d->head_dim);
    use_type(self, PROBLEM_KEY, keys, k.batch, d->kv_heads, k.len, d->head_dim);
    use_type(self, PROBLEM_VALUE, keys, k.batch, d->kv_heads, k.len, d->value_dim);
    use_type(self, PROBLEM_OUTPUT, d->type, q.batch, d->heads, q.len, d->value_dim);
    size_cache(self);
    for (size_t i = 0; i < sizeof merged / sizeof merged[0]; i++)
        self->tensors[merged[i]].is_merged = self->is_merged;
    size_options(self, &q);
    return MHA_OK;
}

/* Weights of the layer itself, or of a decoder's attention to its memory. */
static void size_weights(problem_ready *self, const mha_layer_desc *layer, bool is_cross)
{
    const mha_attention_desc *d = &layer->attention;
    const mha_type type = layer->weight_type;
    const unsigned flags = layer->flags;
    const struct {
        problem_slot slot;
        bool exists;
        size_t shape[3];
    } list[] = {
        { PROBLEM_WEIGHT_QUERY, true, { layer->query_width, d->heads, d->head_dim } },
        { PROBLEM_WEIGHT_KEY, true, { layer->key_width, d->kv_heads, d->head_dim } },
        { PROBLEM_WEIGHT_VALUE, true, { layer->value_width, d->kv_heads, d->value_dim } },
        { PROBLEM_WEIGHT_OUTPUT,
          !(flags & MHA_LAYER_MERGED_OUTPUT),
          { d->heads, d->value_dim, layer->output_width } },
        { PROBLEM_BIAS_QUERY, flags & MHA_LAYER_BIAS_QUERY, { d->heads, d->head_dim, 1 } },
        { PROBLEM_BIAS_KEY, flags & MHA_LAYER_BIAS_KEY, { d->kv_heads, d->head_dim, 1 } },
        { PROBLEM_BIAS_VALUE, flags & MHA_LAYER_BIAS_VALUE, { d->kv_heads, d->value_dim, 1 } },
        { PROBLEM_BIAS_OUTPUT, flags & MHA_LAYER_BIAS_OUTPUT, { layer->output_width, 1, 1 } },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].exists)
            use_type(self, (problem_slot)(list[i].slot + (is_cross ? PROBLEM_TO_CROSS : 0)), type,
                     list[i].shape[0], list[i].shape[1], list[i].shape[2], 1);
}

/* What a block has beside its attentions. */
static void size_block(problem_ready *self)
{
    const size_t width = self->desc.query_width, between = self->ffn.hidden_width;
    const unsigned flags = self->ffn.flags;
    const mha_type type = self->ffn.weight_type;
    const size_t vectors = self->norm.uses & MHA_NORM_BIAS ? 2 : 1;
    self->ffn.width = width;
    use_type(self, PROBLEM_FFN_HIDDEN, type, width, between, 1, 1);
    if (flags & MHA_FFN_GATE)
        use_type(self, PROBLEM_FFN_GATE, type, width, between, 1, 1);
    use_type(self, PROBLEM_FFN_OUTPUT, type, between, width, 1, 1);
    if (flags & MHA_FFN_BIAS_HIDDEN)
        use_type(self, PROBLEM_FFN_BIAS_HIDDEN, type, between, 1, 1, 1);
    if (flags & MHA_FFN_BIAS_GATE)
        use_type(self, PROBLEM_FFN_BIAS_GATE, type, between, 1, 1, 1);
    if (flags & MHA_FFN_BIAS_OUTPUT)
        use_type(self, PROBLEM_FFN_BIAS_OUTPUT, type, width, 1, 1, 1);
    use_type(self, PROBLEM_NORM_ATTENTION, type, vectors, width, 1, 1);
    use_type(self, PROBLEM_NORM_FFN, type, vectors, width, 1, 1);
}

static void size_layer(problem_ready *self)
{
    const mha_layer_desc *layer = &self->desc;
    const mha_attention_desc *d = &layer->attention;
    use_type(self, PROBLEM_QUERY, d->type, d->batch, d->query_len, layer->query_width, 1);
    if (!self->is_self) {
        use_type(self, PROBLEM_KEY, d->type, d->batch, d->key_len, layer->key_width, 1);
        use_type(self, PROBLEM_VALUE, d->type, d->batch, d->key_len, layer->value_width, 1);
    }
    use_type(self, PROBLEM_OUTPUT, d->type, d->batch, d->query_len, layer->output_width, 1);
    size_weights(self, layer, false);
    size_options(self, &(const axis_rows){ d->batch, d->query_len });
}

/* The memory, and what attends to it. */
static void size_cross(problem_ready *self)
{
    const mha_attention_desc *a = &self->desc.attention;
    const size_t vectors = self->norm.uses & MHA_NORM_BIAS ? 2 : 1;
    self->cross.attention.batch = a->batch;
    self->cross.attention.query_len = a->query_len;
    self->cross = reference_layer_resolve(&self->cross);
    use_type(self, PROBLEM_KEY, a->type, a->batch, self->cross.attention.key_len,
             self->cross.key_width, 1);
    if (self->cross.attention.uses & MHA_USES_KEY_LENGTHS)
        use(self, PROBLEM_MEMORY_LENGTHS, sizeof(int32_t), a->batch, 1, 1, 1);
    size_weights(self, &self->cross, true);
    use_type(self, PROBLEM_NORM_CROSS, self->ffn.weight_type, vectors, self->desc.query_width, 1,
             1);
}

static void size_gemm(problem_ready *self)
{
    const mha_gemm_desc *d = &self->gemm_desc;
    use_type(self, PROBLEM_QUERY, d->type, 1, 1, d->m, d->k);
    use_type(self, PROBLEM_KEY, d->b_type ? d->b_type : d->type, 1, 1, d->k, d->n);
    use_type(self, PROBLEM_OUTPUT, d->type, 1, 1, d->m, d->n);
}

mha_status problem_size(problem_ready *self, const mha_layer_desc *given, bool is_cross,
                        uint64_t seed)
{
    if (self->kind == KIND_GEMM) {
        size_gemm(self);
        return MHA_OK;
    }
    if (self->kind == KIND_ATTENTION) {
        mha_attention_desc *d = &self->desc.attention;
        *d = reference_attention_resolve(&given->attention);
        if (d->uses & MHA_USES_ROTARY && !d->rotary_dim)
            d->rotary_dim = d->head_dim;
        return size_attention(self, seed);
    }
    const mha_layer_desc d = reference_layer_resolve(given);
    self->desc = d;
    self->is_self = !is_cross && d.attention.query_len == d.attention.key_len &&
                    d.query_width == d.key_width && d.key_width == d.value_width;
    size_layer(self);
    if (self->kind != KIND_LAYER)
        size_block(self);
    if (self->kind == KIND_DECODER)
        size_cross(self);
    if (self->kind == KIND_MODEL) /* a vector of each sentence */
        use_floats(self, PROBLEM_OUTPUT, d.attention.batch, d.output_width, 1, 1);
    return MHA_OK;
}
