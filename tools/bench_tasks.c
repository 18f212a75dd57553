/* The problems that mha-bench runs. */
#include "bench_tasks.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct entry {
    const char *word;
    mha_path path;
} entry;

/* Each kind of problem once: small enough for a CPU, and odd on purpose. 0: the library's path. */
static const entry sweep[] = {
    { "b2h5q4k6d20l", 0 }, /* the article's attention */
    { "b1h8q128k128d64", MHA_PATH_STREAMING },
    { "b1h8q128k128d64", MHA_PATH_COMPOSED },
    { "b1h8q128k128d64c", 0 },
    { "b1h8q128k128d64ctf16", 0 },
    { "b2h8q64k64d64ntbf16", 0 },
    { "b4h8q1k256d64l", 0 }, /* decoding */
    { "b4h8q1k256d64g2ltkf16", 0 },
    { "b4h8q1k256d64g2cb+1@r", 0 }, /* with a cache */
    { "b2h4q1k40d64cbwl30+1@Rtkf16", 0 },
    { "b3h4q40k40d64cbV", 0 }, /* sequences end to end */
    { "b2h4q40k40d64D0.1", 0 },
    { "b2h4q60k100d64cbl", 0 },
    { "b2h8q64k64d64g2c", 0 },
    { "b2h3q17k33d15v31L", 0 },
    { "b2h4q33k70d80cbPASe", 0 },
    { "b2h4q48k65d32ahqkpe", 0 },
    { "b2h4q48k65d32mbkcwl16s30", 0 },
    { "layer-b2h5q4k6e100l", 0 }, /* the article's layer */
    { "layer-b2h8q64k64e512BT", 0 },
    { "encoder-b2h5q9e100f130BTl", 0 },
    { "encoder-b2h4q20e64f90g2cNQGFs", 0 },   /* as decoder-only models have it */
    { "decoder-b2h5q9k14e100f130BTcFrK", 0 }, /* the article's decoder layer */
    { "gemm-m33n70k40", 0 },
};

/* What --plot draws: one size, a curve without and one with causal. */
static const entry lengths[] = {
    { "b1h12q64k64d64", 0 },    { "b1h12q128k128d64", 0 },    { "b1h12q256k256d64", 0 },
    { "b1h12q512k512d64", 0 },  { "b1h12q1024k1024d64", 0 },  { "b1h12q2048k2048d64", 0 },
    { "b1h12q64k64d64c", 0 },   { "b1h12q128k128d64c", 0 },   { "b1h12q256k256d64c", 0 },
    { "b1h12q512k512d64c", 0 }, { "b1h12q1024k1024d64c", 0 }, { "b1h12q2048k2048d64c", 0 },
};

static bool read_task(bench_task *out, const char *word, int *exit_code)
{
    char error[256] = "";
    if (word_parse(word, &out->subject, error, sizeof error))
        return true;
    fprintf(stderr, "%s: %s\n%s", bench_tool, error, bench_usage);
    *exit_code = BENCH_USAGE;
    return false;
}

bool bench_read_tasks(bench_tasks *out, const bench_options *asked, char **words, size_t count,
                      int *exit_code)
{
    const entry *const own = asked->plot ? lengths : sweep;
    const size_t num_own =
        asked->plot ? sizeof lengths / sizeof lengths[0] : sizeof sweep / sizeof sweep[0];
    out->count = count ? count : num_own;
    out->list = calloc(out->count, sizeof *out->list);
    if (!out->list) {
        fprintf(stderr, "%s: the host is out of memory\n", bench_tool);
        *exit_code = BENCH_BAD;
        return false;
    }
    for (size_t i = 0; i < out->count; i++) {
        out->list[i].path = count || asked->problems.path ? asked->problems.path : own[i].path;
        if (!read_task(&out->list[i], count ? words[i] : own[i].word, exit_code))
            return false;
    }
    return true;
}

size_t bench_longest_word(const bench_tasks *tasks)
{
    size_t longest = 0;
    for (size_t i = 0; i < tasks->count; i++) {
        const size_t length = word_print(&tasks->list[i].subject, NULL, 0);
        longest = length > longest ? length : longest;
    }
    return longest;
}
