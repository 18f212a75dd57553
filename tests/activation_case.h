/* Cases of activation functions: shapes, types, layouts, with and without a gate. */
#ifndef MHA_TESTS_ACTIVATION_CASE_H
#define MHA_TESTS_ACTIVATION_CASE_H

#include "compare.h"
#include "device_memory.h"
#include "fill.h"
#include "reference.h"
#include "reference_block.h"

typedef enum activation_layout {
    ACTIVATION_PACKED,
    ACTIVATION_GAPS,
    ACTIVATION_HALVES, /* input and gate are the halves of one row, and not written over */
    ACTIVATION_LAYOUTS
} activation_layout;

typedef enum activation_place {
    ACTIVATION_APART,
    ACTIVATION_OVER_INPUT,
    ACTIVATION_OVER_GATE,
    ACTIVATION_PLACES
} activation_place;

typedef struct activation_case {
    char name[200];
    mha_activation_desc desc;
    size_t rows; /* of the call; 0: the desc's */
    activation_layout layout;
    activation_place place;
    float scale; /* of the input's elements; the first ones are extremes */
    fill_kind fill;
    uint64_t seed;
} activation_case;

/* All but the width, kind and tiling is the seed's choice. Four seeds, from a multiple of four on,
 * have the same types, so that they share a program. */
activation_case activation_case_pick(uint64_t seed, size_t width, mha_activation_kind kind,
                                     mha_tiling tiling);
/* Names the case, makes the call and compares it with the reference. */
void activation_case_check(device *d, activation_case *c, compare_worst *worst);

#endif
