/* The parts that problem words are made of, which parsing and printing walk alike. Between the
 * files of word only. */
#ifndef MHA_TOOLS_WORD_TABLE_H
#define MHA_TOOLS_WORD_TABLE_H

#include "word.h"

#include <stdint.h>

/* What a word of a kind begins with. */
extern const char *const word_prefixes[];

enum {
    WORD_KINDS = KIND_MODEL + 1
};

typedef enum part_kind {
    PART_NUMBER,  /* a number, into a size_t of the problem */
    PART_LENGTHS, /* the same, but may be left out */
    PART_SOFTCAP,
    PART_SHARE,    /* of the dropout: 0, or a decimal below 1 */
    PART_AXES,     /* the axes that a mask or bias has, into an unsigned of the problem */
    PART_MASK,     /* the same, and the share that is seen */
    PART_CAUSAL,   /* may be followed by "b" */
    PART_DIAGONAL, /* of a window */
    PART_ROTARY,   /* may be followed by the elements that are rotated, then by "i" */
    PART_PACKED,   /* may be followed by "q" or "k" */
    PART_STAGE,    /* an mha_scores_stage as its number */
    PART_FLAG,     /* a bool of the problem */
    PART_FUNCTION, /* the letter of an activation function */
    PART_TYPE,     /* an mha_type of the problem */
    PART_LETTER    /* bits only */
} part_kind;

/* The kinds that a part is of, a bit each. */
typedef enum part_place {
    IN_ATTENTION = 1 << KIND_ATTENTION,
    IN_LAYER = 1 << KIND_LAYER,
    IN_ENCODER = 1 << KIND_ENCODER,
    IN_DECODER = 1 << KIND_DECODER,
    IN_GEMM = 1 << KIND_GEMM,
    IN_MODEL = 1 << KIND_MODEL,
    IN_BLOCK = IN_ENCODER | IN_DECODER,
    IN_MOST = IN_ATTENTION | IN_LAYER | IN_BLOCK /* a part that has none is in these */
} part_place;

typedef struct word_part {
    const char *letters;
    const char *name;
    part_place place;
    bool required;
    part_kind kind;
    size_t field; /* offset in the problem */
    size_t least; /* the smallest number */
    uint64_t uses, cross_uses;
    unsigned flags;      /* of the projections of an attention */
    unsigned ffn_flags;  /* of a feed-forward network */
    unsigned gemm_flags; /* of a matrix product */
    mha_type type;
    bool needs_cache; /* it says how new keys join or queries are rotated */
} word_part;

enum {
    WORD_PARTS = 61,
    WORD_AXES = 4
};

/* The required ones first; all in the order of the canonical word. */
extern const word_part word_parts[WORD_PARTS];

typedef struct word_axis {
    char letter;
    unsigned bit;
} word_axis;

extern const word_axis word_axes[WORD_AXES];

typedef struct word_function {
    char letter;
    mha_activation_kind kind;
} word_function;

enum {
    WORD_FUNCTIONS = 4
};

/* Those that a word names; a layer whose word names none has WORD_FUNCTION. */
extern const word_function word_functions[WORD_FUNCTIONS];

#define WORD_FUNCTION MHA_ACTIVATION_GELU

/* Whether the part is of the problem's kind. */
bool word_fits(const word_part *part, const problem *subject);

/* "layers of all kinds": the kinds that a part is of, in words. */
const char *word_place_name(const word_part *part);

#endif
