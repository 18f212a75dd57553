/* What mha-bench is asked for. */
#define _POSIX_C_SOURCE 200809L
#include "bench_options.h"

#include "plot.h"
#include "word.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char bench_tool[] = "mha-bench";
const char bench_usage[] = "usage: mha-bench [options] [WORD...]\n";

/* clang-format off */
static const char help[] =
    "Verifies problems against a double precision reference and times them on a device. Without a\n"
    "WORD: a small sweep of all kinds.\n"
    "\n"
    "  --list-devices           list the devices, the default one marked *, and end\n"
    "  --device WORD            cpu, gpu, accelerator, PLATFORM:DEVICE as listed, part of a name\n"
    "  --cache DIR              where the library keeps compiled kernels, instead of the user's cache\n"
    "                           folder; \"\": nowhere\n"
    "  --verify                 verify only; the exit code is 1 if an error is beyond rounding\n"
    "  --speed                  time only; without either option both are done\n"
    "  --path composed|streaming|decode\n"
    "                           this path, not the library's choice; what it cannot do is skipped\n"
    "  --tiling cpu|gpu         how the library's kernels lay out their work\n"
    "  --gemm clblast|kernel    who does the products of the composed path, and a gemm\n"
    "  --projection clblast|kernel\n"
    "                           who does the projections of a layer, and all products of a model\n"
    "  --model DIR              of model words: the folder of a BERT such as all-MiniLM-L6-v2; else\n"
    "                           the one that examples/sentence-embedding/fetch-model makes\n"
    "  --explain                print what the library says of its choices\n"
    "  --min-time SECONDS       a run repeats the call for so long (0.02); 0: a run is one call\n"
    "  --runs N                 so many runs are made (9)\n"
    "  --seed N                 of the random data (1)\n"
    "  --no-peak                leave out what the device can do at best, and the shares of it\n"
    "  --csv, --json            print one table, or one array, with nothing else\n"
    "  --plot FILE              draw speed over length and a roofline: .png, .svg or .pdf, by\n"
    "                           gnuplot; without a WORD: of b1h12..d64. Only times, unless\n"
    "                           --verify and --speed are given\n"
    "  --verbose                print the library's messages; twice: all of them\n"
    "  --help, --version\n"
    "\n"
    "GFLOP/s counts the query-key pairs that lengths, causal and windows leave, and projections,\n"
    "not norms and activations.\n"
    "GB/s counts each input and output once, but of an attention's keys and values only what some\n"
    "query of their batch sees; of a cache also the new rows as they come and as they are stored.\n"
    "Both are of the fastest run. A stage's time is the shortest of several calls in a profiling\n"
    "queue. What a call writes is verified, a cache as well. A model's call is from tokens to\n"
    "vectors on the host, and waits for them.\n"
    "\n"
    "A share is of what the device can do at best, measured by kernels that do nothing else.\n"
    "Of GFLOP/s: float32 multiplications with an addition, before the first problem and again\n"
    "after each, the best so far. Of GB/s: calls that only read as many bytes as the problem has,\n"
    "which may lie in caches. A problem with more GFLOP/s than the device is INVALID: then some\n"
    "time is wrong, and no number of the run is to be trusted (the exit code says nothing of it).\n"
    "A mask's excluded pairs are counted, so with one a share may be above the whole.\n"
    "\n"
    "CSV has a column, JSON a key for each: problem, device, platform, type, key_value_type,\n"
    "path, tiling (cpu, gpu, or - where the path has none), min_ms, median_ms, gflops,\n"
    "peak_gflops, peak_share, gbytes_per_s, peak_gbytes_per_s, bandwidth_share,\n"
    "sentences_per_s (of a model), max_error, error_limit, outcome (ok, WRONG, INVALID,\n"
    "unverified, skipped, or why it failed). A share of 1 is the whole. JSON has explain and\n"
    "stages too (stage, what, ms, gflops, peak_share; the last two are null for a stage that\n"
    "multiplies no matrices, or of which no time is known).\n"
    "\n";
/* clang-format on */

static bool choose(const char *option, const char *word, const char *const words[], int *value)
{
    for (int i = 1; words[i]; i++) {
        if (!strcmp(word, words[i])) {
            *value = i;
            return true;
        }
    }
    fprintf(stderr, "%s: --%s %s: not known\n%s", bench_tool, option, word, bench_usage);
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
    static const char *const words[] = {
        "", [MHA_PATH_COMPOSED] = "composed", [MHA_PATH_STREAMING] = "streaming",
        [MHA_PATH_DECODE] = "decode", NULL
    };
    int value = 0;
    if (!choose("path", word, words, &value))
        return false;
    *path = (mha_path)value;
    return true;
}

static bool choose_tiling(const char *word, mha_tiling *tiling)
{
    static const char *const words[] = { "", [MHA_TILING_CPU] = "cpu", [MHA_TILING_GPU] = "gpu",
                                         NULL };
    int value = 0;
    if (!choose("tiling", word, words, &value))
        return false;
    *tiling = (mha_tiling)value;
    return true;
}

static bool read_seconds(const char *word, double *seconds)
{
    char *end;
    *seconds = strtod(word, &end);
    if (end != word && !*end && *seconds >= 0 && *seconds <= 1e6)
        return true;
    fprintf(stderr, "%s: --min-time %s: not a number of seconds\n%s", bench_tool, word,
            bench_usage);
    return false;
}

static bool read_runs(const char *word, size_t *runs)
{
    char *end;
    const long most = 1000000;
    const long number = strtol(word, &end, 10);
    if (end != word && !*end && number >= 1 && number <= most) {
        *runs = (size_t)number;
        return true;
    }
    fprintf(stderr, "%s: --runs %s: not a number from 1 to %ld\n%s", bench_tool, word, most,
            bench_usage);
    return false;
}

static bool read_seed(const char *word, uint64_t *seed)
{
    char *end;
    errno = 0;
    *seed = strtoull(word, &end, 10);
    if (*word >= '0' && *word <= '9' && !*end && !errno)
        return true;
    fprintf(stderr, "%s: --seed %s: not a whole number\n%s", bench_tool, word, bench_usage);
    return false;
}

static bool take_plot(bench_options *self, const char *file)
{
    self->plot = file;
    if (plot_knows(file))
        return true;
    fprintf(stderr, "%s: --plot %s: the name does not end in .png, .svg or .pdf\n%s", bench_tool,
            file, bench_usage);
    return false;
}

/* A drawing is of times and of the roofs above them. */
static bool settle(bench_options *self)
{
    if (!self->verify && !self->speed) {
        self->speed = true;
        self->verify = !self->plot;
    }
    if (!self->plot || (self->speed && !self->leaves_out_peak))
        return true;
    fprintf(stderr, "%s: --plot %s: not with %s\n%s", bench_tool, self->plot,
            self->speed ? "--no-peak" : "--verify alone", bench_usage);
    return false;
}

static void print_version(void)
{
    const unsigned version = mha_version();
    printf("%s %d.%d.%d (libmha %u.%u.%u)\n", bench_tool, MHA_VERSION_MAJOR, MHA_VERSION_MINOR,
           MHA_VERSION_PATCH, version >> 16, version >> 8 & 255, version & 255);
}

enum {
    LIST_DEVICES = 1,
    DEVICE,
    CACHE,
    VERIFY,
    SPEED,
    PATH,
    TILING,
    GEMM,
    PROJECTION,
    MODEL,
    EXPLAIN,
    NO_PEAK,
    PLOT,
    MIN_TIME,
    NUM_RUNS,
    SEED,
    CSV,
    JSON,
    VERBOSE,
    HELP,
    VERSION
};

/* One option. False: the reason has been printed. */
static bool take_option(bench_options *self, int option)
{
    switch (option) {
    case LIST_DEVICES:
        self->list_devices = true;
        return true;
    case DEVICE:
        self->device = optarg;
        return true;
    case CACHE:
        self->cache = optarg;
        return true;
    case VERIFY:
        self->verify = true;
        return true;
    case SPEED:
        self->speed = true;
        return true;
    case PATH:
        return choose_path(optarg, &self->problems.path);
    case TILING:
        return choose_tiling(optarg, &self->problems.tiling);
    case GEMM:
        return choose_gemm("gemm", optarg, &self->problems.gemm);
    case PROJECTION:
        return choose_gemm("projection", optarg, &self->problems.projection);
    case MODEL:
        self->problems.model = optarg;
        return true;
    case EXPLAIN:
        self->explain = true;
        return true;
    case NO_PEAK:
        self->leaves_out_peak = true;
        return true;
    case PLOT:
        return take_plot(self, optarg);
    case MIN_TIME:
        return read_seconds(optarg, &self->min_seconds);
    case NUM_RUNS:
        return read_runs(optarg, &self->runs);
    case SEED:
        return read_seed(optarg, &self->problems.seed);
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
        fputs(bench_usage, stderr);
        return false;
    }
}

bool bench_read_options(bench_options *self, int argc, char **argv, int *exit_code)
{
    static const struct option known[] = {
        { "list-devices", no_argument, NULL, LIST_DEVICES },
        { "device", required_argument, NULL, DEVICE },
        { "cache", required_argument, NULL, CACHE },
        { "verify", no_argument, NULL, VERIFY },
        { "speed", no_argument, NULL, SPEED },
        { "path", required_argument, NULL, PATH },
        { "tiling", required_argument, NULL, TILING },
        { "gemm", required_argument, NULL, GEMM },
        { "projection", required_argument, NULL, PROJECTION },
        { "model", required_argument, NULL, MODEL },
        { "explain", no_argument, NULL, EXPLAIN },
        { "no-peak", no_argument, NULL, NO_PEAK },
        { "plot", required_argument, NULL, PLOT },
        { "min-time", required_argument, NULL, MIN_TIME },
        { "runs", required_argument, NULL, NUM_RUNS },
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
                printf("%s\n%s%s%s", bench_usage, help, word_grammar, word_grammar_of_kinds);
            else
                print_version();
            *exit_code = BENCH_GOOD;
            return false;
        }
        if (!take_option(self, option)) {
            *exit_code = BENCH_USAGE;
            return false;
        }
    }
    if (settle(self))
        return true;
    *exit_code = BENCH_USAGE;
    return false;
}
