/* Every rule of mha_attention_enqueue: what is wrong is refused by name, nothing is written, and
 * the next good call is right. */
#include "refusal_scene.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct scene {
    device d;
    mha_attention *attention;
    mha_attention_args args;
    refusal_arg list[10];
    refusal r;
} scene;

static void open_scene(scene *s)
{
    const size_t b = SCENE_BATCH, h = SCENE_HEADS, kv = SCENE_KV_HEADS;
    const size_t q = SCENE_QUERIES, k = SCENE_KEYS, dim = SCENE_DIM, value_dim = SCENE_VALUE_DIM;
    device *d = &s->d;
    device_open(d);
    cr_assert_eq(mha_attention_create(&s->attention, d->context, &scene_desc), MHA_OK);
    refusal_arg *list = s->list;
    size_t n = scene_add_options(d, list, &s->args, 0);
    refusal_add_tensor(&list[n++], d, &s->args, "query", SCENE_AT(query), SCENE_SHAPE(b, h, q, dim),
                       scene_query, NULL);
    refusal_add_tensor(&list[n++], d, &s->args, "key", SCENE_AT(key), SCENE_SHAPE(b, kv, k, dim),
                       scene_key, NULL);
    refusal_add_tensor(&list[n++], d, &s->args, "value", SCENE_AT(value),
                       SCENE_SHAPE(b, kv, k, value_dim), scene_value, NULL);
    refusal_add_tensor(&list[n++], d, &s->args, "output", SCENE_AT(output),
                       SCENE_SHAPE(b, h, q, value_dim), NULL, scene_output);
    reference_attention(&scene_desc, &scene_reference);

    const mha_workspace workspace = mha_attention_workspace(s->attention);
    s->r = (refusal){
        .d = d,
        .who = "mha_attention_enqueue",
        .args_name = "args",
        .enqueue = scene_attend,
        .object = s->attention,
        .args = &s->args,
        .args_bytes = sizeof s->args,
        .call = device_call(d, workspace),
        .workspace = workspace,
        .list = list,
        .count = n,
        .limit = reference_limit(dim + k, 8),
    };
    refusal_open(&s->r);
}

static void close_scene(scene *s)
{
    refusal_close(&s->r);
    mha_attention_destroy(&s->attention);
    device_close(&s->d);
}

/* Procedure h28: run well, fail with a buffer of another context as value, run well again. */
Test(errors, foreign_buffer_is_named)
{
    scene s = { 0 };
    open_scene(&s);
    const refusal_arg *arg = refusal_find(&s.r, "value");
    refusal_expect(&s.r, "h28", refusal_moved(&s.r, arg, s.r.foreign_buffer, 0), &s.r.call,
                   MHA_WRONG_CONTEXT, "value");
    close_scene(&s);
}

Test(errors, attention_calls)
{
    scene s = { 0 };
    open_scene(&s);
    refusal_of_calls(&s.r);
    close_scene(&s);
}

Test(errors, attention_buffers)
{
    scene s = { 0 };
    open_scene(&s);
    refusal_of_buffers(&s.r);
    close_scene(&s);
}

Test(errors, attention_strides)
{
    scene s = { 0 };
    open_scene(&s);
    refusal_of_strides(&s.r);
    close_scene(&s);
}

Test(errors, attention_overlaps)
{
    scene s = { 0 };
    open_scene(&s);
    refusal_of_overlaps(&s.r);
    close_scene(&s);
}

Test(errors, attention_lengths)
{
    scene s = { 0 };
    open_scene(&s);
    scene_refuse_lengths(&s.r, 0);
    close_scene(&s);
}

Test(errors, attention_without_a_cache)
{
    scene s = { 0 };
    open_scene(&s);
    scene_refuse_unasked(&s.r, 0, true);
    close_scene(&s);
}

static void expect_unasked(scene *s, mha_attention *plain, const mha_attention_args *args,
                           const char *name)
{
    device_hush(&s->d);
    const mha_status status = mha_attention_enqueue(plain, args, &s->r.call);
    cr_expect_eq(status, MHA_INVALID_ARGUMENT, "%s: %s", name, mha_status_name(status));
    cr_expect_eq(s->d.sentences, 1, "%s: %zu sentences", name, s->d.sentences);
    cr_expect(refusal_says(s->d.sentence, name), "%s: %s", name, s->d.sentence);
    device_expect_guards(&s->d, name);
}

/* An attention without uses is given each option in turn. */
Test(errors, arguments_that_nobody_asked_for)
{
    scene s = { 0 };
    open_scene(&s);
    mha_attention_desc desc = scene_desc;
    desc.uses = 0;
    desc.diagonal = MHA_DIAGONAL_NONE;
    desc.window_left = 0;
    desc.bias_broadcast = 0;
    mha_attention *plain = NULL;
    cr_assert_eq(mha_attention_create(&plain, s.d.context, &desc), MHA_OK);
    const mha_attention_args bare = {
        .query = s.args.query, .key = s.args.key, .value = s.args.value, .output = s.args.output
    };
    static const char *const names[] = { "bias",  "mask", "key_lengths", "key_lengths_per_query",
                                         "probs", "lse" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const refusal_arg *option = refusal_find(&s.r, names[i]);
        mha_attention_args args = bare;
        memcpy((char *)&args + option->at, (char *)&s.args + option->at,
               option->strided ? sizeof(mha_tensor) : offsetof(mha_tensor, strides));
        expect_unasked(&s, plain, &args, names[i]);
    }
    mha_attention_args args = bare;
    args.key_lengths.host = scene_key_lengths;
    expect_unasked(&s, plain, &args, "key_lengths");
    args = bare;
    args.key_lengths_per_query.host = scene_per_query;
    expect_unasked(&s, plain, &args, "key_lengths_per_query");
    cr_expect_eq(mha_attention_enqueue(plain, &bare, &s.r.call), MHA_OK);
    mha_attention_destroy(&plain);
    close_scene(&s);
}

/* Copies an argument's data to a place in a buffer. Returns where the next one may begin. */
static size_t copy_argument(scene *s, const refusal_arg *arg, cl_mem to, size_t first_byte)
{
    const device_tensor *t = &arg->tensor;
    const size_t bytes = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] * t->bytes;
    cr_assert_eq(first_byte % t->bytes, 0);
    cr_assert_eq(clEnqueueCopyBuffer(s->d.queue, device_buffer(t), to, t->offset * t->bytes,
                                     first_byte, bytes, 0, NULL, NULL),
                 CL_SUCCESS);
    return first_byte + bytes;
}

static void expect_written(scene *s, size_t i, cl_mem buffer, size_t first_byte)
{
    const device_tensor *t = &s->list[i].tensor;
    const size_t bytes = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] * t->bytes;
    static float now[SCENE_MOST];
    cr_assert_eq(
        clEnqueueReadBuffer(s->d.queue, buffer, CL_TRUE, first_byte, bytes, now, 0, NULL, NULL),
        CL_SUCCESS);
    cr_expect(!memcmp(now, s->r.right[i], bytes), "%s", s->list[i].name);
}

/* The other side of the rules: all arguments in one buffer, neighbours without a gap, and the
 * workspace in a part of it that begins behind them. */
Test(errors, neighbours_in_one_buffer_are_fine)
{
    scene s = { 0 };
    open_scene(&s);
    const size_t middle = REFUSAL_ARENA_BYTES / 2;
    cl_mem arena = s.r.arena;
    size_t end = 0;
    size_t starts[10];
    mha_attention_args args = s.args;
    for (size_t i = 0; i < s.r.count; i++) {
        const refusal_arg *arg = &s.list[i];
        starts[i] = end;
        end = copy_argument(&s, arg, arena, end);
        mha_tensor place = { .buffer = arena, .offset = starts[i] / arg->tensor.bytes };
        memcpy((char *)&args + arg->at, &place, offsetof(mha_tensor, strides));
    }
    cr_assert(end <= middle && middle + s.r.workspace.bytes <= REFUSAL_ARENA_BYTES);
    const cl_buffer_region region = { middle, s.r.workspace.bytes };
    mha_call call = s.r.call;
    call.workspace = clCreateSubBuffer(arena, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, NULL);
    device_hush(&s.d);
    cr_expect_eq(mha_attention_enqueue(s.attention, &args, &call), MHA_OK, "%s", s.d.sentence);
    for (size_t i = 0; i < s.r.count; i++)
        if (s.list[i].want)
            expect_written(&s, i, arena, starts[i]);
    clReleaseMemObject(call.workspace);
    close_scene(&s);
}

/* An empty tensor shares memory with nothing, wherever it lies. */
Test(errors, empty_arguments_overlap_nothing)
{
    device d;
    device_open(&d);
    mha_attention_desc desc = scene_desc;
    desc.uses = 0;
    desc.diagonal = MHA_DIAGONAL_NONE;
    desc.window_left = 0;
    desc.bias_broadcast = 0;
    desc.key_len = 0;
    mha_attention *attention = NULL;
    cr_assert_eq(mha_attention_create(&attention, d.context, &desc), MHA_OK);
    const size_t shape[4] = { SCENE_BATCH, SCENE_HEADS, SCENE_QUERIES, SCENE_DIM };
    const size_t out_shape[4] = { SCENE_BATCH, SCENE_HEADS, SCENE_QUERIES, SCENE_VALUE_DIM };
    device_tensor query = device_input(&d, shape, NULL, sizeof(float), scene_query);
    device_tensor output = device_output(&d, out_shape, NULL, sizeof(float));
    mha_attention_args args = { .query = device_arg(&query), .output = device_arg(&output) };
    args.key = args.output;
    args.key.offset++;
    args.value = args.key;
    mha_call call = device_call(&d, mha_attention_workspace(attention));
    device_hush(&d);
    cr_expect_eq(mha_attention_enqueue(attention, &args, &call), MHA_OK, "%s", d.sentence);
    device_read(&d, &output, scene_value);
    for (size_t i = 0; i < SCENE_BATCH * SCENE_HEADS * SCENE_QUERIES * SCENE_VALUE_DIM; i++)
        cr_assert_eq(scene_value[i], 0, "without keys the output is zero");
    mha_attention_destroy(&attention);
    device_close(&d);
}

static void expect_step(const device *d, mha_status status, mha_status want, const char *who,
                        const char *name)
{
    cr_expect_eq(status, want, "%s: %s: %s, not %s", who, name, mha_status_name(status),
                 mha_status_name(want));
    cr_expect(!want || (refusal_is_of(d->sentence, who) && refusal_says(d->sentence, name)),
              "%s: %s: %s", who, name, d->sentence);
}

/* A number of each head, side by side: other distances are refused, not passed over. */
Test(errors, slopes_and_sinks_are_contiguous)
{
    enum {
        HEADS = 3,
        LEN = 4,
        DIM = 5
    };
    static const mha_attention_desc desc = {
        .batch = 1,
        .heads = HEADS,
        .query_len = LEN,
        .key_len = LEN,
        .head_dim = DIM,
        .uses = MHA_USES_ALIBI | MHA_USES_SINKS,
        .diagonal = MHA_TOP_LEFT,
    };
    static const float rows[HEADS * LEN * DIM], numbers[2 * HEADS];
    static float output[HEADS * LEN * DIM];
    const size_t shape[4] = { 1, HEADS, LEN, DIM }, list[4] = { 1, 1, 1, 2 * HEADS };
    device d;
    device_open(&d);
    mha_attention *attention = NULL;
    cr_assert_eq(mha_attention_create(&attention, d.context, &desc), MHA_OK, "%s", d.sentence);
    const device_tensor in = device_input(&d, shape, NULL, sizeof(float), rows);
    const device_tensor per_head = device_input(&d, list, NULL, sizeof(float), numbers);
    const device_tensor out = device_output(&d, shape, NULL, sizeof(float));
    const mha_call call = device_call(&d, mha_attention_workspace(attention));
    for (int of_sinks = 0; of_sinks < 2; of_sinks++)
        for (size_t step = 1; step <= 2; step++) {
            mha_host_args host = { .query.data = rows,
                                   .key.data = rows,
                                   .value.data = rows,
                                   .output.data = output,
                                   .alibi_slopes.data = numbers,
                                   .sinks.data = numbers };
            mha_attention_args args = { .query = device_arg(&in),
                                        .key = device_arg(&in),
                                        .value = device_arg(&in),
                                        .output = device_arg(&out),
                                        .alibi_slopes = device_arg(&per_head),
                                        .sinks = device_arg(&per_head) };
            memset(args.alibi_slopes.strides, 0, sizeof args.alibi_slopes.strides);
            memset(args.sinks.strides, 0, sizeof args.sinks.strides);
            (of_sinks ? &host.sinks : &host.alibi_slopes)->strides[3] = step;
            (of_sinks ? &args.sinks : &args.alibi_slopes)->strides[3] = step;
            const char *name = of_sinks ? "sinks" : "alibi_slopes";
            const mha_status want = step == 1 ? MHA_OK : MHA_INVALID_ARGUMENT;
            device_hush(&d);
            expect_step(&d, mha_attention_run(attention, &host), want, "mha_attention_run", name);
            device_hush(&d);
            expect_step(&d, mha_attention_enqueue(attention, &args, &call), want,
                        "mha_attention_enqueue", name);
        }
    mha_attention_destroy(&attention);
    device_close(&d);
}
