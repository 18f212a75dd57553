/* Problem words: one word names a problem that mha-bench can set up, verify and time. */
#ifndef MHA_TOOLS_WORD_H
#define MHA_TOOLS_WORD_H

#include <mha.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum problem_kind {
    KIND_ATTENTION, /* only desc.attention counts */
    KIND_LAYER,
    KIND_ENCODER, /* a layer of a transformer: desc is its self-attention */
    KIND_DECODER, /* the same, that attends to a memory as well */
    KIND_GEMM,    /* only gemm counts */
    KIND_MODEL    /* sentences of query_len tokens, whose vectors a network of a folder makes */
} problem_kind;

/* A zero-initialised problem is no problem yet; word_parse makes one. */
typedef struct problem {
    problem_kind kind;
    bool is_cross;       /* of a layer: query, key and value are three tensors, not one */
    bool is_merged;      /* of an attention: its tensors are [batch][len][heads][dim] */
    bool is_scattered;   /* of a cache: the new keys join at random positions */
    float mask_share;    /* with MHA_USES_MASK: of the pairs that it lets be seen */
    size_t key_length;   /* with MHA_USES_KEY_LENGTHS: of each batch; 0: random ones */
    mha_layer_desc desc; /* fields that the word leaves out are 0 */
    mha_gemm_desc gemm;
    mha_ffn_desc ffn; /* of an encoder or decoder layer, and so are these: */
    bool norms_before, is_rms;
    size_t memory_len;    /* of a decoder layer, and so are these: */
    uint64_t cross_uses;  /* of its attention to the memory */
    size_t memory_length; /* as key_length, of the memory */
} problem;

/* problem.mask_share where the word says none. */
#define WORD_MASK_SHARE 0.75f

/* The grammar in words, many lines long: of all words, then of what is of some kinds only. What
 * --help prints; there is no other description. */
extern const char word_grammar[], word_grammar_of_kinds[];

/* False: *out is all zero and `error` holds a sentence that says at which character the word goes
 * wrong, counted from 1. */
bool word_parse(const char *word, problem *out, char *error, size_t error_size);

/* Writes the canonical word of a problem that word_parse made, with its parts in the grammar's
 * order: parsing it gives the same problem. Writes and returns as snprintf does. */
size_t word_print(const problem *subject, char *word, size_t word_size);

#endif
