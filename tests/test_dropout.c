/* The device's random choice (cl/dropout.h) against Random123 on the host and against its known
 * answers, and whether it is as random as dropout needs. */
#include "probe.h"
#include "reference.h"

#include <Random123/philox.h>
#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum {
    HEADS = 2,
    QUERIES = 125,
    KEYS = 402, /* not whole quads */
    DRAWS = HEADS * QUERIES * KEYS
};

/* What a kernel makes of each row of `in`. */
static void run_rows(probe *p, const char *name, const uint32_t (*in)[6], size_t count,
                     uint32_t (*out)[4])
{
    const device_tensor from =
        device_input(&p->d, (size_t[]){ 1, 1, count, 6 }, NULL, sizeof(uint32_t), in);
    const device_tensor to =
        device_output(&p->d, (size_t[]){ 1, 1, count, 4 }, NULL, sizeof(uint32_t));
    const mha_arg args[] = {
        MHA_ARG_MEM(device_buffer(&from)),
        MHA_ARG_SIZE(from.offset),
        MHA_ARG_MEM(device_buffer(&to)),
        MHA_ARG_SIZE(to.offset),
    };
    probe_launch(p, name, args, COUNT_OF(args), &(mha_grid){ .dims = 1, .global = { count } });
    device_read(&p->d, &to, out);
    device_forget(&p->d);
}

static void expect_words(const char *name, const uint32_t in[6], const uint32_t got[4],
                         const uint32_t want[4])
{
    for (int w = 0; w < 4; w++)
        cr_expect_eq(got[w], want[w],
                     "%s of %08x %08x %08x %08x %08x %08x: word %d is %08x, not %08x", name, in[0],
                     in[1], in[2], in[3], in[4], in[5], w, got[w], want[w]);
}

/* Random123's kat_vectors for philox4x32-10: counter, then key. */
Test(dropout, philox_gives_the_known_answers)
{
    static const uint32_t in[][6] = {
        { 0, 0, 0, 0, 0, 0 },
        { ~0u, ~0u, ~0u, ~0u, ~0u, ~0u },
        { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0 },
    };
    static const uint32_t want[][4] = {
        { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
        { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
        { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 },
    };
    uint32_t got[COUNT_OF(in)][4];
    probe p = { 0 };
    probe_open(&p, "dropout_probe", "");
    run_rows(&p, "dropout_probe_philox", in, COUNT_OF(in), got);
    for (size_t n = 0; n < COUNT_OF(in); n++)
        expect_words("philox", in[n], got[n], want[n]);
    probe_close(&p);
}

/* Every combination of small and extreme indices and seeds. */
Test(dropout, words_are_those_of_the_host)
{
    static const uint32_t indices[] = { 0, 1, 3, 4, 6, 1000003, INT_MAX };
    static const uint32_t seeds[] = { 0, 1, 0x89abcdef, 0xffffffff };
    enum {
        I = COUNT_OF(indices),
        S = COUNT_OF(seeds),
        COUNT = I * I * I * S * S * S
    };
    static uint32_t in[COUNT][6], got[COUNT][4];
    for (size_t n = 0; n < COUNT; n++) {
        size_t rest = n;
        for (int c = 0; c < 6; c++) {
            const size_t choices = c < 3 ? I : S;
            in[n][c] = (c < 3 ? indices : seeds)[rest % choices];
            rest /= choices;
        }
    }
    probe p = { 0 };
    probe_open(&p, "dropout_probe", "");
    run_rows(&p, "dropout_probe_words", (const uint32_t(*)[6])in, COUNT, got);
    for (size_t n = 0; n < COUNT; n++) {
        const uint32_t g = in[n][0], i = in[n][1], j = in[n][2];
        const philox4x32_ctr_t counter = { { j / 4, i, g, in[n][5] } };
        const philox4x32_key_t key = { { in[n][3], in[n][4] } };
        expect_words("dropout_words", in[n], got[n], philox4x32(counter, key).v);
    }
    probe_close(&p);
}

/* dropout_keep for [HEADS][QUERIES][KEYS], each the reference's number. */
static void draw(probe *p, float share, uint64_t seed, uint32_t offset, float *kept)
{
    const reference_args want = { .dropout_p = share,
                                  .dropout_seed = seed,
                                  .dropout_offset = offset };
    const float scale = (float)(1 / (1 - (double)share));
    const device_tensor out =
        device_output(&p->d, (size_t[]){ 1, HEADS, QUERIES, KEYS }, NULL, sizeof(float));
    const mha_arg args[] = {
        MHA_ARG_INT((uint32_t)round(share * 0x1p32)),
        MHA_ARG_FLOAT(scale),
        MHA_ARG_INT((uint32_t)seed),
        MHA_ARG_INT((uint32_t)(seed >> 32)),
        MHA_ARG_INT(offset),
        MHA_ARG_MEM(device_buffer(&out)),
        MHA_ARG_SIZE(out.offset),
    };
    probe_launch(p, "dropout_probe_keep", args, COUNT_OF(args),
                 &(mha_grid){ .dims = 3, .global = { KEYS, QUERIES, HEADS } });
    device_read(&p->d, &out, kept);
    device_forget(&p->d);
    size_t wrong = 0;
    for (size_t n = 0; n < DRAWS; n++) {
        const size_t g = n / KEYS / QUERIES, i = n / KEYS % QUERIES, j = n % KEYS;
        wrong += kept[n] != (float)reference_dropout(&want, HEADS, 0, g, i, j);
    }
    cr_expect_eq(wrong, 0, "p %g: %zu of %d are not the reference's", (double)share, wrong, DRAWS);
}

/* In deviations: how far from 0 the correlation of x[n] and y[n + step] is. */
static double correlation(const float *x, const float *y, size_t step, double keep)
{
    double sum = 0;
    const size_t count = DRAWS - step;
    for (size_t n = 0; n < count; n++)
        sum += ((x[n] != 0) - keep) * ((y[n + step] != 0) - keep);
    return fabs(sum) / (keep * (1 - keep) * sqrt((double)count));
}

/* The seeds are fixed: 4 deviations are never met by chance. */
Test(dropout, keeps_the_share_and_neighbours_are_independent)
{
    static const float shares[] = { 0.1f, 0.5f, 0.9f };
    static float kept[DRAWS], other_offset[DRAWS], other_seed[DRAWS];
    const uint64_t seed = 0xfedcba9876543210;
    probe p = { 0 };
    probe_open(&p, "dropout_probe", "");
    for (size_t s = 0; s < COUNT_OF(shares); s++) {
        const double keep = 1 - (double)shares[s];
        draw(&p, shares[s], seed, 0, kept);
        draw(&p, shares[s], seed, 1, other_offset);
        draw(&p, shares[s], seed + 1, 0, other_seed);
        size_t count = 0;
        for (size_t n = 0; n < DRAWS; n++)
            count += kept[n] != 0;
        const double off = fabs((double)count - DRAWS * keep) / sqrt(DRAWS * keep * (1 - keep));
        cr_expect_lt(off, 4, "p %g: %zu of %d kept", (double)shares[s], count, DRAWS);
        const struct {
            const char *name;
            double deviations;
        } pairs[] = {
            { "the next key", correlation(kept, kept, 1, keep) },
            { "the next quad", correlation(kept, kept, 4, keep) },
            { "the next query", correlation(kept, kept, KEYS, keep) },
            { "the next head", correlation(kept, kept, KEYS * QUERIES, keep) },
            { "the next offset", correlation(kept, other_offset, 0, keep) },
            { "the next seed", correlation(kept, other_seed, 0, keep) },
        };
        for (size_t n = 0; n < COUNT_OF(pairs); n++)
            cr_expect_lt(pairs[n].deviations, 4, "p %g: %s is %g deviations off", (double)shares[s],
                         pairs[n].name, pairs[n].deviations);
    }
    probe_close(&p);
}
