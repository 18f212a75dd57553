/* Attention cases: their data and the limits of their errors. */
#include "attention_case.h"

#include "half.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    cr_assert(memory, "no memory for %zu elements of %zu bytes", count, size);
    return memory;
}

static size_t count_of(const size_t shape[4])
{
    return shape[0] * shape[1] * shape[2] * shape[3];
}

static size_t rows_of(const attention_data *data)
{
    return data->desc.batch * data->desc.heads * data->query_len;
}

attention_case attention_by_way(const attention_case *given, size_t way)
{
    static const struct {
        mha_path path;
        mha_tiling tiling;
        mha_gemm_by gemm;
    } ways[ATTENTION_ALL_WAYS] = {
        { .path = MHA_PATH_DEFAULT },
        { .path = MHA_PATH_COMPOSED, .gemm = MHA_GEMM_CLBLAST },
        { .path = MHA_PATH_COMPOSED, .gemm = MHA_GEMM_KERNEL },
        { .path = MHA_PATH_COMPOSED, .gemm = MHA_GEMM_KERNEL, .tiling = MHA_TILING_GPU },
        { .path = MHA_PATH_STREAMING, .tiling = MHA_TILING_CPU },
        { .path = MHA_PATH_STREAMING, .tiling = MHA_TILING_GPU },
        { .path = MHA_PATH_DECODE, .tiling = MHA_TILING_CPU },
        { .path = MHA_PATH_DECODE, .tiling = MHA_TILING_GPU },
    };
    attention_case c = *given;
    c.desc.path = ways[way].path;
    c.desc.tiling = ways[way].tiling;
    c.desc.gemm = ways[way].gemm;
    const size_t rows = c.desc.query_len * (c.desc.kv_heads ? c.desc.heads / c.desc.kv_heads : 1);
    if (c.desc.path == MHA_PATH_DECODE && (!rows || rows > 64))
        c.desc.path = MHA_PATH_STREAMING; /* too many rows for it */
    if (c.desc.path == MHA_PATH_STREAMING || c.desc.path == MHA_PATH_DECODE) {
        c.desc.uses &= ~(uint64_t)(MHA_USES_PROBS | MHA_USES_SCORES);
        if (!c.desc.key_len)
            c.desc.path = MHA_PATH_DEFAULT; /* which has no keys to stream */
    }
    return c;
}

static mha_type key_value_type(const mha_attention_desc *d)
{
    return d->key_value_type ? d->key_value_type : d->type;
}

static mha_type bias_type(const mha_attention_desc *d)
{
    return d->bias_type ? d->bias_type : d->type;
}

static mha_type output_type(const mha_attention_desc *d)
{
    return d->output_type ? d->output_type : d->type;
}

static void say_name(attention_data *data)
{
    static const char *const layouts[NUM_LAYOUTS] = { "packed", "rows", "len first", "qkv",
                                                      "gaps" };
    const attention_case *c = &data->given;
    const mha_attention_desc *d = &data->desc;
    snprintf(data->name, sizeof data->name,
             "seed %llu: b%zu h%zu/%zu q%zu/%zu k%zu/%zu d%zu v%zu uses %03llx diagonal %d windows "
             "%zu,%zu broadcasts %x,%x scale %g softcap %g "
             "path %d/%d gemm %d %s %s%s types %d,%d,%d,%d,%d stage %d%s",
             (unsigned long long)c->seed, d->batch, d->heads, d->kv_heads, data->query_len,
             d->query_len, data->key_len, d->key_len, d->head_dim, d->value_dim,
             (unsigned long long)d->uses, (int)d->diagonal, d->window_left, d->window_right,
             d->bias_broadcast, d->mask_broadcast, (double)d->scale, (double)d->softcap,
             (int)d->path, (int)d->tiling, (int)d->gemm, layouts[c->layout],
             fill_kind_name(c->fill), c->lengths_on_device ? " lengths on device" : "",
             (int)d->type, (int)d->key_value_type, (int)d->bias_type, (int)d->output_type,
             (int)d->scores_type, (int)d->scores_stage, c->in_place ? " in place" : "");
}

/* Lengths that a host array may have, or some that are out of range as well. */
static int32_t *lengths(const attention_data *data, size_t count, uint64_t seed)
{
    int32_t *array = allocate(count, sizeof *array);
    const int32_t beyond = data->given.lengths_on_device ? 3 : 0;
    fill_lengths(array, count, seed, (int32_t)data->key_len + 2 * beyond);
    for (size_t i = 0; i < count; i++)
        array[i] -= beyond;
    return array;
}

static void fill_options(attention_data *data)
{
    const mha_attention_desc *d = &data->desc;
    const uint64_t seed = data->given.seed;
    const size_t scores[4] = { d->batch, d->heads, data->query_len, data->key_len };
    for (int axis = 0; axis < 4; axis++) {
        data->bias_shape[axis] = d->bias_broadcast >> axis & 1 ? 1 : scores[axis];
        data->mask_shape[axis] = d->mask_broadcast >> axis & 1 ? 1 : scores[axis];
    }
    const size_t biases = count_of(data->bias_shape);
    const size_t masks = count_of(data->mask_shape);
    data->bias = allocate(biases, sizeof(float));
    data->mask = allocate(biases > masks ? biases : masks, 1);
    fill_uniform(data->bias, biases, seed + 4, -2, 2);
    fill_mask(data->mask, biases, seed + 5, 0.1);
    for (size_t i = 0; i < biases; i++)
        data->bias[i] = data->mask[i] ? -INFINITY : data->bias[i];
    fill_mask(data->mask, masks, seed + 6, 0.7);
    for (size_t i = 0; i < masks; i++)
        data->mask[i] *= (unsigned char)(1 + i % 255); /* any byte but 0 allows */
    data->key_lengths = lengths(data, d->batch, seed + 7);
    data->per_query = lengths(data, d->batch * data->query_len, seed + 8);
    data->key_starts = lengths(data, d->batch, seed + 9);
    for (size_t b = 0; b < d->batch; b++)
        data->key_starts[b] /= 2; /* most of them before the batch's last key */
    data->slopes = allocate(d->batch * d->heads, sizeof(float));
    fill_uniform(data->slopes, d->batch * d->heads, seed + 10, -0.05f, 0.5f);
    data->sinks = allocate(d->heads, sizeof(float));
    fill_uniform(data->sinks, d->heads, seed + 11, -3, 3);
}

attention_data *attention_data_new(const attention_case *given)
{
    attention_data *data = allocate(1, sizeof *data);
    data->given = *given;
    data->desc = reference_attention_resolve(&given->desc);
    const mha_attention_desc *d = &data->desc;
    data->query_len = given->query_len ? given->query_len : d->query_len;
    data->key_len = given->key_len ? given->key_len : d->key_len;
    say_name(data);

    if (d->uses & MHA_USES_DROPOUT) {
        data->dropout_seed = given->seed * 0x9e3779b97f4a7c15;
        data->dropout_offset = (uint32_t)given->seed;
    }
    const size_t queries = rows_of(data);
    const size_t keys = d->batch * d->kv_heads * data->key_len;
    data->query = allocate(queries * d->head_dim, sizeof(float));
    data->key = allocate(keys * d->head_dim, sizeof(float));
    data->value = allocate(keys * d->value_dim, sizeof(float));
    fill_floats(data->query, queries * d->head_dim, given->seed + 1, given->fill);
    fill_floats(data->key, keys * d->head_dim, given->seed + 2, given->fill);
    fill_floats(data->value, keys * d->value_dim, given->seed + 3, given->fill);
    fill_options(data);
    stored_round(d->type, data->query, queries * d->head_dim);
    stored_round(key_value_type(d), data->key, keys * d->head_dim);
    stored_round(key_value_type(d), data->value, keys * d->value_dim);
    stored_round(bias_type(d), data->bias, count_of(data->bias_shape));
    data->output = allocate(queries * d->value_dim, sizeof(float));
    data->probs = allocate(queries * data->key_len, sizeof(float));
    data->scores = allocate(queries * data->key_len, sizeof(float));
    data->lse = allocate(queries, sizeof(float));
    data->want_output = allocate(queries * d->value_dim, sizeof(double));
    data->want_probs = allocate(queries * data->key_len, sizeof(double));
    data->want_scores = allocate(queries * data->key_len, sizeof(double));
    data->want_lse = allocate(queries, sizeof(double));
    data->seen = allocate(queries * data->key_len, sizeof(bool));
    data->spoilt = allocate(queries, sizeof(bool));
    return data;
}

void attention_data_free(attention_data *data)
{
    void *const arrays[] = { data->query,      data->key,         data->value,
                             data->bias,       data->mask,        data->key_lengths,
                             data->per_query,  data->key_starts,  data->slopes,
                             data->sinks,      data->output,      data->probs,
                             data->scores,     data->lse,         data->want_output,
                             data->want_probs, data->want_scores, data->want_lse,
                             data->seen,       data->spoilt,      data };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
}

/* The reference's softmax of equal scores is above 0 exactly where a key is seen. */
void attention_data_see(attention_data *data)
{
    const size_t count = rows_of(data) * data->key_len;
    const size_t biases = count_of(data->bias_shape);
    float *scores = allocate(count, sizeof *scores);
    float *bias = allocate(biases, sizeof *bias);
    double *probs = allocate(count, sizeof *probs);
    for (size_t i = 0; i < biases; i++)
        bias[i] = data->bias[i] == -INFINITY ? -INFINITY : 0;
    const reference_args args = {
        .query_len = data->query_len,
        .key_len = data->key_len,
        .bias = bias,
        .mask = data->mask,
        .key_lengths = data->key_lengths,
        .key_lengths_per_query = data->per_query,
        .key_starts = data->key_starts,
        .probs = probs,
    };
    mha_attention_desc desc = data->desc;
    desc.uses &= ~(MHA_USES_ALIBI | MHA_USES_SINKS);
    desc.softcap = 0;
    desc.scale = 0;
    reference_softmax(&desc, &args, scores);
    for (size_t i = 0; i < count; i++)
        data->seen[i] = probs[i] > 0;
    free(scores);
    free(bias);
    free(probs);
}

static const bool *seen_at(const attention_data *data, size_t b, size_t h, size_t i, size_t j)
{
    return &data->seen[((b * data->desc.heads + h) * data->query_len + i) * data->key_len + j];
}

/* How many queries see a key: those of all heads that read its head. */
static size_t count_seeing(const attention_data *data, size_t b, size_t kv_head, size_t j)
{
    const size_t group = data->desc.heads / data->desc.kv_heads;
    size_t count = 0;
    for (size_t h = kv_head * group; h < (kv_head + 1) * group; h++)
        for (size_t i = 0; i < data->query_len; i++)
            count += *seen_at(data, b, h, i, j);
    return count;
}

static void spoil_key(attention_data *data, size_t b, size_t kv_head, size_t j, float with)
{
    const mha_attention_desc *d = &data->desc;
    const size_t row = (b * d->kv_heads + kv_head) * data->key_len + j;
    const size_t group = d->heads / d->kv_heads;
    for (size_t c = 0; c < d->head_dim; c++)
        data->key[row * d->head_dim + c] = with;
    for (size_t c = 0; c < d->value_dim; c++)
        data->value[row * d->value_dim + c] = with;
    for (size_t h = kv_head * group; h < (kv_head + 1) * group; h++)
        for (size_t i = 0; i < data->query_len; i++)
            if (*seen_at(data, b, h, i, j))
                data->spoilt[(b * d->heads + h) * data->query_len + i] = true;
}

void attention_data_spoil(attention_data *data)
{
    const mha_attention_desc *d = &data->desc;
    attention_data_see(data);
    for (size_t b = 0; b < d->batch; b++) {
        for (size_t h = 0; h < d->kv_heads; h++) {
            const size_t all = d->heads / d->kv_heads * data->query_len;
            size_t least = all;
            size_t rarest = 0;
            for (size_t j = 0; j < data->key_len; j++) {
                const size_t count = count_seeing(data, b, h, j);
                if (!count)
                    spoil_key(data, b, h, j, NAN);
                if (count && count < least) {
                    least = count;
                    rarest = j;
                }
            }
            if (least < all)
                spoil_key(data, b, h, rarest, h % 2 ? INFINITY : NAN);
        }
    }
}

void attention_data_expect(attention_data *data)
{
    const reference_args args = {
        .query_len = data->query_len,
        .key_len = data->key_len,
        .query = data->query,
        .key = data->key,
        .value = data->value,
        .bias = data->bias,
        .mask = data->mask,
        .key_lengths = data->key_lengths,
        .key_lengths_per_query = data->per_query,
        .key_starts = data->key_starts,
        .slopes = data->slopes,
        .slopes_per_batch = data->given.slopes_per_batch,
        .sinks = data->sinks,
        .dropout_p = data->desc.uses & MHA_USES_DROPOUT ? data->desc.dropout_p : 0,
        .dropout_seed = data->dropout_seed,
        .dropout_offset = data->dropout_offset,
        .output = data->want_output,
        .probs = data->want_probs,
        .scores = data->desc.uses & MHA_USES_SCORES ? data->want_scores : NULL,
        .lse = data->want_lse,
    };
    reference_attention(&data->desc, &args);
}

/* The limit of the error of a score. What is not finite is in no row that is compared. */
static double score_limit(const attention_data *data)
{
    const mha_attention_desc *d = &data->desc;
    const double scale = d->scale != 0 ? fabs(d->scale) : 1 / sqrt((double)d->head_dim);
    const double query = compare_norm(data->query, rows_of(data), d->head_dim);
    const double key = compare_norm(data->key, d->batch * d->kv_heads * data->key_len, d->head_dim);
    const double bias =
        d->uses & MHA_USES_BIAS ? compare_largest(data->bias, count_of(data->bias_shape)) : 0;
    const double alibi = d->uses & MHA_USES_ALIBI
                             ? compare_largest(data->slopes, d->batch * d->heads) *
                                   (double)(data->query_len + data->key_len)
                             : 0;
    return reference_limit(d->head_dim, scale * query * key) +
           reference_limit(1, bias + alibi + d->softcap) + (double)d->head_dim * FLT_MIN;
}

/* An error of `score` in each score changes a probability p by at most this. */
static double prob_limit(double score, double p)
{
    return fmin(1, p * (1 - p) * expm1(2 * score));
}

/* Writes to *sum the limits of the row's probs together. */
static bool compare_softmax_row(const attention_data *data, size_t row, double score, double *sum,
                                compare_worst *worst)
{
    const uint64_t uses = data->desc.uses;
    const size_t keys = data->key_len;
    const double *want = data->want_probs + row * keys;
    const double lse = data->want_lse[row];
    const double scale = uses & MHA_USES_DROPOUT ? 1 / (1 - (double)data->desc.dropout_p) : 1;
    *sum = 0;
    for (size_t j = 0; j < keys; j++) {
        const double limit = scale * prob_limit(score, want[j] / scale);
        *sum += limit;
        if (uses & MHA_USES_PROBS &&
            !compare_one(data->name, "probs", row * keys + j, data->probs[row * keys + j], want[j],
                         limit + reference_limit(keys, want[j]) + FLT_MIN +
                             stored_limit(data->desc.scores_type, want[j]),
                         worst))
            return false;
    }
    const double limit =
        score + reference_limit(keys, 1) + reference_limit(1, fmin(FLT_MAX, fabs(lse)));
    return !(uses & MHA_USES_LSE) ||
           compare_one(data->name, "lse", row, data->lse[row], lse, limit, worst);
}

/* The score of a key that the query may not see can be a NaN. */
static bool compare_scores(const attention_data *data, size_t row, double score,
                           compare_worst *worst)
{
    for (size_t n = row * data->key_len; n < (row + 1) * data->key_len; n++) {
        const double want = data->want_scores[n];
        const double limit = score + reference_limit(1, isfinite(want) ? fabs(want) : 0) +
                             stored_limit(data->desc.scores_type, want);
        if (!(isnan(want) && isnan(data->scores[n])) &&
            !compare_one(data->name, "scores", n, data->scores[n], want, limit, worst))
            return false;
    }
    return true;
}

bool attention_compare_softmax(const attention_data *data, double score, compare_worst *worst)
{
    const bool shown = data->desc.uses & MHA_USES_SCORES;
    double sum;
    for (size_t row = 0; row < rows_of(data); row++)
        if (!data->spoilt[row] && ((shown && !compare_scores(data, row, score, worst)) ||
                                   !compare_softmax_row(data, row, score, &sum, worst)))
            return false;
    return true;
}

/* Scores so large that their own rounding decides the softmax say nothing of the output's. */
static bool compare_rounding(const attention_data *data, double score, compare_worst *worst)
{
    const mha_type type = output_type(&data->desc);
    const size_t dim = data->desc.value_dim;
    if (!half_epsilon(type) || score > half_epsilon(type) / 8)
        return true;
    double ours = 0, rounding = 0;
    for (size_t n = 0; n < rows_of(data) * dim; n++) {
        if (data->spoilt[n / dim])
            continue;
        const double want = data->want_output[n];
        ours = fmax(ours, fabs(data->output[n] - want));
        rounding = fmax(rounding, fabs(half_round((float)want, type) - want));
    }
    const bool near = ours <= 2 * rounding;
    if (near && worst && ours > worst->rounding * rounding) {
        worst->rounding = ours / rounding;
        snprintf(worst->rounding_what, sizeof worst->rounding_what, "%s", data->name);
    }
    cr_expect(near, "%s: the worst error is %.9g, more than twice that of rounding, %.9g",
              data->name, ours, rounding);
    return near;
}

bool attention_compare(const attention_data *data, compare_worst *worst)
{
    const mha_attention_desc *d = &data->desc;
    const size_t dim = d->value_dim;
    const size_t keys = data->key_len;
    const double score = score_limit(data);
    const double largest = compare_largest(data->value, d->batch * d->kv_heads * keys * dim);
    const double scale = d->uses & MHA_USES_DROPOUT ? 1 / (1 - (double)d->dropout_p) : 1;
    for (size_t row = 0; row < rows_of(data); row++) {
        double sum;
        if (data->spoilt[row])
            continue;
        if (d->uses & MHA_USES_SCORES && !compare_scores(data, row, score, worst))
            return false;
        if (!compare_softmax_row(data, row, score, &sum, worst))
            return false;
        const double limit = largest * fmin(2 * scale, sum) +
                             reference_limit(keys, scale * largest) + (double)keys * FLT_MIN;
        for (size_t c = row * dim; c < (row + 1) * dim; c++)
            if (!compare_one(data->name, "output", c, data->output[c], data->want_output[c],
                             limit + stored_limit(output_type(d), data->want_output[c]), worst))
                return false;
    }
    return compare_rounding(data, score, worst);
}
