/* The problems that mha-bench runs. Between mha-bench.c and bench_tasks.c only. */
#ifndef MHA_TOOLS_BENCH_TASKS_H
#define MHA_TOOLS_BENCH_TASKS_H

#include "bench_options.h"
#include "word.h"

/* One problem, and the path that it is for; 0: the library's choice. */
typedef struct bench_task {
    problem subject;
    mha_path path;
} bench_task;

typedef struct bench_tasks {
    bench_task *list; /* freed by the caller, also after a failure */
    size_t count;
} bench_tasks;

/* The words, or what the options stand for where there are none. False: *exit_code is what the
 * program ends with, and what to say has been printed. */
bool bench_read_tasks(bench_tasks *out, const bench_options *asked, char **words, size_t count,
                      int *exit_code);

/* Characters of the longest word. */
size_t bench_longest_word(const bench_tasks *tasks);

#endif
