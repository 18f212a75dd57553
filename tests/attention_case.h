/* The data of an attention and what the reference says of it, for tests that go through many: any
 * options, with NaN wherever a query must not look. */
#ifndef MHA_TESTS_ATTENTION_CASE_H
#define MHA_TESTS_ATTENTION_CASE_H

#include "compare.h"
#include "fill.h"
#include "reference.h"

/* How query, key, value and output lie in memory. */
typedef enum attention_layout {
    LAYOUT_PACKED,    /* [batch][heads][len][dim], all strides 0; so are bias, mask, probs, lse */
    LAYOUT_ROWS,      /* [batch][len][heads][dim] */
    LAYOUT_LEN_FIRST, /* [len][batch][heads][dim] */
    LAYOUT_QKV,       /* one buffer [batch][len][heads + 2 kv_heads][dim]; LAYOUT_ROWS where the
                       * lengths or the dims differ */
    LAYOUT_GAPS,      /* [batch][heads][len][dim] with something between the rows, the heads ... */
    NUM_LAYOUTS
} attention_layout;

typedef struct attention_case {
    mha_attention_desc desc;
    size_t query_len, key_len; /* of the call; 0: the desc's */
    attention_layout layout;
    fill_kind fill;
    bool lengths_on_device; /* and some of them below 0 or above key_len */
    bool slopes_per_batch;
    bool in_place; /* the output is the query */
    uint64_t seed;
} attention_case;

/* For designated initialisers: .desc = { ATTENTION_SIZES(2, 4, 17, 33, 64), .uses = ... }. */
#define ATTENTION_SIZES(b, h, q, k, d) \
    .batch = (b), .heads = (h), .query_len = (q), .key_len = (k), .head_dim = (d)

/* The ways to do an attention: the case as it is given, but by way 0 .. ATTENTION_ALL_WAYS - 1. A
 * test does each of its cases in all of them; one with many cases does most of them in the first
 * ATTENTION_WAYS, since the rest, the other paths' tilings, build a program for each shape, which
 * takes seconds. They return no probs and no scores: these bits are taken away from the case.
 */
enum {
    ATTENTION_WAYS = 4,
    ATTENTION_ALL_WAYS = 8
};
attention_case attention_by_way(const attention_case *given, size_t way);

/* Inputs, results and wanted results, packed in the order of their shapes: as floats, but each one
 * that its type on the device holds. */
typedef struct attention_data {
    char name[320]; /* the case in words, for failures */
    attention_case given;
    mha_attention_desc desc; /* resolved */
    size_t query_len, key_len;
    size_t bias_shape[4], mask_shape[4];
    float *query, *key, *value, *bias;
    unsigned char *mask;
    int32_t *key_lengths, *per_query, *key_starts;
    float *slopes, *sinks;
    uint64_t dropout_seed;
    uint32_t dropout_offset;
    float *output, *probs, *scores, *lse;
    double *want_output, *want_probs, *want_scores, *want_lse;
    bool *seen;   /* [batch][heads][query_len][key_len]: whether the query may see the key */
    bool *spoilt; /* [batch][heads][query_len]: the query sees a NaN, so its row is not compared */
    mha_stage_fn *stage; /* told of the stages by attention_run */
    void *stage_data;
} attention_data;

/* The inputs of a case. A tenth of a bias is -inf. */
attention_data *attention_data_new(const attention_case *given);
void attention_data_free(attention_data *data);

/* Finds out who sees whom, from the bias, mask and lengths that are there now. */
void attention_data_see(attention_data *data);

/* NaN into each key and value that no query sees; where queries differ in what they see, also NaN
 * or inf into the key that the fewest see. Finds out who sees whom first. */
void attention_data_spoil(attention_data *data);

/* Asks the reference. */
void attention_data_expect(attention_data *data);

/* Compares output, and probs, scores and lse where they are used. Where the output is half, its
 * worst error must also be within twice that of rounding, which is the least that a half can have:
 * max |got
 * - want| <= 2 max |round((float)want) - want|. */
bool attention_compare(const attention_data *data, compare_worst *worst);
/* Compares probs, scores and lse where they are used, of scores whose errors are at most `score`.
 */
bool attention_compare_softmax(const attention_data *data, double score, compare_worst *worst);

#endif
