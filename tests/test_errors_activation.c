/* Every rule of mha_activation_enqueue: what is wrong is refused by name, nothing is written, and
 * the next good call is right. */
#include "reference_block.h"
#include "refusal_scene.h"

#include <criterion/criterion.h>

enum {
    ROWS = SCENE_QUERIES,
    WIDTH = SCENE_DIM
};

typedef struct scene {
    device d;
    mha_activation *activation;
    refusal_arg list[3];
    mha_activation_args args;
    refusal r;
} scene;

static const mha_activation_desc good = {
    .rows = ROWS, .width = WIDTH, .kind = MHA_ACTIVATION_SILU, .uses = MHA_ACTIVATION_GATE
};

static mha_status activate(void *object, const void *args, const mha_call *call)
{
    return mha_activation_enqueue(object, args, call);
}

static void open_scene(scene *s)
{
    static const size_t shape[4] = { 1, 1, ROWS, WIDTH };
    *s = (scene){ 0 };
    device_open(&s->d);
    cr_assert_eq(mha_activation_create(&s->activation, s->d.context, &good), MHA_OK, "%s",
                 s->d.sentence);
    refusal_add_tensor(&s->list[0], &s->d, &s->args, "input", offsetof(mha_activation_args, input),
                       shape, scene_query, NULL);
    refusal_add_tensor(&s->list[1], &s->d, &s->args, "gate", offsetof(mha_activation_args, gate),
                       shape, scene_key, NULL);
    refusal_add_tensor(&s->list[2], &s->d, &s->args, "output",
                       offsetof(mha_activation_args, output), shape, NULL, scene_output);
    reference_activation(&good, &(reference_activation_args){ .input = scene_query,
                                                              .gate = scene_key,
                                                              .output = scene_output });
    s->r = (refusal){
        .d = &s->d,
        .who = "mha_activation_enqueue",
        .args_name = "args",
        .enqueue = activate,
        .object = s->activation,
        .args = &s->args,
        .args_bytes = sizeof s->args,
        .call = { .queue = s->d.queue },
        .list = s->list,
        .count = 3,
        .limit = reference_limit(1, 25), /* normal numbers are below 4.9 */
    };
    refusal_open(&s->r);
}

static void close_scene(scene *s)
{
    refusal_close(&s->r);
    mha_activation_destroy(&s->activation);
    device_close(&s->d);
}

Test(errors, activation_calls_and_buffers)
{
    scene s;
    open_scene(&s);
    refusal_of_calls(&s.r);
    refusal_of_buffers(&s.r);
    mha_activation_args args = s.args;
    args.rows = ROWS + 1;
    refusal_expect(&s.r, "rows above the desc's", &args, &s.r.call, MHA_INVALID_ARGUMENT, "rows");
    args.rows = SIZE_MAX;
    refusal_expect(&s.r, "the largest rows", &args, &s.r.call, MHA_INVALID_ARGUMENT, "rows");
    close_scene(&s);
}

Test(errors, activation_strides_and_overlaps)
{
    scene s;
    open_scene(&s);
    refusal_of_strides(&s.r);
    refusal_of_overlaps(&s.r);
    close_scene(&s);
}

Test(errors, activation_gate_that_nobody_asked_for)
{
    scene s;
    open_scene(&s);
    mha_activation_desc desc = good;
    desc.uses = 0;
    mha_activation *plain = NULL;
    cr_assert_eq(mha_activation_create(&plain, s.d.context, &desc), MHA_OK, "%s", s.d.sentence);
    device_hush(&s.d);
    cr_expect_eq(mha_activation_enqueue(plain, &s.args, &s.r.call), MHA_INVALID_ARGUMENT);
    cr_expect(s.d.sentences == 1 && refusal_says(s.d.sentence, "gate"), "%s", s.d.sentence);
    mha_activation_destroy(&plain);
    close_scene(&s);
}

/* Over the input or the gate, but not exactly. */
Test(errors, activation_in_place)
{
    scene s;
    open_scene(&s);
    const mha_tensor arena = { .buffer = s.r.arena, .offset = 512 };
    for (int gate = 0; gate < 2; gate++) {
        mha_activation_args args = s.args;
        *(gate ? &args.gate : &args.input) = args.output = arena;
        refusal_expect(&s.r, "in place", &args, &s.r.call, MHA_OK, "");
        args.output.offset++;
        refusal_expect(&s.r, "an element further", &args, &s.r.call, MHA_OVERLAP, "output");
        args.output.offset--;
        args.output.strides[2] = WIDTH + 1;
        args.output.strides[3] = 1;
        refusal_expect(&s.r, "other strides", &args, &s.r.call, MHA_OVERLAP, "output");
    }
    mha_activation_args halves = { .input = arena, .gate = arena };
    halves.input.strides[2] = halves.gate.strides[2] = (size_t)2 * WIDTH;
    halves.input.strides[3] = halves.gate.strides[3] = 1;
    halves.gate.offset += WIDTH;
    halves.output = halves.input;
    refusal_expect(&s.r, "over half of a row", &halves, &s.r.call, MHA_OVERLAP, "output");
    /* The same bytes, of another type. */
    const mha_activation_desc desc = {
        .rows = ROWS, .width = WIDTH, .type = MHA_FLOAT16, .output_type = MHA_BFLOAT16
    };
    mha_activation *activation = NULL;
    cr_assert_eq(mha_activation_create(&activation, s.d.context, &desc), MHA_OK);
    const mha_activation_args args = { .input = s.args.output, .output = s.args.output };
    device_hush(&s.d);
    cr_expect_eq(mha_activation_enqueue(activation, &args, &s.r.call), MHA_OVERLAP);
    cr_expect(s.d.sentences == 1 && refusal_says(s.d.sentence, "output"), "%s", s.d.sentence);
    mha_activation_destroy(&activation);
    close_scene(&s);
}

/* Without rows nothing is read, so nothing need be given. */
Test(errors, activation_of_nothing)
{
    device d;
    device_open(&d);
    mha_activation_desc desc = good;
    desc.rows = 0;
    mha_activation *activation = NULL;
    cr_assert_eq(mha_activation_create(&activation, d.context, &desc), MHA_OK, "%s", d.sentence);
    const mha_call call = { .queue = d.queue };
    cr_expect_eq(mha_activation_enqueue(activation, &(mha_activation_args){ 0 }, &call), MHA_OK,
                 "%s", d.sentence);
    mha_activation_destroy(&activation);
    device_close(&d);
}
