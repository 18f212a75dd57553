/* Every rule of the enqueue calls of gemm, heads and softmax: what is wrong is refused by name,
 * nothing is written, and the next good call is right. */
#include "refusal_scene.h"

#include <clblast_c.h>
#include <criterion/criterion.h>
#include <string.h>

typedef struct scene {
    device d;
    mha_gemm *gemm;
    mha_heads *heads;
    mha_softmax *softmax;
    refusal_arg list[10];
    refusal r;
} scene;

static void close_scene(scene *s)
{
    refusal_close(&s->r);
    mha_gemm_destroy(&s->gemm);
    mha_heads_destroy(&s->heads);
    mha_softmax_destroy(&s->softmax);
    device_close(&s->d);
}

/* --- gemm --- */

enum {
    M = 5,
    N = 6,
    K = 7
};

static mha_gemm_args gemm_args;

static mha_status multiply(void *object, const void *args, const mha_call *call)
{
    return mha_gemm_enqueue(object, args, call);
}

static mha_matrix matrix_of(const device_tensor *tensor)
{
    return (mha_matrix){ .buffer = device_buffer(tensor),
                         .offset = tensor->offset,
                         .batch_stride = tensor->shape[2] * tensor->shape[3] };
}

/* As large products do, small ones then need a workspace of CLBlast's. */
static void let_clblast_copy(cl_device_id id)
{
    const char *names[] = { "XGEMM_MIN_INDIRECT_SIZE" };
    cr_assert_eq(CLBlastOverrideParameters(id, "GemmRoutine", CLBlastPrecisionSingle, 1, names,
                                           (const size_t[]){ 1 }),
                 CLBlastSuccess);
}

static void open_gemm(scene *s, size_t batch, mha_gemm_by by)
{
    device *d = &s->d;
    device_open(d);
    if (by == MHA_GEMM_CLBLAST)
        let_clblast_copy(mha_context_device(d->context));
    const mha_gemm_desc desc = {
        .m = M, .n = N, .k = K, .batch = batch, .flags = MHA_GEMM_BIAS, .by = by
    };
    cr_assert_eq(mha_gemm_create(&s->gemm, d->context, &desc), MHA_OK, "%s", d->sentence);
    refusal_arg *list = s->list;
    const size_t word = sizeof(float);
    list[0] = (refusal_arg){ .name = "a", .at = offsetof(mha_gemm_args, a) };
    list[0].tensor = device_input(d, SCENE_SHAPE(batch, 1, M, K), NULL, word, scene_query);
    list[1] = (refusal_arg){ .name = "b", .at = offsetof(mha_gemm_args, b) };
    list[1].tensor = device_input(d, SCENE_SHAPE(batch, 1, K, N), NULL, word, scene_key);
    list[2] = (refusal_arg){ .name = "bias", .at = offsetof(mha_gemm_args, bias) };
    list[2].tensor = device_input(d, SCENE_SHAPE(1, 1, 1, N), NULL, word, scene_bias);
    list[3] = (refusal_arg){ .name = "c", .at = offsetof(mha_gemm_args, c), .want = scene_output };
    list[3].tensor = device_output(d, SCENE_SHAPE(batch, 1, M, N), NULL, word);
    gemm_args = (mha_gemm_args){ .a = matrix_of(&list[0].tensor),
                                 .b = matrix_of(&list[1].tensor),
                                 .bias = device_arg(&list[2].tensor),
                                 .c = matrix_of(&list[3].tensor) };
    const reference_gemm_args reference = {
        .a = scene_query, .b = scene_key, .bias = scene_bias, .out = scene_output
    };
    reference_gemm(&desc, &reference);
    const mha_workspace workspace = mha_gemm_workspace(s->gemm);
    s->r = (refusal){
        .d = d,
        .who = "mha_gemm_enqueue",
        .args_name = "args",
        .enqueue = multiply,
        .object = s->gemm,
        .args = &gemm_args,
        .args_bytes = sizeof gemm_args,
        .call = device_call(d, workspace),
        .workspace = workspace,
        .list = list,
        .count = 4,
        .limit = reference_limit(K, 16),
    };
    refusal_open(&s->r);
}

/* One product by CLBlast with a workspace, and several by the library's kernel. */
Test(errors, gemm_calls_and_buffers)
{
    for (int several = 0; several < 2; several++) {
        scene s = { 0 };
        open_gemm(&s, several ? 3 : 1, several ? MHA_GEMM_KERNEL : MHA_GEMM_CLBLAST);
        cr_expect_eq(!s.r.workspace.bytes, several, "%zu bytes", s.r.workspace.bytes);
        refusal_of_calls(&s.r);
        refusal_of_buffers(&s.r);
        refusal_of_overlaps(&s.r);
        close_scene(&s);
    }
}

typedef struct gemm_row {
    const char *name;
    const char *says; /* the matrix */
    size_t row, batch;
    mha_status status;
} gemm_row;

static const gemm_row gemm_rows[] = {
    { "rows of a that overlap", "a", K - 1, (M * K), MHA_INVALID_ARGUMENT },
    { "rows of b that overlap", "b", N - 1, (K * N), MHA_INVALID_ARGUMENT },
    { "rows of c that overlap", "c", N - 1, (M * N), MHA_INVALID_ARGUMENT },
    { "one c for all", "c", 0, 0, MHA_INVALID_ARGUMENT },
    { "batches of c that overlap", "c", 0, (M * N) - 1, MHA_INVALID_ARGUMENT },
    { "batches of c that overlap by rows", "c", N + 2, N, MHA_INVALID_ARGUMENT },
    { "batches of a behind the end", "a", 0, 1000, MHA_BUFFER_TOO_SMALL },
    { "batches of c behind the end", "c", 0, 1000, MHA_BUFFER_TOO_SMALL },
    { "rows of b behind the end", "b", 1000, (K * N), MHA_BUFFER_TOO_SMALL },
    { "rows of a overflow", "a", SIZE_MAX / (M - 1), 0, MHA_TOO_LARGE },
    { "rows of c overflow", "c", SIZE_MAX / (M - 1), (M * N), MHA_TOO_LARGE },
    { "batches of a overflow", "a", 0, SIZE_MAX / 2, MHA_TOO_LARGE },
    { "bytes of a overflow", "a", 0, SIZE_MAX / 4 + 1 + M *K, MHA_TOO_LARGE },
    { "bytes of b overflow", "b", 0, SIZE_MAX / 4 + 1 + K *N, MHA_TOO_LARGE },
    { "bytes of c overflow", "c", 0, SIZE_MAX / 4 + 1 + M *N, MHA_TOO_LARGE },
};

Test(errors, gemm_strides_and_sizes)
{
    scene s = { 0 };
    open_gemm(&s, 3, MHA_GEMM_KERNEL);
    for (size_t i = 0; i < sizeof gemm_rows / sizeof gemm_rows[0]; i++) {
        const gemm_row *row = &gemm_rows[i];
        mha_gemm_args args = gemm_args;
        mha_matrix *matrix = row->says[0] == 'a'   ? &args.a
                             : row->says[0] == 'b' ? &args.b
                                                   : &args.c;
        matrix->row_stride = row->row;
        matrix->batch_stride = row->batch;
        refusal_expect(&s.r, row->name, &args, &s.r.call, row->status, row->says);
    }
    mha_gemm_args args = gemm_args;
    args.m = M + 1;
    refusal_expect(&s.r, "m above the desc's", &args, &s.r.call, MHA_INVALID_ARGUMENT, "m");
    args.m = SIZE_MAX;
    refusal_expect(&s.r, "the largest m", &args, &s.r.call, MHA_INVALID_ARGUMENT, "m");
    close_scene(&s);
}

Test(errors, gemm_bias_that_nobody_asked_for)
{
    scene s = { 0 };
    open_gemm(&s, 1, MHA_GEMM_KERNEL);
    mha_gemm *plain = NULL;
    const mha_gemm_desc desc = { .m = M, .n = N, .k = K, .by = MHA_GEMM_KERNEL };
    cr_assert_eq(mha_gemm_create(&plain, s.d.context, &desc), MHA_OK);
    device_hush(&s.d);
    cr_expect_eq(mha_gemm_enqueue(plain, &gemm_args, &s.r.call), MHA_INVALID_ARGUMENT);
    cr_expect(s.d.sentences == 1 && refusal_says(s.d.sentence, "bias"), "%s", s.d.sentence);
    mha_gemm_destroy(&plain);
    close_scene(&s);
}

static void expect_load(scene *s, mha_gemm *gemm, const mha_matrix *b, mha_status status,
                        const char *says)
{
    const mha_call call = { .queue = s->d.queue };
    cr_expect_eq(mha_gemm_load(gemm, b, &call), status, "%s: %s", says, s->d.sentence);
    cr_expect(refusal_says(s->d.sentence, "mha_gemm_load"), "%s", s->d.sentence);
    cr_expect(refusal_says(s->d.sentence, says), "%s: %s", says, s->d.sentence);
}

/* Without a load, after loads that fail, with a B in the call as well. */
Test(errors, gemm_of_a_loaded_b)
{
    scene s = { 0 };
    open_gemm(&s, 3, MHA_GEMM_KERNEL);
    mha_gemm *gemm = NULL;
    const mha_gemm_desc desc = { .m = M,
                                 .n = N,
                                 .k = K,
                                 .batch = 3,
                                 .flags = MHA_GEMM_BIAS | MHA_GEMM_LOADED_B,
                                 .by = MHA_GEMM_KERNEL };
    cr_assert_eq(mha_gemm_create(&gemm, s.d.context, &desc), MHA_OK);
    const mha_matrix several = gemm_args.b;
    mha_matrix b = several;
    mha_gemm_args args = gemm_args;
    args.b = (mha_matrix){ 0 };
    b.batch_stride = 0;
    device_hush(&s.d);
    expect_load(&s, s.gemm, &b, MHA_INVALID_ARGUMENT, "MHA_GEMM_LOADED_B");
    expect_load(&s, gemm, NULL, MHA_INVALID_ARGUMENT, "b");
    expect_load(&s, gemm, &several, MHA_INVALID_ARGUMENT, "batch_stride");
    b.row_stride = N - 1;
    expect_load(&s, gemm, &b, MHA_INVALID_ARGUMENT, "row_stride");
    b.row_stride = 1000;
    expect_load(&s, gemm, &b, MHA_BUFFER_TOO_SMALL, "b");
    cr_expect_eq(mha_gemm_load(NULL, &b, &s.r.call), MHA_INVALID_ARGUMENT);
    cr_expect_eq(mha_gemm_enqueue(gemm, &args, &s.r.call), MHA_NOT_LOADED);
    cr_expect(refusal_says(s.d.sentence, "mha_gemm_load"), "%s", s.d.sentence);
    mha_gemm_destroy(&gemm);
    close_scene(&s);
}

Test(errors, gemm_of_two_bs)
{
    scene s = { 0 };
    open_gemm(&s, 1, MHA_GEMM_KERNEL);
    const mha_gemm_desc desc = {
        .m = M, .n = N, .k = K, .flags = MHA_GEMM_BIAS | MHA_GEMM_LOADED_B, .by = MHA_GEMM_KERNEL
    };
    mha_gemm_destroy(&s.gemm);
    cr_assert_eq(mha_gemm_create(&s.gemm, s.d.context, &desc), MHA_OK);
    mha_matrix b = gemm_args.b;
    b.batch_stride = 0;
    const mha_call call = { .queue = s.d.queue };
    cr_assert_eq(mha_gemm_load(s.gemm, &b, &call), MHA_OK, "%s", s.d.sentence);
    const mha_gemm_args both = gemm_args;
    gemm_args.b = (mha_matrix){ 0 };
    s.r.object = s.gemm;
    refusal_expect(&s.r, "a B in the call", &both, &s.r.call, MHA_INVALID_ARGUMENT, "b");
    close_scene(&s);
}

/* --- heads --- */

typedef struct heads_args {
    mha_tensor merged, split;
} heads_args;

static mha_status split_heads(void *object, const void *args, const mha_call *call)
{
    const heads_args *list = args;
    return mha_heads_split_enqueue(object, list ? &list->merged : NULL, list ? &list->split : NULL,
                                   call);
}

static mha_status merge_heads(void *object, const void *args, const mha_call *call)
{
    const heads_args *list = args;
    return mha_heads_merge_enqueue(object, list ? &list->split : NULL, list ? &list->merged : NULL,
                                   call);
}

static void open_heads(scene *s, heads_args *args, bool splits)
{
    device *d = &s->d;
    device_open(d);
    const mha_heads_desc desc = { SCENE_BATCH, SCENE_HEADS, SCENE_QUERIES, SCENE_DIM };
    cr_assert_eq(mha_heads_create(&s->heads, d->context, &desc), MHA_OK, "%s", d->sentence);
    const size_t merged[4] = { desc.batch, 1, desc.len, desc.heads * desc.dim };
    const size_t split[4] = { desc.batch, desc.heads, desc.len, desc.dim };
    refusal_arg *list = s->list;
    list[0] = (refusal_arg){ .name = "merged",
                             .at = offsetof(heads_args, merged),
                             .strided = true,
                             .want = splits ? NULL : scene_output };
    list[1] = (refusal_arg){ .name = "split",
                             .at = offsetof(heads_args, split),
                             .strided = true,
                             .want = splits ? scene_output : NULL };
    list[0].tensor = splits ? device_input(d, merged, NULL, sizeof(float), scene_query)
                            : device_output(d, merged, NULL, sizeof(float));
    list[1].tensor = splits ? device_output(d, split, NULL, sizeof(float))
                            : device_input(d, split, NULL, sizeof(float), scene_query);
    *args = (heads_args){ device_arg(&list[0].tensor), device_arg(&list[1].tensor) };
    if (splits)
        reference_split_heads(&desc, scene_query, scene_output);
    else
        reference_merge_heads(&desc, scene_query, scene_output);
    s->r = (refusal){
        .d = d,
        .who = splits ? "mha_heads_split_enqueue" : "mha_heads_merge_enqueue",
        .args_name = "merged",
        .enqueue = splits ? split_heads : merge_heads,
        .object = s->heads,
        .args = args,
        .args_bytes = sizeof *args,
        .call = { .queue = d->queue },
        .list = list,
        .count = 2,
    };
    refusal_open(&s->r);
}

Test(errors, heads)
{
    for (int splits = 0; splits < 2; splits++) {
        scene s = { 0 };
        heads_args args;
        open_heads(&s, &args, splits);
        refusal_of_calls(&s.r);
        refusal_of_buffers(&s.r);
        refusal_of_strides(&s.r);
        refusal_of_overlaps(&s.r);
        close_scene(&s);
    }
}

/* --- softmax --- */

typedef struct softmax_args {
    mha_tensor scores;
    mha_attention_args args;
} softmax_args;

enum {
    BASE = offsetof(softmax_args, args)
};

static mha_status normalise(void *object, const void *args, const mha_call *call)
{
    const softmax_args *list = args;
    return mha_softmax_enqueue(object, list ? &list->scores : NULL, list ? &list->args : NULL,
                               call);
}

static void open_softmax(scene *s, softmax_args *args)
{
    device *d = &s->d;
    device_open(d);
    cr_assert_eq(mha_softmax_create(&s->softmax, d->context, &scene_desc), MHA_OK, "%s",
                 d->sentence);
    *args = (softmax_args){ 0 };
    refusal_arg *list = s->list;
    size_t n = scene_add_options(d, list, &args->args, BASE);
    list[n] = (refusal_arg){ .name = "scores", .at = offsetof(softmax_args, scores) };
    list[n].tensor =
        device_input(d, SCENE_SHAPE(SCENE_BATCH, SCENE_HEADS, SCENE_QUERIES, SCENE_KEYS), NULL,
                     sizeof(float), scene_query);
    args->scores = device_arg(&list[n++].tensor);
    reference_softmax(&scene_desc, &scene_reference, scene_query);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].name, "probs"))
            list[i].strided = false; /* it must be packed, whatever the strides */
    const mha_workspace workspace = mha_softmax_workspace(s->softmax);
    s->r = (refusal){
        .d = d,
        .who = "mha_softmax_enqueue",
        .args_name = "scores",
        .enqueue = normalise,
        .object = s->softmax,
        .args = args,
        .args_bytes = sizeof *args,
        .call = device_call(d, workspace),
        .workspace = workspace,
        .list = list,
        .count = n,
        .limit = reference_limit(SCENE_KEYS, 8),
    };
    refusal_open(&s->r);
}

Test(errors, softmax_calls_and_buffers)
{
    scene s = { 0 };
    softmax_args args;
    open_softmax(&s, &args);
    refusal_of_calls(&s.r);
    refusal_of_buffers(&s.r);
    scene_refuse_lengths(&s.r, BASE);
    close_scene(&s);
}

Test(errors, softmax_without_a_cache)
{
    scene s = { 0 };
    softmax_args args;
    open_softmax(&s, &args);
    scene_refuse_unasked(&s.r, BASE, true);
    close_scene(&s);
}

Test(errors, softmax_strides)
{
    scene s = { 0 };
    softmax_args args;
    open_softmax(&s, &args);
    refusal_of_strides(&s.r);
    softmax_args strided = args;
    strided.scores.strides[3] = 1;
    refusal_expect(&s.r, "scores with strides", &strided, &s.r.call, MHA_UNSUPPORTED, "scores");
    strided = args;
    strided.args.probs.strides[3] = 1;
    refusal_expect(&s.r, "probs with strides", &strided, &s.r.call, MHA_UNSUPPORTED, "probs");
    close_scene(&s);
}

Test(errors, softmax_overlaps)
{
    scene s = { 0 };
    softmax_args args;
    open_softmax(&s, &args);
    refusal_of_overlaps(&s.r);
    close_scene(&s);
}
