/* Cases of layer norm and RMS norm: shapes, types, layouts, and which arguments take part. */
#ifndef MHA_TESTS_NORM_CASE_H
#define MHA_TESTS_NORM_CASE_H

#include "compare.h"
#include "device_memory.h"
#include "fill.h"
#include "reference.h"
#include "reference_block.h"

/* Which memory is the output's, and which the sum's. */
typedef enum norm_place {
    NORM_APART,
    NORM_OVER_INPUT,
    NORM_OVER_RESIDUAL,
    NORM_SUM_OVER_RESIDUAL,
    NORM_SUM_OVER_INPUT,
    NORM_OVER_BOTH, /* the output over the input, the sum over the residual */
    NORM_CROSSED,   /* the other way round */
    NORM_PLACES
} norm_place;

typedef struct norm_case {
    char name[200];
    mha_norm_desc desc;
    size_t rows; /* of the call; 0: the desc's */
    norm_place place;
    bool gaps;   /* between rows */
    float shift; /* is added to all of the input */
    fill_kind fill;
    uint64_t seed;
} norm_case;

/* All but the width, kind and tiling is the seed's choice. Four seeds, from a multiple of four on,
 * have the same types and uses, so that they share a program. */
norm_case norm_case_pick(uint64_t seed, size_t width, mha_norm_kind kind, mha_tiling tiling);
/* Names the case, makes the call and compares all its outputs with the reference. */
void norm_case_check(device *d, norm_case *c, compare_worst *worst);

#endif
