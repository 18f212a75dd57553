/* mha-bench: verifies and times problems on any device. */
#define _POSIX_C_SOURCE 200809L
#include "device.h"
#include "measure.h"
#include "problem.h"
#include "report.h"
#include "word.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char tool[] = "mha-bench";
static const char usage[] = "usage: mha-bench [options] [WORD...]\n";

/* clang-format off */
static const char help[] =
    "Verifies problems against a double precision reference and times them on a device. Without a\n"
    "WORD: a small sweep of all kinds.\n"
    "\n"
    "  --list-devices           list the devices, the default one marked *, and end\n"
    "  --device WORD            cpu, gpu, accelerator, PLATFORM:DEVICE as listed, part of a name\n"
    "  --verify                 verify only; the exit code is 1 if an error is beyond rounding\n"
    "  --speed                  time only; without either option both are done\n"
    "  --path composed          this path, not the library's choice\n"
    "  --gemm clblast|kernel    who does the products of the composed path\n"
    "  --projection clblast|kernel\n"
    "                           who does the projections of a layer\n"
    "  --explain                print what the library says of its choices\n"
    "  --min-time SECONDS       a run repeats the call for so long (0.02); 9 runs are made\n"
    "  --seed N                 of the random data (1)\n"
    "  --csv, --json            print one table, or one array, with nothing else\n"
    "  --verbose                print the library's messages; twice: all of them\n"
    "  --help, --version\n"
    "\n"
    "GFLOP/s counts the query-key pairs that lengths, causal and windows leave, and projections.\n"
    "GB/s counts each input and output once. Both are of the fastest run. A stage's time is the\n"
    "shortest of several calls in a profiling queue.\n"
    "\n";

/* Each kind of problem once: small enough for a CPU, and odd on purpose. */
static const char *const sweep[] = {
    "b2h5q4k6d20l",             /* the article's attention */
    "b1h8q128k128d64",
    "b1h8q128k128d64c",
    "b4h8q1k256d64l",           /* decoding */
    "b2h4q60k100d64cbl",
    "b2h8q64k64d64g2c",
    "b2h3q17k33d15v31L",
    "b2h4q48k65d32ahqkpe",
    "b2h4q48k65d32mbkcwl16s30",
    "layer-b2h5q4k6e100l",      /* the article's layer */
    "layer-b2h8q64k64e512BT",
};
/* clang-format on */

typedef struct bench {
    const char *device;
    report_format format;
    bool list_devices, verify, speed, explain, tells_progress;
    int verbose;
    double min_seconds;
    problem_options options;
    problem *problems;
    size_t num_problems;
} bench;

/* What main returns. */
enum {
    EXIT_GOOD = 0,
    EXIT_BAD = 1,
    EXIT_USAGE = 2
};

#define WORD_SIZE 256

static bool choose(const char *option, const char *word, const char *const words[], int *value)
{
    for (int i = 1; words[i]; i++) {
        if (!strcmp(word, words[i])) {
            *value = i;
            return true;
        }
    }
    fprintf(stderr, "%s: --%s %s: not known\n%s", tool, option, word, usage);
    return false;
}

static bool choose_gemm(const char *option, const char *word, mha_gemm_by *by)
{
    /* By their values. */
    static const char *const words[] = {
        "", [MHA_GEMM_CLBLAST] = "clblast", [MHA_GEMM_KERNEL] = "kernel", NULL
    };
    int value = 0;
    if (!choose(option, word, words, &value))
        return false;
    *by = (mha_gemm_by)value;
    return true;
}

static bool choose_path(const char *word, mha_path *path)
{
    static const char *const words[] = { "", [MHA_PATH_COMPOSED] = "composed", NULL };
    int value = 0;
    if (!choose("path", word, words, &value))
        return false;
    *path = (mha_path)value;
    return true;
}

static bool read_seconds(const char *word, double *seconds)
{
    char *end;
    *seconds = strtod(word, &end);
    if (end != word && !*end && *seconds >= 0 && *seconds <= 1e6)
        return true;
    fprintf(stderr, "%s: --min-time %s: not a number of seconds\n%s", tool, word, usage);
    return false;
}

static bool read_seed(const char *word, uint64_t *seed)
{
    char *end;
    errno = 0;
    *seed = strtoull(word, &end, 10);
    if (*word >= '0' && *word <= '9' && !*end && !errno)
        return true;
    fprintf(stderr, "%s: --seed %s: not a whole number\n%s", tool, word, usage);
    return false;
}

static void print_version(void)
{
    const unsigned version = mha_version();
    printf("%s %d.%d.%d (libmha %u.%u.%u)\n", tool, MHA_VERSION_MAJOR, MHA_VERSION_MINOR,
           MHA_VERSION_PATCH, version >> 16, version >> 8 & 255, version & 255);
}

enum {
    LIST_DEVICES = 1,
    DEVICE,
    VERIFY,
    SPEED,
    PATH,
    GEMM,
    PROJECTION,
    EXPLAIN,
    MIN_TIME,
    SEED,
    CSV,
    JSON,
    VERBOSE,
    HELP,
    VERSION
};

/* One option. False: the reason has been printed. */
static bool take_option(bench *self, int option)
{
    switch (option) {
    case LIST_DEVICES:
        self->list_devices = true;
        return true;
    case DEVICE:
        self->device = optarg;
        return true;
    case VERIFY:
        self->verify = true;
        return true;
    case SPEED:
        self->speed = true;
        return true;
    case PATH:
        return choose_path(optarg, &self->options.path);
    case GEMM:
        return choose_gemm("gemm", optarg, &self->options.gemm);
    case PROJECTION:
        return choose_gemm("projection", optarg, &self->options.projection);
    case EXPLAIN:
        self->explain = true;
        return true;
    case MIN_TIME:
        return read_seconds(optarg, &self->min_seconds);
    case SEED:
        return read_seed(optarg, &self->options.seed);
    case CSV:
        self->format = REPORT_CSV;
        return true;
    case JSON:
        self->format = REPORT_JSON;
        return true;
    case VERBOSE:
        self->verbose++;
        return true;
    default: /* getopt_long has printed which */
        fputs(usage, stderr);
        return false;
    }
}

/* True: go on. Else *exit_code is what the program ends with. */
static bool read_options(bench *self, int argc, char **argv, int *exit_code)
{
    static const struct option known[] = {
        { "list-devices", no_argument, NULL, LIST_DEVICES },
        { "device", required_argument, NULL, DEVICE },
        { "verify", no_argument, NULL, VERIFY },
        { "speed", no_argument, NULL, SPEED },
        { "path", required_argument, NULL, PATH },
        { "gemm", required_argument, NULL, GEMM },
        { "projection", required_argument, NULL, PROJECTION },
        { "explain", no_argument, NULL, EXPLAIN },
        { "min-time", required_argument, NULL, MIN_TIME },
        { "seed", required_argument, NULL, SEED },
        { "csv", no_argument, NULL, CSV },
        { "json", no_argument, NULL, JSON },
        { "verbose", no_argument, NULL, VERBOSE },
        { "help", no_argument, NULL, HELP },
        { "version", no_argument, NULL, VERSION },
        { NULL, 0, NULL, 0 },
    };
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (option == HELP || option == VERSION) {
            if (option == HELP)
                printf("%s\n%s%s", usage, help, word_grammar);
            else
                print_version();
            *exit_code = EXIT_GOOD;
            return false;
        }
        if (!take_option(self, option)) {
            *exit_code = EXIT_USAGE;
            return false;
        }
    }
    if (!self->verify && !self->speed)
        self->verify = self->speed = true;
    return true;
}

/* The words, or the sweep where there are none. */
static bool read_words(bench *self, char **words, size_t count, int *exit_code)
{
    self->num_problems = count ? count : sizeof sweep / sizeof sweep[0];
    self->problems = calloc(self->num_problems, sizeof *self->problems);
    if (!self->problems) {
        fprintf(stderr, "%s: the host is out of memory\n", tool);
        *exit_code = EXIT_BAD;
        return false;
    }
    self->tells_progress = self->num_problems > 1 && isatty(STDERR_FILENO);
    for (size_t i = 0; i < self->num_problems; i++) {
        char error[WORD_SIZE] = "";
        if (!word_parse(count ? words[i] : sweep[i], &self->problems[i], error, sizeof error)) {
            fprintf(stderr, "%s: %s\n%s", tool, error, usage);
            *exit_code = EXIT_USAGE;
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

/* The measurements that were asked for. *step says which one a failing status is of. */
static mha_status measure(const bench *self, const problem_ready *ready, report_result *result,
                          report_stage **stages, const char **step)
{
    mha_status status = MHA_OK;
    if (self->verify) {
        measure_error found;
        *step = "verifying";
        status = measure_verify(ready, &found);
        result->is_verified = !status;
        result->max_error = found.error;
        result->error_limit = found.limit;
    }
    if (!status && self->speed) {
        measure_time found;
        *step = "timing";
        status = measure_speed(ready, self->min_seconds, &found);
        if (!status)
            status = measure_stages(ready, stages, &result->num_stages);
        result->is_timed = !status;
        result->stages = *stages;
        result->min_ms = found.min_ms;
        result->median_ms = found.median_ms;
        result->gflops = measure_flops(ready) / (found.min_ms * 1e6);
        result->gbytes_per_s = measure_bytes(ready) / (found.min_ms * 1e6);
    }
    return status;
}

/* Returns the exit code of this problem. */
static int run_problem(const bench *self, mha_context *context, const problem *subject, report *out)
{
    char word[WORD_SIZE];
    char path[32] = "-";
    const char *step = "setting up";
    report_stage *stages = NULL;
    problem_ready *ready = NULL;
    report_result result = { .problem = word, .path = path };
    word_print(subject, word, sizeof word);
    if (self->tells_progress)
        fprintf(stderr, "%s", word);

    mha_status status = problem_open(&ready, context, subject, &self->options);
    char *explanation = ready ? problem_explain(ready) : NULL;
    if (explanation)
        find_path(explanation, path, sizeof path);
    if (self->explain || self->format == REPORT_JSON)
        result.explain = explanation;
    if (!status)
        status = measure(self, ready, &result, &stages, &step);
    if (self->tells_progress)
        fprintf(stderr, "\r\033[K");
    if (status) {
        fprintf(stderr, "%s: %s: %s: %s, %s\n", tool, word, step, mha_status_name(status),
                mha_status_text(status));
        result.failure = mha_status_name(status);
    }
    const bool added = report_add(out, &result);
    if (!added)
        fprintf(stderr, "%s: %s: no memory for the result\n", tool, word);
    problem_close(&ready);
    free(explanation);
    free(stages);
    return status || !added || report_is_wrong(&result) ? EXIT_BAD : EXIT_GOOD;
}

/* Of the library; takes the line of the progress. */
static void print_message(void *data, mha_log_level level, const char *text)
{
    const bench *self = data;
    (void)level;
    fprintf(stderr, "%s%s: %s\n", self->tells_progress ? "\r\033[K" : "", tool, text);
}

static size_t longest_word(const bench *self)
{
    size_t longest = 0;
    for (size_t i = 0; i < self->num_problems; i++) {
        const size_t length = word_print(&self->problems[i], NULL, 0);
        longest = length > longest ? length : longest;
    }
    return longest;
}

static int run_problems(const bench *self, mha_context *context, report *out)
{
    int exit_code = EXIT_GOOD;
    for (size_t i = 0; i < self->num_problems; i++) {
        if (self->tells_progress)
            fprintf(stderr, "%zu/%zu ", i + 1, self->num_problems);
        if (run_problem(self, context, &self->problems[i], out))
            exit_code = EXIT_BAD;
    }
    return exit_code;
}

static int run(bench *self)
{
    const mha_log log = {
        .fn = print_message,
        .data = self,
        .level = self->verbose > 1   ? MHA_LOG_DEBUG
                 : self->verbose > 0 ? MHA_LOG_INFO
                                     : MHA_LOG_WARNING,
    };
    mha_context *context = device_open_with(self->device, &log);
    if (!context)
        return EXIT_BAD;
    mha_device_info info;
    report *out = NULL;
    int exit_code = EXIT_BAD;
    if (!mha_context_info(context, &info)) {
        device_print_line(self->format == REPORT_TABLE ? stdout : stderr, context);
        out = report_open(stdout, self->format, info.name, info.platform_name, longest_word(self));
    }
    if (out) {
        exit_code = run_problems(self, context, out);
        if (!report_close(&out)) {
            fprintf(stderr, "%s: the results could not be written\n", tool);
            exit_code = EXIT_BAD;
        }
    }
    mha_context_destroy(&context);
    return exit_code;
}

int main(int argc, char **argv)
{
    bench self = { .min_seconds = 0.02, .options.seed = 1 };
    int exit_code = EXIT_BAD;
    if (!read_options(&self, argc, argv, &exit_code))
        return exit_code;
    if (self.list_devices)
        return device_list(tool, stdout);
    if (read_words(&self, argv + optind, (size_t)(argc - optind), &exit_code))
        exit_code = run(&self);
    free(self.problems);
    return exit_code;
}
