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
    uint64_t seed;
} attention_case;

/* The ways to do an attention. A test does each of its cases in all of them: the case as it is given,
 * but by way 0 .. ATTENTION_WAYS - 1. */
enum {
    ATTENTION_WAYS = 3
};
attention_case attention_by_way(const attention_case *given, size_t way);

/* Inputs, results and wanted results, packed in the order of their shapes. */
typedef struct attention_data {
    char name[256]; /* the case in words, for failures */
    attention_case given;
    mha_attention_desc desc; /* resolved */
    size_t query_len, key_len;
    size_t bias_shape[4], mask_shape[4];
    float *query, *key, *value, *bias;
    unsigned char *mask;
    int32_t *key_lengths, *per_query;
    float *output, *probs, *lse;
    double *want_output, *want_probs, *want_lse;
    bool *seen;   /* [batch][heads][query_len][key_len]: whether the query may see the key */
    bool *spoilt; /* [batch][heads][query_len]: the query sees a NaN, so its row is not compared */
    mha_stage_fn *stage; /* told of the stages by attention_run */
    void *stage_data;
} attention_data;

/* The inputs of a case. A tenth of a bias is -inf. */
attention_data *attention_data_new(const attention_case *given);
void attention_data_free(attention_data *data);

/* NaN into each key and value that no query sees; where queries differ in what they see, also NaN
 * or inf into the key that the fewest see. Reads the bias, mask and lengths that are there now. */
void attention_data_spoil(attention_data *data);

/* Asks the reference. */
void attention_data_expect(attention_data *data);

/* Compares output, and probs and lse where they are used. */
bool attention_compare(const attention_data *data, compare_worst *worst);

#endif
