/* Threads that share one context, or none; see threads_main.c for the same under a thread
 * sanitizer. */
#define _POSIX_C_SOURCE 200809L
#include "device_memory.h"
#include "layer.h"
#include "thread_load.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

TestSuite(threads, .timeout = 600);

/* Read by an address sanitizer at the start. PoCL's compiler puts a signal stack of its own in the
 * place of the sanitizer's, in whatever thread calls OpenCL first; when that one is not the main
 * thread and ends, the sanitizer fails to release its own. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "use_sigaltstack=0";
}

/* Twice: shut down, the library starts again in the same process. */
static void share(thread_kind kind, mha_gemm_by by, unsigned rounds)
{
    static const char *const names[] = { "default", "CLBlast", "kernel" };
    /* Without files all compile at once, and with them all read at once. */
    const char *const dirs[] = { "", device_cache_dir() };
    char error[600];
    layer_start();
    for (int times = 0; times < 2; times++) {
        const thread_load load = {
            .kind = kind, .by = by, .threads = 8, .rounds = rounds, .cache_dir = dirs[times]
        };
        cr_expect(thread_load_run(&load, error, sizeof error), "%s by %s, time %d: %s",
                  thread_kind_name(kind), names[by], times, error);
    }
    cr_expect(layer_active(), "this OpenCL loader knows no layers");
    cr_expect_eq(layer_live(NULL), 0, "%s by %s: %ld objects at the end", thread_kind_name(kind),
                 names[by], layer_live(NULL));
}

/* Procedure h46. */
Test(threads, share_one_context)
{
    share(THREAD_ATTENTION, MHA_GEMM_DEFAULT, 50);
}

Test(threads, share_one_context_with_kernels)
{
    share(THREAD_ATTENTION, MHA_GEMM_KERNEL, 50);
}

Test(threads, share_one_context_with_clblast)
{
    share(THREAD_ATTENTION, MHA_GEMM_CLBLAST, 50);
}

Test(threads, layers_share_one_context)
{
    share(THREAD_LAYER, MHA_GEMM_KERNEL, 50);
}

Test(threads, layers_share_one_context_with_clblast)
{
    share(THREAD_LAYER, MHA_GEMM_CLBLAST, 20);
}

Test(threads, host_arrays_share_one_context)
{
    share(THREAD_HOST, MHA_GEMM_KERNEL, 20);
}

/* Each appends to a cache of its own, and decodes. */
Test(threads, caches_share_one_context)
{
    share(THREAD_CACHE, MHA_GEMM_KERNEL, 10);
}

/* --- contexts of their own --- */

typedef struct opener {
    int rounds;
    mha_status status;
    pthread_barrier_t *start;
} opener;

static void *open_and_close(void *data)
{
    const mha_context_options options = { .cache_dir = "" };
    opener *self = data;
    mha_status *status = &self->status;
    pthread_barrier_wait(self->start);
    for (int i = 0; !*status && i < self->rounds; i++) {
        mha_context *context = NULL;
        mha_attention *attention = NULL;
        *status = mha_context_create(&context, &options);
        const mha_attention_desc desc = { .batch = 2,
                                          .heads = 1,
                                          .query_len = 3,
                                          .key_len = 3,
                                          .head_dim = 4,
                                          .gemm = i % 2 ? MHA_GEMM_CLBLAST : MHA_GEMM_KERNEL };
        if (!*status)
            *status = mha_attention_create(&attention, context, &desc);
        mha_attention_destroy(&attention);
        mha_context_destroy(&context);
        if (!*status)
            *status = mha_clblast_clear();
    }
    return NULL;
}

static void open_at_once(int rounds)
{
    enum {
        THREADS = 4
    };
    pthread_t threads[THREADS];
    opener openers[THREADS];
    pthread_barrier_t start;
    cr_assert(!pthread_barrier_init(&start, NULL, THREADS));
    for (int i = 0; i < THREADS; i++) {
        openers[i] = (opener){ .rounds = rounds, .start = &start };
        cr_assert(!pthread_create(&threads[i], NULL, open_and_close, &openers[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(openers[i].status, MHA_OK, "thread %d: %s", i,
                     mha_status_name(openers[i].status));
    }
    pthread_barrier_destroy(&start);
    cr_expect_eq(layer_live(NULL), 0, "%ld objects at the end", layer_live(NULL));
}

/* Each thread makes and destroys contexts, which empties CLBlast's cache under the others. */
Test(threads, contexts_come_and_go)
{
    size_t count = 0;
    layer_start();
    cr_assert_eq(mha_devices(NULL, NULL, 0, &count), MHA_OK);
    open_at_once(5);
}

/* The first OpenCL call of the process comes from several threads. PoCL 3.1 answers the second one
 * that it has no device while the first still looks for them: the library must not ask it then. */
Test(threads, the_first_contexts_at_once)
{
    layer_start();
    open_at_once(1);
}
