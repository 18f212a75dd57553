/* mha-bench: verifies and times problems on any device. */
#include "bench_options.h"
#include "bench_tasks.h"
#include "count.h"
#include "device.h"
#include "measure.h"
#include "os.h"
#include "plot.h"
#include "roofline.h"
#include "verify.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench {
    bench_options asked;
    bool tells_progress;
    bench_tasks tasks;
    roofline *limits; /* NULL: they are not asked for, or cannot be measured */
    plot *drawing;    /* NULL: none is asked for */
    size_t num_invalid;
} bench;

#define WORD_SIZE 256

/* Copies NAME of the line "path NAME: ..." of an explanation. */
static void find_path(const char *explanation, char *name, size_t size)
{
    for (const char *line = explanation; *line; line += *line == '\n') {
        const size_t length = strcspn(line, "\n");
        if (!strncmp(line, "path ", 5)) {
            snprintf(name, size, "%.*s", (int)strcspn(line + 5, ":\n"), line + 5);
            return;
        }
        line += length;
    }
}

/* The tiling by the kernel's name, which an explanation of the streaming and decode paths says. */
static const char *find_tiling(const char *explanation)
{
    static const struct {
        const char *kernel, *tiling;
    } kernels[] = {
        { "kernel attend_cpu", "cpu" },
        { "kernel attend_gpu", "gpu" },
        { "kernel decode_cpu", "cpu" },
        { "kernel decode_gpu", "gpu" },
    };
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (strstr(explanation, kernels[i].kernel))
            return kernels[i].tiling;
    return "-";
}

static const char *type_name(mha_type type)
{
    return type == MHA_FLOAT16 ? "float16" : type == MHA_BFLOAT16 ? "bfloat16" : "float32";
}

/* Where the result stands below the device's limits, which are measured again: a machine that was
 * busy when it was done before may be quiet now. Without them there are times still. */
static void compare_with_limits(const bench *self, const problem_ready *ready,
                                report_result *result)
{
    if (!self->limits)
        return;
    mha_status status = roofline_measure(self->limits);
    if (!status)
        status = roofline_read_rate(self->limits, count_bytes(ready), &result->peak_gbytes_per_s);
    result->has_peak = !status;
    result->peak_gflops = roofline_best(self->limits).gflops;
}

/* Times, rates, stages, and what share of the possible they are. */
static mha_status measure_all(const bench *self, const problem_ready *ready, report_result *result,
                              report_stage **stages)
{
    measure_time found;
    mha_status status = measure_speed(ready, self->asked.min_seconds, self->asked.runs, &found);
    if (!status)
        status = measure_stages(ready, stages, &result->num_stages);
    if (status)
        return status;
    result->is_timed = true;
    result->stages = *stages;
    result->min_ms = found.min_ms;
    result->median_ms = found.median_ms;
    result->gflops = count_flops(ready) / (found.min_ms * 1e6);
    result->gbytes_per_s = count_bytes(ready) / (found.min_ms * 1e6);
    if (ready->model)
        result->sentences_per_s = (double)ready->desc.attention.batch / (found.min_ms * 1e-3);
    compare_with_limits(self, ready, result);
    return MHA_OK;
}

/* The measurements that were asked for. *step says which one a failing status is of. */
static mha_status measure(const bench *self, const problem_ready *ready, report_result *result,
                          report_stage **stages, const char **step)
{
    mha_status status = MHA_OK;
    if (self->asked.verify) {
        verify_error found;
        *step = "verifying";
        status = verify(ready, &found);
        result->is_verified = !status;
        result->max_error = found.error;
        result->error_limit = found.limit;
    }
    if (!status && self->asked.speed) {
        *step = "timing";
        status = measure_all(self, ready, result, stages);
    }
    return status;
}

/* Returns the exit code of this problem. */
static int run_task(bench *self, mha_context *context, const bench_task *given, report *out)
{
    char word[WORD_SIZE];
    char path[32] = "-", reason[600];
    const char *step = "setting up";
    report_stage *stages = NULL;
    problem_ready *ready = NULL;
    const mha_attention_desc *const d = &given->subject.desc.attention;
    const mha_gemm_desc *const g = &given->subject.gemm;
    const bool is_gemm = given->subject.kind == KIND_GEMM;
    const mha_type type = is_gemm ? g->type : d->type;
    const mha_type second = is_gemm ? g->b_type : d->key_value_type;
    report_result result = {
        .problem = word,
        .type = type_name(type),
        .key_value_type = type_name(second ? second : type),
        .path = path,
        .tiling = "-",
        .may_skip = d->uses & MHA_USES_MASK,
    };
    word_print(&given->subject, word, sizeof word);
    if (self->tells_progress)
        fprintf(stderr, "%s", word);

    problem_options options = self->asked.problems;
    options.path = given->path;
    mha_status status =
        problem_open(&ready, context, &given->subject, &options, reason, sizeof reason);
    result.is_skipped = status == MHA_UNSUPPORTED && given->path;
    char *explanation = ready ? problem_explain(ready) : NULL;
    if (explanation) {
        find_path(explanation, path, sizeof path);
        result.tiling = find_tiling(explanation);
    }
    if (self->asked.explain || self->asked.format == REPORT_JSON)
        result.explain = explanation;
    if (!status)
        status = measure(self, ready, &result, &stages, &step);
    if (self->tells_progress)
        fprintf(stderr, "\r\033[K");
    if (result.is_skipped) {
        status = MHA_OK; /* the library has said why */
    } else if (status) {
        fprintf(stderr, "%s: %s: %s: %s, %s\n", bench_tool, word, step, mha_status_name(status),
                *reason ? reason : mha_status_text(status));
        result.failure = mha_status_name(status);
    }
    self->num_invalid += report_is_invalid(&result);
    if (self->drawing && !status && result.is_timed)
        plot_add(self->drawing, &given->subject, path, result.gflops, result.gbytes_per_s);
    const bool added = report_add(out, &result);
    if (!added)
        fprintf(stderr, "%s: %s: no memory for the result\n", bench_tool, word);
    problem_close(&ready);
    free(explanation);
    free(stages);
    return status || !added || report_is_wrong(&result) ? BENCH_BAD : BENCH_GOOD;
}

/* Of the library; takes the line of the progress. */
static void print_message(void *data, mha_log_level level, const char *text)
{
    const bench *self = data;
    (void)level;
    fprintf(stderr, "%s%s: %s\n", self->tells_progress ? "\r\033[K" : "", bench_tool, text);
}

static int run_tasks(bench *self, mha_context *context, report *out)
{
    int exit_code = BENCH_GOOD;
    for (size_t i = 0; i < self->tasks.count; i++) {
        if (self->tells_progress)
            fprintf(stderr, "%zu/%zu ", i + 1, self->tasks.count);
        if (run_task(self, context, &self->tasks.list[i], out))
            exit_code = BENCH_BAD;
    }
    return exit_code;
}

/* The limits, where times are asked for; without them there are times still. */
static void open_limits(bench *self, const mha_context *context, FILE *out)
{
    if (!self->asked.speed || self->asked.leaves_out_peak)
        return;
    mha_status status = roofline_open(&self->limits, context);
    if (!status)
        status = roofline_measure(self->limits);
    if (status) {
        fprintf(stderr, "%s: what the device can do at best was not measured: %s, %s\n", bench_tool,
                mha_status_name(status), mha_status_text(status));
        roofline_close(&self->limits);
        return;
    }
    const roofline_peaks peaks = roofline_best(self->limits);
    fprintf(out, "at best: %.1f GFLOP/s, %.1f GB/s", peaks.gflops, peaks.gbytes_per_s);
    if (peaks.cached_bytes > 0)
        fprintf(out, ", of up to %.0f KiB %.1f GB/s", peaks.cached_bytes / 1024,
                peaks.cached_gbytes_per_s);
    fputc('\n', out);
}

/* What is to be said of the whole, and the drawing. */
static int end(bench *self, const mha_device_info *info)
{
    if (self->num_invalid)
        fprintf(stderr,
                "%s: INVALID: %zu of the problems ran faster than the device's measured peak, so a "
                "time or the peak is wrong\n",
                bench_tool, self->num_invalid);
    if (!self->drawing)
        return BENCH_GOOD;
    const roofline_peaks peaks = self->limits ? roofline_best(self->limits) : (roofline_peaks){ 0 };
    char error[256];
    if (plot_draw(self->drawing, info->name, &peaks, error, sizeof error))
        return BENCH_GOOD;
    fprintf(stderr, "%s: --plot %s: %s\n", bench_tool, self->asked.plot, error);
    return BENCH_BAD;
}

static int run_in(bench *self, mha_context *context)
{
    FILE *const facts = self->asked.format == REPORT_TABLE ? stdout : stderr;
    mha_device_info info;
    if (mha_context_info(context, &info))
        return BENCH_BAD;
    device_print_line(facts, context);
    open_limits(self, context, facts);
    report *out = report_open(stdout, self->asked.format, info.name, info.platform_name,
                              bench_longest_word(&self->tasks));
    if (!out)
        return BENCH_BAD;
    int exit_code = run_tasks(self, context, out);
    if (!report_close(&out)) {
        fprintf(stderr, "%s: the results could not be written\n", bench_tool);
        exit_code = BENCH_BAD;
    }
    const int ended = end(self, &info);
    return exit_code ? exit_code : ended;
}

static int run(bench *self)
{
    const mha_log log = {
        .fn = print_message,
        .data = self,
        .level = self->asked.verbose > 1   ? MHA_LOG_DEBUG
                 : self->asked.verbose > 0 ? MHA_LOG_INFO
                                           : MHA_LOG_WARNING,
    };
    mha_context *context = device_open(self->asked.device, self->asked.cache, &log);
    if (!context)
        return BENCH_BAD;
    const int exit_code = run_in(self, context);
    roofline_close(&self->limits);
    mha_context_destroy(&context);
    return exit_code;
}

/* Before anything is measured: what is in the way of drawing is said now. */
static bool open_plot(bench *self, int *exit_code)
{
    char error[256];
    if (!self->asked.plot)
        return true;
    self->drawing = plot_open(self->asked.plot, self->tasks.count, error, sizeof error);
    if (self->drawing)
        return true;
    fprintf(stderr, "%s: --plot %s: %s\n", bench_tool, self->asked.plot, error);
    *exit_code = BENCH_BAD;
    return false;
}

int main(int argc, char **argv)
{
    bench self = { .asked = { .min_seconds = 0.02, .runs = 9, .problems.seed = 1 } };
    int exit_code = BENCH_BAD;
    if (!bench_read_options(&self.asked, argc, argv, &exit_code))
        return exit_code;
    if (self.asked.list_devices)
        return device_list(bench_tool, stdout);
    if (bench_read_tasks(&self.tasks, &self.asked, argv + optind, (size_t)(argc - optind),
                         &exit_code) &&
        open_plot(&self, &exit_code)) {
        self.tells_progress = self.tasks.count > 1 && os_is_terminal(stderr);
        exit_code = run(&self);
    }
    plot_close(&self.drawing);
    free(self.tasks.list);
    return exit_code;
}
