/* What a case says about a cache of keys and values, in the words of mha.h. */
#include "attend.h"

#include <stdlib.h>
#include <string.h>

/* The cache as it is before the call: [batch][kv_heads][rows][dim] with the past's rows first, and
 * behind them all bits set, which is NaN in any float type. */
static mha_tensor place_cache(check *self, const attend *call, const char *name, case_type type,
                              const case_tensor *past, size_t dim)
{
    const size_t matrices = call->desc.batch * call->desc.kv_heads;
    const size_t bytes = case_type_bytes(type), rows = call->desc.key_len;
    const size_t held = past ? past->shape[2] : 0;
    if (past && (past->rank != 4 || past->strided || past->type != type || held > rows ||
                 past->count != matrices * held * dim))
        check_fail(self, "%s does not fit the cache", past->name);
    unsigned char *const data = malloc(matrices * rows * dim * bytes + 1);
    if (!data)
        check_fail(self, "the host is out of memory");
    mha_tensor made = { 0 };
    if (!check_stopped(self)) {
        memset(data, 0xff, matrices * rows * dim * bytes);
        for (size_t m = 0; m < matrices && past; m++)
            memcpy(data + m * rows * dim * bytes,
                   (const unsigned char *)past->data + m * held * dim * bytes, held * dim * bytes);
        made = check_made_output(self, name, type, data, matrices * rows * dim);
    }
    free(data);
    return made;
}

void attend_append(check *self, attend *call, const attend_cache *cache)
{
    if (check_stopped(self))
        return;
    mha_attention_desc *const desc = &call->desc;
    mha_attention_args *const args = &call->args;
    desc->uses |= MHA_USES_APPEND;
    desc->new_len = desc->key_len;
    desc->new_type = desc->key_value_type;
    desc->key_len = cache->rows;
    args->new_key = args->key;
    args->new_value = args->value;
    args->key =
        place_cache(self, call, cache->key_name, cache->type, cache->past_key, desc->head_dim);
    args->value =
        place_cache(self, call, cache->value_name, cache->type, cache->past_value, desc->value_dim);
    desc->key_value_type = check_type(self, cache->type);
    int32_t *const positions = calloc(desc->batch + 1, sizeof *positions);
    if (!positions)
        check_fail(self, "the host is out of memory");
    const case_tensor *const totals = cache->totals;
    if (totals && (totals->rank != 1 || totals->count != desc->batch))
        check_fail(self, "%s is not [batch]", totals->name);
    for (size_t b = 0; b < desc->batch && !check_stopped(self); b++)
        positions[b] =
            totals ? (int32_t)case_type_value(totals->type, totals->data, totals->offset + b) -
                         (int32_t)desc->new_len
                   : (int32_t)cache->past_len;
    args->append_positions = check_made_lengths(self, "append_positions", positions, desc->batch);
    free(positions);
}

void attend_rotate(check *self, attend *call, const case_tensor *cosine, const case_tensor *sine,
                   bool interleaved)
{
    if (check_stopped(self))
        return;
    if (cosine->rank != 2 || sine->rank != 2 || cosine->type != CASE_FLOAT32 ||
        sine->type != CASE_FLOAT32 || cosine->count != sine->count || cosine->strided ||
        sine->strided)
        check_skip(self,
                   "this program takes packed float32 tables [position][rotary_dim / 2] only");
    mha_attention_desc *const desc = &call->desc;
    desc->uses |= MHA_USES_ROTARY;
    desc->rotary_positions = cosine->shape[0];
    desc->rotary_dim = 2 * cosine->shape[1];
    desc->rotary_pairs = interleaved ? MHA_ROTARY_INTERLEAVED : MHA_ROTARY_HALVES;
    call->args.rotary_cos = check_input(self, cosine);
    call->args.rotary_sin = check_input(self, sine);
}
