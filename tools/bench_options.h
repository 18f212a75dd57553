/* What mha-bench is asked for. Between mha-bench.c, bench_options.c and
 * bench_tasks.c only. */
#ifndef MHA_TOOLS_BENCH_OPTIONS_H
#define MHA_TOOLS_BENCH_OPTIONS_H

#include "problem.h"
#include "report.h"

/* What main returns. */
enum {
    BENCH_GOOD = 0,
    BENCH_BAD = 1,
    BENCH_USAGE = 2
};

typedef struct bench_options {
    const char *device, *cache;
    report_format format;
    const char *plot; /* a file, or NULL */
    bool list_devices, verify, speed, explain, leaves_out_peak;
    int verbose;
    double min_seconds;
    size_t runs;
    problem_options problems;
} bench_options;

extern const char bench_tool[];
extern const char bench_usage[];

/* Reads the options over the defaults that stand in *self; the words are argv[optind] and after.
 * True: go on. Else *exit_code is what the program ends with, and what to say has been printed. */
bool bench_read_options(bench_options *self, int argc, char **argv, int *exit_code);

#endif
