/* What a case says about an attention, in the words of mha.h. */
#include "attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A tensor as [batch][heads][len][dim]. */
typedef struct view {
    size_t shape[4];
    mha_tensor tensor;
} view;

static view view_heads(check *self, const case_tensor *tensor, size_t heads)
{
    view result = { .tensor = check_input(self, tensor) };
    if (check_stopped(self))
        return result;
    const size_t *const shape = tensor->shape, *const strides = tensor->strides;
    if (tensor->rank == 4) {
        memcpy(result.shape, shape, sizeof result.shape);
        if (shape[1] != heads)
            check_fail(self, "%s has %zu heads, the case says %zu", tensor->name, shape[1], heads);
    } else if (tensor->rank == 3 && heads && shape[2] % heads == 0) {
        const size_t dim = shape[2] / heads;
        const view split = {
            .shape = { shape[0], heads, shape[1], dim },
            .tensor = { .buffer = result.tensor.buffer,
                        .offset = result.tensor.offset,
                        .strides = { strides[0], dim * strides[2], strides[1], strides[2] } },
        };
        return split;
    } else {
        check_fail(self, "%s cannot be seen as %zu heads", tensor->name, heads);
    }
    return result;
}

void attend_bind(check *self, attend *call, const case_tensor *query, size_t heads,
                 const case_tensor *key, const case_tensor *value, size_t kv_heads)
{
    if (check_stopped(self))
        return;
    const view q = view_heads(self, query, heads);
    const view k = view_heads(self, key, kv_heads);
    const view v = view_heads(self, value, kv_heads);
    if (check_stopped(self))
        return;
    if (k.shape[0] != q.shape[0] || v.shape[0] != q.shape[0] || k.shape[3] != q.shape[3] ||
        v.shape[2] != k.shape[2])
        check_fail(self, "the shapes of %s, %s and %s do not fit each other", query->name,
                   key->name, value->name);
    if (key->type != value->type)
        check_fail(self, "%s and %s are of different types", key->name, value->name);
    call->desc.batch = q.shape[0];
    call->desc.heads = heads;
    call->desc.kv_heads = kv_heads;
    call->desc.query_len = q.shape[2];
    call->desc.key_len = k.shape[2];
    call->desc.head_dim = q.shape[3];
    call->desc.value_dim = v.shape[3];
    call->desc.type = check_type(self, query->type);
    call->desc.key_value_type = check_type(self, key->type);
    call->args.query = q.tensor;
    call->args.key = k.tensor;
    call->args.value = v.tensor;
    call->key = key;
}

void attend_read_scores(check *self, attend *call)
{
    call->desc.scale = (float)case_float(self->file, "scale", 0);
    call->desc.softcap = (float)case_float(self->file, "softcap", 0);
    if (call->desc.scale == 0 && case_has(self->file, "scale"))
        check_skip(self, "the interface takes a scale of 0 as its default");
}

/* -1: no limit. */
static void read_window(check *self, attend *call, const char *key, uint64_t bit, size_t *window)
{
    const long limit = case_int(self->file, key, -1);
    if (limit < -1)
        check_fail(self, "%s is below -1", key);
    if (limit < 0)
        return;
    call->desc.uses |= bit;
    *window = (size_t)limit;
}

void attend_read_onnx_diagonal(check *self, attend *call)
{
    mha_attention_desc *const desc = &call->desc;
    read_window(self, call, "left_window_size", MHA_USES_WINDOW_LEFT, &desc->window_left);
    read_window(self, call, "right_window_size", MHA_USES_WINDOW_RIGHT, &desc->window_right);
    if (case_flag(self->file, "is_causal", false))
        desc->uses |= MHA_USES_CAUSAL;
    if (desc->uses & (MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT))
        desc->diagonal = desc->uses & MHA_USES_KEY_LENGTHS ? MHA_BOTTOM_RIGHT
                         : desc->uses & MHA_USES_APPEND    ? MHA_AFTER_PAST
                                                           : MHA_TOP_LEFT;
}

/* The axes where `shape` is 1, which must else be the scores' own shape. */
static unsigned find_broadcast(check *self, const attend *call, const char *name,
                               const size_t shape[4])
{
    const size_t full[4] = { call->desc.batch, call->desc.heads, call->desc.query_len,
                             call->desc.key_len };
    unsigned axes = 0;
    for (unsigned axis = 0; axis < 4; axis++) {
        if (shape[axis] == 1)
            axes |= MHA_AXIS_BATCH << axis;
        else if (shape[axis] != full[axis])
            check_fail(self, "axis %u of %s has length %zu, not 1 or %zu", axis, name, shape[axis],
                       full[axis]);
    }
    return axes;
}

static void use_mask(check *self, attend *call, const char *name, const size_t shape[4],
                     mha_tensor tensor)
{
    if (call->desc.uses & MHA_USES_MASK)
        check_skip(self, "the interface takes one mask, and %s is the second", name);
    call->desc.uses |= MHA_USES_MASK;
    call->desc.mask_broadcast = find_broadcast(self, call, name, shape);
    call->args.mask = tensor;
}

static void use_bias(check *self, attend *call, const case_tensor *bias, const size_t shape[4],
                     mha_tensor tensor)
{
    if (call->desc.uses & MHA_USES_BIAS)
        check_skip(self, "the interface takes one bias, and %s is the second", bias->name);
    call->desc.uses |= MHA_USES_BIAS;
    call->desc.bias_broadcast = find_broadcast(self, call, bias->name, shape);
    call->desc.bias_type = check_type(self, bias->type);
    call->args.bias = tensor;
}

/* -inf of a float type, 0 of the others, into the first bytes of `item`. */
static void set_excluded(case_type type, unsigned char *item)
{
    const float wide = -INFINITY;
    const uint16_t half = 0xfc00, bfloat = 0xff80;
    if (type == CASE_FLOAT32)
        memcpy(item, &wide, sizeof wide);
    else if (type == CASE_FLOAT16)
        memcpy(item, &half, sizeof half);
    else if (type == CASE_BFLOAT16)
        memcpy(item, &bfloat, sizeof bfloat);
    else
        *item = 0;
}

/* The mask with its last axis filled up to the keys. `shape` is its own, and becomes the new. */
static mha_tensor pad_keys(check *self, const attend *call, const case_tensor *mask,
                           size_t shape[4])
{
    const size_t size = case_type_bytes(mask->type);
    const size_t rows = shape[0] * shape[1] * shape[2];
    const size_t from = shape[3], to = call->desc.key_len;
    if (mask->strided)
        check_skip(self, "%s is short and has strides", mask->name);
    unsigned char *const data = calloc(rows * to + 1, size);
    if (!data)
        check_fail(self, "the host is out of memory");
    for (size_t row = 0; row < rows && !check_stopped(self); row++) {
        memcpy(data + row * to * size, (const unsigned char *)mask->data + row * from * size,
               from * size);
        for (size_t key = from; key < to; key++)
            set_excluded(mask->type, data + (row * to + key) * size);
    }
    shape[3] = to;
    const mha_tensor made = check_made_input(self, mask->name, mask->type, data, rows * to);
    free(data);
    return made;
}

void attend_see_mask(check *self, attend *call, const case_tensor *mask, bool pad)
{
    if (!mask || check_stopped(self))
        return;
    if (mask->rank > 4) {
        check_fail(self, "%s has more than 4 axes", mask->name);
        return;
    }
    size_t shape[4] = { 1, 1, 1, 1 };
    memcpy(shape + 4 - mask->rank, mask->shape, mask->rank * sizeof shape[0]);
    const mha_tensor tensor = pad && shape[3] < call->desc.key_len
                                  ? pad_keys(self, call, mask, shape)
                                  : check_input(self, mask);
    if (mask->type == CASE_BOOL || mask->type == CASE_UINT8)
        use_mask(self, call, mask->name, shape, tensor);
    else
        use_bias(self, call, mask, shape, tensor);
}

/* A mask made of the numbers of a tensor: byte i says whether number i is 0, or is not. */
static void use_numbers(check *self, attend *call, const case_tensor *numbers, bool keep,
                        const size_t shape[4])
{
    if (check_stopped(self))
        return;
    unsigned char *const bytes = malloc(numbers->count + 1);
    if (!bytes || numbers->strided) {
        check_fail(self, "%s has strides, or the host is out of memory", numbers->name);
        free(bytes);
        return;
    }
    for (size_t i = 0; i < numbers->count; i++)
        bytes[i] = (case_type_value(numbers->type, numbers->data, i) != 0) == keep;
    use_mask(self, call, numbers->name, shape,
             check_made_input(self, numbers->name, CASE_UINT8, bytes, numbers->count));
    free(bytes);
}

void attend_see_keys(check *self, attend *call, const case_tensor *keys, bool keep)
{
    if (!keys || check_stopped(self))
        return;
    if (keys->rank != 2)
        check_fail(self, "%s is not [batch][key_len]", keys->name);
    const size_t shape[4] = { keys->shape[0], 1, 1, keys->shape[1] };
    use_numbers(self, call, keys, keep, shape);
}

void attend_see_pairs(check *self, attend *call, const case_tensor *pairs)
{
    if (!pairs || check_stopped(self))
        return;
    if (pairs->rank != 3)
        check_fail(self, "%s is not [batch][query_len][key_len]", pairs->name);
    const size_t shape[4] = { pairs->shape[0], 1, pairs->shape[1], pairs->shape[2] };
    use_numbers(self, call, pairs, true, shape);
}

void attend_see_ranges(check *self, attend *call, const case_tensor *end_start)
{
    if (!end_start || check_stopped(self))
        return;
    const size_t batch = call->desc.batch;
    if (end_start->rank != 1 || end_start->count != 2 * batch || end_start->strided) {
        check_fail(self, "%s is not [2 * batch]", end_start->name);
        return;
    }
    call->desc.uses |= MHA_USES_KEY_LENGTHS | MHA_USES_KEY_STARTS;
    call->args.key_lengths = check_lengths(self, end_start, 0, batch);
    call->args.key_starts = check_lengths(self, end_start, batch, batch);
}

void attend_see_lengths(check *self, attend *call, const case_tensor *lengths)
{
    if (!lengths || check_stopped(self))
        return;
    const bool per_query = lengths->rank == 2 && lengths->shape[1] == call->desc.query_len;
    if ((lengths->rank != 1 && !per_query) || lengths->shape[0] != call->desc.batch)
        check_fail(self, "%s is neither [batch] nor [batch][query_len]", lengths->name);
    if (per_query) {
        call->desc.uses |= MHA_USES_KEY_LENGTHS_PER_QUERY;
        call->args.key_lengths_per_query = check_lengths(self, lengths, 0, lengths->count);
    } else {
        call->desc.uses |= MHA_USES_KEY_LENGTHS;
        call->args.key_lengths = check_lengths(self, lengths, 0, lengths->count);
    }
}

void attend_give_output(check *self, attend *call, const char *name, bool heads_apart)
{
    const mha_attention_desc *const desc = &call->desc;
    const size_t width = desc->heads * desc->value_dim;
    const case_type natural = desc->type == MHA_FLOAT16    ? CASE_FLOAT16
                              : desc->type == MHA_BFLOAT16 ? CASE_BFLOAT16
                                                           : CASE_FLOAT32;
    const case_type type = check_output_type(self, name, natural);
    call->args.output = check_output(self, name, type, desc->batch * desc->query_len * width, 1);
    call->desc.output_type = check_type(self, type);
    if (heads_apart)
        return;
    call->args.output.strides[0] = desc->query_len * width;
    call->args.output.strides[1] = desc->value_dim;
    call->args.output.strides[2] = width;
    call->args.output.strides[3] = 1;
}

/* The matrix [batch][heads][query_len][key_len] of that name, in the type that the case gives it.
 */
static mha_tensor give_matrix(check *self, attend *call, const char *name, uint64_t bit,
                              size_t heads)
{
    mha_attention_desc *const desc = &call->desc;
    const case_type type = check_output_type(self, name, CASE_FLOAT32);
    desc->uses |= bit;
    desc->scores_type = check_type(self, type);
    return check_output(self, name, type,
                        desc->batch * desc->heads * desc->query_len * desc->key_len, heads);
}

void attend_give_probs(check *self, attend *call, const char *name, bool mean)
{
    if (case_output(self->file, name))
        call->args.probs =
            give_matrix(self, call, name, MHA_USES_PROBS, mean ? call->desc.heads : 1);
}

void attend_give_scores(check *self, attend *call, const char *name, mha_scores_stage stage)
{
    if (!case_output(self->file, name))
        return;
    call->desc.scores_stage = stage;
    call->args.scores = give_matrix(self, call, name, MHA_USES_SCORES, 1);
}

void attend_give_lse(check *self, attend *call, const char *name)
{
    const mha_attention_desc *const desc = &call->desc;
    if (!check_wants(self, name))
        return;
    call->desc.uses |= MHA_USES_LSE;
    call->args.lse =
        check_output(self, name, CASE_FLOAT32, desc->batch * desc->heads * desc->query_len, 1);
}

void attend_run(check *self, attend *call)
{
    if (!check_ready(self))
        return;
    call->desc.path = self->setup->path;
    call->desc.tiling = self->setup->tiling;
    call->desc.gemm = self->setup->gemm;
    mha_attention *attention = NULL;
    check_status(self, mha_attention_create(&attention, self->setup->context, &call->desc),
                 "mha_attention_create");
    if (attention) {
        mha_attention_explain(attention, self->explain, sizeof self->explain);
        const mha_call enqueue = check_call(self, mha_attention_workspace(attention));
        if (!check_stopped(self))
            check_status(self, mha_attention_enqueue(attention, &call->args, &enqueue),
                         "mha_attention_enqueue");
    }
    mha_attention_destroy(&attention);
}
