/* Attention on device memory against the reference: options, layouts and lengths in a seeded cross.
 * Properties of attention are in test_attention_rules.c. */
#include "attention_place.h"

#include <criterion/criterion.h>
#include <math.h>

enum {
    CROSS_SEEDS = 120,
    DIAGONAL_USES = MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT,
    EVERY_USE = 0x1ff
};

/* Not all sets of options: each is a program of its own, and a third of a second where it is not
 * kept yet. */
static const uint64_t sets_of_uses[] = {
    0,
    MHA_USES_KEY_LENGTHS,
    MHA_USES_KEY_LENGTHS_PER_QUERY,
    MHA_USES_BIAS,
    MHA_USES_MASK,
    MHA_USES_CAUSAL,
    MHA_USES_CAUSAL | MHA_USES_KEY_LENGTHS,
    MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT,
    MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT,
    MHA_USES_WINDOW_RIGHT | MHA_USES_KEY_LENGTHS_PER_QUERY,
    MHA_USES_MASK | MHA_USES_WINDOW_LEFT | MHA_USES_KEY_LENGTHS,
    MHA_USES_BIAS | MHA_USES_MASK | MHA_USES_CAUSAL,
    EVERY_USE,
};

static size_t pick_length(uint64_t seed, unsigned number)
{
    static const size_t lengths[] = { 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65 };
    return lengths[compare_pick(seed, number, sizeof lengths / sizeof lengths[0])];
}

static size_t pick_window(uint64_t seed, unsigned number)
{
    static const size_t windows[] = { 0, 1, 3, 16, 64, SIZE_MAX };
    return windows[compare_pick(seed, number, sizeof windows / sizeof windows[0])];
}

/* What follows from the bits of `uses`, else 0. */
static void pick_options(mha_attention_desc *desc, uint64_t seed)
{
    static const float softcaps[] = { 0, 0, 0, 2.5f };
    static const float scales[] = { 0, 0, 0.75f, -0.5f };
    const uint64_t uses =
        sets_of_uses[compare_pick(seed, 10, sizeof sets_of_uses / sizeof sets_of_uses[0])];
    desc->uses = uses;
    if (compare_pick(seed, 11, 2))
        desc->uses |= MHA_USES_PROBS;
    if (compare_pick(seed, 12, 2))
        desc->uses |= MHA_USES_LSE;
    if (uses & DIAGONAL_USES)
        desc->diagonal = compare_pick(seed, 13, 2) ? MHA_TOP_LEFT : MHA_BOTTOM_RIGHT;
    if (uses & MHA_USES_WINDOW_LEFT)
        desc->window_left = pick_window(seed, 14);
    if (uses & MHA_USES_WINDOW_RIGHT)
        desc->window_right = pick_window(seed, 15);
    if (uses & MHA_USES_BIAS)
        desc->bias_broadcast = (unsigned)compare_pick(seed, 16, 16);
    if (uses & MHA_USES_MASK)
        desc->mask_broadcast = (unsigned)compare_pick(seed, 17, 16);
    desc->softcap = softcaps[compare_pick(seed, 18, 4)];
    desc->scale = scales[compare_pick(seed, 19, 4)];
}

static attention_case pick_case(uint64_t seed)
{
    static const size_t dims[] = { 1, 3, 16, 17, 32, 33, 64, 65, 130 };
    const size_t num_dims = sizeof dims / sizeof dims[0];
    attention_case c = { .seed = seed * 16 };
    mha_attention_desc *desc = &c.desc;
    desc->batch = 1 + compare_pick(seed, 0, 3);
    desc->kv_heads = 1 + compare_pick(seed, 1, 3);
    desc->heads = desc->kv_heads * (1 + compare_pick(seed, 2, 3));
    c.query_len = pick_length(seed, 3);
    c.key_len = compare_pick(seed, 4, 3) ? pick_length(seed, 5) : c.query_len;
    desc->query_len = c.query_len + 3 * compare_pick(seed, 6, 2);
    /* The longest of any call decides the size of the softmax's work-groups, and each is a program.
     */
    desc->key_len = compare_pick(seed, 7, 3) ? 70 : c.key_len;
    desc->head_dim = dims[compare_pick(seed, 8, num_dims)];
    desc->value_dim = compare_pick(seed, 20, 2) ? 0 : dims[compare_pick(seed, 9, num_dims)];
    pick_options(desc, seed);
    c.layout = (attention_layout)compare_pick(seed, 21, NUM_LAYOUTS);
    c.fill = (fill_kind)compare_pick(seed, 22, 2 * FILL_KINDS);
    if (c.fill >= FILL_KINDS)
        c.fill = FILL_NORMAL;
    c.lengths_on_device = compare_pick(seed, 23, 2);
    return c;
}

/* Not all of them by streaming, which may be the default: see attention_case.h. */
Test(attention, cross)
{
    device d;
    compare_worst worst = { 0 };
    size_t count = 0;
    device_open(&d);
    for (size_t n = 0; n < CROSS_SEEDS; n++)
        for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++) {
            const attention_case picked = pick_case(1000 + n);
            const attention_case c = attention_by_way(&picked, way);
            const size_t each = c.desc.path == MHA_PATH_COMPOSED  ? 1
                                : c.desc.tiling != MHA_TILING_GPU ? 6
                                                                  : 12;
            if (n % each)
                continue;
            attention_check(&d, &c, &worst);
            count++;
        }
    compare_log("attention", count, &worst);
    device_close(&d);
}

static void check_cases(const char *test, const attention_case *cases, size_t count)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < count; n++)
        for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++) {
            attention_case c = attention_by_way(&cases[n], way);
            c.seed = n + 1;
            attention_check(&d, &c, &worst);
        }
    compare_log(test, ATTENTION_ALL_WAYS * count, &worst);
    device_close(&d);
}

/* Each of these is empty or all but empty somewhere. */
Test(attention, nothing_to_do)
{
    enum {
        BOTH = MHA_USES_PROBS | MHA_USES_LSE
    };
    static const attention_case cases[] = {
        { .desc = { ATTENTION_SIZES(0, 2, 3, 4, 5),
                    .uses = BOTH | MHA_USES_KEY_LENGTHS | MHA_USES_BIAS } },
        { .desc = { ATTENTION_SIZES(2, 2, 0, 4, 5),
                    .uses = BOTH | MHA_USES_KEY_LENGTHS_PER_QUERY } },
        { .desc = { ATTENTION_SIZES(2, 2, 3, 0, 5), .uses = BOTH } },
        { .desc = { ATTENTION_SIZES(2, 2, 33, 0, 5), .value_dim = 65,
                    .uses = MHA_USES_LSE | MHA_USES_MASK | MHA_USES_CAUSAL,
                    .diagonal = MHA_BOTTOM_RIGHT },
          .layout = LAYOUT_ROWS },
        { .desc = { ATTENTION_SIZES(0, 1, 0, 0, 1) } },
        { .desc = { ATTENTION_SIZES(1, 1, 1, 1, 1), .uses = BOTH } },
    };
    check_cases("attention of nothing", cases, sizeof cases / sizeof cases[0]);
}

/* Rows longer than a work-group of the softmax has items, whatever its size. */
Test(attention, many_keys)
{
    static const attention_case cases[] = {
        { .desc = { ATTENTION_SIZES(1, 2, 3, 1030, 5), .kv_heads = 1,
                    .uses = MHA_USES_LSE | MHA_USES_KEY_LENGTHS } },
        { .desc = { ATTENTION_SIZES(1, 1, 2, 4099, 3),
                    .uses = MHA_USES_PROBS | MHA_USES_WINDOW_LEFT, .diagonal = MHA_BOTTOM_RIGHT,
                    .window_left = 2000 } },
        { .desc = { ATTENTION_SIZES(1, 1, 130, 257, 64), .uses = MHA_USES_CAUSAL,
                    .diagonal = MHA_BOTTOM_RIGHT },
          .layout = LAYOUT_ROWS },
    };
    check_cases("attention to many keys", cases, sizeof cases / sizeof cases[0]);
}

/* Scores up to 1e9 in magnitude, of both signs. */
Test(attention, huge_scores)
{
    static const attention_case cases[] = {
        { .desc = { ATTENTION_SIZES(2, 2, 17, 33, 65), .scale = 1,
                    .uses = MHA_USES_LSE | MHA_USES_PROBS },
          .fill = FILL_LARGE },
        { .desc = { ATTENTION_SIZES(1, 2, 33, 33, 16), .scale = -1,
                    .uses = MHA_USES_LSE | MHA_USES_CAUSAL, .diagonal = MHA_TOP_LEFT },
          .fill = FILL_LARGE,
          .layout = LAYOUT_QKV },
        { .desc = { ATTENTION_SIZES(1, 2, 17, 31, 16), .softcap = 30,
                    .uses = MHA_USES_LSE | MHA_USES_MASK },
          .fill = FILL_LARGE },
    };
    check_cases("attention with huge scores", cases, sizeof cases / sizeof cases[0]);
}

/* Scores that float32 holds to the last bit, a million and a bit: their distances count, and are
 * not lost in what they are multiplied by. */
Test(attention, exact_scores)
{
    enum {
        QUERIES = 9,
        KEYS = 70,
        STEPS = 5
    };
    float query[QUERIES], key[KEYS], value[KEYS], output[QUERIES];
    double sum = 0, right = 0;
    for (size_t i = 0; i < QUERIES; i++)
        query[i] = 1;
    for (size_t j = 0; j < KEYS; j++) {
        const double above = (double)(j % STEPS);
        key[j] = (float)(1e6 + above);
        value[j] = (float)above;
        sum += exp(above);
        right += exp(above) * above;
    }
    right /= sum;
    device d;
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++) {
        const attention_case given = { .desc = { ATTENTION_SIZES(1, 1, QUERIES, KEYS, 1),
                                                 .scale = 1 } };
        const attention_case c = attention_by_way(&given, way);
        const mha_host_args args = {
            .query.data = query, .key.data = key, .value.data = value, .output.data = output
        };
        mha_attention *attention;
        cr_assert_eq(mha_attention_create(&attention, d.context, &c.desc), MHA_OK, "%s",
                     d.sentence);
        cr_assert_eq(mha_attention_run(attention, &args), MHA_OK, "%s", d.sentence);
        mha_attention_destroy(&attention);
        for (size_t i = 0; i < QUERIES; i++)
            compare_one("exact scores", "output", i, output[i], right, 4e-6, NULL);
    }
    device_close(&d);
}
