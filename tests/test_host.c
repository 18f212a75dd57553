/* The host-array calls: right, bit for bit as on the device, within the bytes of the arrays. */
#include "compare.h"
#include "page_end.h"
#include "refusal_scene.h"
#include "world.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(host, .init = scene_fill, .timeout = 300);

enum {
    B = SCENE_BATCH,
    H = SCENE_HEADS,
    KV = SCENE_KV_HEADS,
    Q = SCENE_QUERIES,
    K = SCENE_KEYS,
    DIM = SCENE_DIM,
    VALUE_DIM = SCENE_VALUE_DIM,
    NUM_OUTPUT = B * H * Q * VALUE_DIM,
    NUM_PROBS = B * H * Q * K,
    NUM_ROWS = B * H * Q
};

/* All options, packed, every array up to the end of a page. */
static mha_host_args all_args(void)
{
    const size_t word = sizeof(float);
    return (mha_host_args){
        .query.data = page_end_copy(scene_query, B * H * Q * DIM * word),
        .key.data = page_end_copy(scene_key, B * KV * K * DIM * word),
        .value.data = page_end_copy(scene_value, B * KV * K * VALUE_DIM * word),
        .bias.data = page_end_copy(scene_bias, H * Q * K * word),
        .mask.data = page_end_copy(scene_mask, B * H * Q * K),
        .output.data = page_end_nans(NUM_OUTPUT),
        .probs.data = page_end_nans(NUM_PROBS),
        .lse.data = page_end_nans(NUM_ROWS),
        .key_lengths = page_end_copy(scene_key_lengths, sizeof scene_key_lengths),
        .key_lengths_per_query = page_end_copy(scene_per_query, sizeof scene_per_query),
    };
}

static mha_attention *make_attention(device *d, mha_gemm_by by)
{
    mha_attention_desc desc = scene_desc;
    desc.gemm = by;
    mha_attention *attention = NULL;
    cr_assert_eq(mha_attention_create(&attention, d->context, &desc), MHA_OK, "%s", d->sentence);
    return attention;
}

static mha_tensor input(device *d, const size_t shape[4], size_t bytes, const void *data)
{
    const device_tensor tensor = device_input(d, shape, NULL, bytes, data);
    return device_arg(&tensor);
}

/* The same on the device, into arrays of the caller's. */
static void run_on_device(device *d, mha_attention *attention, float *output, float *probs,
                          float *lse)
{
    const size_t word = sizeof(float);
    device_tensor to_output = device_output(d, SCENE_SHAPE(B, H, Q, VALUE_DIM), NULL, word);
    device_tensor to_probs = device_output(d, SCENE_SHAPE(B, H, Q, K), NULL, word);
    device_tensor to_lse = device_output(d, SCENE_SHAPE(B, H, Q, 1), NULL, word);
    const mha_attention_args args = {
        .query = input(d, SCENE_SHAPE(B, H, Q, DIM), word, scene_query),
        .key = input(d, SCENE_SHAPE(B, KV, K, DIM), word, scene_key),
        .value = input(d, SCENE_SHAPE(B, KV, K, VALUE_DIM), word, scene_value),
        .bias = input(d, SCENE_SHAPE(1, H, Q, K), word, scene_bias),
        .mask = input(d, SCENE_SHAPE(B, H, Q, K), 1, scene_mask),
        .output = device_arg(&to_output),
        .probs = device_arg(&to_probs),
        .lse = device_arg(&to_lse),
        .key_lengths.host = scene_key_lengths,
        .key_lengths_per_query.host = scene_per_query,
    };
    const mha_call call = device_call(d, mha_attention_workspace(attention));
    cr_assert_eq(mha_attention_enqueue(attention, &args, &call), MHA_OK, "%s", d->sentence);
    device_read(d, &to_output, output);
    device_read(d, &to_probs, probs);
    device_read(d, &to_lse, lse);
}

static void expect_right(const char *name, const mha_host_args *args)
{
    const double limit = reference_limit(DIM + K, 8);
    compare_all(name, "output", args->output.data, scene_output, NUM_OUTPUT, limit, NULL);
    compare_all(name, "probs", args->probs.data, scene_probs, NUM_PROBS, limit, NULL);
    compare_all(name, "lse", args->lse.data, scene_lse, NUM_ROWS, limit, NULL);
}

Test(host, attention_is_right_and_as_on_the_device)
{
    static float output[NUM_OUTPUT], probs[NUM_PROBS], lse[NUM_ROWS];
    static const char *const names[] = { "default", "CLBlast", "kernel" };
    device d;
    device_open(&d);
    reference_attention(&scene_desc, &scene_reference);
    for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
        mha_attention *attention = make_attention(&d, (mha_gemm_by)by);
        const mha_host_args args = all_args();
        cr_expect_eq(mha_attention_run(attention, &args), MHA_OK, "%s", d.sentence);
        expect_right(names[by], &args);
        run_on_device(&d, attention, output, probs, lse);
        cr_expect(!memcmp(output, args.output.data, sizeof output), "%s: output", names[by]);
        cr_expect(!memcmp(probs, args.probs.data, sizeof probs), "%s: probs", names[by]);
        cr_expect(!memcmp(lse, args.lse.data, sizeof lse), "%s: lse", names[by]);
        mha_attention_destroy(&attention);
    }
    device_close(&d);
}

/* --- strides --- */

/* An array with gaps: element [b][h][l][i] of a packed one at its strides, 777 everywhere else. */
#define GAP 777.0f

typedef struct strided {
    float *data;
    size_t count;
    size_t shape[4], strides[4];
} strided;

static size_t place_of(const strided *array, size_t index)
{
    size_t place = 0;
    for (int axis = 3; axis >= 0; axis--) {
        place += index % array->shape[axis] * array->strides[axis];
        index /= array->shape[axis];
    }
    return place;
}

static size_t elements_of(const strided *array)
{
    return array->shape[0] * array->shape[1] * array->shape[2] * array->shape[3];
}

/* [batch][len][heads][dim] with `gap` elements behind each row of dim, batch and len. */
static strided make_strided(size_t b, size_t h, size_t len, size_t dim, size_t gap,
                            const float *packed)
{
    strided array = { .shape = { b, h, len, dim } };
    array.strides[3] = 1;
    array.strides[1] = dim + gap;
    array.strides[2] = h * array.strides[1] + gap;
    array.strides[0] = len * array.strides[2] + gap;
    const size_t elements = elements_of(&array);
    array.count = place_of(&array, elements - 1) + 1;
    array.data = page_end_new(array.count * sizeof(float));
    for (size_t i = 0; i < array.count; i++)
        array.data[i] = GAP;
    for (size_t i = 0; i < elements; i++)
        array.data[place_of(&array, i)] = packed ? packed[i] : NAN;
    return array;
}

static mha_host_input as_input(const strided *array)
{
    mha_host_input in = { .data = array->data };
    memcpy(in.strides, array->strides, sizeof in.strides);
    return in;
}

static mha_host_output as_output(const strided *array)
{
    mha_host_output out = { .data = array->data };
    memcpy(out.strides, array->strides, sizeof out.strides);
    return out;
}

static void expect_same(const char *name, const strided *array, const float *packed)
{
    static bool used[SCENE_MOST * 4];
    memset(used, 0, sizeof used);
    cr_assert(array->count <= sizeof used);
    for (size_t i = 0; i < elements_of(array); i++) {
        used[place_of(array, i)] = true;
        cr_expect(!memcmp(&array->data[place_of(array, i)], &packed[i], sizeof(float)),
                  "%s: element %zu is %g, not %g", name, i, array->data[place_of(array, i)],
                  packed[i]);
    }
    for (size_t i = 0; i < array->count; i++)
        cr_expect(used[i] || array->data[i] == GAP, "%s: the gap at %zu is written", name, i);
}

Test(host, gaps_stay_as_they_are)
{
    device d;
    device_open(&d);
    mha_attention *attention = make_attention(&d, MHA_GEMM_KERNEL);
    const mha_host_args packed = all_args();
    cr_assert_eq(mha_attention_run(attention, &packed), MHA_OK, "%s", d.sentence);
    const strided query = make_strided(B, H, Q, DIM, 3, scene_query);
    const strided key = make_strided(B, KV, K, DIM, 1, scene_key);
    const strided value = make_strided(B, KV, K, VALUE_DIM, 2, scene_value);
    const strided bias = make_strided(1, H, Q, K, 5, scene_bias);
    const strided output = make_strided(B, H, Q, VALUE_DIM, 3, NULL);
    const strided probs = make_strided(B, H, Q, K, 1, NULL);
    const strided lse = make_strided(B, H, Q, 1, 2, NULL);
    mha_host_args args = packed;
    args.query = as_input(&query);
    args.key = as_input(&key);
    args.value = as_input(&value);
    args.bias = as_input(&bias);
    args.output = as_output(&output);
    args.probs = as_output(&probs);
    args.lse = as_output(&lse);
    cr_expect_eq(mha_attention_run(attention, &args), MHA_OK, "%s", d.sentence);
    expect_same("output", &output, packed.output.data);
    expect_same("probs", &probs, packed.probs.data);
    expect_same("lse", &lse, packed.lse.data);
    expect_same("query", &query, scene_query);
    expect_same("bias", &bias, scene_bias);
    mha_attention_destroy(&attention);
    device_close(&d);
}

/* Rows of output, lse and probs side by side in one array: each lies in the others' gaps. */
Test(host, outputs_may_lie_in_each_others_gaps)
{
    enum {
        ROW = VALUE_DIM + 1 + K
    };
    device d;
    device_open(&d);
    mha_attention *attention = make_attention(&d, MHA_GEMM_KERNEL);
    const mha_host_args packed = all_args();
    cr_assert_eq(mha_attention_run(attention, &packed), MHA_OK, "%s", d.sentence);
    float *rows = page_end_nans(NUM_ROWS * ROW);
    mha_host_args args = packed;
    const size_t strides[4] = { H * Q * ROW, Q * ROW, ROW, 1 };
    args.output.data = rows;
    args.lse.data = rows + VALUE_DIM;
    args.probs.data = rows + VALUE_DIM + 1;
    memcpy(args.output.strides, strides, sizeof strides);
    memcpy(args.lse.strides, strides, sizeof strides);
    memcpy(args.probs.strides, strides, sizeof strides);
    cr_expect_eq(mha_attention_run(attention, &args), MHA_OK, "%s", d.sentence);
    for (size_t i = 0; i < NUM_ROWS; i++) {
        const float *row = rows + i * ROW;
        cr_expect(
            !memcmp(row, (float *)packed.output.data + i * VALUE_DIM, VALUE_DIM * sizeof(float)),
            "output of row %zu begins with %g, not %g", i, row[0],
            ((float *)packed.output.data)[i * VALUE_DIM]);
        cr_expect(!memcmp(&row[VALUE_DIM], (float *)packed.lse.data + i, sizeof(float)),
                  "lse of row %zu is %g", i, row[VALUE_DIM]);
        cr_expect(
            !memcmp(&row[VALUE_DIM + 1], (float *)packed.probs.data + i * K, K * sizeof(float)),
            "probs of row %zu", i);
    }
    mha_attention_destroy(&attention);
    device_close(&d);
}

/* --- arrays that are one --- */

/* The output takes the place of the query, and of a part of key and value. */
Test(host, in_place)
{
    static float all[WORLD_OUTPUTS], lse[WORLD_ROWS], want[WORLD_OUTPUTS], want_lse[WORLD_ROWS];
    world w;
    world_open(&w, MHA_GEMM_KERNEL);
    cr_assert_eq(world_attend_host(&w, w.attention, want, want_lse), MHA_OK);
    memcpy(all, w.data.query, sizeof all);
    mha_host_args args = { .query.data = all,
                           .key.data = w.data.key,
                           .value.data = w.data.value,
                           .output.data = all,
                           .lse.data = lse,
                           .key_lengths = w.data.key_lengths };
    cr_expect_eq(mha_attention_run(w.attention, &args), MHA_OK, "%s", w.d.sentence);
    cr_expect(!memcmp(all, want, sizeof all), "output == query");
    cr_expect(!memcmp(lse, want_lse, sizeof lse));
    /* One array for all three, read from three places of it, and the output in the middle. */
    static float pool[2 * WORLD_OUTPUTS], copy[2 * WORLD_OUTPUTS];
    memcpy(pool, w.data.key, sizeof w.data.key);
    memcpy(copy, pool, sizeof pool);
    args.query.data = copy;
    args.key.data = copy + 7;
    args.value.data = copy + 50;
    args.output.data = want;
    cr_assert_eq(mha_attention_run(w.attention, &args), MHA_OK);
    args.query.data = pool;
    args.key.data = pool + 7;
    args.value.data = pool + 50;
    args.output.data = pool + 30;
    cr_expect_eq(mha_attention_run(w.attention, &args), MHA_OK, "%s", w.d.sentence);
    cr_expect(!memcmp(pool + 30, want, sizeof want), "output across the inputs");
    cr_expect(!memcmp(pool, copy, 30 * sizeof(float)), "before the output");
    world_close(&w);
}

Test(host, layer_is_right_and_as_on_the_device)
{
    static float want[WORLD_OUTPUTS], want_lse[WORLD_ROWS], got[WORLD_OUTPUTS], lse[WORLD_ROWS];
    static double output[WORLD_OUTPUTS];
    static const char *const names[] = { "default", "CLBlast", "kernel" };
    for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
        world w;
        world_open(&w, (mha_gemm_by)by);
        cr_expect_eq(world_run_layer_host(&w, w.layer, got, lse), MHA_NOT_LOADED);
        cr_expect_eq(world_load(&w), MHA_OK);
        cr_expect_eq(world_run_layer(&w, want, want_lse), MHA_OK);
        cr_expect_eq(world_load_host(&w, w.layer), MHA_OK, "%s", w.d.sentence);
        cr_expect_eq(world_run_layer_host(&w, w.layer, got, lse), MHA_OK, "%s", w.d.sentence);
        cr_expect(!memcmp(got, want, sizeof got) && !memcmp(lse, want_lse, sizeof lse),
                  "%s: not as on the device", names[by]);
        const world_data *data = &w.data;
        const reference_layer_weights weights = { data->weights[0], data->weights[1],
                                                  data->weights[2], data->weights[3],
                                                  data->biases[0],  data->biases[1],
                                                  data->biases[2],  data->biases[3] };
        const reference_args args = { .query = data->query,
                                      .key = data->key,
                                      .value = data->value,
                                      .key_lengths = data->key_lengths,
                                      .output = output };
        reference_layer(&w.layer_desc, &weights, &args);
        compare_all(names[by], "output", got, output, WORLD_OUTPUTS,
                    reference_limit(3 * WORLD_WIDTH + WORLD_KEYS, 16), NULL);
        world_close(&w);
    }
}

/* One row of each batch for all queries and keys, by a stride of 0, as written out in full. */
Test(host, layer_inputs_may_repeat_a_row)
{
    static float rows[WORLD_BATCH * WORLD_KEYS * WORLD_WIDTH];
    static float want[WORLD_OUTPUTS], want_lse[WORLD_ROWS], got[WORLD_OUTPUTS], lse[WORLD_ROWS];
    for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
        world w;
        world_open(&w, (mha_gemm_by)by);
        cr_assert_eq(world_load_host(&w, w.layer), MHA_OK);
        const float *one = w.data.query;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            rows[i] = one[i / (WORLD_KEYS * WORLD_WIDTH) * WORLD_WIDTH + i % WORLD_WIDTH];
        mha_host_args args = { .query.data = w.data.value,
                               .key.data = rows,
                               .value.data = rows,
                               .output.data = want,
                               .lse.data = want_lse,
                               .key_lengths = w.data.key_lengths };
        cr_assert_eq(mha_layer_run(w.layer, &args), MHA_OK, "%s", w.d.sentence);
        args.key = (mha_host_input){ one, { WORLD_WIDTH, 0, 0, 1 } };
        args.value = args.key;
        args.output.data = got;
        args.lse.data = lse;
        cr_expect_eq(mha_layer_run(w.layer, &args), MHA_OK, "by %d: %s", by, w.d.sentence);
        cr_expect(!memcmp(got, want, sizeof got) && !memcmp(lse, want_lse, sizeof lse),
                  "by %d: another result", by);
        world_close(&w);
    }
}
