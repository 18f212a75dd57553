/* How fast a problem runs. */
#ifndef MHA_TOOLS_MEASURE_H
#define MHA_TOOLS_MEASURE_H

#include "problem.h"
#include "report.h"

typedef struct measure_time {
    double min_ms, median_ms; /* of one call */
} measure_time;

/* `runs` runs, at least one, of as many calls as take min_seconds, from the first enqueue until the
 * queue has finished, with the context and the caches warm. */
mha_status measure_speed(const problem_ready *ready, double min_seconds, size_t runs,
                         measure_time *out);

/* The shortest time of each stage out of several calls in a profiling queue, and its rate by that.
 * The layers of a model
 * are one. The caller frees *stages, whose strings are static. */
mha_status measure_stages(const problem_ready *ready, report_stage **stages, size_t *num_stages);

#endif
