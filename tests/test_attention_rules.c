/* What holds for every attention, whatever its numbers are: properties that need no reference. */
#include "attention_place.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One that CLBlast can read where it is, and one that it cannot. */
static const attention_layout layouts[] = { LAYOUT_PACKED, LAYOUT_ROWS };

typedef void rule(device *d, const attention_case *c);

static void for_all(rule *check, const attention_case *given)
{
    device d;
    device_open(&d);
    for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++)
        for (size_t n = 0; n < sizeof layouts / sizeof layouts[0]; n++) {
            attention_case c = attention_by_way(given, way);
            c.layout = layouts[n];
            check(&d, &c);
        }
    device_close(&d);
}

static size_t num_rows(const attention_data *data)
{
    return data->desc.batch * data->desc.heads * data->query_len;
}

static size_t num_outputs(const attention_data *data)
{
    return num_rows(data) * data->desc.value_dim;
}

/* A copy for the caller to free. */
static float *copy_of(const float *data, size_t count)
{
    float *copy = malloc(count * sizeof *copy);
    cr_assert(copy);
    return memcpy(copy, data, count * sizeof *copy);
}

static void check_row_sum(const attention_data *data, size_t row)
{
    const float *probs = data->probs + row * data->key_len;
    const size_t dim = data->desc.value_dim;
    double sum = 0;
    bool sees_any = false;
    for (size_t j = 0; j < data->key_len; j++) {
        const bool seen = data->seen[row * data->key_len + j];
        cr_assert(probs[j] >= 0 && (seen || probs[j] == 0), "%s: probs[%zu][%zu] is %g", data->name,
                  row, j, (double)probs[j]);
        sum += probs[j];
        sees_any = sees_any || seen;
    }
    const double want = sees_any ? 1 : 0;
    const double limit = want * reference_limit(data->key_len, 1);
    for (size_t c = row * dim; c < (row + 1) * dim; c++)
        compare_one(data->name, "output of ones", c, data->output[c], want, limit, NULL);
    if (data->desc.uses & MHA_USES_PROBS)
        compare_one(data->name, "sum of probs", row, (float)sum, want, limit, NULL);
    cr_assert_eq(data->lse[row] == -INFINITY, !sees_any, "%s: lse[%zu] is %g", data->name, row,
                 (double)data->lse[row]);
}

/* All values are 1, so that the output is the sum of the probs, where these are not to be had. */
static void check_sums(device *d, const attention_case *c)
{
    attention_data *data = attention_data_new(c);
    const mha_attention_desc *desc = &data->desc;
    for (size_t i = 0; i < desc->batch * desc->kv_heads * data->key_len * desc->value_dim; i++)
        data->value[i] = 1;
    attention_data_spoil(data);
    attention_run(d, data);
    for (size_t row = 0; row < num_rows(data); row++)
        if (!data->spoilt[row])
            check_row_sum(data, row);
    attention_data_free(data);
}

Test(attention_rules, probs_sum_to_one_or_are_zero)
{
    static const attention_case cases[] = {
        { .desc = { ATTENTION_SIZES(2, 2, 33, 65, 16),
                    .uses = MHA_USES_PROBS | MHA_USES_LSE | MHA_USES_KEY_LENGTHS },
          .seed = 1 },
        { .desc = { ATTENTION_SIZES(2, 2, 31, 17, 16), .kv_heads = 1,
                    .uses = MHA_USES_PROBS | MHA_USES_LSE | MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT,
                    .diagonal = MHA_BOTTOM_RIGHT, .window_left = 2 },
          .seed = 2 },
        { .desc = { ATTENTION_SIZES(2, 2, 15, 3, 130),
                    .uses = MHA_USES_PROBS | MHA_USES_LSE | MHA_USES_MASK | MHA_USES_BIAS },
          .fill = FILL_LARGE,
          .seed = 3 },
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        for_all(check_sums, &cases[n]);
}

/* The reference says what comes without the constant. */
static void check_shift(device *d, const attention_case *c)
{
    attention_data *data = attention_data_new(c);
    attention_data_expect(data);
    for (size_t i = 0; i < num_rows(data) * data->key_len; i++)
        data->bias[i] += 3;
    attention_run(d, data);
    attention_compare(data, NULL);
    attention_data_free(data);
}

Test(attention_rules, a_constant_added_to_scores_changes_nothing)
{
    for_all(check_shift, &(attention_case){ .desc = { ATTENTION_SIZES(2, 3, 17, 33, 32),
                                                      .uses = MHA_USES_BIAS | MHA_USES_PROBS },
                                            .seed = 11 });
}

static void reverse_rows(float *rows, size_t matrices, size_t len, size_t width)
{
    for (size_t m = 0; m < matrices; m++)
        for (size_t i = 0; i < len / 2; i++)
            for (size_t c = 0; c < width; c++) {
                float *first = &rows[(m * len + i) * width + c];
                float *last = &rows[(m * len + len - 1 - i) * width + c];
                const float x = *first;
                *first = *last;
                *last = x;
            }
}

static void check_permuted(device *d, const attention_case *c)
{
    attention_data *data = attention_data_new(c);
    const size_t matrices = data->desc.batch * data->desc.kv_heads;
    attention_data_expect(data);
    reverse_rows(data->key, matrices, data->key_len, data->desc.head_dim);
    reverse_rows(data->value, matrices, data->key_len, data->desc.value_dim);
    reverse_rows(data->bias, num_rows(data), data->key_len, 1);
    attention_run(d, data);
    attention_compare(data, NULL);
    attention_data_free(data);
}

Test(attention_rules, the_order_of_keys_does_not_matter)
{
    attention_case c = { .desc = { ATTENTION_SIZES(2, 4, 17, 63, 33), .kv_heads = 2,
                                   .value_dim = 16, .uses = MHA_USES_LSE },
                         .seed = 21 };
    for_all(check_permuted, &c);
    c.desc.uses |= MHA_USES_BIAS;
    for_all(check_permuted, &c);
}

/* `with` in place of what the key at `first` and all later ones have. */
static void change_keys(attention_data *data, size_t first, float with)
{
    const mha_attention_desc *d = &data->desc;
    for (size_t m = 0; m < d->batch * d->kv_heads; m++)
        for (size_t j = first; j < data->key_len; j++) {
            for (size_t c = 0; c < d->head_dim; c++)
                data->key[(m * data->key_len + j) * d->head_dim + c] = with;
            for (size_t c = 0; c < d->value_dim; c++)
                data->value[(m * data->key_len + j) * d->value_dim + c] = with;
        }
}

/* Query i sees the keys up to i: those before `changed` keep their bits, the others do not. */
static void check_future(device *d, const attention_case *c)
{
    static const float values[] = { 3, -1e30f, INFINITY, NAN };
    const size_t changed = 20;
    attention_data *data = attention_data_new(c);
    attention_run(d, data);
    float *before = copy_of(data->output, num_outputs(data));
    for (size_t n = 0; n < sizeof values / sizeof values[0]; n++) {
        change_keys(data, changed, values[n]);
        attention_run(d, data);
        for (size_t row = 0; row < num_rows(data); row++) {
            const size_t at = row * data->desc.value_dim;
            const bool same =
                !memcmp(before + at, data->output + at, data->desc.value_dim * sizeof *before);
            cr_assert_eq(same, row % data->query_len < changed, "%s: row %zu, later keys are %g",
                         data->name, row, (double)values[n]);
        }
    }
    free(before);
    attention_data_free(data);
}

Test(attention_rules, a_future_key_changes_no_bit)
{
    for_all(check_future,
            &(attention_case){ .desc = { ATTENTION_SIZES(2, 2, 33, 33, 17), .uses = MHA_USES_CAUSAL,
                                         .diagonal = MHA_TOP_LEFT },
                               .seed = 31 });
}

static void check_same_bits(device *d, const attention_case *c)
{
    attention_data *data = attention_data_new(c);
    const size_t probs = num_rows(data) * data->key_len;
    attention_run(d, data);
    float *output = copy_of(data->output, num_outputs(data));
    float *first = copy_of(data->probs, probs);
    float *lse = copy_of(data->lse, num_rows(data));
    for (int run = 0; run < 3; run++) {
        attention_run(d, data);
        cr_expect_arr_eq(output, data->output, num_outputs(data) * sizeof(float), "%s", data->name);
        cr_expect_arr_eq(first, data->probs, probs * sizeof(float), "%s", data->name);
        cr_expect_arr_eq(lse, data->lse, num_rows(data) * sizeof(float), "%s", data->name);
    }
    free(output);
    free(first);
    free(lse);
    attention_data_free(data);
}

Test(attention_rules, two_runs_give_the_same_bits)
{
    for_all(check_same_bits,
            &(attention_case){ .desc = { ATTENTION_SIZES(2, 4, 65, 130, 64), .kv_heads = 2,
                                         .uses = MHA_USES_PROBS | MHA_USES_LSE },
                               .seed = 41 });
}

/* A NaN that takes part shows, and in its own query only. */
static void check_nan_query(device *d, const attention_case *c)
{
    attention_data *data = attention_data_new(c);
    const size_t spoilt = 1, dim = data->desc.value_dim;
    data->query[spoilt * data->desc.head_dim + 5] = NAN;
    attention_run(d, data);
    for (size_t row = 0; row < num_rows(data); row++) {
        const bool wants_nan = row == spoilt;
        cr_expect_eq(!!isnan(data->lse[row]), wants_nan, "%s: lse[%zu] is %g", data->name, row,
                     (double)data->lse[row]);
        for (size_t at = row * dim; at < (row + 1) * dim; at++)
            cr_assert_eq(!!isnan(data->output[at]), wants_nan, "%s: row %zu, output[%zu] is %g",
                         data->name, row, at, (double)data->output[at]);
    }
    attention_data_free(data);
}

/* So many keys that the decode path has several parts. */
Test(attention_rules, a_query_of_nan_gives_nan)
{
    for_all(check_nan_query,
            &(attention_case){ .desc = { ATTENTION_SIZES(1, 2, 3, 700, 17), .uses = MHA_USES_LSE },
                               .seed = 45 });
}

/* Only -inf excludes: a row of nothing but -FLT_MAX is a row of equal keys. The values are such
 * that the output is the probs. */
static void check_finite_bias(device *d, const attention_case *c)
{
    const double third = 1.0 / 3;
    const double want[] = { third, third, third, 0.5, 0, 0.5, 0, 1, 0, 0, 0, 0 };
    const float bias[] = { -FLT_MAX,  -FLT_MAX, -FLT_MAX,  0,         -FLT_MAX,  0,
                           -INFINITY, -FLT_MAX, -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    const float value[] = { 1, 0, 0, 0, 1, 0, 0, 0, 1 };
    attention_data *data = attention_data_new(c);
    memset(data->query, 0, 4 * sizeof(float));
    memcpy(data->bias, bias, sizeof bias);
    memcpy(data->value, value, sizeof value);
    attention_run(d, data);
    compare_all(data->name, "output", data->output, want, 12, 1e-6, NULL);
    attention_data_free(data);
}

Test(attention_rules, a_finite_bias_excludes_nothing)
{
    for_all(check_finite_bias, &(attention_case){ .desc = { ATTENTION_SIZES(1, 1, 4, 3, 1),
                                                            .value_dim = 3, .uses = MHA_USES_BIAS },
                                                  .seed = 51 });
}

/* Each head of `rows` as the first of its batch, or NaN. */
static void set_heads(float *rows, size_t batch, size_t heads, size_t size, bool repeat)
{
    for (size_t b = 0; b < batch; b++)
        for (size_t i = size; i < heads * size; i++)
            rows[b * heads * size + i] = repeat ? rows[b * heads * size + i % size] : NAN;
}

/* One head of keys and values that all heads read through a stride of 0. */
static void check_repeated_heads(device *d, const attention_case *c)
{
    attention_data *data = attention_data_new(c);
    const mha_attention_desc *desc = &data->desc;
    const size_t key = data->key_len * desc->head_dim;
    const size_t value = data->key_len * desc->value_dim;
    set_heads(data->key, desc->batch, desc->heads, key, true);
    set_heads(data->value, desc->batch, desc->heads, value, true);
    attention_data_expect(data);
    set_heads(data->key, desc->batch, desc->heads, key, false);
    set_heads(data->value, desc->batch, desc->heads, value, false);
    attention_tensors tensors = attention_place(d, data);
    const size_t key_strides[4] = { desc->heads * key, 0, desc->head_dim, 1 };
    const size_t value_strides[4] = { desc->heads * value, 0, desc->value_dim, 1 };
    memcpy(tensors.args.key.strides, key_strides, sizeof key_strides);
    memcpy(tensors.args.value.strides, value_strides, sizeof value_strides);
    attention_run_placed(d, data, &tensors);
    attention_compare(data, NULL);
    device_forget(d);
    attention_data_free(data);
}

Test(attention_rules, a_stride_of_0_repeats_an_input)
{
    device d;
    device_open(&d);
    for (size_t batch = 1; batch <= 2; batch++)
        for (size_t way = 0; way < ATTENTION_ALL_WAYS; way++) {
            const attention_case given = {
                .desc = { ATTENTION_SIZES(batch, 3, 15, 17, 16), .value_dim = 33 }, .seed = 61
            };
            const attention_case c = attention_by_way(&given, way);
            check_repeated_heads(&d, &c);
        }
    device_close(&d);
}
