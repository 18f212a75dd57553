/* The load of test_threads.c in a plain program, for a thread sanitizer, which does not work under
 * Criterion. Usage: mha-threads [ROUNDS] */
#include "thread_load.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    static const char *const names[] = { "default", "CLBlast", "kernel" };
    const unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 50;
    int exit_code = 0;
    for (int kind = 0; kind < THREAD_KINDS; kind++) {
        for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
            const thread_load load = { .kind = (thread_kind)kind,
                                       .by = (mha_gemm_by)by,
                                       .threads = 8,
                                       .rounds = rounds,
                                       .cache_dir = "" };
            char error[600];
            const int ok = thread_load_run(&load, error, sizeof error);
            printf("%s by %s: %s\n", thread_kind_name(load.kind), names[by], ok ? "ok" : error);
            exit_code = ok ? exit_code : 1;
        }
    }
    return exit_code;
}
