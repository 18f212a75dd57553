/* Attention that appends to a cache, with a history, against the reference. */
#ifndef MHA_TESTS_APPEND_CASE_H
#define MHA_TESTS_APPEND_CASE_H

#include "attention_case.h"
#include "device_memory.h"

/* A call with a history: each batch has some keys, one of them as many as leave room, and gets new
 * ones. MHA_AFTER_PAST goes with causal alone. */
typedef struct append_case {
    mha_attention_desc desc;
    attention_layout layout;
    bool on_device; /* the positions */
    uint64_t seed;
} append_case;

/* Makes the call, and compares output, lse and the cache with the reference. */
void append_check(device *d, const append_case *given, compare_worst *worst);

/* Normal numbers that the type holds, for the caller to free. */
float *append_filled(size_t count, uint64_t seed, mha_type type);

#endif
