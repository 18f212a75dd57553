/* Layer cases: data, weights, their place in memory, a run. */
#include "layer_case.h"

#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    cr_assert(memory, "no memory for %zu elements of %zu bytes", count, size);
    return memory;
}

typedef struct matrix_size {
    size_t in, out;
} matrix_size;

static matrix_size size_of(const mha_layer_desc *desc, int i)
{
    const mha_attention_desc *a = &desc->attention;
    const matrix_size sizes[] = {
        { desc->query_width, a->heads * a->head_dim },
        { desc->key_width, a->kv_heads * a->head_dim },
        { desc->value_width, a->kv_heads * a->value_dim },
        { a->heads * a->value_dim, desc->output_width },
    };
    return sizes[i];
}

mha_type layer_key_type(const mha_layer_desc *desc)
{
    const mha_attention_desc *a = &desc->attention;
    return a->key_value_type ? a->key_value_type : a->type;
}

mha_type layer_output_type(const mha_layer_desc *desc)
{
    return desc->attention.output_type ? desc->attention.output_type : desc->attention.type;
}

static bool exists(const mha_layer_desc *desc, int i)
{
    return i < 3 || !(desc->flags & MHA_LAYER_MERGED_OUTPUT);
}

static void say_name(layer_data *data)
{
    const mha_layer_desc *d = &data->desc;
    const attention_data *a = data->attention;
    snprintf(
        data->name, sizeof data->name,
        "seed %llu: layer b%zu h%zu/%zu q%zu/%zu k%zu/%zu d%zu v%zu widths %zu %zu %zu %zu flags "
        "%02x uses %03llx gemm %d projection %d layout %d weights %d%s types %d,%d,%d weights %d",
        (unsigned long long)data->given.seed, d->attention.batch, d->attention.heads,
        d->attention.kv_heads, a->query_len, d->attention.query_len, a->key_len,
        d->attention.key_len, d->attention.head_dim, d->attention.value_dim, d->query_width,
        d->key_width, d->value_width, d->output_width, d->flags,
        (unsigned long long)d->attention.uses, (int)d->attention.gemm, (int)d->projection,
        (int)data->given.layout, (int)data->given.weights, data->given.self ? " self" : "",
        (int)d->attention.type, (int)layer_key_type(d), (int)layer_output_type(d),
        (int)d->weight_type);
}

static bool is_seen(const attention_data *a, size_t b, size_t j)
{
    const size_t rows = a->desc.heads * a->query_len;
    for (size_t i = b * rows; i < (b + 1) * rows; i++)
        if (a->seen[i * a->key_len + j])
            return true;
    return false;
}

static void hide_keys(layer_data *data)
{
    const attention_data *a = data->attention;
    for (size_t b = 0; b < a->desc.batch; b++)
        for (size_t j = 0; j < a->key_len; j++) {
            if (is_seen(a, b, j))
                continue;
            const size_t row = b * a->key_len + j;
            for (size_t c = 0; c < data->desc.key_width; c++)
                data->key[row * data->desc.key_width + c] = NAN;
            for (size_t c = 0; c < data->desc.value_width; c++)
                data->value[row * data->desc.value_width + c] = NAN;
        }
}

/* Weights such that a projection of normal numbers is about normal. */
void layer_data_fill_weights(layer_data *data, uint64_t seed)
{
    const mha_layer_desc *desc = &data->desc;
    for (int i = 0; i < 4; i++) {
        const matrix_size size = size_of(desc, i);
        const float most = sqrtf(3 / (float)size.in);
        if (data->matrices[i])
            fill_uniform(data->matrices[i], size.in * size.out, seed + (uint64_t)i, -most, most);
        if (data->biases[i])
            fill_uniform(data->biases[i], size.out, seed + 4 + (uint64_t)i, -1, 1);
        stored_round(desc->weight_type, data->matrices[i],
                     data->matrices[i] ? size.in * size.out : 0);
        stored_round(desc->weight_type, data->biases[i], data->biases[i] ? size.out : 0);
    }
    attention_data *a = data->attention;
    const reference_layer_weights weights = {
        .query = data->matrices[0],
        .key = data->matrices[1],
        .value = data->matrices[2],
        .output = data->matrices[3],
        .bias_query = data->biases[0],
        .bias_key = data->biases[1],
        .bias_value = data->biases[2],
        .bias_output = data->biases[3],
    };
    const reference_args args = {
        .query_len = a->query_len,
        .key_len = a->key_len,
        .query = data->query,
        .key = data->key,
        .value = data->value,
        .bias = a->bias,
        .mask = a->mask,
        .key_lengths = a->key_lengths,
        .key_lengths_per_query = a->per_query,
        .output = data->want,
        .probs = a->want_probs,
        .lse = a->want_lse,
    };
    reference_layer(desc, &weights, &args);
}

layer_data *layer_data_new(const layer_case *given)
{
    layer_data *data = allocate(1, sizeof *data);
    data->given = *given;
    data->desc = reference_layer_resolve(&given->desc);
    const mha_layer_desc *desc = &data->desc;
    data->attention = attention_data_new(&(attention_case){
        .desc = desc->attention,
        .query_len = given->query_len,
        .key_len = given->key_len,
        .layout = given->layout,
        .lengths_on_device = given->lengths_on_device,
        .seed = given->seed + 32,
    });
    const size_t queries = desc->attention.batch * data->attention->query_len;
    const size_t keys = desc->attention.batch * data->attention->key_len;
    say_name(data);
    data->query = allocate(queries * desc->query_width, sizeof(float));
    data->key = allocate(keys * desc->key_width, sizeof(float));
    data->value = allocate(keys * desc->value_width, sizeof(float));
    data->output = allocate(queries * desc->output_width, sizeof(float));
    data->want = allocate(queries * desc->output_width, sizeof(double));
    /* One seed: where query, key and value are the same memory, so are their contents here. */
    const uint64_t seed = given->seed;
    fill_floats(data->query, queries * desc->query_width, seed, FILL_NORMAL);
    fill_floats(data->key, keys * desc->key_width, given->self ? seed : seed + 1, FILL_NORMAL);
    fill_floats(data->value, keys * desc->value_width, given->self ? seed : seed + 2, FILL_NORMAL);
    stored_round(desc->attention.type, data->query, queries * desc->query_width);
    stored_round(layer_key_type(desc), data->key, keys * desc->key_width);
    stored_round(layer_key_type(desc), data->value, keys * desc->value_width);
    for (int i = 0; i < 4; i++) {
        const matrix_size size = size_of(desc, i);
        if (exists(desc, i))
            data->matrices[i] = allocate(size.in * size.out, sizeof(float));
        if (desc->flags >> i & 1)
            data->biases[i] = allocate(size.out, sizeof(float));
    }
    attention_data_see(data->attention);
    if (!given->self)
        hide_keys(data);
    layer_data_fill_weights(data, seed + 8);
    return data;
}

void layer_data_free(layer_data *data)
{
    attention_data_free(data->attention);
    for (int i = 0; i < 4; i++) {
        free(data->matrices[i]);
        free(data->biases[i]);
    }
    void *const arrays[] = { data->query, data->key, data->value, data->output, data->want, data };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
}

/* The stored shape of a matrix. */
static void shape_of(const mha_layer_desc *desc, int i, size_t shape[4])
{
    const matrix_size size = size_of(desc, i);
    const bool out_in = desc->flags & MHA_LAYER_OUT_IN;
    shape[0] = shape[1] = 1;
    shape[2] = out_in ? size.out : size.in;
    shape[3] = out_in ? size.in : size.out;
}

/* Query, key and value as row ranges of one matrix, or as column ranges where it is in x out. */
static void place_together(device *d, const layer_data *data, mha_tensor *const matrices[4],
                           mha_tensor *const biases[4])
{
    const mha_layer_desc *desc = &data->desc;
    const bool out_in = desc->flags & MHA_LAYER_OUT_IN;
    const size_t in = size_of(desc, 0).in;
    const size_t out = size_of(desc, 0).out + size_of(desc, 1).out + size_of(desc, 2).out;
    const size_t strides[4] = { 0, 0, out_in ? in : out, 1 };
    const mha_type type = desc->weight_type;
    device_block *block = device_block_new(d, in * out, stored_bytes(type));
    device_block *vector = device_block_new(d, out, stored_bytes(type));
    size_t start = 0;
    for (int i = 0; i < 3; i++) {
        const size_t width = size_of(desc, i).out;
        size_t shape[4];
        shape_of(desc, i, shape);
        void *stored = stored_pack(type, data->matrices[i], in * width);
        const device_tensor tensor =
            device_place(d, block, out_in ? start * in : start, shape, strides, stored);
        *matrices[i] = device_arg(&tensor);
        free(stored);
        if (data->biases[i]) {
            stored = stored_pack(type, data->biases[i], width);
            const device_tensor bias =
                device_place(d, vector, start, (size_t[]){ 1, 1, 1, width }, NULL, stored);
            *biases[i] = device_arg(&bias);
            free(stored);
        }
        start += width;
    }
}

static void place_apart(device *d, const layer_data *data, int i, mha_tensor *matrix,
                        mha_tensor *bias)
{
    size_t shape[4];
    shape_of(&data->desc, i, shape);
    const size_t strides[4] = { 0, 0, shape[3] + 5, 1 };
    const mha_type type = data->desc.weight_type;
    if (data->matrices[i]) {
        void *stored = stored_pack(type, data->matrices[i], shape[2] * shape[3]);
        const device_tensor tensor =
            device_input(d, shape, data->given.weights == WEIGHTS_GAPS ? strides : NULL,
                         stored_bytes(type), stored);
        *matrix = device_arg(&tensor);
        free(stored);
    }
    if (data->biases[i]) {
        const size_t width = size_of(&data->desc, i).out;
        void *stored = stored_pack(type, data->biases[i], width);
        const device_tensor tensor =
            device_input(d, (size_t[]){ 1, 1, 1, width }, NULL, stored_bytes(type), stored);
        *bias = device_arg(&tensor);
        free(stored);
    }
}

mha_layer_weights layer_place_weights(device *d, const layer_data *data)
{
    const mha_layer_desc *desc = &data->desc;
    mha_layer_weights weights = { .query = { .buffer = NULL } };
    mha_tensor *const matrices[] = { &weights.query, &weights.key, &weights.value,
                                     &weights.output };
    mha_tensor *const biases[] = { &weights.bias_query, &weights.bias_key, &weights.bias_value,
                                   &weights.bias_output };
    const bool together = data->given.weights == WEIGHTS_TOGETHER &&
                          desc->key_width == desc->query_width &&
                          desc->value_width == desc->query_width;
    if (together)
        place_together(d, data, matrices, biases);
    for (int i = together ? 3 : 0; i < 4; i++)
        place_apart(d, data, i, matrices[i], biases[i]);
    return weights;
}

/* Tokens as elements of a type. `data` NULL: an output. */
static device_tensor place_tokens(device *d, attention_layout layout, const size_t shape[4],
                                  mha_type type, const float *data)
{
    void *stored = data ? stored_pack(type, data, shape[0] * shape[2] * shape[3]) : NULL;
    const device_tensor tensor = attention_place_one(d, layout, shape, stored_bytes(type), stored);
    free(stored);
    return tensor;
}

void layer_place(device *d, layer_data *data)
{
    const mha_layer_desc *desc = &data->desc;
    const attention_data *a = data->attention;
    const attention_layout layout = data->given.layout;
    const size_t query[4] = { desc->attention.batch, 1, a->query_len, desc->query_width };
    const size_t key[4] = { desc->attention.batch, 1, a->key_len, desc->key_width };
    const size_t value[4] = { desc->attention.batch, 1, a->key_len, desc->value_width };
    const size_t output[4] = { desc->attention.batch, 1, a->query_len, desc->output_width };
    const mha_type key_type = layer_key_type(desc);
    const device_tensor queries = place_tokens(d, layout, query, desc->attention.type, data->query);
    mha_attention_args *args = &data->tensors.args;
    *args =
        (mha_attention_args){ .query_len = data->given.query_len, .key_len = data->given.key_len };
    args->query = args->key = args->value = device_arg(&queries);
    if (!data->given.self) {
        const device_tensor keys = place_tokens(d, layout, key, key_type, data->key);
        const device_tensor values = place_tokens(d, layout, value, key_type, data->value);
        args->key = device_arg(&keys);
        args->value = device_arg(&values);
    }
    data->result = place_tokens(d, layout, output, layer_output_type(desc), NULL);
    args->output = device_arg(&data->result);
    attention_place_options(d, a, &data->tensors);
}

void layer_load(device *d, mha_layer *layer, const layer_data *data)
{
    const mha_layer_weights weights = layer_place_weights(d, data);
    const mha_tensor *const all[] = { &weights.query,      &weights.key,        &weights.value,
                                      &weights.output,     &weights.bias_query, &weights.bias_key,
                                      &weights.bias_value, &weights.bias_output };
    cl_event done = NULL;
    const mha_call call = { .queue = d->queue, .event = &done };
    cr_assert_eq(mha_layer_load(layer, &weights, &call), MHA_OK, "%s: %s", data->name, d->sentence);
    cr_assert_eq(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(done);
    device_expect_guards(d, data->name);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const uint16_t nan = 0xffff; /* of each type, float32 too */
        size_t size = 0;
        if (!all[i]->buffer)
            continue;
        clGetMemObjectInfo(all[i]->buffer, CL_MEM_SIZE, sizeof size, &size, NULL);
        cr_assert_eq(
            clEnqueueFillBuffer(d->queue, all[i]->buffer, &nan, sizeof nan, 0, size, 0, NULL, NULL),
            CL_SUCCESS);
    }
    device_forget(d);
}

/* The sums that come one after the other; what is summed is about normal. */
static double limit_of(const layer_data *data, size_t length)
{
    return reference_limit(length + data->desc.attention.head_dim + data->desc.query_width, 8);
}

bool layer_run(device *d, mha_layer *layer, layer_data *data, compare_worst *worst)
{
    attention_data *a = data->attention;
    const size_t count = a->desc.batch * a->query_len * data->desc.output_width;
    layer_place(d, data);
    mha_call call = device_call(d, mha_layer_workspace(layer));
    call.stage = a->stage;
    call.stage_data = a->stage_data;
    cr_assert_eq(mha_layer_enqueue(layer, &data->tensors.args, &call), MHA_OK, "%s: %s", data->name,
                 d->sentence);
    const mha_type type = layer_output_type(&data->desc);
    void *stored = allocate(count, stored_bytes(type));
    device_read(d, &data->result, stored);
    stored_unpack(type, data->output, stored, count);
    free(stored);
    if (a->desc.uses & MHA_USES_PROBS)
        device_read(d, &data->tensors.probs, a->probs);
    if (a->desc.uses & MHA_USES_LSE)
        device_read(d, &data->tensors.lse, a->lse);
    device_expect_guards(d, data->name);
    device_forget(d);
    const size_t length = a->key_len + size_of(&data->desc, 3).in;
    const double limit = limit_of(data, length);
    bool good = true;
    for (size_t i = 0; good && i < count; i++)
        good = compare_one(data->name, "output", i, data->output[i], data->want[i],
                           limit + stored_limit(type, fabs(data->want[i]) + limit), worst);
    return good && attention_compare_softmax(a, limit_of(data, 0), worst);
}

bool layer_check(device *d, const layer_case *given, compare_worst *worst)
{
    layer_data *data = layer_data_new(given);
    mha_layer *layer = NULL;
    cr_assert_eq(mha_layer_create(&layer, d->context, &given->desc), MHA_OK, "%s: %s", data->name,
                 d->sentence);
    layer_load(d, layer, data);
    const bool good = layer_run(d, layer, data, worst);
    mha_layer_destroy(&layer);
    layer_data_free(data);
    return good;
}
