/* What the reference is shown of a cache. Between expect.c and expect_cache.c only. */
#ifndef MHA_TOOLS_EXPECT_CACHE_H
#define MHA_TOOLS_EXPECT_CACHE_H

#include "expect.h"

/* The inputs that the reference takes in another form than the problem has them; NULL: the same. */
typedef struct expect_inputs {
    float *query, *key, *value;
    int32_t *query_lengths, *key_lengths;
    double *output, *lse; /* of all rows */
} expect_inputs;

/* Where there is a cache: turned queries, and keys and values as they are seen, the oldest first,
 * into *made; the cache as it is after the call into *wanted. */
mha_status expect_cache(const problem_ready *ready, expect_inputs *made,
                        double *wanted[PROBLEM_SLOTS]);

#endif
