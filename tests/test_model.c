/* The network of sentence-embedding on a device, compared with naive loops in double over the same
 * small random weights; and what a wrong file is told. */
#include "half.h"
#include "model.h"
#include "network.h"
#include "rows.h"
#include "scratch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = NETWORK_WIDTH,
    HEADS = NETWORK_HEADS,
    LAYERS = NETWORK_LAYERS,
    WIDE = NETWORK_WIDE,
    PLACES = NETWORK_PLACES,
    BATCH = 3
};

/* The network's, but for the activation, which a test may change. */
static config shape;

/* ------------------------------------------------------------------- the same in double, naive --
 */

static const float *find(const network *self, int layer, const char *name, const char *which)
{
    char full[80];
    if (layer < 0)
        snprintf(full, sizeof full, "%s.%s", name, which);
    else
        snprintf(full, sizeof full, "encoder.layer.%d.%s.%s", layer, name, which);
    for (size_t i = 0; i < self->num_places; i++)
        if (!strcmp(self->places[i].name, full))
            return self->values + self->places[i].first;
    cr_assert_fail("no %s", full);
    return NULL;
}

static void dense(const network *self, int layer, const char *name, size_t in, size_t out,
                  const double *row, double *result)
{
    const float *const weight = find(self, layer, name, "weight");
    const float *const bias = find(self, layer, name, "bias");
    for (size_t i = 0; i < out; i++) {
        result[i] = bias[i];
        for (size_t j = 0; j < in; j++)
            result[i] += weight[i * in + j] * row[j];
    }
}

static void norm(const network *self, int layer, const char *name, double *row)
{
    const float *const scale = find(self, layer, name, "weight");
    const float *const shift = find(self, layer, name, "bias");
    double mean = 0, variance = 0;
    for (size_t i = 0; i < WIDTH; i++)
        mean += row[i] / WIDTH;
    for (size_t i = 0; i < WIDTH; i++)
        variance += (row[i] - mean) * (row[i] - mean) / WIDTH;
    for (size_t i = 0; i < WIDTH; i++)
        row[i] = (row[i] - mean) / sqrt(variance + shape.layer_norm_eps) * scale[i] + shift[i];
}

static void embed_reference(const network *self, const int32_t *ids, size_t length,
                            double rows[][WIDTH])
{
    const float *const tokens = find(self, -1, "embeddings.word_embeddings", "weight");
    const float *const places = find(self, -1, "embeddings.position_embeddings", "weight");
    const float *const types = find(self, -1, "embeddings.token_type_embeddings", "weight");
    for (size_t i = 0; i < length; i++) {
        for (size_t j = 0; j < WIDTH; j++)
            rows[i][j] =
                (double)tokens[(size_t)ids[i] * WIDTH + j] + places[i * WIDTH + j] + types[j];
        norm(self, -1, "embeddings.LayerNorm", rows[i]);
    }
}

/* probs[head][query][key], and to each row of `heads` what its heads give. */
static void attend(const network *self, int layer, size_t length, double rows[][WIDTH],
                   double probs[HEADS][PLACES][PLACES], double heads[][WIDTH])
{
    double query[PLACES][WIDTH], key[PLACES][WIDTH], value[PLACES][WIDTH];
    const size_t dim = WIDTH / HEADS;
    for (size_t i = 0; i < length; i++) {
        dense(self, layer, "attention.self.query", WIDTH, WIDTH, rows[i], query[i]);
        dense(self, layer, "attention.self.key", WIDTH, WIDTH, rows[i], key[i]);
        dense(self, layer, "attention.self.value", WIDTH, WIDTH, rows[i], value[i]);
    }
    memset(heads, 0, length * sizeof *heads);
    for (size_t h = 0; h < HEADS; h++) {
        for (size_t i = 0; i < length; i++) {
            double sum = 0;
            for (size_t j = 0; j < length; j++) {
                double score = 0;
                for (size_t c = h * dim; c < (h + 1) * dim; c++)
                    score += query[i][c] * key[j][c];
                probs[h][i][j] = exp(score / sqrt((double)dim));
                sum += probs[h][i][j];
            }
            for (size_t j = 0; j < length; j++) {
                probs[h][i][j] /= sum;
                for (size_t c = h * dim; c < (h + 1) * dim; c++)
                    heads[i][c] += probs[h][i][j] * value[j][c];
            }
        }
    }
}

static double activate(double x)
{
    const double inner = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
    switch (shape.activation) {
    case MHA_ACTIVATION_GELU:
        return x * (1 + erf(x / sqrt(2))) / 2;
    case MHA_ACTIVATION_GELU_TANH:
        return x * (1 + tanh(inner)) / 2;
    case MHA_ACTIVATION_RELU:
        return x > 0 ? x : 0;
    default:
        return x / (1 + exp(-x));
    }
}

static void run_reference_layer(const network *self, int layer, size_t length, double rows[][WIDTH])
{
    double probs[HEADS][PLACES][PLACES], heads[PLACES][WIDTH], added[WIDTH], wide[WIDE];
    attend(self, layer, length, rows, probs, heads);
    for (size_t i = 0; i < length; i++) {
        dense(self, layer, "attention.output.dense", WIDTH, WIDTH, heads[i], added);
        for (size_t j = 0; j < WIDTH; j++)
            rows[i][j] += added[j];
        norm(self, layer, "attention.output.LayerNorm", rows[i]);
        dense(self, layer, "intermediate.dense", WIDTH, WIDE, rows[i], wide);
        for (size_t j = 0; j < WIDE; j++)
            wide[j] = activate(wide[j]);
        dense(self, layer, "output.dense", WIDE, WIDTH, wide, added);
        for (size_t j = 0; j < WIDTH; j++)
            rows[i][j] += added[j];
        norm(self, layer, "output.LayerNorm", rows[i]);
    }
}

static void pool_reference(size_t length, double rows[][WIDTH], double *out)
{
    double squares = 0;
    for (size_t j = 0; j < WIDTH; j++) {
        out[j] = 0;
        for (size_t i = 0; i < length; i++)
            out[j] += rows[i][j] / (double)length;
        squares += out[j] * out[j];
    }
    for (size_t j = 0; j < WIDTH; j++)
        out[j] /= sqrt(squares);
}

/* ------------------------------------------------------------------------------------- the tests
 * -- */

static void begin(void)
{
    scratch_make();
    shape = network_shape;
}

TestSuite(model, .init = begin, .fini = scratch_remove);

static model *open_network(char *error, size_t error_size)
{
    return model_open(scratch_folder(), &shape, &(model_options){ .batch = BATCH }, error,
                      error_size);
}

static void write_network(const network *weights, const network_file *how)
{
    network_write(weights, scratch_path("model.safetensors"), how);
}

/* Two sequences of unequal lengths where three have room. */
static const int32_t ids[2][5] = { { 2, 7, 1, 8, 3 }, { 2, 5, 3, 0, 0 } };
static const int32_t lengths[] = { 5, 3 };

/* The vectors of the file's network, made twice, as a call must leave nothing. */
static void embed_twice(float got[2][2][WIDTH])
{
    char error[300] = "";
    model *const self = open_network(error, sizeof error);
    cr_assert(self, "%s", error);
    const embedder maker = model_embedder(self);
    const token_batch batch = { 2, 5, &ids[0][0], lengths };
    cr_assert_eq(maker.width, WIDTH);
    for (int round = 0; round < 2; round++)
        cr_assert(maker.embed(maker.data, &batch, &got[round][0][0], error, sizeof error), "%s",
                  error);
    model_close(self);
}

static void check_embeddings(const network *weights, const network_file *how)
{
    float got[2][2][WIDTH];
    write_network(weights, how);
    embed_twice(got);
    for (size_t i = 0; i < 2; i++) {
        double rows[PLACES][WIDTH], wanted[WIDTH];
        embed_reference(weights, ids[i], (size_t)lengths[i], rows);
        for (int layer = 0; layer < LAYERS; layer++)
            run_reference_layer(weights, layer, (size_t)lengths[i], rows);
        pool_reference((size_t)lengths[i], rows, wanted);
        for (int round = 0; round < 2; round++)
            for (size_t j = 0; j < WIDTH; j++)
                cr_expect_float_eq(got[round][i][j], wanted[j], 1e-5,
                                   "type %d, round %d [%zu][%zu]: %g, not %g", (int)how->type,
                                   round, i, j, got[round][i][j], wanted[j]);
    }
}

Test(model, embeddings)
{
    network *const weights = network_make();
    check_embeddings(weights, &(network_file){ .prefix = "" });
    check_embeddings(weights, &(network_file){ .prefix = "bert." });
    free(weights);
}

/* Weights of a half type are used as they are, and do not change the vectors by more than their
 * rounding does, which two layers make some times larger. */
Test(model, weights_of_half_types)
{
    static const mha_type types[] = { MHA_FLOAT16, MHA_BFLOAT16 };
    float whole[2][2][WIDTH], got[2][2][WIDTH];
    network *const weights = network_make();
    write_network(weights, &(network_file){ .type = MHA_FLOAT32 });
    embed_twice(whole);
    for (size_t t = 0; t < 2; t++) {
        network *const rounded = network_make();
        network_round(rounded, types[t]);
        check_embeddings(rounded, &(network_file){ .type = types[t] });
        embed_twice(got);
        for (size_t i = 0; i < 2; i++)
            for (size_t j = 0; j < WIDTH; j++)
                cr_expect_float_eq(got[0][i][j], whole[0][i][j], 8 * half_epsilon(types[t]),
                                   "type %d [%zu][%zu]: %g, not %g", (int)types[t], i, j,
                                   got[0][i][j], whole[0][i][j]);
        free(rounded);
    }
    free(weights);
}

/* The last layer's rows are those whose mean, made 1 long, is the vector. */
Test(model, last_rows)
{
    char error[300] = "";
    float got[2][2][WIDTH], rows[2][5][WIDTH], vector[WIDTH];
    network *const weights = network_make();
    write_network(weights, &(network_file){ .prefix = "" });
    embed_twice(got);
    model *const self = open_network(error, sizeof error);
    cr_assert(self, "%s", error);
    const token_batch batch = { 2, 5, &ids[0][0], lengths };
    cr_assert(model_last_rows(self, &batch, &rows[0][0][0], error, sizeof error), "%s", error);
    for (size_t i = 0; i < 2; i++) {
        rows_pool(&rows[i][0][0], (size_t)lengths[i], WIDTH, vector);
        for (size_t j = 0; j < WIDTH; j++)
            cr_expect_eq(vector[j], got[0][i][j], "[%zu][%zu]: %g, not %g", i, j, vector[j],
                         got[0][i][j]);
    }
    model_close(self);
    free(weights);
}

Test(model, activations)
{
    network *const weights = network_make();
    for (int kind = MHA_ACTIVATION_RELU; kind <= MHA_ACTIVATION_SILU; kind++) {
        shape.activation = (mha_activation_kind)kind;
        check_embeddings(weights, &(network_file){ .prefix = "" });
    }
    free(weights);
}

Test(model, attention_of_a_head)
{
    static const int32_t sentence[] = { 2, 7, 1, 8 };
    char error[300] = "";
    float got[4][4];
    double rows[PLACES][WIDTH], heads[PLACES][WIDTH], probs[HEADS][PLACES][PLACES];
    network *const weights = network_make();
    write_network(weights, &(network_file){ .prefix = "" });
    model *const self = open_network(error, sizeof error);
    cr_assert(self, "%s", error);
    cr_assert(model_attention(self, sentence, 4, 1, 1, &got[0][0], error, sizeof error), "%s",
              error);
    embed_reference(weights, sentence, 4, rows);
    run_reference_layer(weights, 0, 4, rows);
    attend(weights, 1, 4, rows, probs, heads);
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++)
            cr_expect_float_eq(got[i][j], probs[1][i][j], 1e-5, "[%zu][%zu]: %g, not %g", i, j,
                               got[i][j], probs[1][i][j]);
    cr_assert(!model_attention(self, sentence, 4, 2, 0, &got[0][0], error, sizeof error));
    cr_assert_str_eq(error, "layer 2, head 0: the model has 2 layers of 2 heads");
    model_close(self);
    free(weights);
}

Test(model, refusals)
{
    char error[300] = "";
    network *const weights = network_make();
    cr_assert(!open_network(error, sizeof error));
    cr_assert_str_eq(error, "model.safetensors: No such file or directory");
    for (size_t i = 0; i < weights->num_places; i++) {
        const char *const name = weights->places[i].name;
        write_network(weights, &(network_file){ .missing = name });
        cr_expect(!open_network(error, sizeof error), "%s", name);
        cr_expect(strstr(error, "model.safetensors: it has no tensor ") && strstr(error, name),
                  "%s: %s", name, error);
    }
    weights->places[0].columns = WIDTH / 2;
    weights->places[0].rows = NETWORK_WORDS * 2;
    write_network(weights, &(network_file){ .prefix = "" });
    cr_assert(!open_network(error, sizeof error));
    cr_assert_str_eq(error, "model.safetensors: its tensor embeddings.word_embeddings.weight is "
                            "18 x 4, not 9 x 8");
    free(weights);
}
