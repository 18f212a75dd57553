/* Host-array calls that are refused: no array changes, and none is read without need. Belongs to
 * the suite of test_host.c. */
#include "page_end.h"
#include "refusal.h"
#include "world.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static float output[WORLD_OUTPUTS], lse[WORLD_ROWS];

static void clear_outputs(void)
{
    for (size_t i = 0; i < WORLD_OUTPUTS; i++)
        output[i] = NAN;
    for (size_t i = 0; i < WORLD_ROWS; i++)
        lse[i] = NAN;
}

static void expect_untouched(const char *name)
{
    for (size_t i = 0; i < WORLD_OUTPUTS; i++)
        cr_assert(isnan(output[i]), "%s: output[%zu] is %g", name, i, output[i]);
    for (size_t i = 0; i < WORLD_ROWS; i++)
        cr_assert(isnan(lse[i]), "%s: lse[%zu] is %g", name, i, lse[i]);
}

static mha_host_args good_args(const world *w)
{
    return (mha_host_args){ .query.data = w->data.query,
                            .key.data = w->data.key,
                            .value.data = w->data.value,
                            .output.data = output,
                            .lse.data = lse,
                            .key_lengths = w->data.key_lengths };
}

static void expect_refused(world *w, bool is_layer, const char *name, const mha_host_args *args,
                           mha_status want, const char *says)
{
    const char *who = is_layer ? "mha_layer_run" : "mha_attention_run";
    clear_outputs();
    device_hush(&w->d);
    const mha_status status =
        is_layer ? mha_layer_run(w->layer, args) : mha_attention_run(w->attention, args);
    cr_expect_eq(status, want, "%s: %s, not %s: %s", name, mha_status_name(status),
                 mha_status_name(want), w->d.sentence);
    cr_expect_eq(w->d.sentences, 1, "%s: %zu sentences", name, w->d.sentences);
    cr_expect(refusal_is_of(w->d.sentence, who), "%s: is not of %s: %s", name, who, w->d.sentence);
    cr_expect(refusal_says(w->d.sentence, says), "%s: does not say %s: %s", name, says,
              w->d.sentence);
    expect_untouched(name);
    const mha_host_args good = good_args(w);
    cr_expect_eq(is_layer ? mha_layer_run(w->layer, &good) : mha_attention_run(w->attention, &good),
                 MHA_OK, "%s: the next good call: %s", name, w->d.sentence);
}

/* One array that is missing, or has strides that are wrong. */
typedef struct array_row {
    const char *name, *says;
    size_t at; /* of an mha_host_input or mha_host_output in the arguments */
    bool is_there;
    size_t strides[4];
    mha_status status;
} array_row;

#define ARRAY(member) offsetof(mha_host_args, member)

static const array_row array_rows[] = {
    { "no query", "query", ARRAY(query), false, { 0 }, MHA_INVALID_ARGUMENT },
    { "no key", "key", ARRAY(key), false, { 0 }, MHA_INVALID_ARGUMENT },
    { "no value", "value", ARRAY(value), false, { 0 }, MHA_INVALID_ARGUMENT },
    { "no output", "output", ARRAY(output), false, { 0 }, MHA_INVALID_ARGUMENT },
    { "no lse", "lse", ARRAY(lse), false, { 0 }, MHA_INVALID_ARGUMENT },
    { "bias unasked", "bias", ARRAY(bias), true, { 0 }, MHA_INVALID_ARGUMENT },
    { "mask unasked", "mask", ARRAY(mask), true, { 0 }, MHA_INVALID_ARGUMENT },
    { "probs unasked", "probs", ARRAY(probs), true, { 0 }, MHA_INVALID_ARGUMENT },
    { "query with a last stride of 0",
      "query",
      ARRAY(query),
      true,
      { 1, 1, 1, 0 },
      MHA_INVALID_ARGUMENT },
    { "output on itself", "output", ARRAY(output), true, { 1, 1, 1, 1 }, MHA_INVALID_ARGUMENT },
    { "output with one batch for all",
      "output",
      ARRAY(output),
      true,
      { 0, 0, WORLD_WIDTH, 1 },
      MHA_INVALID_ARGUMENT },
    { "key that overflows",
      "key",
      ARRAY(key),
      true,
      { SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2, 1 },
      MHA_TOO_LARGE },
    { "key whose bytes overflow",
      "key",
      ARRAY(key),
      true,
      { SIZE_MAX / 4 + 1, 1, 1, 1 },
      MHA_TOO_LARGE },
    { "output that overflows",
      "output",
      ARRAY(output),
      true,
      { SIZE_MAX / 2, SIZE_MAX / 2, 1, 1 },
      MHA_TOO_LARGE },
};

static void refuse_arrays(world *w, bool is_layer)
{
    static float other[WORLD_OUTPUTS];
    for (size_t i = 0; i < sizeof array_rows / sizeof array_rows[0]; i++) {
        const array_row *row = &array_rows[i];
        mha_host_args args = good_args(w);
        mha_host_output array;
        memcpy(&array, (char *)&args + row->at, sizeof array);
        if (!row->is_there)
            array.data = NULL;
        else if (!array.data)
            array.data = other;
        memcpy(array.strides, row->strides, sizeof array.strides);
        memcpy((char *)&args + row->at, &array, sizeof array);
        expect_refused(w, is_layer, row->name, &args, row->status, row->says);
    }
}

static void refuse_lengths(world *w, bool is_layer)
{
    static const int32_t few[WORLD_BATCH * WORLD_QUERIES] = { 0 };
    void *no_memory = page_untouchable();
    const mha_host_args unread = { .query.data = no_memory,
                                   .key.data = no_memory,
                                   .value.data = no_memory,
                                   .output.data = output,
                                   .lse.data = lse,
                                   .key_lengths = no_memory };
    mha_host_args args = unread;
    args.query_len = WORLD_QUERIES + 1;
    expect_refused(w, is_layer, "query_len above the desc's", &args, MHA_INVALID_ARGUMENT,
                   "query_len");
    args = unread;
    args.key_len = SIZE_MAX;
    expect_refused(w, is_layer, "the largest key_len", &args, MHA_INVALID_ARGUMENT, "key_len");
    args = good_args(w);
    args.key_lengths = NULL;
    expect_refused(w, is_layer, "no key_lengths", &args, MHA_INVALID_ARGUMENT, "key_lengths");
    args.key_lengths = (const int32_t[]){ 1, WORLD_KEYS + 1 };
    expect_refused(w, is_layer, "a length above key_len", &args, MHA_INVALID_ARGUMENT,
                   "key_lengths[1]");
    args.key_lengths = (const int32_t[]){ -1, 1 };
    expect_refused(w, is_layer, "a negative length", &args, MHA_INVALID_ARGUMENT, "key_lengths[0]");
    args = good_args(w);
    args.key_lengths_per_query = few;
    expect_refused(w, is_layer, "lengths of queries, unasked", &args, MHA_INVALID_ARGUMENT,
                   "key_lengths_per_query");
    args = good_args(w);
    args.query_offsets = no_memory;
    expect_refused(w, is_layer, "offsets, unasked", &args, MHA_INVALID_ARGUMENT, "query_offsets");
    args = good_args(w);
    args.key_offsets = no_memory;
    expect_refused(w, is_layer, "offsets, unasked", &args, MHA_INVALID_ARGUMENT, "key_offsets");
    args = good_args(w);
    args.dropout_seed = 1;
    expect_refused(w, is_layer, "a seed, unasked", &args, MHA_INVALID_ARGUMENT, "dropout_seed");
    args = good_args(w);
    args.dropout_offset = 1;
    expect_refused(w, is_layer, "a seed, unasked", &args, MHA_INVALID_ARGUMENT, "dropout_offset");
    expect_refused(w, is_layer, "no arguments", NULL, MHA_INVALID_ARGUMENT, "args");
}

Test(host, what_is_refused)
{
    world w;
    world_open(&w, MHA_GEMM_KERNEL);
    cr_assert_eq(world_load(&w), MHA_OK);
    for (int is_layer = 0; is_layer < 2; is_layer++) {
        refuse_arrays(&w, is_layer);
        refuse_lengths(&w, is_layer);
    }
    world_close(&w);
}

/* Nobody knows how long an array is that the desc does not speak of. */
Test(host, unasked_arrays_are_not_read)
{
    world w;
    world_open(&w, MHA_GEMM_KERNEL);
    mha_host_args args = good_args(&w);
    args.bias.data = page_untouchable();
    expect_refused(&w, false, "bias unasked", &args, MHA_INVALID_ARGUMENT, "bias");
    args = good_args(&w);
    args.mask.data = page_untouchable();
    expect_refused(&w, false, "mask unasked", &args, MHA_INVALID_ARGUMENT, "mask");
    args = good_args(&w);
    args.probs.data = page_untouchable();
    args.probs.strides[3] = 1;
    args.probs.strides[2] = WORLD_KEYS;
    args.probs.strides[1] = WORLD_KEYS * WORLD_QUERIES;
    args.probs.strides[0] = WORLD_KEYS * WORLD_QUERIES * WORLD_HEADS;
    expect_refused(&w, false, "probs unasked", &args, MHA_INVALID_ARGUMENT, "probs");
    world_close(&w);
}

static mha_layer_host_weights good_weights(const world_data *data)
{
    return (mha_layer_host_weights){
        .query.data = data->weights[0],
        .key.data = data->weights[1],
        .value.data = data->weights[2],
        .output.data = data->weights[3],
        .bias_query = data->biases[0],
        .bias_key = data->biases[1],
        .bias_value = data->biases[2],
        .bias_output = data->biases[3],
    };
}

/* Where the pointer to each array of weights is. */
static const struct {
    const char *name;
    size_t at;
} weight_places[] = {
    { "query", offsetof(mha_layer_host_weights, query.data) },
    { "key", offsetof(mha_layer_host_weights, key.data) },
    { "value", offsetof(mha_layer_host_weights, value.data) },
    { "output", offsetof(mha_layer_host_weights, output.data) },
    { "bias_query", offsetof(mha_layer_host_weights, bias_query) },
    { "bias_key", offsetof(mha_layer_host_weights, bias_key) },
    { "bias_value", offsetof(mha_layer_host_weights, bias_value) },
    { "bias_output", offsetof(mha_layer_host_weights, bias_output) },
};

static void expect_load_refused(world *w, mha_layer *layer, const mha_layer_host_weights *weights,
                                mha_status want, const char *says)
{
    device_hush(&w->d);
    const mha_status status = mha_layer_load_host(layer, weights);
    cr_expect_eq(status, want, "%s: %s: %s", says, mha_status_name(status), w->d.sentence);
    cr_expect_eq(w->d.sentences, 1, "%s: %zu sentences", says, w->d.sentences);
    cr_expect(refusal_is_of(w->d.sentence, "mha_layer_load_host"), "%s: %s", says, w->d.sentence);
    cr_expect(refusal_says(w->d.sentence, says), "%s: %s", says, w->d.sentence);
}

/* Every weight missing, in turn; the layer keeps what it had. */
Test(host, weights_that_are_refused)
{
    static float want[WORLD_OUTPUTS], want_lse[WORLD_ROWS];
    world w;
    world_open(&w, MHA_GEMM_KERNEL);
    cr_assert_eq(world_load_host(&w, w.layer), MHA_OK);
    cr_assert_eq(world_run_layer_host(&w, w.layer, want, want_lse), MHA_OK);
    static world_data others;
    for (size_t i = 0; i < sizeof weight_places / sizeof weight_places[0]; i++) {
        mha_layer_host_weights weights = good_weights(&others);
        memset((char *)&weights + weight_places[i].at, 0, sizeof(void *));
        expect_load_refused(&w, w.layer, &weights, MHA_INVALID_ARGUMENT, weight_places[i].name);
    }
    mha_layer_host_weights weights = good_weights(&others);
    weights.key.strides[3] = 1;
    weights.key.strides[2] = SIZE_MAX / 4;
    expect_load_refused(&w, w.layer, &weights, MHA_TOO_LARGE, "key");
    expect_load_refused(&w, w.layer, NULL, MHA_INVALID_ARGUMENT, "weights");
    cr_expect_eq(world_run_layer_host(&w, w.layer, output, lse), MHA_OK);
    cr_expect(!memcmp(output, want, sizeof want), "the layer has other weights");
    world_close(&w);
}

Test(host, unasked_weights_are_not_read)
{
    world w;
    world_open(&w, MHA_GEMM_KERNEL);
    mha_layer_desc desc = w.layer_desc;
    desc.flags = MHA_LAYER_MERGED_OUTPUT;
    mha_layer *plain = NULL;
    cr_assert_eq(mha_layer_create(&plain, w.d.context, &desc), MHA_OK, "%s", w.d.sentence);
    const mha_layer_host_weights bare = { .query.data = w.data.weights[0],
                                          .key.data = w.data.weights[1],
                                          .value.data = w.data.weights[2] };
    void *no_memory = page_untouchable();
    for (size_t i = 3; i < sizeof weight_places / sizeof weight_places[0]; i++) {
        mha_layer_host_weights weights = bare;
        memcpy((char *)&weights + weight_places[i].at, &no_memory, sizeof no_memory);
        expect_load_refused(&w, plain, &weights, MHA_INVALID_ARGUMENT, weight_places[i].name);
    }
    cr_expect_eq(mha_layer_load_host(plain, &bare), MHA_OK, "%s", w.d.sentence);
    mha_layer_destroy(&plain);
    world_close(&w);
}

/* Shorter calls than the desc's, packed at their own lengths; and none at all. */
Test(host, shorter_calls)
{
    static float want[WORLD_OUTPUTS], got[WORLD_OUTPUTS], got_lse[WORLD_ROWS];
    world w;
    world_open(&w, MHA_GEMM_KERNEL);
    mha_attention_desc desc = w.desc;
    desc.query_len = 2;
    desc.key_len = 3;
    desc.uses = 0;
    mha_attention *exact = NULL, *large = NULL, *none = NULL;
    cr_assert_eq(mha_attention_create(&exact, w.d.context, &desc), MHA_OK);
    desc = w.desc;
    desc.uses = 0;
    cr_assert_eq(mha_attention_create(&large, w.d.context, &desc), MHA_OK);
    desc.batch = 0;
    cr_assert_eq(mha_attention_create(&none, w.d.context, &desc), MHA_OK);
    mha_host_args args = { .query.data = w.data.query,
                           .key.data = w.data.key,
                           .value.data = w.data.value,
                           .output.data = want };
    cr_expect_eq(mha_attention_run(exact, &args), MHA_OK, "%s", w.d.sentence);
    memset(got, 0x55, sizeof got);
    memset(got_lse, 0x55, sizeof got_lse);
    args.output.data = got;
    args.query_len = 2;
    args.key_len = 3;
    cr_expect_eq(mha_attention_run(large, &args), MHA_OK, "%s", w.d.sentence);
    const size_t count = WORLD_BATCH * WORLD_HEADS * 2 * WORLD_DIM;
    cr_expect(!memcmp(got, want, count * sizeof(float)), "a shorter call");
    cr_expect(!memcmp(got + count, got_lse, sizeof(float)), "behind its output");
    const mha_host_args nothing = { 0 };
    cr_expect_eq(mha_attention_run(none, &nothing), MHA_OK, "%s", w.d.sentence);
    mha_attention_destroy(&exact);
    mha_attention_destroy(&large);
    mha_attention_destroy(&none);
    world_close(&w);
}
