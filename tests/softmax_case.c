/* Cases of softmax by itself. */
#include "softmax_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum {
    CAUSAL = MHA_USES_CAUSAL,
    LEFT = MHA_USES_WINDOW_LEFT,
    RIGHT = MHA_USES_WINDOW_RIGHT,
    LENGTHS = MHA_USES_KEY_LENGTHS,
    PER_QUERY = MHA_USES_KEY_LENGTHS_PER_QUERY,
    BIAS = MHA_USES_BIAS,
    MASK = MHA_USES_MASK
};

const uint64_t softmax_rules[SOFTMAX_RULES] = {
    0,
    CAUSAL,
    LEFT,
    RIGHT,
    LENGTHS,
    PER_QUERY,
    BIAS,
    MASK,
    CAUSAL | LENGTHS,
    LEFT | RIGHT,
    CAUSAL | LEFT | PER_QUERY,
    BIAS | MASK,
    CAUSAL | LEFT | RIGHT | LENGTHS | PER_QUERY | BIAS | MASK,
};

attention_case softmax_case_pick(uint64_t seed, uint64_t uses)
{
    static const size_t sizes[] = { 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65 };
    static const size_t windows[] = { 0, 1, 5, 16, 40, SIZE_MAX };
    const size_t num_sizes = sizeof sizes / sizeof sizes[0];
    const bool diagonal = uses & (CAUSAL | LEFT | RIGHT);
    attention_case c = { .seed = seed * 16, .lengths_on_device = true };
    c.query_len = sizes[compare_pick(seed, 2, num_sizes)];
    c.key_len = sizes[compare_pick(seed, 3, num_sizes)];
    /* The longest of any call decides the size of work-groups, and each size is a program: most
     * cases share one. */
    const size_t longest = compare_pick(seed, 13, 3) ? 65 : c.key_len;
    c.desc = (mha_attention_desc){
        ATTENTION_SIZES(1 + compare_pick(seed, 0, 3), 1 + compare_pick(seed, 1, 3), c.query_len,
                        longest, 1),
        .scale = 1,
        .uses = uses | MHA_USES_PROBS,
        .softcap = compare_pick(seed, 4, 4) ? 0 : 1.5f,
        .diagonal = diagonal ? (mha_diagonal)(1 + (int)compare_pick(seed, 5, 2)) : 0,
        .window_left = uses & LEFT ? windows[compare_pick(seed, 6, 6)] : 0,
        .window_right = uses & RIGHT ? windows[compare_pick(seed, 7, 6)] : 0,
        .bias_broadcast = uses & BIAS ? (unsigned)compare_pick(seed, 8, 16) : 0,
        .mask_broadcast = uses & MASK ? (unsigned)compare_pick(seed, 9, 16) : 0,
    };
    if (compare_pick(seed, 10, 2))
        c.desc.uses |= MHA_USES_LSE;
    c.fill = (fill_kind)compare_pick(seed, 11, FILL_KINDS);
    c.layout = compare_pick(seed, 12, 2) ? LAYOUT_GAPS : LAYOUT_PACKED;
    return c;
}

static size_t count_of(const attention_data *data)
{
    return data->desc.batch * data->desc.heads * data->query_len * data->key_len;
}

float *softmax_case_scores(attention_data *data)
{
    const size_t count = count_of(data);
    float *scores = malloc((count ? count : 1) * sizeof *scores);
    cr_assert(scores);
    fill_floats(scores, count, data->given.seed + 1, data->given.fill);
    attention_data_see(data);
    for (size_t i = 0; i < count; i++)
        scores[i] = data->seen[i] ? scores[i] : i % 3 ? NAN : INFINITY;
    const reference_args args = {
        .query_len = data->query_len,
        .key_len = data->key_len,
        .bias = data->bias,
        .mask = data->mask,
        .key_lengths = data->key_lengths,
        .key_lengths_per_query = data->per_query,
        .probs = data->want_probs,
        .lse = data->want_lse,
    };
    reference_softmax(&data->desc, &args, scores);
    return scores;
}

bool softmax_case_compare(const attention_data *data, const float *scores, compare_worst *worst)
{
    const size_t *bias = data->bias_shape;
    double largest = compare_largest(scores, count_of(data)) + data->desc.softcap;
    if (data->desc.uses & BIAS)
        largest += compare_largest(data->bias, bias[0] * bias[1] * bias[2] * bias[3]);
    return attention_compare_softmax(data, reference_limit(1, largest), worst);
}
