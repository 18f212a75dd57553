/* What the reference is shown of a cache. */
#include "expect_cache.h"

#include "reference.h"
#include "stored.h"

#include <stdlib.h>
#include <string.h>

/* Rows turned to the positions of their batches: a new array. */
static double *turn(const problem_ready *ready, problem_slot slot)
{
    const mha_attention_desc *d = &ready->desc.attention;
    const problem_tensor *t = ready->tensors;
    const mha_rotary_desc desc = {
        .batch = d->batch,
        .heads = t[slot].shape[1],
        .len = t[slot].shape[2],
        .dim = d->head_dim,
        .rotary_dim = d->rotary_dim,
        .positions = d->rotary_positions,
        .pairs = d->rotary_pairs,
    };
    double *turned = calloc(t[slot].count + 1, sizeof *turned);
    const reference_rotary_args args = {
        .input = t[slot].host,
        .cos = t[PROBLEM_COS].host,
        .sin = t[PROBLEM_SIN].host,
        .offsets = t[PROBLEM_POSITIONS].host,
        .output = turned,
    };
    if (turned)
        reference_rotary(&desc, &args);
    return turned;
}

/* A new array in double. */
static double *widen(const problem_tensor *tensor)
{
    const float *host = tensor->host;
    double *wide = calloc(tensor->count + 1, sizeof *wide);
    for (size_t i = 0; wide && i < tensor->count; i++)
        wide[i] = host[i];
    return wide;
}

/* As floats that the type holds: a new array. */
static float *narrow(const double *wide, size_t count, mha_type type)
{
    float *made = calloc(count + 1, sizeof *made);
    for (size_t i = 0; made && i < count; i++)
        made[i] = (float)wide[i];
    if (made)
        stored_round(type, made, count);
    return made;
}

/* The cache after the call: its rows, and the new ones at their positions. */
static double *join(const problem_ready *ready, problem_slot slot, const double *fresh)
{
    const mha_attention_desc *d = &ready->desc.attention;
    const int32_t *positions = ready->tensors[PROBLEM_POSITIONS].host;
    const size_t dim = ready->tensors[slot].shape[3];
    double *cache = widen(&ready->tensors[slot]);
    for (size_t g = 0; cache && g < d->batch * d->kv_heads; g++) {
        for (size_t n = 0; n < d->new_len; n++) {
            const size_t row = ((size_t)positions[g / d->kv_heads] + n) % d->key_len;
            memcpy(cache + (g * d->key_len + row) * dim, fresh + (g * d->new_len + n) * dim,
                   dim * sizeof *cache);
        }
    }
    return cache;
}

/* A cache with its oldest key first: a new array. Only a ring that went round begins elsewhere. */
static float *unroll(const problem_ready *ready, problem_slot slot, const double *cache)
{
    const problem_tensor *tensor = &ready->tensors[slot];
    const mha_attention_desc *d = &ready->desc.attention;
    const size_t row_bytes = tensor->shape[3] * sizeof(float);
    float *stored = narrow(cache, tensor->count, tensor->type);
    float *made = calloc(tensor->count + 1, sizeof *made);
    for (size_t g = 0; stored && made && g < d->batch * d->kv_heads; g++) {
        const size_t keys = problem_keys(ready, g / d->kv_heads);
        const size_t oldest = keys > d->key_len ? keys - d->key_len : 0;
        for (size_t j = 0; j < d->key_len; j++)
            memcpy(made + (g * d->key_len + j) * tensor->shape[3],
                   stored + (g * d->key_len + (oldest + j) % d->key_len) * tensor->shape[3],
                   row_bytes);
    }
    const bool is_made = stored;
    free(stored);
    if (!is_made)
        free(made);
    return is_made ? made : NULL;
}

/* One tensor of the cache; *fresh is freed. */
static mha_status join_one(const problem_ready *ready, problem_slot slot, double *fresh,
                           double **wanted, float **seen)
{
    if (fresh)
        *wanted = join(ready, slot, fresh);
    free(fresh);
    if (*wanted)
        *seen = unroll(ready, slot, *wanted);
    return *seen ? MHA_OK : MHA_OUT_OF_HOST_MEMORY;
}

mha_status expect_cache(const problem_ready *ready, expect_inputs *made,
                        double *wanted[PROBLEM_SLOTS])
{
    const problem_tensor *t = ready->tensors;
    const bool rotates = ready->desc.attention.uses & MHA_USES_ROTARY;
    if (!(ready->desc.attention.uses & MHA_USES_APPEND))
        return MHA_OK;
    if (rotates) {
        double *turned = turn(ready, PROBLEM_QUERY);
        made->query = turned ? narrow(turned, t[PROBLEM_QUERY].count, t[PROBLEM_QUERY].type) : NULL;
        free(turned);
        if (!made->query)
            return MHA_OUT_OF_HOST_MEMORY;
    }
    double *key = rotates ? turn(ready, PROBLEM_NEW_KEY) : widen(&t[PROBLEM_NEW_KEY]);
    const mha_status status = join_one(ready, PROBLEM_KEY, key, &wanted[PROBLEM_KEY], &made->key);
    return status ? status
                  : join_one(ready, PROBLEM_VALUE, widen(&t[PROBLEM_NEW_VALUE]),
                             &wanted[PROBLEM_VALUE], &made->value);
}
