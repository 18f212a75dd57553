/* How right and how fast a problem runs. */
#ifndef MHA_TOOLS_MEASURE_H
#define MHA_TOOLS_MEASURE_H

#include "problem.h"
#include "report.h"

typedef struct measure_error {
    /* |got - want| of the element that is worst by its limit; inf where a NaN or a wrong infinity
     * came out. */
    double error;
    double limit; /* the largest that counts as rounding, that to the output's type too */
} measure_error;

/* Runs the problem once and compares all that it wrote with the reference: of its outputs the one
 * that is worst by its limit. */
mha_status measure_verify(const problem_ready *ready, measure_error *out);

typedef struct measure_time {
    double min_ms, median_ms; /* of one call */
} measure_time;

/* Several runs of as many calls as take min_seconds, from the first enqueue until the queue has
 * finished, with the context and the caches warm. */
mha_status measure_speed(const problem_ready *ready, double min_seconds, measure_time *out);

/* The shortest time of each stage out of several calls in a profiling queue. The caller frees
 * *stages, whose strings are static. */
mha_status measure_stages(const problem_ready *ready, report_stage **stages, size_t *num_stages);

/* Floating-point operations of one call: 2 head_dim + 2 value_dim for each head and pair of query
 * and key that lengths, causal and windows leave (not for a softmax's own), and 2 for each
 * product in a projection. */
double measure_flops(const problem_ready *ready);

/* Bytes that any implementation moves: each input and output once. */
double measure_bytes(const problem_ready *ready);

#endif
