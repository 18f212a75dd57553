/* The meaning of the library in double precision, by naive loops straight from the formulas. What
 * everything else is compared with. Knows the descs and bits of mha.h and none of the library's
 * code. A caller's mistake, or no memory, ends the program. */
#ifndef MHA_TESTS_REFERENCE_H
#define MHA_TESTS_REFERENCE_H

#include <mha.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Host tensors, packed in the order of their shape. The desc's `uses` says which inputs are read;
 * an output is written where it is not NULL, whatever `uses` says. Lengths are clamped to
 * [0, key_len]. */
typedef struct reference_args {
    size_t query_len;                     /* of this call; 0: the desc's */
    size_t key_len;                       /* of this call; 0: the desc's */
    const float *query;                   /* [batch][heads][query_len][head_dim] */
    const float *key;                     /* [batch][kv_heads][key_len][head_dim] */
    const float *value;                   /* [batch][kv_heads][key_len][value_dim] */
    const float *bias;                    /* [batch][heads][query_len][key_len], broadcast axes 1 */
    const unsigned char *mask;            /* the same shape, with broadcast axes of its own */
    const int32_t *query_lengths;         /* [batch], NULL: query_len. Later queries see nothing */
    const int32_t *key_lengths;           /* [batch] */
    const int32_t *key_lengths_per_query; /* [batch][query_len] */
    const int32_t *key_starts;            /* [batch] */
    const float *slopes;                  /* ALiBi's, [heads] */
    bool slopes_per_batch;                /* [batch][heads] */
    const float *sinks;                   /* [heads] */
    float dropout_p;                      /* [0, 1); 0: none */
    uint64_t dropout_seed;                /* what they choose: reference_dropout */
    uint32_t dropout_offset;              /* such as the number of the training step */
    double *output;                       /* [batch][heads][query_len][value_dim] */
    double *probs;                        /* [batch][heads][query_len][key_len], after dropout */
    double *scores;                       /* as probs, before the softmax, as of scores_stage */
    double *lse;                          /* [batch][heads][query_len], of all seen keys */
} reference_args;

/* The desc with each 0 that stands for a default replaced by what it stands for. */
mha_attention_desc reference_attention_resolve(const mha_attention_desc *desc);
mha_layer_desc reference_layer_resolve(const mha_layer_desc *desc);

/* What dropout multiplies the prob of query i and key j by: 0, or 1 / (1 - p). `heads` is the
 * desc's. Random by Philox4x32-10 ("Parallel random numbers: as easy as 1, 2, 3", 2011), with the
 * counter { j / 4, i, b * heads + h, offset } and the seed's low and high half as its key: dropped
 * where word j % 4 is less than p * 2^32, rounded to nearest. */
double reference_dropout(const reference_args *args, size_t heads, size_t b, size_t h, size_t i,
                         size_t j);

/* softmax(scale * query key^T) value: "Attention is all you need", 2017, equation 1. */
void reference_attention(const mha_attention_desc *desc, const reference_args *args);

/* The masked softmax of scores [batch][heads][query_len][key_len]: writes args->probs, scores and
 * lse. scale 0: 1. Reads of desc and args what mha_softmax reads. */
void reference_softmax(const mha_attention_desc *desc, const reference_args *args,
                       const float *scores);

typedef struct reference_gemm_args {
    size_t m;          /* of this call; 0: the desc's */
    const float *a;    /* [batch][m][k], or [batch][k][m] with MHA_GEMM_TRANSPOSE_A */
    const float *b;    /* [batch][k][n], or [batch][n][k] with MHA_GEMM_TRANSPOSE_B */
    const float *c;    /* [batch][m][n], read where beta is not 0 */
    const float *bias; /* [n], read with MHA_GEMM_BIAS */
    bool a_shared;     /* a has no batch axis */
    bool b_shared;     /* b has no batch axis */
    double *out;       /* [batch][m][n] */
} reference_gemm_args;

/* out = alpha op(A) op(B) + beta C + bias. */
void reference_gemm(const mha_gemm_desc *desc, const reference_gemm_args *args);

/* [batch][len][heads * dim] -> [batch][heads][len][dim], and the other way. */
void reference_split_heads(const mha_heads_desc *desc, const float *merged, double *split);
void reference_merge_heads(const mha_heads_desc *desc, const float *split, double *merged);

/* Packed host arrays. Positions and offsets: NULL where not given; clamped to the tables. */
typedef struct reference_rotary_args {
    size_t len;                  /* of this call; 0: the desc's */
    const float *input;          /* [batch][heads][len][dim] */
    const float *cos, *sin;      /* [positions][rotary_dim / 2], or [batch][len][rotary_dim / 2] */
    const int32_t *position_ids; /* [batch][len] */
    const int32_t *offsets;      /* [batch] */
    double *output;              /* [batch][heads][len][dim] */
} reference_rotary_args;

/* Rotary position embedding: ONNX RotaryEmbedding-23, "RoFormer", 2021, equation 34. */
void reference_rotary(const mha_rotary_desc *desc, const reference_rotary_args *args);

/* Packed; out x in with MHA_LAYER_OUT_IN, else in x out. Read where the desc has them. */
typedef struct reference_layer_weights {
    const float *query;       /* [query_width][heads * head_dim] */
    const float *key;         /* [key_width][kv_heads * head_dim] */
    const float *value;       /* [value_width][kv_heads * value_dim] */
    const float *output;      /* [heads * value_dim][output_width] */
    const float *bias_query;  /* [heads * head_dim] */
    const float *bias_key;    /* [kv_heads * head_dim] */
    const float *bias_value;  /* [kv_heads * value_dim] */
    const float *bias_output; /* [output_width] */
} reference_layer_weights;

/* The article's MultiHeadAttention, section 3.2.2. args->query is [batch][query_len][query_width],
 * key [batch][key_len][key_width], value [batch][key_len][value_width], output
 * [batch][query_len][output_width]; the rest is as for an attention. */
void reference_layer(const mha_layer_desc *desc, const reference_layer_weights *weights,
                     const reference_args *args);

/* The largest error of a float32 computation that counts as rounding: a constant times the float32
 * epsilon times sqrt(length) times `largest`. `length` is the sum of the lengths that are summed
 * over, one after the other; `largest` is the largest magnitude that takes part, such as of the
 * values. */
double reference_limit(size_t length, double largest);

#endif
