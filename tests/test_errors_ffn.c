/* Every rule of mha_ffn_load and mha_ffn_enqueue: what is wrong is refused by name, nothing is
 * written, and the next good call is right. */
#include "ffn_case.h"
#include "refusal_scene.h"

#include <criterion/criterion.h>
#include <string.h>

enum {
    ROWS = 5,
    WIDTH = 7,
    HIDDEN = 11,
    OUT = 6
};

static const char *const weight_names[FFN_WEIGHTS] = { "hidden",      "gate",      "output",
                                                       "bias_hidden", "bias_gate", "bias_output" };
static const size_t weight_places[FFN_WEIGHTS] = {
    offsetof(mha_ffn_weights, hidden),    offsetof(mha_ffn_weights, gate),
    offsetof(mha_ffn_weights, output),    offsetof(mha_ffn_weights, bias_hidden),
    offsetof(mha_ffn_weights, bias_gate), offsetof(mha_ffn_weights, bias_output),
};

static const mha_ffn_desc good = { .rows = ROWS,
                                   .width = WIDTH,
                                   .hidden_width = HIDDEN,
                                   .output_width = OUT,
                                   .activation = MHA_ACTIVATION_GELU,
                                   .flags = 2 * MHA_FFN_GATE - 1,
                                   .projection = MHA_GEMM_KERNEL };

typedef struct scene {
    device d;
    mha_ffn *ffn;
    ffn_weights data;
    mha_ffn_weights weights;
    refusal_arg list[2], weight_list[FFN_WEIGHTS + 1];
    mha_ffn_args args;
    mha_call call; /* of the enqueue */
    refusal r;
} scene;

static double right[ROWS * OUT];

static mha_status enqueue(void *object, const void *args, const mha_call *call)
{
    return mha_ffn_enqueue(object, args, call);
}

/* Loads and, if that went well, runs the network with these weights. */
static mha_status load_and_enqueue(void *object, const void *weights, const mha_call *call)
{
    scene *s = object;
    const mha_status status = mha_ffn_load(s->ffn, weights, call);
    return status ? status : mha_ffn_enqueue(s->ffn, &s->args, &s->call);
}

static void add_arguments(scene *s)
{
    static float input[ROWS * WIDTH];
    fill_floats(input, ROWS * WIDTH, 3, FILL_NORMAL);
    const reference_ffn_weights reference = ffn_weights_reference(&s->data);
    reference_ffn(&good, &reference, ROWS, input, right);
    refusal_add_tensor(&s->list[0], &s->d, &s->args, "input", offsetof(mha_ffn_args, input),
                       SCENE_SHAPE(1, 1, ROWS, WIDTH), input, NULL);
    refusal_add_tensor(&s->list[1], &s->d, &s->args, "output", offsetof(mha_ffn_args, output),
                       SCENE_SHAPE(1, 1, ROWS, OUT), NULL, right);
    for (size_t i = 0; i < FFN_WEIGHTS; i++)
        refusal_add_tensor(&s->weight_list[i], &s->d, &s->weights, weight_names[i],
                           weight_places[i], s->data.shapes[i], s->data.data[i], NULL);
    for (size_t i = 3; i < FFN_WEIGHTS; i++)
        s->weight_list[i].strided = false;
    s->weight_list[FFN_WEIGHTS] = s->list[1];
    s->weight_list[FFN_WEIGHTS].at = REFUSAL_NOWHERE;
}

static void open_scene(scene *s)
{
    *s = (scene){ 0 };
    device_open(&s->d);
    s->data = ffn_weights_new(&good, 5);
    cr_assert_eq(mha_ffn_create(&s->ffn, s->d.context, &good), MHA_OK, "%s", s->d.sentence);
    add_arguments(s);
    const mha_workspace workspace = mha_ffn_workspace(s->ffn);
    s->call = device_call(&s->d, workspace);
    const mha_call load = { .queue = s->d.queue };
    cr_assert_eq(mha_ffn_load(s->ffn, &s->weights, &load), MHA_OK, "%s", s->d.sentence);
    s->r = (refusal){
        .d = &s->d,
        .who = "mha_ffn_enqueue",
        .args_name = "args",
        .enqueue = enqueue,
        .object = s->ffn,
        .args = &s->args,
        .args_bytes = sizeof s->args,
        .call = s->call,
        .workspace = workspace,
        .list = s->list,
        .count = 2,
        .limit = reference_limit(WIDTH + HIDDEN, 16),
    };
}

static void open_load(scene *s)
{
    open_scene(s);
    s->r.who = "mha_ffn_load";
    s->r.args_name = "weights";
    s->r.enqueue = load_and_enqueue;
    s->r.object = s;
    s->r.args = &s->weights;
    s->r.args_bytes = sizeof s->weights;
    s->r.call = (mha_call){ .queue = s->d.queue };
    s->r.workspace = (mha_workspace){ 0 };
    s->r.list = s->weight_list;
    s->r.count = FFN_WEIGHTS + 1;
    refusal_open(&s->r);
}

static void close_scene(scene *s)
{
    refusal_close(&s->r);
    mha_ffn_destroy(&s->ffn);
    ffn_weights_free(&s->data);
    device_close(&s->d);
}

Test(errors, ffn_enqueue)
{
    static scene s;
    open_scene(&s);
    refusal_open(&s.r);
    refusal_of_calls(&s.r);
    refusal_of_buffers(&s.r);
    refusal_of_strides(&s.r);
    refusal_of_overlaps(&s.r);
    mha_ffn_args args = s.args;
    args.rows = ROWS + 1;
    refusal_expect(&s.r, "rows above the desc's", &args, &s.call, MHA_INVALID_ARGUMENT, "rows");
    close_scene(&s);
}

Test(errors, ffn_load)
{
    static scene s;
    open_load(&s);
    refusal_of_calls(&s.r);
    refusal_of_buffers(&s.r);
    refusal_of_strides(&s.r);
    close_scene(&s);
}

/* Each weight that the flags do not ask for; and a network whose load was refused. */
Test(errors, ffn_weights_that_nobody_asked_for)
{
    static scene s;
    open_load(&s);
    mha_ffn_desc desc = good;
    desc.flags = 0;
    mha_ffn *plain = NULL;
    cr_assert_eq(mha_ffn_create(&plain, s.d.context, &desc), MHA_OK, "%s", s.d.sentence);
    const mha_ffn_weights bare = { .hidden = s.weights.hidden, .output = s.weights.output };
    const mha_call call = { .queue = s.d.queue };
    for (size_t i = 0; i < FFN_WEIGHTS; i++) {
        if (i == 0 || i == 2)
            continue;
        mha_ffn_weights weights = bare;
        memcpy((char *)&weights + weight_places[i], (char *)&s.weights + weight_places[i],
               sizeof(mha_tensor));
        device_hush(&s.d);
        cr_expect_eq(mha_ffn_load(plain, &weights, &call), MHA_INVALID_ARGUMENT, "%s",
                     weight_names[i]);
        cr_expect(s.d.sentences == 1 && refusal_says(s.d.sentence, weight_names[i]), "%s: %s",
                  weight_names[i], s.d.sentence);
    }
    device_hush(&s.d);
    cr_expect_eq(mha_ffn_enqueue(plain, &s.args, &s.call), MHA_NOT_LOADED);
    cr_expect(refusal_says(s.d.sentence, "mha_ffn_load"), "%s", s.d.sentence);
    cr_expect_eq(mha_ffn_load(plain, &bare, &call), MHA_OK, "%s", s.d.sentence);
    cr_expect_eq(mha_ffn_enqueue(plain, &s.args, &s.call), MHA_OK, "%s", s.d.sentence);
    mha_ffn_destroy(&plain);
    close_scene(&s);
}
