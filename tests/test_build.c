/* A kernel that does not compile: the device's build log reaches the caller with true places. */
#include "context.h"
#include "kernel.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

typedef struct kept {
    char all[16384];
    int errors;
} kept;

static void keep(void *data, mha_log_level level, const char *text)
{
    kept *log = data;
    const size_t used = strlen(log->all);
    snprintf(log->all + used, sizeof log->all - used, "%s\n", text);
    log->errors += level == MHA_LOG_ERROR;
}

/* The first line of a file of cl/ with this word, counted in the file as it is in the tree. */
static int line_of(const char *name, const char *word)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/../cl/%s", TESTS_DIR, name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s is not there", path);
    char line[512];
    int number = 0;
    int found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        number++;
        if (strstr(line, word))
            found = number;
    }
    fclose(file);
    cr_assert(found, "%s is not in %s", word, path);
    return found;
}

static void check_log(const char *room, const char *options, const char *kernel, const char *file,
                      const char *word)
{
    kept log = { .all = "" };
    mha_context *context = NULL;
    const mha_context_options how = { .cache_dir = "", .log = { .fn = keep, .data = &log } };
    cr_assert_eq(mha_context_create(&context, &how), MHA_OK, "%s", log.all);
    mha_kernel out = { 0 };
    cr_expect_eq(mha_context_kernel(context, &out, room, options, kernel), MHA_BUILD_FAILED);
    cr_expect_null(out.cl);
    char place[64];
    snprintf(place, sizeof place, "%s:%d:", file, line_of(file, word));
    cr_expect_not_null(strstr(log.all, place), "no \"%s\" in the log:\n%s", place, log.all);
    char sentence[64];
    snprintf(sentence, sizeof sentence, "cl/%s.cl did not build", room);
    cr_expect_not_null(strstr(log.all, sentence), "no \"%s\" in the log:\n%s", sentence, log.all);
    mha_context_destroy(&context);
}

Test(build, log_names_file_and_line)
{
    check_log("softmax",
              "-DGROUP=nonsense -DUSES_BIAS=0 -DUSES_MASK=0 -DUSES_SOFTCAP=0 -DUSES_CAUSAL=0 "
              "-DUSES_WINDOW_LEFT=0 -DUSES_WINDOW_RIGHT=0 -DDIAGONAL=0 -DUSES_RING=0 "
              "-DUSES_DROPOUT=0 -DUSES_ALIBI=0 -DBIAS_TYPE=1 -DSHOWS=0 -DSHOWN_TYPE=1",
              "softmax_rows", "softmax.cl", "j += GROUP");
}

/* An error in a pasted header is the header's, and what follows the paste keeps its own lines. */
Test(build, log_names_included_file_and_line)
{
    check_log("scores", "-Dtile_sum=int", "scores_tile", "tile.h", "sum->row[r]");
    check_log("scores", "-Dhead_dim=nonsense+", "scores_tile", "scores.cl", "d < head_dim");
}
