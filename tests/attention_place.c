/* Attention cases on the device: layouts, and a run from create to results. */
#include "attention_place.h"

#include "stored.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static void strides_of(attention_layout given, const size_t shape[4], size_t strides[4])
{
    const attention_layout layout = given == LAYOUT_QKV ? LAYOUT_GAPS : given;
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

device_tensor attention_place_one(device *d, attention_layout layout, const size_t shape[4],
                                  size_t bytes, const void *data)
{
    size_t strides[4];
    strides_of(layout, shape, strides);
    const size_t *given = layout == LAYOUT_PACKED ? NULL : strides;
    return data ? device_input(d, shape, given, bytes, data)
                : device_output(d, shape, given, bytes);
}

/* Floats as elements of a type. `data` NULL: an output. */
static device_tensor place_floats(device *d, attention_layout layout, const size_t shape[4],
                                  mha_type type, const float *data)
{
    const size_t count = shape[0] * shape[1] * shape[2] * shape[3];
    void *packed = data ? stored_pack(type, data, count) : NULL;
    const device_tensor tensor = attention_place_one(d, layout, shape, stored_bytes(type), packed);
    free(packed);
    return tensor;
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

/* One float for each head, batches apart from each other. */
static mha_tensor place_row(device *d, const float *data, size_t heads, size_t batch)
{
    const size_t strides[4] = { heads + 3, heads, heads, 1 };
    const device_tensor tensor =
        device_input(d, (size_t[]){ batch, 1, 1, heads }, strides, sizeof(float), data);
    return (mha_tensor){ .buffer = device_buffer(&tensor), .offset = tensor.offset };
}

void attention_place_options(device *d, const attention_data *data, attention_tensors *to)
{
    const mha_attention_desc *desc = &data->desc;
    const size_t scores[4] = { desc->batch, desc->heads, data->query_len, data->key_len };
    const size_t rows[4] = { desc->batch, desc->heads, data->query_len, 1 };
    const attention_layout layout = data->given.layout;
    const attention_layout option =
        layout == LAYOUT_ROWS || layout == LAYOUT_GAPS ? LAYOUT_GAPS : LAYOUT_PACKED;
    const uint64_t uses = desc->uses;
    if (uses & MHA_USES_BIAS) {
        const device_tensor bias =
            place_floats(d, option, data->bias_shape,
                         desc->bias_type ? desc->bias_type : desc->type, data->bias);
        to->args.bias = device_arg(&bias);
    }
    if (uses & MHA_USES_MASK) {
        const device_tensor mask = attention_place_one(d, option, data->mask_shape, 1, data->mask);
        to->args.mask = device_arg(&mask);
    }
    if (uses & MHA_USES_PROBS) {
        to->probs = place_floats(d, option, scores, desc->scores_type, NULL);
        to->args.probs = device_arg(&to->probs);
    }
    if (uses & MHA_USES_SCORES) {
        to->scores = place_floats(d, option, scores, desc->scores_type, NULL);
        to->args.scores = device_arg(&to->scores);
    }
    if (uses & MHA_USES_LSE) {
        to->lse = attention_place_one(d, option, rows, sizeof(float), NULL);
        to->args.lse = device_arg(&to->lse);
    }
    if (uses & MHA_USES_KEY_LENGTHS)
        to->args.key_lengths = place_lengths(d, data, data->key_lengths, desc->batch);
    if (uses & MHA_USES_KEY_LENGTHS_PER_QUERY)
        to->args.key_lengths_per_query =
            place_lengths(d, data, data->per_query, desc->batch * data->query_len);
    if (uses & MHA_USES_KEY_STARTS)
        to->args.key_starts = place_lengths(d, data, data->key_starts, desc->batch);
    if (uses & MHA_USES_ALIBI) {
        const bool per_batch = data->given.slopes_per_batch;
        to->args.alibi_slopes =
            place_row(d, data->slopes, desc->heads, per_batch ? desc->batch : 1);
        to->args.alibi_slopes.strides[0] = per_batch ? desc->heads + 3 : 0;
    }
    to->args.dropout_seed = data->dropout_seed;
    to->args.dropout_offset = data->dropout_offset;
    if (uses & MHA_USES_SINKS)
        to->args.sinks = place_row(d, data->sinks, desc->heads, 1);
}

/* One row of the buffer is all heads of query, key and value of a position. */
static void place_qkv(device *d, const attention_data *data, const size_t query[4],
                      const size_t key[4], mha_attention_args *args)
{
    const size_t dim = query[3], len = query[2];
    const size_t row = (query[1] + 2 * key[1]) * dim;
    const size_t strides[4] = { len * row, dim, row, 1 };
    const mha_type type = data->desc.type;
    device_block *block = device_block_new(d, query[0] * len * row, stored_bytes(type));
    const size_t starts[] = { 0, query[1] * dim, (query[1] + key[1]) * dim };
    const float *const floats[] = { data->query, data->key, data->value };
    mha_tensor *const tensors[] = { &args->query, &args->key, &args->value };
    for (int i = 0; i < 3; i++) {
        const size_t *shape = i ? key : query;
        void *packed = stored_pack(type, floats[i], shape[0] * shape[1] * len * dim);
        const device_tensor tensor = device_place(d, block, starts[i], shape, strides, packed);
        *tensors[i] = device_arg(&tensor);
        free(packed);
    }
}

/* The query where the output will be. */
static void place_query_as_output(device *d, const attention_data *data, attention_tensors *to,
                                  attention_layout layout, const size_t query[4])
{
    const mha_type type = data->desc.type;
    void *packed = stored_pack(type, data->query, query[0] * query[1] * query[2] * query[3]);
    to->output = place_floats(d, layout, query, type, NULL);
    device_write(d, &to->output, packed);
    to->args.query = to->args.output = device_arg(&to->output);
    free(packed);
}

attention_tensors attention_place(device *d, const attention_data *data)
{
    const mha_attention_desc *desc = &data->desc;
    const size_t query[4] = { desc->batch, desc->heads, data->query_len, desc->head_dim };
    const size_t key[4] = { desc->batch, desc->kv_heads, data->key_len, desc->head_dim };
    const size_t value[4] = { desc->batch, desc->kv_heads, data->key_len, desc->value_dim };
    const size_t output[4] = { desc->batch, desc->heads, data->query_len, desc->value_dim };
    const mha_type kv_type = desc->key_value_type ? desc->key_value_type : desc->type;
    attention_tensors to = { .args = { .query_len = data->given.query_len,
                                       .key_len = data->given.key_len } };
    attention_layout layout = data->given.layout;
    const bool together = layout == LAYOUT_QKV && data->query_len == data->key_len &&
                          desc->head_dim == desc->value_dim && kv_type == desc->type &&
                          !data->given.in_place;
    if (layout == LAYOUT_QKV)
        layout = LAYOUT_ROWS;
    if (together) {
        place_qkv(d, data, query, key, &to.args);
    } else {
        const device_tensor tensors[] = {
            place_floats(d, layout, query, desc->type, data->query),
            place_floats(d, layout, key, kv_type, data->key),
            place_floats(d, layout, value, kv_type, data->value),
        };
        to.args.query = device_arg(&tensors[0]);
        to.args.key = device_arg(&tensors[1]);
        to.args.value = device_arg(&tensors[2]);
    }
    if (data->given.in_place) {
        place_query_as_output(d, data, &to, layout, query);
    } else {
        to.output = place_floats(d, layout, output,
                                 desc->output_type ? desc->output_type : desc->type, NULL);
        to.args.output = device_arg(&to.output);
    }
    attention_place_options(d, data, &to);
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

static void read_floats(device *d, const device_tensor *tensor, mha_type type, float *to)
{
    const size_t *shape = tensor->shape;
    const size_t count = shape[0] * shape[1] * shape[2] * shape[3];
    void *packed = calloc(count ? count : 1, stored_bytes(type));
    cr_assert(packed);
    device_read(d, tensor, packed);
    stored_unpack(type, to, packed, count);
    free(packed);
}

void attention_collect(device *d, attention_data *data, const attention_tensors *tensors)
{
    const mha_attention_desc *desc = &data->desc;
    read_floats(d, &tensors->output, desc->output_type ? desc->output_type : desc->type,
                data->output);
    if (desc->uses & MHA_USES_PROBS)
        read_floats(d, &tensors->probs, desc->scores_type, data->probs);
    if (desc->uses & MHA_USES_SCORES)
        read_floats(d, &tensors->scores, desc->scores_type, data->scores);
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
