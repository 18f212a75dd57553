/* Compares an output with what a case wants. */
#include "compare.h"

#include <math.h>
#include <stdio.h>

/* The element's index on the length axis, the second last. */
static size_t row_of(const case_tensor *want, size_t index)
{
    return index / want->shape[want->rank - 1] % want->shape[want->rank - 2];
}

static bool is_skipped(const case_tensor *want, size_t index)
{
    if (want->skip_input) {
        const size_t batch = index / (want->count / want->shape[0]);
        const case_tensor *const limits = want->skip_input;
        const double limit = case_type_value(limits->type, limits->data,
                                             limits->offset + batch * limits->strides[0]);
        return (double)row_of(want, index) >= limit;
    }
    return want->skip_row != SIZE_MAX && row_of(want, index) >= want->skip_row;
}

/* The error over the tolerance. An infinity is looked at first: with want = -inf the tolerance
 * would be infinite and anything would pass. */
static double error_ratio(const case_tensor *want, double got, double wanted)
{
    if (isnan(got) || isnan(wanted))
        return INFINITY;
    if (isinf(got) || isinf(wanted))
        return got == wanted ? 0 : INFINITY;
    const double error = fabs(got - wanted);
    const double allowed = want->atol + want->rtol * fabs(wanted);
    return error <= 0 ? 0 : error / allowed;
}

static double mean_of_heads(const case_tensor *want, case_type type, const void *got, size_t heads,
                            size_t index)
{
    if (heads == 1)
        return case_type_value(type, got, index);
    const size_t per_head = want->count / want->shape[0];
    const size_t first = index / per_head * heads * per_head + index % per_head;
    double sum = 0;
    for (size_t head = 0; head < heads; head++)
        sum += case_type_value(type, got, first + head * per_head);
    return sum / (double)heads;
}

comparison compare_output(const case_tensor *want, case_type type, const void *got, size_t heads)
{
    comparison result = { .index = SIZE_MAX };
    for (size_t i = 0; i < want->count; i++) {
        if (is_skipped(want, i))
            continue;
        const double value = mean_of_heads(want, type, got, heads, i);
        const double wanted = case_type_value(want->type, want->data, i);
        const double ratio = error_ratio(want, value, wanted);
        result.compared++;
        /* Not `> 1`: an error over a tolerance of 0 is inf, and would be NaN if 0 came here. */
        result.wrong += !(ratio <= 1);
        if (result.index == SIZE_MAX || ratio > result.ratio) {
            result.index = i;
            result.got = value;
            result.want = wanted;
            result.ratio = ratio;
        }
    }
    return result;
}

void compare_print_index(const case_tensor *want, size_t index, char *text, size_t size)
{
    size_t used = 0, below = want->count;
    for (unsigned axis = 0; axis < want->rank; axis++) {
        below /= want->shape[axis];
        const int printed = snprintf(text + used, size - used, "%c%zu", axis ? ',' : '[',
                                     index / below % want->shape[axis]);
        if (printed < 0 || (size_t)printed >= size - used)
            return;
        used += (size_t)printed;
    }
    snprintf(text + used, size - used, want->rank ? "]" : "");
}
