/* How right and how fast a problem runs: verification, times, stages, and what to divide by. */
#define _POSIX_C_SOURCE 200809L
#include "measure.h"

#include "reference.h"
#include "stored.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS 9
#define PROFILED_CALLS 5

static mha_status make_queue(const problem_ready *ready, cl_command_queue_properties properties,
                             cl_command_queue *queue)
{
    cl_int status;
    *queue = clCreateCommandQueue(mha_context_cl(ready->context),
                                  mha_context_device(ready->context), properties, &status);
    return status;
}

/* One call, and waits for it. */
static mha_status run_once(const problem_ready *ready, cl_command_queue queue)
{
    mha_status status = problem_enqueue(ready, queue, NULL, NULL);
    const cl_int finished = clFinish(queue);
    return status ? status : finished;
}

/* The outputs follow each other in problem_slot. */
#define NUM_OUTPUTS (PROBLEM_SLOTS - PROBLEM_OUTPUT)

/* What is not written stays NaN, which no comparison passes. */
static mha_status poison_outputs(const problem_ready *ready, cl_command_queue queue)
{
    const cl_ushort nan = 0xffff; /* twice it is a NaN too */
    cl_int status = CL_SUCCESS;
    for (int slot = PROBLEM_OUTPUT; !status && slot < PROBLEM_SLOTS; slot++) {
        const problem_tensor *tensor = &ready->tensors[slot];
        if (tensor->count)
            status = clEnqueueFillBuffer(queue, tensor->memory, &nan, sizeof nan, 0,
                                         tensor->count * tensor->item_bytes, 0, NULL, NULL);
    }
    return status;
}

/* Computes the outputs that are used into new arrays. */
static mha_status run_reference(const problem_ready *ready, double *wanted[NUM_OUTPUTS])
{
    const problem_tensor *t = ready->tensors;
    for (int i = 0; i < NUM_OUTPUTS; i++) {
        if (!t[PROBLEM_OUTPUT + i].used)
            continue;
        wanted[i] = calloc(t[PROBLEM_OUTPUT + i].count + 1, sizeof *wanted[i]);
        if (!wanted[i])
            return MHA_OUT_OF_HOST_MEMORY;
    }
    const reference_args args = {
        .query = t[PROBLEM_QUERY].host,
        .key = t[ready->is_self ? PROBLEM_QUERY : PROBLEM_KEY].host,
        .value = t[ready->is_self ? PROBLEM_QUERY : PROBLEM_VALUE].host,
        .bias = t[PROBLEM_BIAS].host,
        .mask = t[PROBLEM_MASK].host,
        .key_lengths = t[PROBLEM_LENGTHS].host,
        .key_lengths_per_query = t[PROBLEM_LENGTHS_PER_QUERY].host,
        .key_starts = t[PROBLEM_STARTS].host,
        .slopes = t[PROBLEM_SLOPES].host,
        .sinks = t[PROBLEM_SINKS].host,
        .output = wanted[0],
        .probs = wanted[PROBLEM_PROBS - PROBLEM_OUTPUT],
        .lse = wanted[PROBLEM_LSE - PROBLEM_OUTPUT],
    };
    const reference_layer_weights weights = {
        .query = t[PROBLEM_WEIGHT_QUERY].host,
        .key = t[PROBLEM_WEIGHT_KEY].host,
        .value = t[PROBLEM_WEIGHT_VALUE].host,
        .output = t[PROBLEM_WEIGHT_OUTPUT].host,
        .bias_query = t[PROBLEM_BIAS_QUERY].host,
        .bias_key = t[PROBLEM_BIAS_KEY].host,
        .bias_value = t[PROBLEM_BIAS_VALUE].host,
        .bias_output = t[PROBLEM_BIAS_OUTPUT].host,
    };
    if (ready->is_layer)
        reference_layer(&ready->desc, &weights, &args);
    else
        reference_attention(&ready->desc.attention, &args);
    return MHA_OK;
}

/* How many numbers are summed on the way to an output element, one sum after the other. */
static size_t summed_length(const problem_ready *ready)
{
    const mha_layer_desc *layer = &ready->desc;
    const mha_attention_desc *d = &layer->attention;
    size_t length = d->head_dim + d->key_len;
    if (ready->is_layer)
        length +=
            layer->query_width + layer->key_width + layer->value_width + d->heads * d->value_dim;
    return length;
}

/* The element that is worst by its limit: what float32 sums may lose, and the rounding of the
 * result to its type. */
static measure_error compare(const float *got, const double *want, size_t count, size_t length,
                             mha_type type)
{
    double largest = 1; /* the size of the data: outputs are smaller where values cancel out */
    for (size_t i = 0; i < count; i++)
        largest = isfinite(want[i]) ? fmax(largest, fabs(want[i])) : largest;
    const double sums = reference_limit(length, largest);
    measure_error worst = { .limit = sums };
    for (size_t i = 0; i < count; i++) {
        const double limit = sums + stored_limit(type, want[i]);
        const double difference = got[i] == want[i] ? 0 : fabs(got[i] - want[i]);
        const double error = isfinite(difference) ? difference : INFINITY;
        if (error / limit > worst.error / worst.limit)
            worst = (measure_error){ .error = error, .limit = limit };
    }
    return worst;
}

/* Reads an output back into floats in the order of its shape. */
static mha_status read_output(const problem_tensor *tensor, cl_command_queue queue, float *got)
{
    float *const moved = calloc(tensor->count, sizeof *moved);
    void *const stored = calloc(tensor->count, tensor->item_bytes);
    cl_int status = MHA_OUT_OF_HOST_MEMORY;
    if (moved && stored)
        status = clEnqueueReadBuffer(queue, tensor->memory, CL_TRUE, 0,
                                     tensor->count * tensor->item_bytes, stored, 0, NULL, NULL);
    if (!status) {
        stored_unpack(tensor->type, moved, stored, tensor->count);
        problem_reorder(tensor, moved, got, false);
    }
    free(moved);
    free(stored);
    return status;
}

/* Reads one output back and compares it; keeps the result in *out if it is the worst so far. */
static mha_status compare_output(const problem_ready *ready, cl_command_queue queue, int slot,
                                 const double *want, measure_error *out)
{
    const problem_tensor *tensor = &ready->tensors[slot];
    if (!tensor->count)
        return MHA_OK;
    float *got = calloc(tensor->count, sizeof *got);
    if (!got)
        return MHA_OUT_OF_HOST_MEMORY;
    const mha_status status = read_output(tensor, queue, got);
    if (!status) {
        const measure_error found =
            compare(got, want, tensor->count, summed_length(ready), tensor->type);
        if (out->limit == 0 || found.error / found.limit > out->error / out->limit)
            *out = found;
    }
    free(got);
    return status;
}

mha_status measure_verify(const problem_ready *ready, measure_error *out)
{
    double *wanted[NUM_OUTPUTS] = { NULL };
    cl_command_queue queue;
    *out = (measure_error){ 0 };
    mha_status status = make_queue(ready, 0, &queue);
    if (status)
        return status;
    status = poison_outputs(ready, queue);
    if (!status)
        status = run_once(ready, queue);
    if (!status)
        status = run_reference(ready, wanted);
    for (int i = 0; i < NUM_OUTPUTS; i++) {
        if (!status && wanted[i])
            status = compare_output(ready, queue, PROBLEM_OUTPUT + i, wanted[i], out);
        free(wanted[i]);
    }
    clReleaseCommandQueue(queue);
    return status;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* One run: the time of a call among `calls` that are queued one behind the other. */
static mha_status time_run(const problem_ready *ready, cl_command_queue queue, size_t calls,
                           double *call_ms)
{
    mha_status status = MHA_OK;
    const double start = now_ms();
    for (size_t i = 0; !status && i < calls; i++)
        status = problem_enqueue(ready, queue, NULL, NULL);
    const cl_int finished = clFinish(queue);
    *call_ms = (now_ms() - start) / (double)calls;
    return status ? status : finished;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* All runs with the same number of calls, sorted by time. */
static mha_status time_runs(const problem_ready *ready, cl_command_queue queue, size_t calls,
                            double times[RUNS])
{
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < RUNS; i++)
        status = time_run(ready, queue, calls, &times[i]);
    qsort(times, RUNS, sizeof times[0], compare_doubles);
    return status;
}

mha_status measure_speed(const problem_ready *ready, double min_seconds, measure_time *out)
{
    const double enough_ms = min_seconds * 1e3;
    double times[RUNS] = { 0 };
    cl_command_queue queue;
    size_t calls = 1;
    *out = (measure_time){ 0 };
    mha_status status = make_queue(ready, 0, &queue);
    if (status)
        return status;
    status = run_once(ready, queue);
    while (!status) {
        status = time_runs(ready, queue, calls, times);
        const double shortest_ms = times[0] * (double)calls;
        if (status || shortest_ms >= enough_ms)
            break;
        /* At most tenfold, as the first runs are the least certain, and a clock may say 0. */
        const double factor = shortest_ms > 0 ? 1.1 * enough_ms / shortest_ms : 10;
        calls = (size_t)ceil((double)calls * fmin(factor, 10));
    }
    *out = (measure_time){ .min_ms = times[0], .median_ms = times[RUNS / 2] };
    clReleaseCommandQueue(queue);
    return status;
}

struct told {
    const char *stage, *what;
    cl_event event;
};

/* The stages that one call told of. */
typedef struct stage_log {
    size_t count, capacity;
    struct told *told;
    bool out_of_memory;
} stage_log;

static void note_stage(void *data, const char *stage, const char *what, cl_event event)
{
    stage_log *log = data;
    if (log->count == log->capacity) {
        const size_t capacity = log->capacity ? 2 * log->capacity : 16;
        struct told *told = realloc(log->told, capacity * sizeof *told);
        if (!told) {
            log->out_of_memory = true;
            return;
        }
        log->told = told;
        log->capacity = capacity;
    }
    clRetainEvent(event);
    log->told[log->count++] = (struct told){ .stage = stage, .what = what, .event = event };
}

static void forget_stages(stage_log *log)
{
    for (size_t i = 0; i < log->count; i++)
        clReleaseEvent(log->told[i].event);
    log->count = 0;
}

static mha_status event_ms(cl_event event, double *ms)
{
    cl_ulong start = 0;
    cl_ulong end = 0;
    cl_int status =
        clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL);
    if (!status)
        status = clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
    *ms = (double)(end - start) * 1e-6;
    return status;
}

/* Keeps the shortest time of each stage; the first call says which stages there are, and a problem
 * queues the same ones each time. */
static mha_status keep_shortest(const stage_log *log, report_stage **stages, size_t *num_stages)
{
    const bool is_first = !*stages;
    if (is_first) {
        *stages = calloc(log->count + 1, sizeof **stages);
        *num_stages = log->count;
    }
    if (!*stages || log->out_of_memory)
        return MHA_OUT_OF_HOST_MEMORY;
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < *num_stages && i < log->count; i++) {
        double ms;
        status = event_ms(log->told[i].event, &ms);
        (*stages)[i] = (report_stage){
            .stage = log->told[i].stage,
            .what = log->told[i].what,
            .ms = is_first ? ms : fmin(ms, (*stages)[i].ms),
        };
    }
    return status;
}

mha_status measure_stages(const problem_ready *ready, report_stage **stages, size_t *num_stages)
{
    stage_log log = { 0 };
    cl_command_queue queue;
    *stages = NULL;
    *num_stages = 0;
    mha_status status = make_queue(ready, CL_QUEUE_PROFILING_ENABLE, &queue);
    if (status)
        return status;
    status = run_once(ready, queue);
    for (int i = 0; !status && i < PROFILED_CALLS; i++) {
        status = problem_enqueue(ready, queue, note_stage, &log);
        if (!status)
            status = clFinish(queue);
        if (!status)
            status = keep_shortest(&log, stages, num_stages);
        forget_stages(&log);
    }
    clFinish(queue);
    clReleaseCommandQueue(queue);
    free(log.told);
    return status;
}

/* How many keys query i of batch b sees by lengths, causal and windows: an interval. */
static double seen_keys(const problem_ready *ready, size_t b, size_t i)
{
    const mha_attention_desc *d = &ready->desc.attention;
    const int32_t *lengths = ready->tensors[PROBLEM_LENGTHS].host;
    const int32_t *per_query = ready->tensors[PROBLEM_LENGTHS_PER_QUERY].host;
    const int32_t *starts = ready->tensors[PROBLEM_STARTS].host;
    const int64_t length = lengths ? lengths[b] : (int64_t)d->key_len;
    const int64_t diagonal =
        (int64_t)i + (d->diagonal == MHA_BOTTOM_RIGHT ? length - (int64_t)d->query_len : 0);
    int64_t first = starts ? starts[b] : 0;
    int64_t end = length;
    if (per_query && per_query[b * d->query_len + i] < end)
        end = per_query[b * d->query_len + i];
    if (d->uses & MHA_USES_CAUSAL && diagonal + 1 < end)
        end = diagonal + 1;
    if (d->uses & MHA_USES_WINDOW_RIGHT && diagonal + (int64_t)d->window_right + 1 < end)
        end = diagonal + (int64_t)d->window_right + 1;
    if (d->uses & MHA_USES_WINDOW_LEFT && diagonal - (int64_t)d->window_left > first)
        first = diagonal - (int64_t)d->window_left;
    return end > first ? (double)(end - first) : 0;
}

/* Multiplications that go with an addition in the layer's projections of one batch. */
static double projected_products(const mha_layer_desc *layer)
{
    const mha_attention_desc *d = &layer->attention;
    const double queries = (double)d->query_len;
    const double keys = (double)d->key_len;
    double products = queries * (double)layer->query_width * (double)(d->heads * d->head_dim);
    products += keys * (double)layer->key_width * (double)(d->kv_heads * d->head_dim);
    products += keys * (double)layer->value_width * (double)(d->kv_heads * d->value_dim);
    if (!(layer->flags & MHA_LAYER_MERGED_OUTPUT))
        products += queries * (double)(d->heads * d->value_dim) * (double)layer->output_width;
    return products;
}

double measure_flops(const problem_ready *ready)
{
    const mha_attention_desc *d = &ready->desc.attention;
    double pairs = 0;
    for (size_t b = 0; b < d->batch; b++)
        for (size_t i = 0; i < d->query_len; i++)
            pairs += seen_keys(ready, b, i);
    double products = pairs * (double)d->heads * (double)(d->head_dim + d->value_dim);
    if (ready->is_layer)
        products += (double)d->batch * projected_products(&ready->desc);
    return 2 * products;
}

double measure_bytes(const problem_ready *ready)
{
    double bytes = 0;
    for (int slot = 0; slot < PROBLEM_SLOTS; slot++)
        bytes += (double)ready->tensors[slot].count * (double)ready->tensors[slot].item_bytes;
    return bytes;
}
