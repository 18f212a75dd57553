/* Every rule of mha_rotary_enqueue: what is wrong is refused by name, nothing is written, and the
 * next good call is right. */
#include "refusal_scene.h"

#include <criterion/criterion.h>

enum {
    LEN = SCENE_QUERIES,
    DIM = SCENE_DIM,
    HALF = 3,
    POSITIONS = 9
};

typedef struct scene {
    device d;
    mha_rotary *rotary;
    refusal_arg list[6];
    mha_rotary_args args;
    refusal r;
} scene;

static const mha_rotary_desc good = {
    .batch = SCENE_BATCH,
    .heads = SCENE_HEADS,
    .len = LEN,
    .dim = DIM,
    .rotary_dim = 2 * HALF,
    .positions = POSITIONS,
};

static const int32_t good_ids[SCENE_BATCH * LEN] = { 0, 8, 3, 3, 1, 7, 5, 6, 2, 4 };

static mha_status rotate(void *object, const void *args, const mha_call *call)
{
    return mha_rotary_enqueue(object, args, call);
}

static void add_tensor(scene *s, const char *name, size_t at, const size_t shape[4],
                       const float *data, const double *want)
{
    refusal_add_tensor(&s->list[s->r.count++], &s->d, &s->args, name, at, shape, data, want);
}

/* Positions in a buffer. */
static void add_ids(scene *s)
{
    refusal_arg *arg = &s->list[s->r.count++];
    refusal_add_lengths(arg, &s->d, &s->args, "position_ids",
                        offsetof(mha_rotary_args, position_ids.buffer), SCENE_BATCH * LEN,
                        good_ids);
    arg->optional = true;
}

static void open_scene(scene *s, const mha_rotary_desc *desc)
{
    *s = (scene){ 0 };
    device_open(&s->d);
    cr_assert_eq(mha_rotary_create(&s->rotary, s->d.context, desc), MHA_OK, "%s", s->d.sentence);
    const size_t rows[4] = { SCENE_BATCH, SCENE_HEADS, LEN, DIM };
    const bool has_ids = desc->positions;
    const size_t table[4] = { has_ids ? 1 : SCENE_BATCH, 1, has_ids ? POSITIONS : LEN, HALF };
    add_tensor(s, "input", offsetof(mha_rotary_args, input), rows, scene_query, NULL);
    add_tensor(s, "output", offsetof(mha_rotary_args, output), rows, NULL, scene_output);
    add_tensor(s, "cos", offsetof(mha_rotary_args, cos), table, scene_key, NULL);
    add_tensor(s, "sin", offsetof(mha_rotary_args, sin), table, scene_value, NULL);
    if (has_ids)
        add_ids(s);
    reference_rotary(desc, &(reference_rotary_args){ .input = scene_query,
                                                     .cos = scene_key,
                                                     .sin = scene_value,
                                                     .position_ids = has_ids ? good_ids : NULL,
                                                     .output = scene_output });
    const mha_workspace workspace = mha_rotary_workspace(s->rotary);
    const size_t count = s->r.count;
    s->r = (refusal){
        .d = &s->d,
        .who = "mha_rotary_enqueue",
        .args_name = "args",
        .enqueue = rotate,
        .object = s->rotary,
        .args = &s->args,
        .args_bytes = sizeof s->args,
        .call = device_call(&s->d, workspace),
        .workspace = workspace,
        .list = s->list,
        .count = count,
        .limit = reference_limit(2, 25), /* normal numbers are below 4.9 */
    };
    refusal_open(&s->r);
}

static void close_scene(scene *s)
{
    refusal_close(&s->r);
    mha_rotary_destroy(&s->rotary);
    device_close(&s->d);
}

Test(errors, rotary_calls_and_buffers)
{
    scene s;
    open_scene(&s, &good);
    cr_expect_eq(s.r.workspace.bytes, sizeof good_ids);
    refusal_of_calls(&s.r);
    refusal_of_buffers(&s.r);
    close_scene(&s);
}

Test(errors, rotary_strides)
{
    scene s;
    open_scene(&s, &good);
    refusal_of_strides(&s.r);
    close_scene(&s);
}

Test(errors, rotary_overlaps)
{
    scene s;
    open_scene(&s, &good);
    refusal_of_overlaps(&s.r);
    close_scene(&s);
}

/* Tables that have a row for each row of the input. */
Test(errors, rotary_with_rows_of_its_own)
{
    scene s;
    mha_rotary_desc desc = good;
    desc.positions = 0;
    open_scene(&s, &desc);
    cr_expect_eq(s.r.workspace.bytes, 0);
    refusal_of_calls(&s.r);
    refusal_of_buffers(&s.r);
    refusal_of_strides(&s.r);
    mha_rotary_args args = s.args;
    args.position_ids.host = good_ids;
    refusal_expect(&s.r, "ids without positions", &args, &s.r.call, MHA_INVALID_ARGUMENT,
                   "position_ids");
    args = s.args;
    args.offsets.host = good_ids;
    refusal_expect(&s.r, "offsets without positions", &args, &s.r.call, MHA_INVALID_ARGUMENT,
                   "offsets");
    args = s.args;
    args.offsets.buffer = args.input.buffer;
    refusal_expect(&s.r, "offsets in a buffer", &args, &s.r.call, MHA_INVALID_ARGUMENT, "offsets");
    close_scene(&s);
}

/* Each row changes a copy of the good arguments. */
typedef struct positions_row {
    const char *name;
    size_t len;
    const int32_t *ids, *offsets;
    bool keeps_buffer; /* of position_ids */
    const char *says;
} positions_row;

#define EACH_ROW const int32_t[SCENE_BATCH * LEN]

static const positions_row positions_rows[] = {
    { "len above the desc's", LEN + 1, NULL, NULL, true, "len" },
    { "the largest len", SIZE_MAX, NULL, NULL, true, "len" },
    { "ids on host and device", 0, good_ids, NULL, true, "position_ids" },
    { "ids on the device, and offsets", 0, NULL, (const int32_t[]){ 0, 0 }, true, "offsets" },
    { "ids and offsets", 0, good_ids, (const int32_t[]){ 0, 0 }, false, "position_ids" },
    { "a negative id", 0, (EACH_ROW){ [9] = -1 }, NULL, false, "position_ids[9]" },
    { "the least id", 0, (EACH_ROW){ INT32_MIN }, NULL, false, "position_ids[0]" },
    { "an id behind the tables", 0, (EACH_ROW){ [4] = POSITIONS }, NULL, false, "position_ids[4]" },
    { "the largest id", 0, (EACH_ROW){ [5] = INT32_MAX }, NULL, false, "position_ids[5]" },
    { "a negative offset", 0, NULL, (const int32_t[]){ 0, -1 }, false, "offsets[1]" },
    { "an offset whose last row is behind the tables", 0, NULL,
      (const int32_t[]){ POSITIONS - LEN + 1, 0 }, false, "offsets[0]" },
    { "the same of a shorter call", LEN - 1, NULL, (const int32_t[]){ 0, POSITIONS - LEN + 2 },
      false, "offsets[1]" },
};

Test(errors, rotary_positions)
{
    scene s;
    open_scene(&s, &good);
    for (size_t i = 0; i < sizeof positions_rows / sizeof positions_rows[0]; i++) {
        const positions_row *row = &positions_rows[i];
        mha_rotary_args args = s.args;
        args.len = row->len;
        if (!row->keeps_buffer)
            args.position_ids.buffer = NULL;
        args.position_ids.host = row->ids;
        args.offsets.host = row->offsets;
        refusal_expect(&s.r, row->name, &args, &s.r.call, MHA_INVALID_ARGUMENT, row->says);
    }
    close_scene(&s);
}

/* Tables shorter than a call: by ids only. */
Test(errors, rotary_with_short_tables)
{
    scene s;
    open_scene(&s, &good);
    mha_rotary_desc desc = good;
    desc.positions = LEN - 1;
    mha_rotary *rotary = NULL;
    cr_assert_eq(mha_rotary_create(&rotary, s.d.context, &desc), MHA_OK);
    for (int way = 0; way < 3; way++) {
        mha_rotary_args args = s.args;
        args.position_ids.buffer = NULL;
        args.offsets.host = way == 1 ? (const int32_t[]){ 0, 0 } : NULL;
        args.offsets.buffer = way == 2 ? s.args.position_ids.buffer : NULL;
        device_hush(&s.d);
        cr_expect_eq(mha_rotary_enqueue(rotary, &args, &s.r.call), MHA_INVALID_ARGUMENT);
        cr_expect(s.d.sentences == 1 && refusal_says(s.d.sentence, "positions"), "%s",
                  s.d.sentence);
    }
    mha_rotary_args args = s.args;
    cr_expect_eq(mha_rotary_enqueue(rotary, &args, &s.r.call), MHA_OK, "%s", s.d.sentence);
    args.position_ids.buffer = NULL;
    args.len = LEN - 1;
    cr_expect_eq(mha_rotary_enqueue(rotary, &args, &s.r.call), MHA_OK, "%s", s.d.sentence);
    clFinish(s.d.queue);
    mha_rotary_destroy(&rotary);
    close_scene(&s);
}

/* The output over the input, but not exactly. */
Test(errors, rotary_in_place)
{
    scene s;
    open_scene(&s, &good);
    const mha_tensor arena = { .buffer = s.r.arena, .offset = 512 };
    mha_rotary_args args = s.args;
    args.input = args.output = arena;
    args.output.offset++;
    refusal_expect(&s.r, "an element further", &args, &s.r.call, MHA_OVERLAP, "output");
    args.output = arena;
    const size_t in_row[4] = { SCENE_HEADS * LEN * DIM, DIM, SCENE_HEADS * DIM, 1 };
    for (int axis = 0; axis < 4; axis++)
        args.output.strides[axis] = in_row[axis];
    refusal_expect(&s.r, "other strides", &args, &s.r.call, MHA_OVERLAP, "output");
    args.output = arena;
    refusal_expect(&s.r, "in place", &args, &s.r.call, MHA_OK, "");

    /* The same bytes, of another type. */
    mha_rotary_desc desc = good;
    desc.type = MHA_FLOAT16;
    desc.output_type = MHA_BFLOAT16;
    mha_rotary *rotary = NULL;
    cr_assert_eq(mha_rotary_create(&rotary, s.d.context, &desc), MHA_OK);
    device_hush(&s.d);
    cr_expect_eq(mha_rotary_enqueue(rotary, &args, &s.r.call), MHA_OVERLAP);
    cr_expect(s.d.sentences == 1 && refusal_says(s.d.sentence, "output"), "%s", s.d.sentence);
    mha_rotary_destroy(&rotary);
    close_scene(&s);
}

/* Without a batch or rows nothing is read, so nothing need be given. */
Test(errors, rotary_of_nobody)
{
    device d;
    device_open(&d);
    for (int way = 0; way < 4; way++) {
        mha_rotary_desc desc = good;
        desc.batch = way & 1 ? SCENE_BATCH : 0;
        desc.len = way & 1 ? 0 : LEN;
        desc.positions = way & 2 ? POSITIONS : 0;
        mha_rotary *rotary = NULL;
        cr_assert_eq(mha_rotary_create(&rotary, d.context, &desc), MHA_OK, "%s", d.sentence);
        const mha_call call = { .queue = d.queue };
        cr_expect_eq(mha_rotary_enqueue(rotary, &(mha_rotary_args){ 0 }, &call), MHA_OK,
                     "way %d: %s", way, d.sentence);
        mha_rotary_destroy(&rotary);
    }
    device_close(&d);
}
