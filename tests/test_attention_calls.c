/* What an enqueue of attention tells and keeps: stages, explain, events, waits, workspaces, lengths
 * that differ from call to call. */
#include "attention_place.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "stage: what" a line, as the callback is told. */
typedef struct stage_list {
    char text[1024];
    size_t count;
} stage_list;

static void note_stage(void *data, const char *stage, const char *what, cl_event event)
{
    stage_list *list = data;
    const size_t used = strlen(list->text);
    cl_int status = 1;
    cr_expect_eq(
        clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL),
        CL_SUCCESS);
    cr_expect(status >= CL_COMPLETE && status <= CL_QUEUED, "%s: status %d", stage, (int)status);
    snprintf(list->text + used, sizeof list->text - used, "%s: %s\n", stage, what);
    list->count++;
}

typedef struct stages_case {
    attention_case given;
    const char *stages;  /* as in stage_list */
    const char *explain; /* the first words of its lines, one a line */
} stages_case;

#define BY_TILES .gemm = MHA_GEMM_KERNEL, .tiling = MHA_TILING_GPU
#define BY_KERNELS "scores: scores_tile\nsoftmax: softmax_rows\nprobs value: weigh_tile\n"
#define EXPLAIN_KERNELS                                                         \
    "path composed\nscores: kernel scores_tile\nsoftmax: kernel softmax_rows\n" \
    "probs value: kernel weigh_tile\n"
#define EXPLAIN_CLBLAST \
    "path composed\nscores: CLBlast\nsoftmax: kernel softmax_rows\nprobs value: CLBlast\n"

static const stages_case stages_cases[] = {
    { { .desc = { ATTENTION_SIZES(2, 2, 65, 65, 64), BY_TILES }, .layout = LAYOUT_QKV },
      BY_KERNELS,
      EXPLAIN_KERNELS },
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 4, 5), BY_TILES,
                  .uses = MHA_USES_KEY_LENGTHS | MHA_USES_KEY_LENGTHS_PER_QUERY } },
      "key lengths: clEnqueueWriteBuffer\nkey lengths per query: clEnqueueWriteBuffer\n" BY_KERNELS,
      EXPLAIN_KERNELS },
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 4, 5), BY_TILES, .uses = MHA_USES_PROBS },
        .layout = LAYOUT_GAPS },
      "scores: scores_tile\nsoftmax: softmax_rows\ncopy probs: heads_copy\n"
      "probs value: weigh_tile\n",
      EXPLAIN_KERNELS },
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 4, 5), .gemm = MHA_GEMM_CLBLAST } },
      "scores: CLBlastSgemmStridedBatched\nsoftmax: softmax_rows\n"
      "probs value: CLBlastSgemmStridedBatched\n",
      EXPLAIN_CLBLAST },
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 4, 5), .tiling = MHA_TILING_GPU } },
      "scores: CLBlastSgemmStridedBatched\nsoftmax: softmax_rows\n"
      "probs value: CLBlastSgemmStridedBatched\n",
      "path composed\nscores: CLBlast, the default with the GPU tiling\n"
      "softmax: kernel softmax_rows\nprobs value: CLBlast\n" },
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 4, 5), .tiling = MHA_TILING_CPU } },
      "scores: gemm_cpu_multiply\nsoftmax: softmax_rows\nprobs value: gemm_cpu_multiply\n",
      "path composed\nscores: the library's CPU kernel, the default with the CPU tiling\n"
      "softmax: kernel softmax_rows\nprobs value: the library's CPU kernel\n" },
    { { .desc = { ATTENTION_SIZES(2, 2, 65, 65, 64), .gemm = MHA_GEMM_CLBLAST },
        .layout = LAYOUT_GAPS },
      "split query: heads_copy\nsplit key: heads_copy\nscores: CLBlastSgemmStridedBatched\n"
      "softmax: softmax_rows\nsplit value: heads_copy\n"
      "probs value: CLBlastSgemmStridedBatched\nmerge heads: heads_copy\n",
      EXPLAIN_CLBLAST },
    { { .desc = { ATTENTION_SIZES(1, 1, 3, 4, 5), .gemm = MHA_GEMM_CLBLAST } },
      "scores: CLBlastSgemm\nsoftmax: softmax_rows\nprobs value: CLBlastSgemm\n",
      EXPLAIN_CLBLAST },
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 4, 5), .uses = MHA_USES_CAUSAL, .diagonal = MHA_TOP_LEFT,
                  .gemm = MHA_GEMM_CLBLAST } },
      "scores: CLBlastSgemmStridedBatched\nsoftmax: softmax_rows\nprobs value: weigh_tile\n",
      "path composed\nscores: CLBlast\nsoftmax: kernel softmax_rows\n"
      "probs value: kernel weigh_tile, because\n" },
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 4, 5), .uses = MHA_USES_KEY_LENGTHS,
                  .gemm = MHA_GEMM_CLBLAST } },
      "key lengths: clEnqueueWriteBuffer\nscores: CLBlastSgemmStridedBatched\n"
      "softmax: softmax_rows\nsplit value: heads_copy\n"
      "probs value: CLBlastSgemmStridedBatched\n",
      "path composed\nscores: CLBlast\nsoftmax: kernel softmax_rows\n"
      "probs value: CLBlast, after copying value with zeros\n" },
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 0, 5), .gemm = MHA_GEMM_CLBLAST } },
      "softmax: softmax_rows\nprobs value: weigh_tile\n",
      EXPLAIN_KERNELS },
    { { .desc = { ATTENTION_SIZES(0, 2, 3, 4, 5), .gemm = MHA_GEMM_CLBLAST } },
      "",
      EXPLAIN_CLBLAST },
};

/* What the library chooses by itself where the device is a CPU. */
#define EXPLAIN_CPU                                                                           \
    "path composed\nscores: the library's CPU kernel, the default on a CPU\nsoftmax: kernel " \
    "softmax_rows\nprobs value: the library's CPU kernel\n"

static const stages_case cpu_cases[] = {
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 4, 5) } },
      "scores: gemm_cpu_multiply\nsoftmax: softmax_rows\nprobs value: gemm_cpu_multiply\n",
      EXPLAIN_CPU },
    { { .desc = { ATTENTION_SIZES(2, 2, 65, 65, 64) }, .layout = LAYOUT_GAPS },
      "split query: heads_copy\nsplit key: heads_copy\nscores: gemm_cpu_multiply\n"
      "softmax: softmax_rows\nsplit value: heads_copy\nprobs value: gemm_cpu_multiply\n"
      "merge heads: heads_copy\n",
      EXPLAIN_CPU },
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 4, 5), .uses = MHA_USES_CAUSAL,
                  .diagonal = MHA_TOP_LEFT } },
      "scores: gemm_cpu_multiply\nsoftmax: softmax_rows\nprobs value: weigh_tile\n",
      "path composed\nscores: the library's CPU kernel\nsoftmax: kernel softmax_rows\n"
      "probs value: kernel weigh_tile, because\n" },
    { { .desc = { ATTENTION_SIZES(2, 2, 3, 4, 5), .uses = MHA_USES_KEY_LENGTHS,
                  .gemm = MHA_GEMM_KERNEL } },
      "key lengths: clEnqueueWriteBuffer\nscores: gemm_cpu_multiply\n"
      "softmax: softmax_rows\nsplit value: heads_copy\nprobs value: gemm_cpu_multiply\n",
      "path composed\nscores: the library's CPU kernel, as asked\nsoftmax: kernel softmax_rows\n"
      "probs value: the library's CPU kernel, after copying value with zeros\n" },
};

/* The composed path does these. Another path's reasons for not being it come last. */
static attention_case by_composed(const stages_case *c)
{
    attention_case given = c->given;
    given.desc.path = MHA_PATH_COMPOSED;
    return given;
}

/* Whether the lines of `text` begin with the lines of `starts`, up to those that name other paths.
 */
static bool lines_begin(const char *text, const char *starts)
{
    static const char others[] = "not path ";
    while (*text && strncmp(text, others, strlen(others)) && *starts) {
        const size_t length = strcspn(starts, "\n");
        if (strncmp(text, starts, length))
            return false;
        starts += length + 1;
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return !*starts && (!*text || !strncmp(text, others, strlen(others)));
}

static void check_explain(device *d, const char *name, const stages_case *c)
{
    const attention_case given = by_composed(c);
    mha_attention *attention = NULL;
    char text[2048], part[16];
    cr_assert_eq(mha_attention_create(&attention, d->context, &given.desc), MHA_OK, "%s: %s", name,
                 d->sentence);
    const size_t length = mha_attention_explain(attention, text, sizeof text);
    cr_expect_eq(length, strlen(text), "%s", name);
    cr_expect(lines_begin(text, c->explain), "%s: explain says\n%s", name, text);
    cr_expect_eq(mha_attention_explain(attention, part, sizeof part), length, "%s", name);
    cr_expect(!strncmp(part, text, sizeof part - 1) && strlen(part) == sizeof part - 1, "%s: %s",
              name, part);
    cr_expect_eq(mha_attention_explain(attention, NULL, 0), length, "%s", name);
    mha_attention_destroy(&attention);
}

static void check_stages(device *d, const stages_case *cases, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        const stages_case *c = &cases[n];
        stage_list list = { .count = 0 };
        const attention_case given = by_composed(c);
        attention_data *data = attention_data_new(&given);
        attention_data_expect(data);
        data->stage = note_stage;
        data->stage_data = &list;
        attention_run(d, data);
        attention_compare(data, NULL);
        cr_expect_str_eq(list.text, c->stages, "case %zu, %s: stages are\n%s", n, data->name,
                         list.text);
        check_explain(d, data->name, c);
        attention_data_free(data);
    }
}

Test(attention_calls, stages_and_explain_agree)
{
    device d;
    device_open(&d);
    check_stages(&d, stages_cases, sizeof stages_cases / sizeof stages_cases[0]);
    if (device_is_cpu(&d))
        check_stages(&d, cpu_cases, sizeof cpu_cases / sizeof cpu_cases[0]);
    device_close(&d);
}

/* Into how many parts decode splits the keys, and why into no more. */
Test(attention_calls, decode_says_its_parts)
{
    device d;
    mha_device_info info;
    device_open(&d);
    cr_assert_eq(mha_context_info(d.context, &info), MHA_OK);
    const size_t many = 64 * (size_t)info.compute_units;
    const struct {
        mha_tiling tiling;
        size_t batch, key_len;
        const char *says;
    } rows[] = {
        { MHA_TILING_CPU, 1, 100, "too few to split" },
        { MHA_TILING_CPU, many, 1000, "enough for the device" },
        { MHA_TILING_CPU, 1, 1 << 16, "decode_cpu_merge" },
        { MHA_TILING_GPU, 1, 100, "too few to split" },
        { MHA_TILING_GPU, many, 1000, "enough for the device" },
        { MHA_TILING_GPU, 1, 1 << 16, "decode_gpu_merge" },
    };
    for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++) {
        const mha_attention_desc desc = { ATTENTION_SIZES(rows[n].batch, 1, 1, rows[n].key_len, 8),
                                          .path = MHA_PATH_DECODE, .tiling = rows[n].tiling };
        mha_attention *attention = NULL;
        char text[2048];
        cr_assert_eq(mha_attention_create(&attention, d.context, &desc), MHA_OK, "%s", d.sentence);
        mha_attention_explain(attention, text, sizeof text);
        cr_expect(strstr(text, rows[n].says), "row %zu: explain says\n%s", n, text);
        mha_attention_destroy(&attention);
    }
    device_close(&d);
}

static mha_attention *create(device *d, const attention_data *data)
{
    mha_attention *attention = NULL;
    const mha_status status = mha_attention_create(&attention, d->context, &data->given.desc);
    cr_assert_eq(status, MHA_OK, "%s: %s", data->name, d->sentence);
    return attention;
}

static const attention_case small_case = {
    .desc = { ATTENTION_SIZES(2, 2, 17, 33, 16), .uses = MHA_USES_KEY_LENGTHS | MHA_USES_LSE },
    .seed = 71,
};

static cl_int status_of(cl_event event)
{
    cl_int status = 1;
    cr_assert_eq(
        clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL),
        CL_SUCCESS);
    return status;
}

/* The lengths are in host memory, so that their copy must wait as well. */
static void check_waiting(device *d, size_t way)
{
    attention_case c = attention_by_way(&small_case, way);
    attention_data *data = attention_data_new(&c);
    attention_data_expect(data);
    mha_attention *attention = create(d, data);
    const size_t shape[4] = { data->desc.batch, data->desc.heads, data->query_len,
                              data->desc.head_dim };
    float *nothing = calloc(shape[0] * shape[1] * shape[2] * shape[3], sizeof(float));
    float *right = data->query;
    data->query = nothing;
    const attention_tensors tensors = attention_place(d, data);

    cl_int error = CL_SUCCESS;
    cl_event waits[2] = { clCreateUserEvent(d->cl, &error), clCreateUserEvent(d->cl, &error) };
    cl_event done = NULL;
    mha_call call = device_call(d, mha_attention_workspace(attention));
    call.num_waits = 2;
    call.waits = waits;
    call.event = &done;
    cr_assert_eq(mha_attention_enqueue(attention, &tensors.args, &call), MHA_OK, "%s", d->sentence);
    cr_assert(done, "no event");
    clFlush(d->queue);
    clSetUserEventStatus(waits[0], CL_COMPLETE);
    cr_expect_gt(status_of(done), CL_COMPLETE, "the call did not wait");

    /* What is written now, through another queue, must be what the call reads. */
    cl_command_queue other = clCreateCommandQueue(d->cl, mha_context_device(d->context), 0, &error);
    cr_assert_eq(clEnqueueWriteBuffer(other, tensors.args.query.buffer, CL_TRUE,
                                      tensors.args.query.offset * sizeof(float),
                                      shape[0] * shape[1] * shape[2] * shape[3] * sizeof(float),
                                      right, 0, NULL, NULL),
                 CL_SUCCESS);
    clSetUserEventStatus(waits[1], CL_COMPLETE);
    cr_expect_eq(clWaitForEvents(1, &done), CL_SUCCESS);
    cr_expect_eq(status_of(done), CL_COMPLETE);
    data->query = right;
    device_read(d, &tensors.output, data->output);
    device_read(d, &tensors.lse, data->lse);
    attention_compare(data, NULL);

    clReleaseCommandQueue(other);
    clReleaseEvent(done);
    clReleaseEvent(waits[0]);
    clReleaseEvent(waits[1]);
    mha_attention_destroy(&attention);
    device_forget(d);
    free(nothing);
    attention_data_free(data);
}

Test(attention_calls, waits_and_event)
{
    device d;
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++)
        check_waiting(&d, way);
    device_close(&d);
}

/* One workspace for three calls in one queue, and it is a part of a buffer. */
static void check_workspace(device *d, size_t way)
{
    attention_case c = attention_by_way(&small_case, way);
    attention_data *data[3];
    attention_tensors tensors[3];
    mha_attention *attention = NULL;
    mha_call call = { 0 };
    cl_int error = CL_SUCCESS;
    for (size_t n = 0; n < 3; n++) {
        c.seed += 16;
        data[n] = attention_data_new(&c);
        attention_data_expect(data[n]);
        tensors[n] = attention_place(d, data[n]);
    }
    attention = create(d, data[0]);
    const mha_workspace need = mha_attention_workspace(attention);
    cr_assert_gt(need.bytes, 0);
    cr_assert_gt(need.alignment, 0);
    call = device_call(d, (mha_workspace){ .bytes = need.alignment + need.bytes });
    cl_mem whole = call.workspace;
    call.workspace = clCreateSubBuffer(whole, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                       &(cl_buffer_region){ need.alignment, need.bytes }, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateSubBuffer: %d", (int)error);
    for (size_t n = 0; n < 3; n++)
        cr_assert_eq(mha_attention_enqueue(attention, &tensors[n].args, &call), MHA_OK, "%s",
                     d->sentence);
    for (size_t n = 0; n < 3; n++) {
        attention_collect(d, data[n], &tensors[n]);
        attention_compare(data[n], NULL);
        attention_data_free(data[n]);
    }
    clReleaseMemObject(call.workspace);
    mha_attention_destroy(&attention);
    device_forget(d);
}

Test(attention_calls, calls_share_a_workspace)
{
    device d;
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++)
        check_workspace(&d, way);
    device_close(&d);
}

/* Decoding: one object, a longer cache at each call, lengths that are packed at the call's. */
static void check_growing(device *d, size_t way)
{
    const attention_case given = { .desc = { ATTENTION_SIZES(2, 4, 3, 70, 33), .kv_heads = 2,
                                             .value_dim = 17, .diagonal = MHA_BOTTOM_RIGHT,
                                             .uses =
                                                 MHA_USES_CAUSAL | MHA_USES_LSE | MHA_USES_PROBS },
                                   .seed = 81 };
    attention_case c = attention_by_way(&given, way);
    attention_data *largest = attention_data_new(&c);
    mha_attention *attention = create(d, largest);
    attention_data_free(largest);
    for (c.key_len = 3; c.key_len <= 70; c.key_len += 13) {
        c.query_len = 1 + c.key_len % 3;
        attention_data *data = attention_data_new(&c);
        attention_data_spoil(data);
        attention_data_expect(data);
        const attention_tensors tensors = attention_place(d, data);
        const mha_call call = device_call(d, mha_attention_workspace(attention));
        cr_assert_eq(mha_attention_enqueue(attention, &tensors.args, &call), MHA_OK, "%s: %s",
                     data->name, d->sentence);
        attention_collect(d, data, &tensors);
        attention_compare(data, NULL);
        attention_data_free(data);
        device_forget(d);
    }
    mha_attention_destroy(&attention);
}

Test(attention_calls, lengths_of_the_call)
{
    device d;
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++)
        check_growing(&d, way);
    device_close(&d);
}

/* Each number of queries that a tile of any kernel may be left with: no row is written but these,
 * in a buffer where the next head's rows follow at once. */
Test(attention_calls, every_number_of_queries)
{
    enum {
        MOST = 64
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++)
        for (size_t queries = 1; queries <= MOST; queries++) {
            const attention_case given = { .desc = { ATTENTION_SIZES(2, 2, MOST, 5, 3),
                                                     .uses = MHA_USES_LSE },
                                           .query_len = queries,
                                           .seed = 400 + queries };
            const attention_case c = attention_by_way(&given, way);
            attention_check(&d, &c, &worst);
        }
    compare_log("every number of queries", ATTENTION_ALL_WAYS * MOST, &worst);
    device_close(&d);
}
