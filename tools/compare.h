/* Compares an output with what a case wants, as tests/cases/FORMAT.md says. */
#ifndef MHA_TOOLS_COMPARE_H
#define MHA_TOOLS_COMPARE_H

#include "case.h"

typedef struct comparison {
    size_t compared, wrong; /* elements */
    /* The worst element: one that is wrong where any is, the farthest off by its tolerance. */
    size_t index;
    double got, want;
    double ratio; /* its error over what is allowed: 1 and less is right; inf for NaN and inf */
} comparison;

/* `got` holds the elements of `want`, packed, as `type`. Each of them may be the mean of `heads`
 * that follow each other on an axis behind the first, [shape[0]][heads][shape[1]]..; 1: none. */
comparison compare_output(const case_tensor *want, case_type type, const void *got, size_t heads);

/* "[0,2,1]" of an element, for messages. */
void compare_print_index(const case_tensor *want, size_t index, char *text, size_t size);

#endif
