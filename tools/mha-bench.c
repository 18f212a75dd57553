/* mha-bench: verifies and times problems on any device. */
#define _POSIX_C_SOURCE 200809L
#include "bench_options.h"
#include "count.h"
#include "device.h"
#include "measure.h"
#include "verify.h"
#include "word.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Each kind of problem once: small enough for a CPU, and odd on purpose. 0: the library's path. */
static const struct {
    const char *word;
    mha_path path;
} sweep[] = {
    { "b2h5q4k6d20l", 0 }, /* the article's attention */
    { "b1h8q128k128d64", MHA_PATH_STREAMING },
    { "b1h8q128k128d64", MHA_PATH_COMPOSED },
    { "b1h8q128k128d64c", 0 },
    { "b1h8q128k128d64ctf16", 0 },
    { "b2h8q64k64d64ntbf16", 0 },
    { "b4h8q1k256d64l", 0 }, /* decoding */
    { "b4h8q1k256d64g2ltkf16", 0 },
    { "b4h8q1k256d64g2cb+1@r", 0 }, /* with a cache */
    { "b2h4q1k40d64cbwl30+1@Rtkf16", 0 },
    { "b3h4q40k40d64cbV", 0 }, /* sequences end to end */
    { "b2h4q40k40d64D0.1", 0 },
    { "b2h4q60k100d64cbl", 0 },
    { "b2h8q64k64d64g2c", 0 },
    { "b2h3q17k33d15v31L", 0 },
    { "b2h4q33k70d80cbPASe", 0 },
    { "b2h4q48k65d32ahqkpe", 0 },
    { "b2h4q48k65d32mbkcwl16s30", 0 },
    { "layer-b2h5q4k6e100l", 0 }, /* the article's layer */
    { "layer-b2h8q64k64e512BT", 0 },
    { "gemm-m33n70k40", 0 },
};

/* One problem, and the path that it is for. */
typedef struct task {
    problem subject;
    mha_path path;
} task;

typedef struct bench {
    bench_options asked;
    bool tells_progress;
    task *tasks;
    size_t num_tasks;
} bench;

#define WORD_SIZE 256

/* The words, or the sweep where there are none. */
static bool read_words(bench *self, char **words, size_t count, int *exit_code)
{
    self->num_tasks = count ? count : sizeof sweep / sizeof sweep[0];
    self->tasks = calloc(self->num_tasks, sizeof *self->tasks);
    if (!self->tasks) {
        fprintf(stderr, "%s: the host is out of memory\n", bench_tool);
        *exit_code = BENCH_BAD;
        return false;
    }
    self->tells_progress = self->num_tasks > 1 && isatty(STDERR_FILENO);
    for (size_t i = 0; i < self->num_tasks; i++) {
        char error[WORD_SIZE] = "";
        task *const made = &self->tasks[i];
        const mha_path asked = self->asked.problems.path;
        made->path = count || asked ? asked : sweep[i].path;
        if (!word_parse(count ? words[i] : sweep[i].word, &made->subject, error, sizeof error)) {
            fprintf(stderr, "%s: %s\n%s", bench_tool, error, bench_usage);
            *exit_code = BENCH_USAGE;
            return false;
        }
    }
    return true;
}

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

/* The tiling by the kernel's name, which an explanation of the streaming path says. */
static const char *find_tiling(const char *explanation)
{
    return strstr(explanation, "kernel attend_cpu")   ? "cpu"
           : strstr(explanation, "kernel attend_gpu") ? "gpu"
                                                      : "-";
}

static const char *type_name(mha_type type)
{
    return type == MHA_FLOAT16 ? "float16" : type == MHA_BFLOAT16 ? "bfloat16" : "float32";
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
        measure_time found;
        *step = "timing";
        status = measure_speed(ready, self->asked.min_seconds, self->asked.runs, &found);
        if (!status)
            status = measure_stages(ready, stages, &result->num_stages);
        result->is_timed = !status;
        result->stages = *stages;
        result->min_ms = found.min_ms;
        result->median_ms = found.median_ms;
        result->gflops = count_flops(ready) / (found.min_ms * 1e6);
        result->gbytes_per_s = count_bytes(ready) / (found.min_ms * 1e6);
    }
    return status;
}

/* Returns the exit code of this problem. */
static int run_task(const bench *self, mha_context *context, const task *given, report *out)
{
    char word[WORD_SIZE];
    char path[32] = "-";
    const char *step = "setting up";
    report_stage *stages = NULL;
    problem_ready *ready = NULL;
    const mha_attention_desc *const d = &given->subject.desc.attention;
    report_result result = {
        .problem = word,
        .type = type_name(d->type),
        .key_value_type = type_name(d->key_value_type ? d->key_value_type : d->type),
        .path = path,
        .tiling = "-",
    };
    word_print(&given->subject, word, sizeof word);
    if (self->tells_progress)
        fprintf(stderr, "%s", word);

    problem_options options = self->asked.problems;
    options.path = given->path;
    mha_status status = problem_open(&ready, context, &given->subject, &options);
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
                mha_status_text(status));
        result.failure = mha_status_name(status);
    }
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

static size_t longest_word(const bench *self)
{
    size_t longest = 0;
    for (size_t i = 0; i < self->num_tasks; i++) {
        const size_t length = word_print(&self->tasks[i].subject, NULL, 0);
        longest = length > longest ? length : longest;
    }
    return longest;
}

static int run_tasks(const bench *self, mha_context *context, report *out)
{
    int exit_code = BENCH_GOOD;
    for (size_t i = 0; i < self->num_tasks; i++) {
        if (self->tells_progress)
            fprintf(stderr, "%zu/%zu ", i + 1, self->num_tasks);
        if (run_task(self, context, &self->tasks[i], out))
            exit_code = BENCH_BAD;
    }
    return exit_code;
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
    mha_context *context = device_open_with(self->asked.device, &log);
    if (!context)
        return BENCH_BAD;
    mha_device_info info;
    report *out = NULL;
    int exit_code = BENCH_BAD;
    if (!mha_context_info(context, &info)) {
        device_print_line(self->asked.format == REPORT_TABLE ? stdout : stderr, context);
        out = report_open(stdout, self->asked.format, info.name, info.platform_name,
                          longest_word(self));
    }
    if (out) {
        exit_code = run_tasks(self, context, out);
        if (!report_close(&out)) {
            fprintf(stderr, "%s: the results could not be written\n", bench_tool);
            exit_code = BENCH_BAD;
        }
    }
    mha_context_destroy(&context);
    return exit_code;
}

int main(int argc, char **argv)
{
    bench self = { .asked = { .min_seconds = 0.02, .runs = 9, .problems.seed = 1 } };
    int exit_code = BENCH_BAD;
    if (!bench_read_options(&self.asked, argc, argv, &exit_code))
        return exit_code;
    if (self.asked.list_devices)
        return device_list(bench_tool, stdout);
    if (read_words(&self, argv + optind, (size_t)(argc - optind), &exit_code))
        exit_code = run(&self);
    free(self.tasks);
    return exit_code;
}
