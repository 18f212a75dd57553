/* Every rule of mha_layer_load and mha_layer_enqueue: what is wrong is refused by name, nothing is
 * written, and the next good call is right. */
#include "fill.h"
#include "refusal_scene.h"

#include <criterion/criterion.h>
#include <string.h>

enum {
    WIDTH = SCENE_HEADS * SCENE_DIM, /* of projected queries */
    KEY_WIDTH = SCENE_KV_HEADS * SCENE_DIM,
    VALUE_WIDTH = SCENE_KV_HEADS * SCENE_VALUE_DIM,
    MERGED = SCENE_HEADS * SCENE_VALUE_DIM,
    IN = 10,
    OUT = 12,
    NUM_WEIGHTS = 8
};

static float weight_data[NUM_WEIGHTS][SCENE_MOST];

#define WEIGHT_AT(member) offsetof(mha_layer_weights, member)

static const struct {
    const char *name;
    size_t at;
    size_t shape[4];
} weight_places[NUM_WEIGHTS] = {
    { "query", WEIGHT_AT(query), { 1, 1, IN, WIDTH } },
    { "key", WEIGHT_AT(key), { 1, 1, IN, KEY_WIDTH } },
    { "value", WEIGHT_AT(value), { 1, 1, IN, VALUE_WIDTH } },
    { "output", WEIGHT_AT(output), { 1, 1, MERGED, OUT } },
    { "bias_query", WEIGHT_AT(bias_query), { 1, 1, 1, WIDTH } },
    { "bias_key", WEIGHT_AT(bias_key), { 1, 1, 1, KEY_WIDTH } },
    { "bias_value", WEIGHT_AT(bias_value), { 1, 1, 1, VALUE_WIDTH } },
    { "bias_output", WEIGHT_AT(bias_output), { 1, 1, 1, OUT } },
};

typedef struct scene {
    device d;
    mha_layer_desc desc;
    mha_layer *layer;
    mha_layer_weights weights;
    mha_attention_args args;
    refusal_arg list[10];                     /* of the enqueue */
    refusal_arg weight_list[NUM_WEIGHTS + 3]; /* of the load, and what the layer then writes */
    mha_call call;                            /* of the enqueue */
    refusal r;
} scene;

static void fill_weights(void)
{
    for (size_t i = 0; i < NUM_WEIGHTS; i++)
        fill_uniform(weight_data[i], SCENE_MOST, 20 + i, -0.5f, 0.5f);
}

static void add_weights(scene *s)
{
    for (size_t i = 0; i < NUM_WEIGHTS; i++) {
        refusal_arg *arg = &s->weight_list[i];
        *arg = (refusal_arg){ .name = weight_places[i].name,
                              .at = weight_places[i].at,
                              .strided = i < 4 };
        arg->tensor =
            device_input(&s->d, weight_places[i].shape, NULL, sizeof(float), weight_data[i]);
        const mha_tensor tensor = device_arg(&arg->tensor);
        memcpy((char *)&s->weights + arg->at, &tensor, sizeof tensor);
    }
}

static size_t add_arguments(scene *s)
{
    const size_t b = SCENE_BATCH, q = SCENE_QUERIES, k = SCENE_KEYS;
    device *d = &s->d;
    refusal_arg *list = s->list;
    size_t n = scene_add_options(d, list, &s->args, 0);
    refusal_add_tensor(&list[n++], d, &s->args, "query", SCENE_AT(query), SCENE_SHAPE(b, 1, q, IN),
                       scene_query, NULL);
    refusal_add_tensor(&list[n++], d, &s->args, "key", SCENE_AT(key), SCENE_SHAPE(b, 1, k, IN),
                       scene_key, NULL);
    refusal_add_tensor(&list[n++], d, &s->args, "value", SCENE_AT(value), SCENE_SHAPE(b, 1, k, IN),
                       scene_value, NULL);
    refusal_add_tensor(&list[n++], d, &s->args, "output", SCENE_AT(output),
                       SCENE_SHAPE(b, 1, q, OUT), NULL, scene_output);
    return n;
}

static void find_right_values(const scene *s)
{
    const reference_layer_weights weights = {
        .query = weight_data[0],
        .key = weight_data[1],
        .value = weight_data[2],
        .output = weight_data[3],
        .bias_query = weight_data[4],
        .bias_key = weight_data[5],
        .bias_value = weight_data[6],
        .bias_output = weight_data[7],
    };
    reference_layer(&s->desc, &weights, &scene_reference);
}

static mha_status enqueue_layer(void *object, const void *args, const mha_call *call)
{
    return mha_layer_enqueue(object, args, call);
}

/* Loads and, if that went well, runs the layer with these weights. */
static mha_status load_and_enqueue(void *object, const void *weights, const mha_call *call)
{
    scene *s = object;
    const mha_status status = mha_layer_load(s->layer, weights, call);
    return status ? status : mha_layer_enqueue(s->layer, &s->args, &s->call);
}

static void open_scene(scene *s)
{
    s->desc = (mha_layer_desc){ .attention = scene_desc,
                                .query_width = IN,
                                .output_width = OUT,
                                .flags = MHA_LAYER_BIAS_ALL,
                                .projection = MHA_GEMM_KERNEL };
    device_open(&s->d);
    fill_weights();
    cr_assert_eq(mha_layer_create(&s->layer, s->d.context, &s->desc), MHA_OK, "%s", s->d.sentence);
    add_weights(s);
    const size_t count = add_arguments(s);
    find_right_values(s);
    const mha_workspace workspace = mha_layer_workspace(s->layer);
    s->call = device_call(&s->d, workspace);
    const mha_call load = { .queue = s->d.queue };
    cr_assert_eq(mha_layer_load(s->layer, &s->weights, &load), MHA_OK);
    s->r = (refusal){
        .d = &s->d,
        .who = "mha_layer_enqueue",
        .args_name = "args",
        .enqueue = enqueue_layer,
        .object = s->layer,
        .args = &s->args,
        .args_bytes = sizeof s->args,
        .call = s->call,
        .workspace = workspace,
        .list = s->list,
        .count = count,
        .limit = reference_limit(IN + SCENE_DIM + SCENE_KEYS + MERGED, 16),
    };
}

static void open_enqueue(scene *s)
{
    open_scene(s);
    refusal_open(&s->r);
}

/* The same layer, but what is spoilt is its load; the outputs are those of an enqueue after it. */
static void open_load(scene *s)
{
    open_scene(s);
    size_t count = NUM_WEIGHTS;
    for (size_t i = 0; i < s->r.count; i++) {
        if (!s->list[i].want)
            continue;
        s->weight_list[count] = s->list[i];
        s->weight_list[count++].at = REFUSAL_NOWHERE;
    }
    s->r.who = "mha_layer_load";
    s->r.args_name = "weights";
    s->r.enqueue = load_and_enqueue;
    s->r.object = s;
    s->r.args = &s->weights;
    s->r.args_bytes = sizeof s->weights;
    s->r.call = (mha_call){ .queue = s->d.queue };
    s->r.workspace = (mha_workspace){ 0 };
    s->r.list = s->weight_list;
    s->r.count = count;
    refusal_open(&s->r);
}

static void close_scene(scene *s)
{
    refusal_close(&s->r);
    mha_layer_destroy(&s->layer);
    device_close(&s->d);
}

Test(errors, layer_calls)
{
    scene s = { 0 };
    open_enqueue(&s);
    refusal_of_calls(&s.r);
    close_scene(&s);
}

Test(errors, layer_buffers)
{
    scene s = { 0 };
    open_enqueue(&s);
    refusal_of_buffers(&s.r);
    close_scene(&s);
}

Test(errors, layer_strides)
{
    scene s = { 0 };
    open_enqueue(&s);
    refusal_of_strides(&s.r);
    close_scene(&s);
}

Test(errors, layer_overlaps)
{
    scene s = { 0 };
    open_enqueue(&s);
    refusal_of_overlaps(&s.r);
    close_scene(&s);
}

Test(errors, layer_lengths)
{
    scene s = { 0 };
    open_enqueue(&s);
    scene_refuse_lengths(&s.r, 0);
    close_scene(&s);
}

Test(errors, layer_without_a_cache)
{
    scene s = { 0 };
    open_enqueue(&s);
    scene_refuse_unasked(&s.r, 0, true);
    close_scene(&s);
}

Test(errors, load_calls)
{
    scene s = { 0 };
    open_load(&s);
    refusal_of_calls(&s.r);
    close_scene(&s);
}

Test(errors, load_buffers)
{
    scene s = { 0 };
    open_load(&s);
    refusal_of_buffers(&s.r);
    close_scene(&s);
}

Test(errors, load_strides)
{
    scene s = { 0 };
    open_load(&s);
    refusal_of_strides(&s.r);
    close_scene(&s);
}

/* A refused load is not half a load: the last weight is wrong, the ones before it are others. */
Test(errors, a_refused_load_keeps_the_weights)
{
    scene s = { 0 };
    open_enqueue(&s);
    mha_layer_weights others = s.weights;
    others.query.buffer = s.r.arena;
    others.query.offset = 0;
    others.bias_output.buffer = s.r.foreign_buffer;
    const mha_call load = { .queue = s.d.queue };
    cr_expect_eq(mha_layer_load(s.layer, &others, &load), MHA_WRONG_CONTEXT);
    mha_call none = s.call;
    none.queue = NULL;
    refusal_expect(&s.r, "after a refused load", &s.args, &none, MHA_INVALID_ARGUMENT,
                   "call.queue");
    close_scene(&s);
}

/* Each weight that the flags do not ask for, and W_o of a layer without it. */
Test(errors, weights_that_nobody_asked_for)
{
    scene s = { 0 };
    open_scene(&s);
    mha_layer_desc desc = s.desc;
    desc.flags = MHA_LAYER_MERGED_OUTPUT;
    desc.output_width = MERGED;
    mha_layer *plain = NULL;
    cr_assert_eq(mha_layer_create(&plain, s.d.context, &desc), MHA_OK, "%s", s.d.sentence);
    const mha_layer_weights bare = { .query = s.weights.query,
                                     .key = s.weights.key,
                                     .value = s.weights.value };
    const mha_call call = { .queue = s.d.queue };
    for (size_t i = 3; i < NUM_WEIGHTS; i++) {
        mha_layer_weights weights = bare;
        memcpy((char *)&weights + weight_places[i].at, (char *)&s.weights + weight_places[i].at,
               sizeof(mha_tensor));
        device_hush(&s.d);
        cr_expect_eq(mha_layer_load(plain, &weights, &call), MHA_INVALID_ARGUMENT, "%s",
                     weight_places[i].name);
        cr_expect_eq(s.d.sentences, 1);
        cr_expect(refusal_says(s.d.sentence, weight_places[i].name), "%s: %s",
                  weight_places[i].name, s.d.sentence);
    }
    cr_expect_eq(mha_layer_load(plain, &bare, &call), MHA_OK);
    mha_layer_destroy(&plain);
    mha_layer_destroy(&s.layer);
    device_close(&s.d);
}

Test(errors, a_layer_without_weights)
{
    scene s = { 0 };
    open_enqueue(&s);
    mha_layer *fresh = NULL;
    cr_assert_eq(mha_layer_create(&fresh, s.d.context, &s.desc), MHA_OK);
    cl_event event = (cl_event)&s; /* not NULL, and not looked at */
    mha_call call = s.call;
    call.event = &event;
    device_hush(&s.d);
    cr_expect_eq(mha_layer_enqueue(fresh, &s.args, &call), MHA_NOT_LOADED);
    cr_expect(!event, "the event is not NULL");
    cr_expect_eq(s.d.sentences, 1);
    cr_expect(refusal_says(s.d.sentence, "mha_layer_enqueue"), "%s", s.d.sentence);
    cr_expect(refusal_says(s.d.sentence, "mha_layer_load"), "%s", s.d.sentence);
    /* A load that is refused leaves it without. */
    const mha_call load = { .queue = s.d.queue };
    cr_expect_eq(mha_layer_load(fresh, &(mha_layer_weights){ 0 }, &load), MHA_INVALID_ARGUMENT);
    cr_expect_eq(mha_layer_enqueue(fresh, &s.args, &s.call), MHA_NOT_LOADED);
    mha_layer_destroy(&fresh);
    close_scene(&s);
}
