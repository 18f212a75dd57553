/* How fast a problem runs: times and stages. */
#include "measure.h"

#include "count.h"
#include "os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* One run: the time of a call among `calls` that are queued one behind the other. */
static mha_status time_run(const problem_ready *ready, cl_command_queue queue, size_t calls,
                           double *call_ms)
{
    mha_status status = MHA_OK;
    const double start = os_now_ms();
    for (size_t i = 0; !status && i < calls; i++)
        status = problem_enqueue(ready, queue, NULL, NULL);
    const cl_int finished = clFinish(queue);
    *call_ms = (os_now_ms() - start) / (double)calls;
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
                            size_t runs, double *times)
{
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < runs; i++)
        status = time_run(ready, queue, calls, &times[i]);
    qsort(times, runs, sizeof times[0], compare_doubles);
    return status;
}

mha_status measure_speed(const problem_ready *ready, double min_seconds, size_t runs,
                         measure_time *out)
{
    const double enough_ms = min_seconds * 1e3;
    cl_command_queue queue = NULL;
    size_t calls = 1;
    *out = (measure_time){ 0 };
    double *const times = calloc(runs, sizeof *times);
    mha_status status = times ? make_queue(ready, 0, &queue) : MHA_OUT_OF_HOST_MEMORY;
    if (!status)
        status = run_once(ready, queue);
    while (!status) {
        status = time_runs(ready, queue, calls, runs, times);
        const double shortest_ms = times[0] * (double)calls;
        if (status || shortest_ms >= enough_ms)
            break;
        /* At most tenfold, as the first runs are the least certain, and a clock may say 0. */
        const double factor = shortest_ms > 0 ? 1.1 * enough_ms / shortest_ms : 10;
        calls = (size_t)ceil((double)calls * fmin(factor, 10));
    }
    if (!status)
        *out = (measure_time){ .min_ms = times[0], .median_ms = times[runs / 2] };
    if (queue)
        clReleaseCommandQueue(queue);
    free(times);
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

/* Which stages are of a decoder's attention to its memory: those behind the norm that follows the
 * output of the attention to itself, to its own output. A step may be many commands. */
static void find_cross(report_stage *stages, size_t num_stages)
{
    static const char output[] = "project output";
    size_t i = 0;
    while (i < num_stages && strcmp(stages[i].stage, output) != 0)
        i++;
    while (i < num_stages && strcmp(stages[i].stage, "norm") != 0)
        i++;
    while (i < num_stages && !strcmp(stages[i].stage, "norm"))
        i++;
    for (; i < num_stages && strcmp(stages[i].stage, output) != 0; i++)
        stages[i].is_cross = true;
    for (; i < num_stages && !strcmp(stages[i].stage, output); i++)
        stages[i].is_cross = true;
}

/* Commands of one step share its work evenly: they are the same product of several batches. */
static void rate_stages(const problem_ready *ready, report_stage *stages, size_t num_stages)
{
    for (size_t i = 0; i < num_stages; i++) {
        double commands = 0;
        for (size_t k = 0; k < num_stages; k++)
            commands += stages[i].is_cross == stages[k].is_cross &&
                        !strcmp(stages[i].stage, stages[k].stage);
        stages[i].gflops = count_stage_flops(ready, stages[i].stage, stages[i].is_cross) /
                           commands / (stages[i].ms * 1e6);
    }
}

/* Makes one of the stages of a name that the layers of a model have in common. */
static void join_stages(report_stage *stages, size_t *num_stages)
{
    size_t count = 0;
    for (size_t i = 0; i < *num_stages; i++) {
        size_t k = 0;
        while (k < count && (strcmp(stages[k].stage, stages[i].stage) != 0 ||
                             strcmp(stages[k].what, stages[i].what) != 0))
            k++;
        if (k < count)
            stages[k].ms += stages[i].ms;
        else
            stages[count++] = stages[i];
    }
    *num_stages = count;
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
    if (!status && ready->model)
        join_stages(*stages, num_stages);
    if (!status && ready->decoder)
        find_cross(*stages, *num_stages);
    if (!status)
        rate_stages(ready, *stages, *num_stages);
    clFinish(queue);
    clReleaseCommandQueue(queue);
    free(log.told);
    return status;
}
