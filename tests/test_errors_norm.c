/* Every rule of mha_norm_enqueue: what is wrong is refused by name, nothing is written, and the
 * next good call is right. */
#include "reference_block.h"
#include "refusal_scene.h"

#include <criterion/criterion.h>

enum {
    ROWS = SCENE_QUERIES,
    WIDTH = SCENE_DIM,
    ALL_USES = 2 * MHA_NORM_INV_STD - 1
};

typedef struct scene {
    device d;
    mha_norm *norm;
    refusal_arg list[9];
    mha_norm_args args;
    refusal r;
} scene;

static const mha_norm_desc good = { .rows = ROWS, .width = WIDTH, .uses = ALL_USES };

static double right_sum[ROWS * WIDTH], right_mean[ROWS], right_inv_std[ROWS];

static mha_status normalise(void *object, const void *args, const mha_call *call)
{
    return mha_norm_enqueue(object, args, call);
}

static void open_scene(scene *s)
{
    static const size_t whole[4] = { 1, 1, ROWS, WIDTH }, row[4] = { 1, 1, 1, WIDTH };
    static const size_t each[4] = { 1, 1, ROWS, 1 };
    const struct {
        const char *name;
        size_t at;
        const size_t *shape;
        const float *data;
        const double *want;
    } all[] = {
        { "input", offsetof(mha_norm_args, input), whole, scene_query, NULL },
        { "residual", offsetof(mha_norm_args, residual), whole, scene_key, NULL },
        { "input_bias", offsetof(mha_norm_args, input_bias), row, scene_value, NULL },
        { "weight", offsetof(mha_norm_args, weight), row, scene_bias, NULL },
        { "bias", offsetof(mha_norm_args, bias), row, scene_bias + WIDTH, NULL },
        { "output", offsetof(mha_norm_args, output), whole, NULL, scene_output },
        { "sum", offsetof(mha_norm_args, sum), whole, NULL, right_sum },
        { "mean", offsetof(mha_norm_args, mean), each, NULL, right_mean },
        { "inv_std", offsetof(mha_norm_args, inv_std), each, NULL, right_inv_std },
    };
    enum {
        ARGUMENTS = sizeof all / sizeof all[0]
    };
    *s = (scene){ 0 };
    device_open(&s->d);
    cr_assert_eq(mha_norm_create(&s->norm, s->d.context, &good), MHA_OK, "%s", s->d.sentence);
    for (size_t i = 0; i < ARGUMENTS; i++)
        refusal_add_tensor(&s->list[i], &s->d, &s->args, all[i].name, all[i].at, all[i].shape,
                           all[i].data, all[i].want);
    reference_norm(&good, &(reference_norm_args){ .input = scene_query,
                                                  .residual = scene_key,
                                                  .input_bias = scene_value,
                                                  .weight = scene_bias,
                                                  .bias = scene_bias + WIDTH,
                                                  .output = scene_output,
                                                  .sum = right_sum,
                                                  .mean = right_mean,
                                                  .inv_std = right_inv_std });
    s->r = (refusal){
        .d = &s->d,
        .who = "mha_norm_enqueue",
        .args_name = "args",
        .enqueue = normalise,
        .object = s->norm,
        .args = &s->args,
        .args_bytes = sizeof s->args,
        .call = { .queue = s->d.queue },
        .list = s->list,
        .count = ARGUMENTS,
        .limit = reference_limit(WIDTH, 15), /* normal numbers are below 4.9 */
    };
    refusal_open(&s->r);
}

static void close_scene(scene *s)
{
    refusal_close(&s->r);
    mha_norm_destroy(&s->norm);
    device_close(&s->d);
}

Test(errors, norm_calls_and_buffers)
{
    scene s;
    open_scene(&s);
    refusal_of_calls(&s.r);
    refusal_of_buffers(&s.r);
    mha_norm_args args = s.args;
    args.rows = ROWS + 1;
    refusal_expect(&s.r, "rows above the desc's", &args, &s.r.call, MHA_INVALID_ARGUMENT, "rows");
    args.rows = SIZE_MAX;
    refusal_expect(&s.r, "the largest rows", &args, &s.r.call, MHA_INVALID_ARGUMENT, "rows");
    close_scene(&s);
}

Test(errors, norm_strides)
{
    scene s;
    open_scene(&s);
    refusal_of_strides(&s.r);
    close_scene(&s);
}

Test(errors, norm_overlaps)
{
    scene s;
    open_scene(&s);
    refusal_of_overlaps(&s.r);
    close_scene(&s);
}

/* The arguments that no bit of uses asks for, one at a time. */
Test(errors, norm_that_nobody_asked_for)
{
    scene s;
    open_scene(&s);
    mha_norm_desc plain_desc = good;
    plain_desc.uses = 0;
    mha_norm *plain = NULL;
    cr_assert_eq(mha_norm_create(&plain, s.d.context, &plain_desc), MHA_OK, "%s", s.d.sentence);
    const mha_norm_args bare = { .input = s.args.input, .output = s.args.output };
    cr_expect_eq(mha_norm_enqueue(plain, &bare, &s.r.call), MHA_OK, "%s", s.d.sentence);
    for (size_t i = 0; i < s.r.count; i++) {
        const refusal_arg *arg = &s.list[i];
        mha_norm_args args = bare;
        mha_tensor *given = (mha_tensor *)((char *)&args + arg->at);
        if (given->buffer)
            continue;
        *given = device_arg(&arg->tensor);
        device_hush(&s.d);
        cr_expect_eq(mha_norm_enqueue(plain, &args, &s.r.call), MHA_INVALID_ARGUMENT, "%s",
                     arg->name);
        cr_expect(s.d.sentences == 1 && refusal_says(s.d.sentence, arg->name), "%s", s.d.sentence);
    }
    mha_norm_destroy(&plain);
    close_scene(&s);
}

/* Over the input or the residual, but not exactly, or both outputs over one of them. */
Test(errors, norm_in_place)
{
    scene s;
    open_scene(&s);
    const mha_tensor arena = { .buffer = s.r.arena, .offset = 512 };
    const size_t apart[4] = { ROWS * (WIDTH + 1), ROWS * (WIDTH + 1), WIDTH + 1, 1 };
    mha_tensor *const inputs[] = { &s.args.input, &s.args.residual };
    mha_tensor *const outputs[] = { &s.args.output, &s.args.sum };
    const mha_norm_args before = s.args;
    for (int n = 0; n < 4; n++) {
        const char *const name = n % 2 ? "sum" : "output";
        *inputs[n / 2] = *outputs[n % 2] = arena;
        mha_norm_args exact = s.args;
        outputs[n % 2]->offset++;
        mha_norm_args further = s.args;
        *outputs[n % 2] = arena;
        for (int axis = 0; axis < 4; axis++)
            outputs[n % 2]->strides[axis] = apart[axis];
        mha_norm_args strided = s.args;
        *outputs[0] = *outputs[1] = arena;
        mha_norm_args twice = s.args;
        s.args = before;
        refusal_expect(&s.r, "in place", &exact, &s.r.call, MHA_OK, "");
        refusal_expect(&s.r, "an element further", &further, &s.r.call, MHA_OVERLAP, name);
        refusal_expect(&s.r, "other strides", &strided, &s.r.call, MHA_OVERLAP, name);
        refusal_expect(&s.r, "two outputs", &twice, &s.r.call, MHA_OVERLAP, "sum");
    }
    close_scene(&s);
}

/* The same bytes, of another type. */
Test(errors, norm_in_place_between_types)
{
    scene s;
    open_scene(&s);
    const mha_norm_desc desc = {
        .rows = ROWS, .width = WIDTH, .type = MHA_FLOAT16, .output_type = MHA_BFLOAT16
    };
    mha_norm *norm = NULL;
    cr_assert_eq(mha_norm_create(&norm, s.d.context, &desc), MHA_OK);
    const mha_norm_args args = { .input = s.args.output, .output = s.args.output };
    device_hush(&s.d);
    cr_expect_eq(mha_norm_enqueue(norm, &args, &s.r.call), MHA_OVERLAP);
    cr_expect(s.d.sentences == 1 && refusal_says(s.d.sentence, "output"), "%s", s.d.sentence);
    mha_norm_destroy(&norm);
    close_scene(&s);
}

/* Without rows nothing is read, so nothing need be given. */
Test(errors, norm_of_nothing)
{
    device d;
    device_open(&d);
    mha_norm_desc desc = good;
    desc.rows = 0;
    mha_norm *norm = NULL;
    cr_assert_eq(mha_norm_create(&norm, d.context, &desc), MHA_OK, "%s", d.sentence);
    const mha_call call = { .queue = d.queue };
    cr_expect_eq(mha_norm_enqueue(norm, &(mha_norm_args){ 0 }, &call), MHA_OK, "%s", d.sentence);
    mha_norm_destroy(&norm);
    device_close(&d);
}
