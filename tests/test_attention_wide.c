/* Attention beyond float32 and the article against the reference: half types, first keys, ALiBi,
 * sinks, dropout, scores shown at each stage, output in place of the query. A seeded cross as in
 * test_attention.c. */
#include "attention_place.h"
#include "half.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEEDS = 100,
    DIAGONAL_USES = MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT | MHA_USES_ALIBI,
    SHOWN = MHA_USES_PROBS | MHA_USES_SCORES | MHA_USES_LSE
};

static const uint64_t sets_of_uses[] = {
    0,
    MHA_USES_KEY_STARTS,
    MHA_USES_KEY_STARTS | MHA_USES_KEY_LENGTHS,
    MHA_USES_KEY_STARTS | MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT,
    MHA_USES_KEY_STARTS | MHA_USES_KEY_LENGTHS_PER_QUERY | MHA_USES_SINKS,
    MHA_USES_ALIBI,
    MHA_USES_ALIBI | MHA_USES_CAUSAL | MHA_USES_KEY_LENGTHS,
    MHA_USES_ALIBI | MHA_USES_BIAS | MHA_USES_SINKS,
    MHA_USES_SINKS,
    MHA_USES_SINKS | MHA_USES_MASK,
    MHA_USES_SINKS | MHA_USES_CAUSAL,
    MHA_USES_BIAS,
    MHA_USES_DROPOUT,
    MHA_USES_DROPOUT | MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT | MHA_USES_SINKS,
    MHA_USES_DROPOUT | MHA_USES_MASK | MHA_USES_KEY_LENGTHS,
    MHA_USES_BIAS | MHA_USES_MASK | MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT |
        MHA_USES_KEY_LENGTHS | MHA_USES_KEY_LENGTHS_PER_QUERY | MHA_USES_KEY_STARTS |
        MHA_USES_ALIBI | MHA_USES_SINKS,
};

static size_t pick_length(uint64_t seed, unsigned number)
{
    static const size_t lengths[] = { 1, 2, 3, 15, 16, 17, 31, 32, 33, 65 };
    return lengths[compare_pick(seed, number, sizeof lengths / sizeof lengths[0])];
}

/* Programs are built for each set of types, so that they are few: all the same, two mixtures, and
 * float32 with one half. */
static void pick_types(mha_attention_desc *desc, uint64_t seed)
{
    static const mha_type types[][5] = {
        { MHA_TYPE_DEFAULT },
        { MHA_FLOAT16 },
        { MHA_BFLOAT16 },
        { MHA_FLOAT16, MHA_BFLOAT16, MHA_FLOAT32, MHA_FLOAT32, MHA_BFLOAT16 },
        { MHA_BFLOAT16, MHA_FLOAT32, MHA_FLOAT16, MHA_FLOAT16, MHA_FLOAT16 },
        { MHA_FLOAT32, MHA_FLOAT16, MHA_BFLOAT16, MHA_BFLOAT16, MHA_FLOAT32 },
    };
    const mha_type *row = types[compare_pick(seed, 30, sizeof types / sizeof types[0])];
    desc->type = row[0];
    desc->key_value_type = row[1];
    desc->bias_type = row[2];
    desc->output_type = row[3];
    desc->scores_type = row[4];
}

static void pick_options(mha_attention_desc *desc, uint64_t seed)
{
    const uint64_t uses =
        sets_of_uses[compare_pick(seed, 10, sizeof sets_of_uses / sizeof sets_of_uses[0])];
    desc->uses = uses;
    if (compare_pick(seed, 11, 2))
        desc->uses |= MHA_USES_PROBS;
    if (compare_pick(seed, 12, 2))
        desc->uses |= MHA_USES_LSE;
    if (compare_pick(seed, 13, 3))
        desc->uses |= MHA_USES_SCORES;
    if (uses & DIAGONAL_USES)
        desc->diagonal = compare_pick(seed, 14, 2) ? MHA_TOP_LEFT : MHA_BOTTOM_RIGHT;
    if (uses & MHA_USES_WINDOW_LEFT)
        desc->window_left = 2 + 7 * compare_pick(seed, 15, 3);
    if (uses & MHA_USES_WINDOW_RIGHT)
        desc->window_right = compare_pick(seed, 16, 9);
    if (uses & MHA_USES_BIAS)
        desc->bias_broadcast = (unsigned)compare_pick(seed, 17, 16);
    if (uses & MHA_USES_MASK)
        desc->mask_broadcast = (unsigned)compare_pick(seed, 18, 16);
    if (uses & MHA_USES_DROPOUT)
        desc->dropout_p = compare_pick(seed, 27, 2) ? 0.1f : 0.5f;
    desc->scores_stage = (mha_scores_stage)compare_pick(seed, 19, 3);
    desc->softcap = compare_pick(seed, 20, 3) ? 0 : 2.5f;
}

static attention_case pick_case(uint64_t seed)
{
    static const size_t dims[] = { 1, 3, 16, 17, 33, 64 };
    attention_case c = { .seed = seed * 16 };
    mha_attention_desc *desc = &c.desc;
    desc->batch = 1 + compare_pick(seed, 0, 3);
    desc->kv_heads = 1 + compare_pick(seed, 1, 2);
    desc->heads = desc->kv_heads * (1 + compare_pick(seed, 2, 3));
    c.query_len = pick_length(seed, 3);
    c.key_len = compare_pick(seed, 4, 3) ? pick_length(seed, 5) : c.query_len;
    desc->query_len = c.query_len + 3 * compare_pick(seed, 6, 2);
    desc->key_len = c.key_len + 5 * compare_pick(seed, 7, 2);
    desc->head_dim = dims[compare_pick(seed, 8, sizeof dims / sizeof dims[0])];
    desc->value_dim = compare_pick(seed, 21, 2) ? 0 : dims[compare_pick(seed, 9, 6)];
    pick_options(desc, seed);
    pick_types(desc, seed);
    c.layout = (attention_layout)compare_pick(seed, 22, NUM_LAYOUTS);
    c.fill = (fill_kind)compare_pick(seed, 23, 2 * FILL_KINDS);
    /* Large scores do not fit float16, nor does what is no longer one number after rounding. */
    if (c.fill >= FILL_KINDS || (c.fill == FILL_LARGE && desc->scores_type == MHA_FLOAT16))
        c.fill = FILL_NORMAL;
    c.lengths_on_device = compare_pick(seed, 24, 2);
    c.slopes_per_batch = compare_pick(seed, 25, 2);
    c.in_place = compare_pick(seed, 26, 3) == 0 && !desc->value_dim &&
                 (!desc->output_type || desc->output_type == desc->type);
    return c;
}

Test(attention_wide, cross)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    size_t count = 0;
    for (size_t n = 0; n < SEEDS; n++) {
        const attention_case given = pick_case(5000 + n);
        for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++) {
            const attention_case c = attention_by_way(&given, way);
            /* They build a program a case: streaming in 2 and 9 s on PoCL, decode in 1 and 4. */
            const bool is_gpu = c.desc.tiling == MHA_TILING_GPU;
            if ((c.desc.path == MHA_PATH_STREAMING && n % (is_gpu ? 25 : 4)) ||
                (c.desc.path == MHA_PATH_DECODE && is_gpu && n % 12))
                continue;
            attention_check(&d, &c, &worst);
            count++;
        }
    }
    compare_log("wide attention", count, &worst);
    device_close(&d);
}

/* Every query sees nothing: by starts past the lengths, and by a mask. */
static void check_nothing_seen(device *d, const attention_case *c)
{
    attention_data *data = attention_data_new(c);
    for (size_t b = 0; b < data->desc.batch; b++) {
        data->key_starts[b] = (int32_t)(5 + b);
        data->key_lengths[b] = 5;
    }
    attention_data_spoil(data);
    attention_data_expect(data);
    attention_run(d, data);
    attention_compare(data, NULL);
    const size_t rows = data->desc.batch * data->desc.heads * data->query_len;
    for (size_t row = 0; row < rows; row++) {
        const size_t h = row / data->query_len % data->desc.heads;
        const float want = c->desc.uses & MHA_USES_SINKS ? data->sinks[h] : -INFINITY;
        cr_assert_eq(data->lse[row], want, "%s: lse[%zu] is %g", data->name, row,
                     (double)data->lse[row]);
    }
    attention_data_free(data);
}

Test(attention_wide, no_key_leaves_the_sink)
{
    device d;
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_WAYS; way++)
        for (int sinks = 0; sinks <= 1; sinks++) {
            const attention_case given = { .desc = { ATTENTION_SIZES(2, 3, 17, 33, 16),
                                                     .uses = MHA_USES_KEY_STARTS |
                                                             MHA_USES_KEY_LENGTHS | SHOWN |
                                                             (sinks ? MHA_USES_SINKS : 0),
                                                     .scores_stage = MHA_SCORES_BIASED },
                                           .seed = 91 };
            const attention_case c = attention_by_way(&given, way);
            check_nothing_seen(&d, &c);
        }
    device_close(&d);
}

/* A sum that no half holds, rounded once, to even where two are as near: query and key say the
 * weights by a huge score, values are what the output shall be. */
static void check_rounded_once(device *d, mha_type type, size_t way)
{
    static const float values[] = { 1 + 0x1p-11f, 1 + 0x3p-11f,   1 + 0x1p-8f, 1 + 0x3p-8f,
                                    65519,        65520,          0x1p-25f,    0x3p-25f,
                                    0x1.8p-24f,   3.3961775e38f,  -65520,      -0x1p-26f,
                                    0.1f,         0x1.ffffp-127f, -1.5f,       1e30f };
    enum {
        COUNT = sizeof values / sizeof values[0]
    };
    const attention_case given = { .desc = { ATTENTION_SIZES(1, 1, 1, 1, 1), .value_dim = COUNT,
                                             .output_type = type },
                                   .seed = 95 };
    const attention_case c = attention_by_way(&given, way);
    attention_data *data = attention_data_new(&c);
    for (size_t i = 0; i < COUNT; i++)
        data->value[i] = values[i];
    attention_run(d, data);
    for (size_t i = 0; i < COUNT; i++) {
        const double want = half_round(values[i], type);
        cr_expect(data->output[i] == want, "%s: %a becomes %a, not %a", data->name,
                  (double)values[i], (double)data->output[i], want);
    }
    attention_data_free(data);
}

Test(attention_wide, an_output_is_rounded_once_to_even)
{
    device d;
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_WAYS; way++) {
        check_rounded_once(&d, MHA_FLOAT16, way);
        check_rounded_once(&d, MHA_BFLOAT16, way);
    }
    device_close(&d);
}

/* All scores are equal and value is the unit matrix, so the output shows what was dropped, which is
 * what the reference says exactly, whatever path, tiling and first key. */
static void check_dropped(device *d, size_t way, size_t query_len, size_t window, uint32_t offset)
{
    enum {
        KEYS = 37
    };
    const attention_case given = {
        .desc = { ATTENTION_SIZES(2, 4, query_len, KEYS, 1), .kv_heads = 2, .value_dim = KEYS,
                  .uses = MHA_USES_DROPOUT | MHA_USES_WINDOW_LEFT, .diagonal = MHA_BOTTOM_RIGHT,
                  .window_left = window, .dropout_p = 0.375f },
        .seed = 97
    };
    const attention_case c = attention_by_way(&given, way);
    attention_data *data = attention_data_new(&c);
    const mha_attention_desc *desc = &data->desc;
    data->dropout_offset = offset;
    memset(data->query, 0, 2 * 4 * query_len * sizeof(float));
    for (size_t n = 0; n < 2 * 2 * KEYS * KEYS; n++)
        data->value[n] = n / KEYS % KEYS == n % KEYS;
    attention_data_see(data);
    attention_run(d, data);
    const reference_args args = { .dropout_p = desc->dropout_p,
                                  .dropout_seed = data->dropout_seed,
                                  .dropout_offset = offset };
    for (size_t n = 0; n < 2 * 4 * query_len * KEYS; n++) {
        const size_t j = n % KEYS, i = n / KEYS % query_len, h = n / KEYS / query_len % 4;
        const size_t b = n / KEYS / query_len / 4;
        const bool kept = data->seen[n] && reference_dropout(&args, 4, b, h, i, j) > 0;
        cr_assert_eq(data->output[n] > 0, kept, "%s: batch %zu head %zu query %zu key %zu is %g",
                     data->name, b, h, i, j, (double)data->output[n]);
    }
    attention_data_free(data);
}

Test(attention_wide, dropout_drops_the_same_everywhere)
{
    device d;
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++)
        for (size_t n = 0; n < 2; n++) {
            const size_t query_len = n ? 3 : 33;
            check_dropped(&d, way, query_len, 36, 0);
            check_dropped(&d, way, query_len, 9, UINT32_MAX);
        }
    device_close(&d);
}
