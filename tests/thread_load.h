/* Threads that share one context and nothing else (procedure h46 of the cases), for a test and for
 * a program of its own, which a thread sanitizer needs. Without Criterion for that reason. */
#ifndef MHA_TESTS_THREAD_LOAD_H
#define MHA_TESTS_THREAD_LOAD_H

#include <mha.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum thread_kind {
    THREAD_ATTENTION,
    THREAD_LAYER,
    THREAD_HOST,  /* an attention on host arrays */
    THREAD_CACHE, /* one that appends to a cache of the thread's, some tokens at a time */
    THREAD_KINDS
} thread_kind;

typedef struct thread_load {
    thread_kind kind;
    mha_gemm_by by; /* all products */
    unsigned threads, rounds;
    const char *cache_dir; /* as in mha_context_options */
} thread_load;

/* Finds the right results one thread after the other; then all threads, released together, make
 * their objects on one new context and compare every result with theirs, bit for bit. Last, all is
 * destroyed. True: all was well. Else `error` holds the first thing that was not. */
bool thread_load_run(const thread_load *load, char *error, size_t error_size);

/* "attention", "layer", "host arrays", "cache". */
const char *thread_kind_name(thread_kind kind);

#endif
