/* Float results against the reference's doubles: limits of rounding, and failures that say where.
 */
#ifndef MHA_TESTS_COMPARE_H
#define MHA_TESTS_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The worst error of all comparisons, as a part of its limit. */
typedef struct compare_worst {
    double part;
    char what[160];
    /* Where results are halves: the worst error as a part of what rounding the best float32 makes.
     */
    double rounding;
    char rounding_what[320];
} compare_worst;

/* One element. Equal infinities are near each other, a NaN is near nothing. `name` is that of the
 * case, `what` that of the tensor. `worst` may be NULL. */
bool compare_one(const char *name, const char *what, size_t index, float got, double want,
                 double limit, compare_worst *worst);

/* All elements; only the first wrong one is told. */
bool compare_all(const char *name, const char *what, const float *got, const double *want,
                 size_t count, double limit, compare_worst *worst);

/* One line into Criterion's log, and one for halves if there were any. */
void compare_log(const char *test, size_t cases, const compare_worst *worst);

/* The largest magnitude, and the largest Euclidean norm of a row: a product of rows is at most the
 * product of their norms. What is not finite does not count. */
double compare_largest(const float *data, size_t count);
double compare_norm(const float *rows, size_t num_rows, size_t width);

/* A seeded choice: one of 0 .. count - 1, by the number of the choice. */
size_t compare_pick(uint64_t seed, unsigned number, size_t count);

#endif
