/* The results of mha-bench as a table for people, as CSV or as JSON. */
#ifndef MHA_TOOLS_REPORT_H
#define MHA_TOOLS_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum report_format {
    REPORT_TABLE, /* one line a problem, its stages below it */
    REPORT_CSV,   /* a header and one line a problem, without stages and explanation */
    REPORT_JSON   /* one array with one object a problem */
} report_format;

/* One step that a problem queued. */
typedef struct report_stage {
    const char *stage; /* "project query" */
    const char *what;  /* the kernel or routine that did it */
    double ms;
    double gflops; /* GFLOP/s; 0 or no finite number: not known */
    bool is_cross; /* of the attention to a memory, where another has stages of the same names */
} report_stage;

/* All strings are the caller's and live during report_add only. */
typedef struct report_result {
    const char *problem;        /* its word */
    const char *type;           /* of the query, "float32" */
    const char *key_value_type; /* of keys and values */
    const char *path;
    const char *tiling;  /* of the streaming path: "cpu" or "gpu" */
    bool is_skipped;     /* the path that was asked for cannot do the problem */
    const char *failure; /* NULL, or the name of the status that ended the problem early */
    bool is_timed;       /* the times, rates and stages count */
    double min_ms, median_ms;
    double gflops;          /* GFLOP/s of the fastest run */
    double gbytes_per_s;    /* likewise */
    double sentences_per_s; /* likewise; 0: there are none */
    bool has_peak;          /* of what is timed: what the device can do counts */
    bool may_skip; /* pairs that a mask excludes are counted, and may have been passed over:
                    * no rate is too high to be true */
    double peak_gflops;
    double peak_gbytes_per_s; /* of calls that only read as many bytes */
    const report_stage *stages;
    size_t num_stages;
    bool is_verified; /* the errors count */
    double max_error; /* inf where a NaN or a wrong infinity came out */
    double error_limit;
    const char *explain; /* for the table NULL: leave it out */
} report_result;

typedef struct report report;

/* Prints to `out`, which outlives the report. problem_width: characters of the longest word. NULL
 * without memory. */
report *report_open(FILE *out, report_format format, const char *device, const char *platform,
                    size_t problem_width);

/* False: out of memory. */
bool report_add(report *self, const report_result *result);

/* Ends the output and releases the report. False if not everything could be written. */
bool report_close(report **self);

/* A verified result whose error is beyond its limit. */
bool report_is_wrong(const report_result *result);

/* A result that was faster than the device can be, so that some time is wrong. */
bool report_is_invalid(const report_result *result);

#endif
