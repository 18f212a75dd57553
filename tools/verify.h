/* How right a problem runs. */
#ifndef MHA_TOOLS_VERIFY_H
#define MHA_TOOLS_VERIFY_H

#include "problem.h"

typedef struct verify_error {
    /* |got - want| of the element that is worst by its limit; inf where a NaN or a wrong infinity
     * came out. */
    double error;
    double limit; /* the largest that counts as rounding, that to the output's type too */
} verify_error;

/* Runs the problem once and compares all that it wrote with the reference: of its outputs the one
 * that is worst by its limit. A cache is one too, with the rows that were not to change. */
mha_status verify(const problem_ready *ready, verify_error *out);

#endif
