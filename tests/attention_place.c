/* Attention cases on the device: layouts, and a run from create to results. */
#include "attention_place.h"

#include <criterion/criterion.h>

static void strides_of(attention_layout layout, const size_t shape[4], size_t strides[4])
{
    const size_t heads = shape[1], len = shape[2], dim = shape[3];
    const size_t row = layout == LAYOUT_ROWS        ? heads * dim
                       : layout == LAYOUT_LEN_FIRST ? shape[0] * heads * dim
                                                    : dim + 3;
    const size_t head = layout == LAYOUT_GAPS ? row * len + 5 : dim;
    const size_t batch = layout == LAYOUT_ROWS        ? row * len
                         : layout == LAYOUT_LEN_FIRST ? heads * dim
                                                      : head * heads + 7;
    const size_t all[4] = { batch, head, row, 1 };
    /* The stride of an axis of length 1 is not read. */
    for (int axis = 0; axis < 4; axis++)
        strides[axis] = shape[axis] == 1 ? 987654321 : all[axis];
}

/* `data` NULL: an output. */
static device_tensor place(device *d, attention_layout layout, const size_t shape[4], size_t bytes,
                           const void *data)
{
    size_t strides[4];
    strides_of(layout, shape, strides);
    const size_t *given = layout == LAYOUT_PACKED ? NULL : strides;
    return data ? device_input(d, shape, given, bytes, data)
                : device_output(d, shape, given, bytes);
}

static mha_lengths place_lengths(device *d, const attention_data *data, const int32_t *array,
                                 size_t count)
{
    if (!data->given.lengths_on_device)
        return (mha_lengths){ .host = array };
    const device_tensor tensor =
        device_input(d, (size_t[]){ 1, 1, 1, count }, NULL, sizeof *array, array);
    return (mha_lengths){ .buffer = device_buffer(&tensor), .offset = tensor.offset };
}

static void place_options(device *d, const attention_data *data, attention_tensors *to)
{
    const mha_attention_desc *desc = &data->desc;
    const size_t scores[4] = { desc->batch, desc->heads, data->query_len, data->key_len };
    const size_t rows[4] = { desc->batch, desc->heads, data->query_len, 1 };
    const attention_layout layout = data->given.layout;
    const attention_layout option =
        layout == LAYOUT_ROWS || layout == LAYOUT_GAPS ? LAYOUT_GAPS : LAYOUT_PACKED;
    const uint64_t uses = desc->uses;
    if (uses & MHA_USES_BIAS) {
        const device_tensor bias = place(d, option, data->bias_shape, sizeof(float), data->bias);
        to->args.bias = device_arg(&bias);
    }
    if (uses & MHA_USES_MASK) {
        const device_tensor mask = place(d, option, data->mask_shape, 1, data->mask);
        to->args.mask = device_arg(&mask);
    }
    if (uses & MHA_USES_PROBS) {
        to->probs = place(d, option, scores, sizeof(float), NULL);
        to->args.probs = device_arg(&to->probs);
    }
    if (uses & MHA_USES_LSE) {
        to->lse = place(d, option, rows, sizeof(float), NULL);
        to->args.lse = device_arg(&to->lse);
    }
    if (uses & MHA_USES_KEY_LENGTHS)
        to->args.key_lengths = place_lengths(d, data, data->key_lengths, desc->batch);
    if (uses & MHA_USES_KEY_LENGTHS_PER_QUERY)
        to->args.key_lengths_per_query =
            place_lengths(d, data, data->per_query, desc->batch * data->query_len);
}

/* One row of the buffer is all heads of query, key and value of a position. */
static void place_qkv(device *d, const attention_data *data, const size_t query[4],
                      const size_t key[4], mha_attention_args *args)
{
    const size_t dim = query[3], len = query[2];
    const size_t row = (query[1] + 2 * key[1]) * dim;
    const size_t strides[4] = { len * row, dim, row, 1 };
    device_block *block = device_block_new(d, query[0] * len * row, sizeof(float));
    const size_t first_key = query[1] * dim;
    const size_t first_value = first_key + key[1] * dim;
    const device_tensor tensors[] = {
        device_place(d, block, 0, query, strides, data->query),
        device_place(d, block, first_key, key, strides, data->key),
        device_place(d, block, first_value, key, strides, data->value),
    };
    args->query = device_arg(&tensors[0]);
    args->key = device_arg(&tensors[1]);
    args->value = device_arg(&tensors[2]);
}

attention_tensors attention_place(device *d, const attention_data *data)
{
    const mha_attention_desc *desc = &data->desc;
    const size_t query[4] = { desc->batch, desc->heads, data->query_len, desc->head_dim };
    const size_t key[4] = { desc->batch, desc->kv_heads, data->key_len, desc->head_dim };
    const size_t value[4] = { desc->batch, desc->kv_heads, data->key_len, desc->value_dim };
    const size_t output[4] = { desc->batch, desc->heads, data->query_len, desc->value_dim };
    attention_tensors to = { .args = { .query_len = data->given.query_len,
                                       .key_len = data->given.key_len } };
    attention_layout layout = data->given.layout;
    const bool together = layout == LAYOUT_QKV && data->query_len == data->key_len &&
                          desc->head_dim == desc->value_dim;
    if (layout == LAYOUT_QKV)
        layout = LAYOUT_ROWS;
    if (together) {
        place_qkv(d, data, query, key, &to.args);
    } else {
        const device_tensor tensors[] = {
            place(d, layout, query, sizeof(float), data->query),
            place(d, layout, key, sizeof(float), data->key),
            place(d, layout, value, sizeof(float), data->value),
        };
        to.args.query = device_arg(&tensors[0]);
        to.args.key = device_arg(&tensors[1]);
        to.args.value = device_arg(&tensors[2]);
    }
    to.output = place(d, layout, output, sizeof(float), NULL);
    to.args.output = device_arg(&to.output);
    place_options(d, data, &to);
    return to;
}

void attention_run_placed(device *d, attention_data *data, const attention_tensors *tensors)
{
    mha_attention *attention = NULL;
    mha_status status = mha_attention_create(&attention, d->context, &data->given.desc);
    cr_assert_eq(status, MHA_OK, "%s: create: %s", data->name, d->sentence);
    mha_call call = device_call(d, mha_attention_workspace(attention));
    call.stage = data->stage;
    call.stage_data = data->stage_data;
    status = mha_attention_enqueue(attention, &tensors->args, &call);
    cr_assert_eq(status, MHA_OK, "%s: enqueue: %s", data->name, d->sentence);
    mha_attention_destroy(&attention); /* while its work may still run */
    attention_collect(d, data, tensors);
}

void attention_collect(device *d, attention_data *data, const attention_tensors *tensors)
{
    device_read(d, &tensors->output, data->output);
    if (data->desc.uses & MHA_USES_PROBS)
        device_read(d, &tensors->probs, data->probs);
    if (data->desc.uses & MHA_USES_LSE)
        device_read(d, &tensors->lse, data->lse);
    device_expect_guards(d, data->name);
}

void attention_run(device *d, attention_data *data)
{
    const attention_tensors tensors = attention_place(d, data);
    attention_run_placed(d, data, &tensors);
    device_forget(d);
}

bool attention_check(device *d, const attention_case *given, compare_worst *worst)
{
    attention_data *data = attention_data_new(given);
    attention_data_spoil(data);
    attention_data_expect(data);
    attention_run(d, data);
    const bool good = attention_compare(data, worst);
    attention_data_free(data);
    return good;
}
