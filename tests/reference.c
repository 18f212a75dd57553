/* The meaning of the library in double precision: what each formula says, once for each index. */
#include "reference.h"

#include "reference_block.h"

#include <Random123/philox.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fprintf(stderr, "reference: no memory for %zu elements of %zu bytes\n", count, size);
        abort();
    }
    return memory;
}

/* Of a packed tensor [batch][heads][len][dim]. */
typedef struct shape {
    size_t batch, heads, len, dim;
} shape;

static size_t element_count(shape s)
{
    return s.batch * s.heads * s.len * s.dim;
}

/* Where an element lies. An axis of length 1 counts for every index, which is what broadcast
 * means. */
static size_t at(shape s, size_t b, size_t h, size_t i, size_t c)
{
    size_t index = s.batch == 1 ? 0 : b;
    index = index * s.heads + (s.heads == 1 ? 0 : h);
    index = index * s.len + (s.len == 1 ? 0 : i);
    return index * s.dim + (s.dim == 1 ? 0 : c);
}

static double *widen(const float *data, shape s)
{
    double *wide = allocate(element_count(s), sizeof *wide);
    for (size_t i = 0; i < element_count(s); i++)
        wide[i] = data[i];
    return wide;
}

mha_attention_desc reference_attention_resolve(const mha_attention_desc *desc)
{
    mha_attention_desc full = *desc;
    if (!full.kv_heads)
        full.kv_heads = full.heads;
    if (!full.value_dim)
        full.value_dim = full.head_dim;
    return full;
}

mha_layer_desc reference_layer_resolve(const mha_layer_desc *desc)
{
    mha_layer_desc full = *desc;
    mha_attention_desc *attention = &full.attention;
    if (!full.model_width)
        full.model_width =
            attention->head_dim ? attention->heads * attention->head_dim : full.query_width;
    if (!attention->head_dim)
        attention->head_dim = full.model_width / attention->heads;
    *attention = reference_attention_resolve(attention);
    if (!full.query_width)
        full.query_width = full.model_width;
    if (!full.key_width)
        full.key_width = full.query_width;
    if (!full.value_width)
        full.value_width = full.key_width;
    if (!full.output_width)
        full.output_width = full.flags & MHA_LAYER_MERGED_OUTPUT
                                ? attention->heads * attention->value_dim
                                : full.query_width;
    return full;
}

/* A desc and args with their defaults replaced, the shapes that follow, and room for one row. */
typedef struct reference_call {
    mha_attention_desc desc;
    reference_args args;
    double scale;
    shape query, key, value, output, scores, bias, mask, lse;
    double *row;   /* [key_len]: query key^T, then probs */
    double *shown; /* [key_len]: what is shown of the scores */
    bool *seen;    /* [key_len]: whether the row's query may see the key */
} reference_call;

static shape without_axes(shape s, unsigned broadcast)
{
    return (shape){
        .batch = broadcast & MHA_AXIS_BATCH ? 1 : s.batch,
        .heads = broadcast & MHA_AXIS_HEADS ? 1 : s.heads,
        .len = broadcast & MHA_AXIS_QUERY ? 1 : s.len,
        .dim = broadcast & MHA_AXIS_KEY ? 1 : s.dim,
    };
}

/* `scale` stands in for a 0 in the desc. */
static reference_call begin(const mha_attention_desc *desc, const reference_args *args,
                            double scale)
{
    const mha_attention_desc d = reference_attention_resolve(desc);
    reference_call call = { .desc = d, .args = *args };
    if (!call.args.query_len)
        call.args.query_len = d.query_len;
    if (!call.args.key_len)
        call.args.key_len = d.key_len;
    const size_t query_len = call.args.query_len;
    const size_t key_len = call.args.key_len;

    call.scale = d.scale != 0 ? d.scale : scale;
    call.query = (shape){ d.batch, d.heads, query_len, d.head_dim };
    call.key = (shape){ d.batch, d.kv_heads, key_len, d.head_dim };
    call.value = (shape){ d.batch, d.kv_heads, key_len, d.value_dim };
    call.output = (shape){ d.batch, d.heads, query_len, d.value_dim };
    call.scores = (shape){ d.batch, d.heads, query_len, key_len };
    call.bias = without_axes(call.scores, d.bias_broadcast);
    call.mask = without_axes(call.scores, d.mask_broadcast);
    call.lse = (shape){ d.batch, d.heads, query_len, 1 };
    call.row = allocate(key_len, sizeof *call.row);
    call.shown = allocate(key_len, sizeof *call.shown);
    call.seen = allocate(key_len, sizeof *call.seen);
    return call;
}

static void end(reference_call *call)
{
    free(call->row);
    free(call->shown);
    free(call->seen);
}

static int64_t clamp_length(const reference_call *call, int32_t length)
{
    const int64_t key_len = (int64_t)call->args.key_len;
    return length < 0 ? 0 : length > key_len ? key_len : length;
}

/* How many keys batch b has: those before this one exist. */
static int64_t key_count(const reference_call *call, size_t b)
{
    if (call->desc.uses & MHA_USES_KEY_LENGTHS)
        return clamp_length(call, call->args.key_lengths[b]);
    return (int64_t)call->args.key_len;
}

/* How many of them query i has. */
static int64_t key_count_of_query(const reference_call *call, size_t b, size_t i)
{
    if (call->desc.uses & MHA_USES_KEY_LENGTHS_PER_QUERY)
        return clamp_length(call, call->args.key_lengths_per_query[b * call->args.query_len + i]);
    return (int64_t)call->args.key_len;
}

/* How many queries batch b has. */
static int64_t query_count(const reference_call *call, size_t b)
{
    const int32_t *lengths = call->args.query_lengths;
    return lengths ? lengths[b] : (int64_t)call->args.query_len;
}

/* The first key that batch b has. */
static int64_t key_start(const reference_call *call, size_t b)
{
    if (call->desc.uses & MHA_USES_KEY_STARTS)
        return clamp_length(call, call->args.key_starts[b]);
    return 0;
}

/* The key that stands opposite query i. It may lie before the first key or after the last. */
static int64_t diagonal_of(const reference_call *call, size_t b, size_t i)
{
    if (call->desc.diagonal == MHA_BOTTOM_RIGHT)
        return (int64_t)i + key_count(call, b) - query_count(call, b);
    return (int64_t)i;
}

/* How far `to` lies behind `from`; 0 where it does not. */
static uint64_t distance(int64_t from, int64_t to)
{
    return to > from ? (uint64_t)(to - from) : 0;
}

static double bias_of(const reference_call *call, size_t b, size_t h, size_t i, size_t j)
{
    return call->args.bias[at(call->bias, b, h, i, j)];
}

/* Whether query i of batch b and head h may see key j: no rule allows what another excludes. */
static bool sees(const reference_call *call, size_t b, size_t h, size_t i, size_t j)
{
    const mha_attention_desc *desc = &call->desc;
    const int64_t key = (int64_t)j;
    const int64_t diagonal = diagonal_of(call, b, i);

    if ((int64_t)i >= query_count(call, b))
        return false;
    if (key >= key_count(call, b))
        return false;
    if (key >= key_count_of_query(call, b, i))
        return false;
    if (key < key_start(call, b))
        return false;
    if (desc->uses & MHA_USES_CAUSAL && key > diagonal)
        return false;
    if (desc->uses & MHA_USES_WINDOW_LEFT && distance(key, diagonal) > desc->window_left)
        return false;
    if (desc->uses & MHA_USES_WINDOW_RIGHT && distance(diagonal, key) > desc->window_right)
        return false;
    if (desc->uses & MHA_USES_MASK && call->args.mask[at(call->mask, b, h, i, j)] == 0)
        return false;
    if (desc->uses & MHA_USES_BIAS && bias_of(call, b, h, i, j) == -INFINITY)
        return false;
    return true;
}

/* The score of a pair from its query key^T: scale, softcap, bias, ALiBi, in this order, up to a
 * stage. */
static double score_of(const reference_call *call, size_t b, size_t h, size_t i, size_t j,
                       double product, mha_scores_stage stage)
{
    const reference_args *args = &call->args;
    const double cap = call->desc.softcap;
    double score = call->scale * product;
    if (stage == MHA_SCORES_SCALED)
        return score;
    if (cap != 0)
        score = cap * tanh(score / cap);
    if (stage == MHA_SCORES_CAPPED)
        return score;
    if (call->desc.uses & MHA_USES_BIAS)
        score += bias_of(call, b, h, i, j);
    if (call->desc.uses & MHA_USES_ALIBI) {
        const double slope = args->slopes[(args->slopes_per_batch ? b * call->desc.heads : 0) + h];
        score -= slope * fabs((double)(diagonal_of(call, b, i) - (int64_t)j));
    }
    return score;
}

/* What the desc's stage shows of the row's products. */
static void show_scores(const reference_call *call, size_t b, size_t h, size_t i)
{
    const mha_scores_stage stage = call->desc.scores_stage;
    for (size_t j = 0; j < call->args.key_len; j++)
        call->shown[j] = stage == MHA_SCORES_BIASED && !call->seen[j]
                             ? -INFINITY
                             : score_of(call, b, h, i, j, call->row[j], stage);
}

/* Turns the row's products, of which only those of seen keys are read, into probs; returns the
 * logarithm of the sum of exp(score). With no key seen all probs are 0, and ln 0 is -inf. */
static double softmax_row(const reference_call *call, size_t b, size_t h, size_t i)
{
    const size_t key_len = call->args.key_len;
    const double sink = call->desc.uses & MHA_USES_SINKS ? call->args.sinks[h] : -INFINITY;
    double *row = call->row;
    double largest = sink;
    double sum = 0;

    for (size_t j = 0; j < key_len; j++) {
        if (!call->seen[j])
            continue;
        row[j] = score_of(call, b, h, i, j, row[j], MHA_SCORES_BIASED);
        largest = fmax(largest, row[j]);
    }
    for (size_t j = 0; j < key_len; j++) {
        row[j] = call->seen[j] ? exp(row[j] - largest) : 0;
        sum += row[j];
    }
    if (sink != -INFINITY)
        sum += exp(sink - largest);
    for (size_t j = 0; j < key_len; j++)
        row[j] = call->seen[j] ? row[j] / sum : 0;
    return largest + log(sum);
}

double reference_dropout(const reference_args *args, size_t heads, size_t b, size_t h, size_t i,
                         size_t j)
{
    const double p = args->dropout_p;
    if (!(p >= 0 && p < 1)) {
        fprintf(stderr, "reference: dropout_p is %g, not in [0, 1)\n", p);
        abort();
    }
    /* A float below 1 is at most 1 - 2^-24, so that this fits. */
    const uint32_t threshold = (uint32_t)round(p * 0x1p32);
    const uint64_t seed = args->dropout_seed;
    const philox4x32_ctr_t counter = { { (uint32_t)(j / 4), (uint32_t)i, (uint32_t)(b * heads + h),
                                         args->dropout_offset } };
    const philox4x32_key_t key = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    const uint32_t word = philox4x32(counter, key).v[j % 4];
    return word < threshold ? 0 : 1 / (1 - p);
}

static void drop_out(const reference_call *call, size_t b, size_t h, size_t i)
{
    for (size_t j = 0; j < call->args.key_len; j++)
        call->row[j] *= reference_dropout(&call->args, call->desc.heads, b, h, i, j);
}

/* The softmax of the row whose products are in call->row, and the outputs that are made of it. */
static void finish_row(const reference_call *call, size_t b, size_t h, size_t i)
{
    const reference_args *args = &call->args;
    if (args->scores) {
        show_scores(call, b, h, i);
        memcpy(args->scores + at(call->scores, b, h, i, 0), call->shown,
               args->key_len * sizeof *call->shown);
    }
    const double lse = softmax_row(call, b, h, i);
    if (args->dropout_p != 0)
        drop_out(call, b, h, i);
    if (args->probs)
        memcpy(args->probs + at(call->scores, b, h, i, 0), call->row,
               args->key_len * sizeof *call->row);
    if (args->lse)
        args->lse[at(call->lse, b, h, i, 0)] = lse;
}

void reference_softmax(const mha_attention_desc *desc, const reference_args *args,
                       const float *scores)
{
    reference_call call = begin(desc, args, 1);
    for (size_t b = 0; b < call.scores.batch; b++) {
        for (size_t h = 0; h < call.scores.heads; h++) {
            for (size_t i = 0; i < call.scores.len; i++) {
                for (size_t j = 0; j < call.scores.dim; j++) {
                    call.seen[j] = sees(&call, b, h, i, j);
                    call.row[j] = scores[at(call.scores, b, h, i, j)];
                }
                finish_row(&call, b, h, i);
            }
        }
    }
    end(&call);
}

static double dot(const double *x, const double *y, size_t count)
{
    double sum = 0;
    for (size_t c = 0; c < count; c++)
        sum += x[c] * y[c];
    return sum;
}

/* output[c] = sum over the seen keys j of probs[j] value[j][c]. */
static void weigh_values(const reference_call *call, const double *value, size_t b, size_t kv_head,
                         double *output)
{
    for (size_t c = 0; c < call->value.dim; c++)
        output[c] = 0;
    for (size_t j = 0; j < call->value.len; j++) {
        if (!call->seen[j])
            continue;
        const double *row = value + at(call->value, b, kv_head, j, 0);
        for (size_t c = 0; c < call->value.dim; c++)
            output[c] += call->row[j] * row[c];
    }
}

/* `output` may be NULL. */
static void attend(const reference_call *call, const double *query, const double *key,
                   const double *value, double *output)
{
    const size_t group = call->desc.heads / call->desc.kv_heads;
    for (size_t b = 0; b < call->query.batch; b++) {
        for (size_t h = 0; h < call->query.heads; h++) {
            for (size_t i = 0; i < call->query.len; i++) {
                for (size_t j = 0; j < call->key.len; j++) {
                    call->seen[j] = sees(call, b, h, i, j);
                    if (call->seen[j] || call->args.scores)
                        call->row[j] = dot(query + at(call->query, b, h, i, 0),
                                           key + at(call->key, b, h / group, j, 0), call->key.dim);
                }
                finish_row(call, b, h, i);
                if (output)
                    weigh_values(call, value, b, h / group, output + at(call->output, b, h, i, 0));
            }
        }
    }
}

static double default_scale(size_t head_dim)
{
    return 1 / sqrt((double)head_dim);
}

void reference_attention(const mha_attention_desc *desc, const reference_args *args)
{
    reference_call call = begin(desc, args, default_scale(desc->head_dim));
    double *query = widen(args->query, call.query);
    double *key = widen(args->key, call.key);
    double *value = widen(args->value, call.value);
    attend(&call, query, key, value, args->output);
    free(query);
    free(key);
    free(value);
    end(&call);
}

/* [batch][1][len][heads * dim] -> [batch][heads][len][dim]. */
static void split(const double *merged, shape heads, double *out)
{
    const shape wide = { heads.batch, 1, heads.len, heads.heads * heads.dim };
    for (size_t b = 0; b < heads.batch; b++)
        for (size_t h = 0; h < heads.heads; h++)
            for (size_t i = 0; i < heads.len; i++)
                for (size_t c = 0; c < heads.dim; c++)
                    out[at(heads, b, h, i, c)] = merged[at(wide, b, 0, i, h * heads.dim + c)];
}

/* [batch][heads][len][dim] -> [batch][1][len][heads * dim]. */
static void merge(const double *separate, shape heads, double *out)
{
    const shape wide = { heads.batch, 1, heads.len, heads.heads * heads.dim };
    for (size_t b = 0; b < heads.batch; b++)
        for (size_t h = 0; h < heads.heads; h++)
            for (size_t i = 0; i < heads.len; i++)
                for (size_t c = 0; c < heads.dim; c++)
                    out[at(wide, b, 0, i, h * heads.dim + c)] = separate[at(heads, b, h, i, c)];
}

static shape shape_of_heads(const mha_heads_desc *desc)
{
    return (shape){ desc->batch, desc->heads, desc->len, desc->dim };
}

void reference_split_heads(const mha_heads_desc *desc, const float *merged, double *out)
{
    double *wide = widen(merged, shape_of_heads(desc));
    split(wide, shape_of_heads(desc), out);
    free(wide);
}

void reference_merge_heads(const mha_heads_desc *desc, const float *separate, double *out)
{
    double *wide = widen(separate, shape_of_heads(desc));
    merge(wide, shape_of_heads(desc), out);
    free(wide);
}

/* out [rows][columns] = x [rows][width] W + bias, W as the layer stores it; bias NULL: none. */
static void project(const double *x, size_t rows, size_t width, const float *weight,
                    const float *bias, bool out_in, size_t columns, double *out)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t o = 0; o < columns; o++) {
            double sum = bias ? bias[o] : 0;
            for (size_t c = 0; c < width; c++)
                sum += x[i * width + c] * weight[out_in ? o * width + c : c * columns + o];
            out[i * columns + o] = sum;
        }
    }
}

/* The heads of an input [batch][len][width], projected: a new [batch][heads][len][dim]. */
static double *project_to_heads(const float *input, size_t width, const float *weight,
                                const float *bias, bool out_in, shape heads)
{
    double *wide = widen(input, (shape){ heads.batch, 1, heads.len, width });
    double *merged = allocate(element_count(heads), sizeof *merged);
    double *separate = allocate(element_count(heads), sizeof *separate);
    project(wide, heads.batch * heads.len, width, weight, bias, out_in, heads.heads * heads.dim,
            merged);
    split(merged, heads, separate);
    free(wide);
    free(merged);
    return separate;
}

/* The layer's output of the attended heads [batch][heads][len][dim]. */
static void project_output(const mha_layer_desc *desc, const reference_layer_weights *weights,
                           const double *attended, shape heads, double *output)
{
    if (desc->flags & MHA_LAYER_MERGED_OUTPUT) {
        merge(attended, heads, output);
        return;
    }
    double *merged = allocate(element_count(heads), sizeof *merged);
    merge(attended, heads, merged);
    project(merged, heads.batch * heads.len, heads.heads * heads.dim, weights->output,
            desc->flags & MHA_LAYER_BIAS_OUTPUT ? weights->bias_output : NULL,
            desc->flags & MHA_LAYER_OUT_IN, desc->output_width, output);
    free(merged);
}

void reference_layer(const mha_layer_desc *desc, const reference_layer_weights *weights,
                     const reference_args *args)
{
    const mha_layer_desc full = reference_layer_resolve(desc);
    const unsigned flags = full.flags;
    const bool out_in = flags & MHA_LAYER_OUT_IN;
    reference_call call = begin(&full.attention, args, default_scale(full.attention.head_dim));

    double *query = project_to_heads(args->query, full.query_width, weights->query,
                                     flags & MHA_LAYER_BIAS_QUERY ? weights->bias_query : NULL,
                                     out_in, call.query);
    double *key =
        project_to_heads(args->key, full.key_width, weights->key,
                         flags & MHA_LAYER_BIAS_KEY ? weights->bias_key : NULL, out_in, call.key);
    double *value = project_to_heads(args->value, full.value_width, weights->value,
                                     flags & MHA_LAYER_BIAS_VALUE ? weights->bias_value : NULL,
                                     out_in, call.value);
    double *attended = allocate(element_count(call.output), sizeof *attended);

    attend(&call, query, key, value, attended);
    if (args->output)
        project_output(&full, weights, attended, call.output, args->output);

    free(query);
    free(key);
    free(value);
    free(attended);
    end(&call);
}

void reference_gemm(const mha_gemm_desc *desc, const reference_gemm_args *args)
{
    const size_t m = args->m ? args->m : desc->m;
    const size_t n = desc->n;
    const size_t k = desc->k;
    const size_t batch = desc->batch ? desc->batch : 1;
    const double alpha = desc->alpha != 0 ? desc->alpha : 1;
    const mha_activation_desc activation = { .kind = desc->activation,
                                             .alpha = desc->activation_alpha };

    for (size_t b = 0; b < batch; b++) {
        const float *matrix_a = args->a + (args->a_shared ? 0 : b * m * k);
        const float *matrix_b = args->b + (args->b_shared ? 0 : b * k * n);
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j < n; j++) {
                double sum = 0;
                for (size_t p = 0; p < k; p++)
                    sum +=
                        (double)
                            matrix_a[desc->flags & MHA_GEMM_TRANSPOSE_A ? p * m + i : i * k + p] *
                        matrix_b[desc->flags & MHA_GEMM_TRANSPOSE_B ? j * k + p : p * n + j];
                sum *= alpha;
                if (desc->beta != 0)
                    sum += (double)desc->beta * args->c[(b * m + i) * n + j];
                if (desc->flags & MHA_GEMM_BIAS)
                    sum += args->bias[j];
                args->out[(b * m + i) * n + j] = reference_activate(&activation, sum);
            }
        }
    }
}

/* The row of the tables that the rows at [b][i] have. */
static size_t rotary_row(const mha_rotary_desc *desc, const reference_rotary_args *args, size_t len,
                         size_t b, size_t i)
{
    if (!desc->positions)
        return b * len + i;
    int64_t position = (int64_t)i;
    if (args->position_ids)
        position = args->position_ids[b * len + i];
    else if (args->offsets)
        position += args->offsets[b];
    const int64_t last = (int64_t)desc->positions - 1;
    return (size_t)(position < 0 ? 0 : position > last ? last : position);
}

static void rotate_row(const mha_rotary_desc *desc, const float *from, const float *cos_row,
                       const float *sin_row, double *to)
{
    const size_t rotated = desc->rotary_dim ? desc->rotary_dim : desc->dim;
    for (size_t c = rotated; c < desc->dim; c++)
        to[c] = from[c];
    for (size_t p = 0; p < rotated / 2; p++) {
        const bool neighbours = desc->pairs == MHA_ROTARY_INTERLEAVED;
        const size_t first = neighbours ? 2 * p : p;
        const size_t second = neighbours ? 2 * p + 1 : p + rotated / 2;
        const double a = from[first], b = from[second];
        to[first] = a * cos_row[p] - b * sin_row[p];
        to[second] = b * cos_row[p] + a * sin_row[p];
    }
}

void reference_rotary(const mha_rotary_desc *desc, const reference_rotary_args *args)
{
    const size_t len = args->len ? args->len : desc->len;
    const size_t half = (desc->rotary_dim ? desc->rotary_dim : desc->dim) / 2;
    for (size_t b = 0; b < desc->batch; b++)
        for (size_t h = 0; h < desc->heads; h++)
            for (size_t i = 0; i < len; i++) {
                const size_t row = ((b * desc->heads + h) * len + i) * desc->dim;
                const size_t table = rotary_row(desc, args, len, b, i) * half;
                rotate_row(desc, args->input + row, args->cos + table, args->sin + table,
                           args->output + row);
            }
}

double reference_limit(size_t length, double largest)
{
    const double factor = 4; /* the worst seen is below 1 */
    return factor * FLT_EPSILON * sqrt((double)length) * largest;
}
