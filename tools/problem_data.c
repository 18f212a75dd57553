/* What stands in a problem's inputs. */
#include "fill.h"
#include "problem_parts.h"
#include "stored.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Weights of a size that keeps the deviation of what they are multiplied with. */
static void fill_weight(float *data, size_t count, uint64_t seed, size_t rows)
{
    const float most = sqrtf(3.0f / (float)rows);
    fill_uniform(data, count, seed, -most, most);
}

/* The geometric sequence of Press et al., section 3. */
static void fill_slopes(float *data, size_t heads)
{
    for (size_t h = 0; h < heads; h++)
        data[h] = (float)exp2(-8.0 * (double)(h + 1) / (double)heads);
}

/* The last rows of a cache; in a ring half of the second round, so that it has gone round. */
static void fill_positions(const problem_ready *self, int32_t *data, uint64_t seed)
{
    const mha_attention_desc *d = &self->desc.attention;
    const bool rings = d->uses & MHA_USES_RING;
    const size_t room = d->key_len - d->new_len;
    if (self->is_scattered)
        fill_lengths(data, d->batch, seed, (int32_t)(rings ? 3 * d->key_len : room));
    for (size_t b = 0; !self->is_scattered && b < d->batch; b++)
        data[b] = (int32_t)(rings ? d->key_len + d->key_len / 2 : room);
}

/* "RoFormer", section 3.2.2, equation 15. */
static void fill_table(const mha_attention_desc *d, float *data, double (*turn)(double))
{
    const size_t pairs = d->rotary_dim / 2;
    for (size_t i = 0; i < d->rotary_positions * pairs; i++)
        data[i] = (float)turn((double)(i / pairs) * pow(10000, -(double)(i % pairs) / pairs));
}

/* `given` 0: random ones. */
static void fill_key_lengths(int32_t *data, size_t count, uint64_t seed, size_t given, size_t most)
{
    if (!given) {
        fill_lengths(data, count, seed, (int32_t)most);
        return;
    }
    for (size_t b = 0; b < count; b++)
        data[b] = (int32_t)given;
}

static void fill_slot(problem_ready *self, problem_slot slot, uint64_t seed)
{
    const bool is_cross = slot >= PROBLEM_CROSS_WEIGHT_QUERY && slot <= PROBLEM_CROSS_BIAS_OUTPUT;
    const mha_layer_desc *layer = is_cross ? &self->cross : &self->desc;
    const mha_attention_desc *d = &layer->attention;
    void *data = self->tensors[slot].host;
    const size_t count = self->tensors[slot].count;

    switch (is_cross ? (problem_slot)(slot - PROBLEM_TO_CROSS) : slot) {
    case PROBLEM_QUERY:
    case PROBLEM_KEY:
    case PROBLEM_VALUE:
    case PROBLEM_BIAS:
    case PROBLEM_SINKS:
    case PROBLEM_NEW_KEY:
    case PROBLEM_NEW_VALUE:
        fill_floats(data, count, seed, FILL_NORMAL);
        break;
    case PROBLEM_MASK:
        fill_mask(data, count, seed, (double)self->mask_share);
        break;
    case PROBLEM_LENGTHS:
        fill_key_lengths(data, count, seed, self->key_length, d->key_len);
        break;
    case PROBLEM_MEMORY_LENGTHS:
        fill_key_lengths(data, count, seed, self->memory_length, self->cross.attention.key_len);
        break;
    case PROBLEM_LENGTHS_PER_QUERY:
    case PROBLEM_STARTS:
        fill_lengths(data, count, seed, (int32_t)d->key_len);
        break;
    case PROBLEM_POSITIONS:
        fill_positions(self, data, seed);
        break;
    case PROBLEM_COS:
    case PROBLEM_SIN:
        fill_table(d, data, slot == PROBLEM_COS ? cos : sin);
        break;
    case PROBLEM_SLOPES:
        fill_slopes(data, count);
        break;
    case PROBLEM_WEIGHT_QUERY:
        fill_weight(data, count, seed, layer->query_width);
        break;
    case PROBLEM_WEIGHT_KEY:
        fill_weight(data, count, seed, layer->key_width);
        break;
    case PROBLEM_WEIGHT_VALUE:
        fill_weight(data, count, seed, layer->value_width);
        break;
    case PROBLEM_WEIGHT_OUTPUT:
        fill_weight(data, count, seed, d->heads * d->value_dim);
        break;
    case PROBLEM_FFN_HIDDEN:
    case PROBLEM_FFN_GATE:
        fill_weight(data, count, seed, self->ffn.width);
        break;
    case PROBLEM_FFN_OUTPUT:
        fill_weight(data, count, seed, self->ffn.hidden_width);
        break;
    case PROBLEM_NORM_ATTENTION:
    case PROBLEM_NORM_CROSS:
    case PROBLEM_NORM_FFN:
        fill_uniform(data, count, seed, 0.5f, 1.5f);
        break;
    default:
        fill_floats(data, count, seed, FILL_UNIFORM);
    }
}

void problem_reorder(const problem_tensor *tensor, const float *from, float *to, bool into_memory)
{
    const size_t *const s = tensor->shape;
    for (size_t row = 0; row < s[0] * s[1] * s[2]; row++) {
        const size_t b = row / s[2] / s[1], h = row / s[2] % s[1], i = row % s[2];
        const size_t moved = tensor->is_merged ? (b * s[2] + i) * s[1] + h : row;
        const size_t source = into_memory ? row : moved, target = into_memory ? moved : row;
        memcpy(to + target * s[3], from + source * s[3], s[3] * sizeof *to);
    }
}

mha_status problem_fill(problem_ready *self, problem_slot slot, uint64_t seed, void **stored)
{
    problem_tensor *tensor = &self->tensors[slot];
    const size_t size = tensor->type ? sizeof(float) : tensor->item_bytes;
    if (!tensor->host) {
        tensor->host = calloc(tensor->count + 4, size);
        if (!tensor->host)
            return MHA_OUT_OF_HOST_MEMORY;
        fill_slot(self, slot, seed);
    }
    *stored = tensor->host;
    if (tensor->type)
        stored_round(tensor->type, tensor->host, tensor->count);
    if (!tensor->is_merged && tensor->item_bytes == size)
        return MHA_OK;
    float *const reordered = calloc(tensor->count + 4, sizeof *reordered);
    if (!reordered)
        return MHA_OUT_OF_HOST_MEMORY;
    problem_reorder(tensor, tensor->host, reordered, true);
    *stored = stored_pack(tensor->type, reordered, tensor->count + 4);
    free(reordered);
    return MHA_OK;
}
