/* Threads that share one context and nothing else. */
#define _POSIX_C_SOURCE 200809L
#include "thread_load.h"

#include "fill.h"
#include "reference.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_THREADS = 16,
    NUM_SHAPES = 2,
    NUM_BUFFERS = 9, /* query, key, value, output, four weights or two caches, workspace */
    NUM_WEIGHTS = 4,
    TOKENS = 4, /* that join a cache at a time */
    MOST_POSITIONS = 2 * 300
};

/* Cases h35 and h36: remainders after any width of a vector or tile. */
static const mha_attention_desc shapes[NUM_SHAPES] = {
    { .batch = 2, .heads = 2, .query_len = 5, .key_len = 17, .head_dim = 33 },
    { .batch = 1, .heads = 3, .query_len = 9, .key_len = 65, .head_dim = 20 },
};

/* All tokens of a cache: many enough to be split, and as the attention above. */
static const mha_attention_desc cache_shapes[NUM_SHAPES] = {
    { .batch = 2,
      .heads = 2,
      .query_len = 300,
      .key_len = 300,
      .head_dim = 33,
      .uses = MHA_USES_CAUSAL,
      .diagonal = MHA_BOTTOM_RIGHT },
    { .batch = 1,
      .heads = 3,
      .query_len = 65,
      .key_len = 65,
      .head_dim = 20,
      .uses = MHA_USES_CAUSAL,
      .diagonal = MHA_BOTTOM_RIGHT },
};

/* One problem of one thread, with its data and what it is on the device. */
typedef struct task {
    thread_kind kind;
    mha_layer_desc desc; /* of an attention, desc.attention only */
    size_t query_count, key_count, weight_count;
    float *query, *key, *value, *weights[NUM_WEIGHTS], *want, *got;
    mha_attention *attention;
    mha_layer *layer;
    cl_mem buffers[NUM_BUFFERS];
    mha_attention_args args;
    mha_call call;
    int32_t positions[MOST_POSITIONS]; /* [steps][batch], for as long as calls are in flight */
} task;

typedef struct worker {
    const thread_load *load;
    mha_context *context;
    pthread_barrier_t *start;
    task tasks[NUM_SHAPES];
    unsigned number;
    char error[256];
} worker;

/* The first sentence that the library said. */
typedef struct keeper {
    pthread_mutex_t lock;
    char text[256];
} keeper;

static void keep(void *data, mha_log_level level, const char *text)
{
    keeper *kept = data;
    (void)level;
    pthread_mutex_lock(&kept->lock);
    if (!kept->text[0])
        snprintf(kept->text, sizeof kept->text, "%s", text);
    pthread_mutex_unlock(&kept->lock);
}

const char *thread_kind_name(thread_kind kind)
{
    static const char *const names[THREAD_KINDS] = { "attention", "layer", "host arrays", "cache" };
    return names[kind];
}

static float *fill(size_t count, uint64_t seed, float largest)
{
    float *data = malloc(count * sizeof *data);
    if (!data)
        abort();
    fill_uniform(data, count, seed, -largest, largest);
    return data;
}

static void make_task(task *t, const thread_load *load, unsigned thread, size_t shape)
{
    const uint64_t seed = 100 * thread + 10 * shape;
    *t = (task){ .kind = load->kind };
    t->desc.attention = load->kind == THREAD_CACHE ? cache_shapes[shape] : shapes[shape];
    t->desc.attention.gemm = t->desc.projection = load->by;
    const mha_attention_desc *d = &t->desc.attention;
    const size_t width = d->heads * d->head_dim;
    t->query_count = d->batch * d->query_len * width;
    t->key_count = d->batch * d->key_len * width;
    t->weight_count = width * width;
    t->query = fill(t->query_count, seed + 1, 1);
    t->key = fill(t->key_count, seed + 2, 1);
    t->value = fill(t->key_count, seed + 3, 1);
    for (size_t i = 0; i < NUM_WEIGHTS; i++)
        t->weights[i] = fill(t->weight_count, seed + 4 + i, 0.2f);
    t->want = fill(t->query_count, 0, 0);
    t->got = fill(t->query_count, 0, 0);
}

static void free_task(task *t)
{
    free(t->query);
    free(t->key);
    free(t->value);
    for (size_t i = 0; i < NUM_WEIGHTS; i++)
        free(t->weights[i]);
    free(t->want);
    free(t->got);
}

static cl_mem upload(mha_context *context, const float *data, size_t count, mha_status *status)
{
    if (*status)
        return NULL;
    return clCreateBuffer(mha_context_cl(context), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                          count * sizeof *data, (void *)(uintptr_t)data, status);
}

static mha_status load_weights(task *t, mha_context *context)
{
    mha_status status = MHA_OK;
    for (size_t i = 0; i < NUM_WEIGHTS; i++)
        t->buffers[4 + i] = upload(context, t->weights[i], t->weight_count, &status);
    const mha_layer_weights weights = {
        .query.buffer = t->buffers[4],
        .key.buffer = t->buffers[5],
        .value.buffer = t->buffers[6],
        .output.buffer = t->buffers[7],
    };
    return status ? status : mha_layer_load(t->layer, &weights, &t->call);
}

static mha_status create(task *t, mha_context *context)
{
    mha_attention_desc desc = t->desc.attention;
    if (t->kind == THREAD_LAYER)
        return mha_layer_create(&t->layer, context, &t->desc);
    if (t->kind == THREAD_CACHE) {
        desc.uses |= MHA_USES_APPEND;
        desc.query_len = desc.new_len = TOKENS;
    }
    return mha_attention_create(&t->attention, context, &desc);
}

/* The caches begin as something else than keys and values. */
static mha_status make_caches(task *t, mha_context *context)
{
    mha_status status = MHA_OK;
    t->buffers[4] = upload(context, t->query, t->key_count, &status);
    t->buffers[5] = upload(context, t->query, t->key_count, &status);
    return status;
}

/* The objects and the memory of a task, in the calling thread. */
static mha_status open_task(task *t, mha_context *context, cl_command_queue queue)
{
    const bool is_layer = t->kind == THREAD_LAYER;
    mha_status status = create(t, context);
    if (status)
        return status;
    const mha_workspace need =
        is_layer ? mha_layer_workspace(t->layer) : mha_attention_workspace(t->attention);
    t->buffers[0] = upload(context, t->query, t->query_count, &status);
    t->buffers[1] = upload(context, t->key, t->key_count, &status);
    t->buffers[2] = upload(context, t->value, t->key_count, &status);
    t->buffers[3] = upload(context, t->got, t->query_count, &status);
    if (!status && need.bytes)
        t->buffers[8] =
            clCreateBuffer(mha_context_cl(context), CL_MEM_READ_WRITE, need.bytes, NULL, &status);
    t->call = (mha_call){ .queue = queue, .workspace = t->buffers[8] };
    t->args = (mha_attention_args){
        .query.buffer = t->buffers[0],
        .key.buffer = t->buffers[1],
        .value.buffer = t->buffers[2],
        .output.buffer = t->buffers[3],
    };
    if (!status && is_layer)
        status = load_weights(t, context);
    if (!status && t->kind == THREAD_CACHE)
        status = make_caches(t, context);
    return status;
}

static void close_task(task *t)
{
    mha_attention_destroy(&t->attention);
    mha_layer_destroy(&t->layer);
    for (size_t i = 0; i < NUM_BUFFERS; i++) {
        if (t->buffers[i])
            clReleaseMemObject(t->buffers[i]);
        t->buffers[i] = NULL;
    }
}

/* Rows of [batch][heads][len][dim] from row `first` on. */
static mha_tensor rows_from(const task *t, size_t buffer, size_t first)
{
    const mha_attention_desc *d = &t->desc.attention;
    const size_t head = d->key_len * d->head_dim;
    return (mha_tensor){ .buffer = t->buffers[buffer],
                         .offset = first * d->head_dim,
                         .strides = { d->heads * head, head, d->head_dim, 1 } };
}

/* All tokens, some at a time. */
static mha_status generate(task *t)
{
    const mha_attention_desc *d = &t->desc.attention;
    mha_status status = MHA_OK;
    for (size_t first = 0; !status && first < d->key_len; first += TOKENS) {
        const size_t rest = d->key_len - first;
        int32_t *positions = t->positions + first / TOKENS * d->batch;
        for (size_t b = 0; b < d->batch; b++)
            positions[b] = (int32_t)first;
        const mha_attention_args args = {
            .query_len = rest < TOKENS ? rest : TOKENS,
            .new_len = rest < TOKENS ? rest : TOKENS,
            .query = rows_from(t, 0, first),
            .new_key = rows_from(t, 1, first),
            .new_value = rows_from(t, 2, first),
            .output = rows_from(t, 3, first),
            .key = rows_from(t, 4, 0),
            .value = rows_from(t, 5, 0),
            .append_positions.host = positions,
        };
        status = mha_attention_enqueue(t->attention, &args, &t->call);
    }
    return status;
}

/* One call, or all of a cache, the result in `out`. */
static mha_status run_task(task *t, float *out)
{
    if (t->kind == THREAD_HOST) {
        const mha_host_args args = {
            .query.data = t->query, .key.data = t->key, .value.data = t->value, .output.data = out
        };
        return mha_attention_run(t->attention, &args);
    }
    mha_status status = t->kind == THREAD_CACHE ? generate(t)
                        : t->kind == THREAD_LAYER
                            ? mha_layer_enqueue(t->layer, &t->args, &t->call)
                            : mha_attention_enqueue(t->attention, &t->args, &t->call);
    if (!status)
        status = clEnqueueReadBuffer(t->call.queue, t->buffers[3], CL_TRUE, 0,
                                     t->query_count * sizeof *out, out, 0, NULL, NULL);
    return status;
}

static void note(worker *w, const char *what, unsigned round, mha_status status)
{
    if (!w->error[0])
        snprintf(w->error, sizeof w->error, "thread %u, round %u: %s: %s", w->number, round, what,
                 mha_status_name(status));
}

static bool is_near(const task *t)
{
    double *want = calloc(t->query_count, sizeof *want);
    if (!want)
        abort();
    const reference_layer_weights weights = { .query = t->weights[0],
                                              .key = t->weights[1],
                                              .value = t->weights[2],
                                              .output = t->weights[3] };
    const reference_args args = {
        .query = t->query, .key = t->key, .value = t->value, .output = want
    };
    if (t->kind == THREAD_LAYER)
        reference_layer(&t->desc, &weights, &args);
    else
        reference_attention(&t->desc.attention, &args);
    const double limit = reference_limit(400, 4);
    bool near = true;
    for (size_t i = 0; i < t->query_count; i++)
        near = near && fabs(want[i] - t->want[i]) <= limit;
    free(want);
    return near;
}

/* All that one thread does; `to_keep`: the results are those to compare with. */
static void work(worker *w, bool to_keep)
{
    cl_int error = CL_SUCCESS;
    cl_command_queue queue =
        clCreateCommandQueue(mha_context_cl(w->context), mha_context_device(w->context), 0, &error);
    if (error)
        note(w, "queue", 0, error);
    for (size_t i = 0; !w->error[0] && i < NUM_SHAPES; i++) {
        /* Every other thread begins with the other shape. */
        const mha_status status =
            open_task(&w->tasks[(w->number + i) % NUM_SHAPES], w->context, queue);
        if (status)
            note(w, "create", 0, status);
    }
    const unsigned rounds = to_keep ? NUM_SHAPES : w->load->rounds;
    for (unsigned round = 0; !w->error[0] && round < rounds; round++) {
        task *t = &w->tasks[(w->number + round) % NUM_SHAPES];
        const mha_status status = run_task(t, to_keep ? t->want : t->got);
        if (status)
            note(w, "call", round, status);
        else if (to_keep && !is_near(t))
            note(w, "the result is wrong in a single thread", round, MHA_OK);
        else if (!to_keep && memcmp(t->got, t->want, t->query_count * sizeof *t->got))
            note(w, "the result differs from the single-threaded one", round, MHA_OK);
    }
    for (size_t i = 0; i < NUM_SHAPES; i++)
        close_task(&w->tasks[i]);
    if (queue)
        clReleaseCommandQueue(queue);
}

static void *start_worker(void *data)
{
    worker *w = data;
    pthread_barrier_wait(w->start);
    work(w, false);
    return NULL;
}

static void run_threads(worker *workers, const thread_load *load)
{
    pthread_t threads[MOST_THREADS];
    pthread_barrier_t start;
    if (pthread_barrier_init(&start, NULL, load->threads))
        abort();
    for (unsigned i = 0; i < load->threads; i++) {
        workers[i].start = &start;
        if (pthread_create(&threads[i], NULL, start_worker, &workers[i]))
            abort();
    }
    for (unsigned i = 0; i < load->threads; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
}

/* Opens a context, lets all work on it, one after the other or at once, and closes it. */
static bool run_all(worker *workers, const thread_load *load, bool at_once, char *error,
                    size_t error_size)
{
    keeper kept = { .lock = PTHREAD_MUTEX_INITIALIZER };
    const mha_context_options options = {
        .cache_dir = load->cache_dir,
        .log = { .fn = keep, .data = &kept },
    };
    mha_context *context = NULL;
    const mha_status status = mha_context_create(&context, &options);
    for (unsigned i = 0; !status && i < load->threads; i++)
        workers[i].context = context;
    if (!status && at_once)
        run_threads(workers, load);
    for (unsigned i = 0; !status && !at_once && i < load->threads; i++)
        work(&workers[i], true);
    mha_context_destroy(&context);
    if (status)
        snprintf(error, error_size, "no context: %s", kept.text);
    for (unsigned i = 0; i < load->threads && !error[0]; i++)
        if (workers[i].error[0])
            snprintf(error, error_size, "%s%s%s", workers[i].error, kept.text[0] ? ": " : "",
                     kept.text);
    if (!error[0] && kept.text[0])
        snprintf(error, error_size, "the library says: %s", kept.text);
    return !error[0];
}

bool thread_load_run(const thread_load *load, char *error, size_t error_size)
{
    static worker workers[MOST_THREADS];
    error[0] = '\0';
    if (load->threads > MOST_THREADS)
        abort();
    for (unsigned i = 0; i < load->threads; i++) {
        workers[i] = (worker){ .load = load, .number = i };
        for (size_t shape = 0; shape < NUM_SHAPES; shape++)
            make_task(&workers[i].tasks[shape], load, i, shape);
    }
    const bool ok = run_all(workers, load, false, error, error_size) &&
                    run_all(workers, load, true, error, error_size);
    for (unsigned i = 0; i < load->threads; i++)
        for (size_t shape = 0; shape < NUM_SHAPES; shape++)
            free_task(&workers[i].tasks[shape]);
    return ok;
}
