/* Float results against the reference's doubles. */
#include "compare.h"

#include "fill.h"

#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <math.h>
#include <stdio.h>

bool compare_one(const char *name, const char *what, size_t index, float got, double want,
                 double limit, compare_worst *worst)
{
    const double error = isinf(want) && got == want ? 0 : fabs(got - want);
    const bool near = error <= limit;
    if (near && worst && error > worst->part * limit) {
        worst->part = error / limit;
        snprintf(worst->what, sizeof worst->what, "%s of %s", what, name);
    }
    if (!near) /* Criterion takes its time for each thing it is told, a good one as well */
        cr_expect(near, "%s: %s[%zu] is %.9g, not %.9g; the limit of the error is %.3g", name, what,
                  index, (double)got, want, limit);
    return near;
}

bool compare_all(const char *name, const char *what, const float *got, const double *want,
                 size_t count, double limit, compare_worst *worst)
{
    for (size_t i = 0; i < count; i++)
        if (!compare_one(name, what, i, got[i], want[i], limit, worst))
            return false;
    return true;
}

void compare_log(const char *test, size_t cases, const compare_worst *worst)
{
    cr_log_info("%s: %zu cases, the worst error is %.2f of its limit: %s\n", test, cases,
                worst->part, worst->what);
    if (worst->rounding > 0)
        cr_log_info("%s, half types: the worst error is %.3f of one rounding: %s\n", test,
                    worst->rounding, worst->rounding_what);
}

double compare_largest(const float *data, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(data[i]))
            largest = fmax(largest, fabs(data[i]));
    return largest;
}

double compare_norm(const float *rows, size_t num_rows, size_t width)
{
    double largest = 0;
    for (size_t i = 0; i < num_rows; i++) {
        double sum = 0;
        for (size_t c = 0; c < width; c++)
            if (isfinite(rows[i * width + c]))
                sum += (double)rows[i * width + c] * rows[i * width + c];
        largest = fmax(largest, sum);
    }
    return sqrt(largest);
}

size_t compare_pick(uint64_t seed, unsigned number, size_t count)
{
    int32_t values[64];
    cr_assert(number < 64 && count > 0);
    fill_lengths(values, number + 1, seed, (int32_t)count - 1);
    return (size_t)values[number];
}
