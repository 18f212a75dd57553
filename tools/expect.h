/* What the reference says of a problem. */
#ifndef MHA_TOOLS_EXPECT_H
#define MHA_TOOLS_EXPECT_H

#include "problem.h"

/* What a call writes, in double and in the order of each tensor's shape: the outputs, and of a
 * cache key and value as they are afterwards. The other elements of `wanted` become NULL. The
 * caller frees them with expect_free, also after a failure. */
mha_status expect(const problem_ready *ready, double *wanted[PROBLEM_SLOTS]);
void expect_free(double *wanted[PROBLEM_SLOTS]);

#endif
