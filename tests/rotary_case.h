/* Cases of the rotary position embedding: shapes, types, layouts, and where positions come from. */
#ifndef MHA_TESTS_ROTARY_CASE_H
#define MHA_TESTS_ROTARY_CASE_H

#include "compare.h"
#include "device_memory.h"
#include "fill.h"
#include "reference.h"

typedef enum rotary_given {
    ROTARY_BY_IDS,        /* in host memory */
    ROTARY_BY_IDS_DEVICE, /* some of them out of range */
    ROTARY_BY_OFFSETS,
    ROTARY_BY_OFFSETS_DEVICE,
    ROTARY_BY_NOTHING,
    ROTARY_BY_ROWS,        /* tables for each batch and row */
    ROTARY_BY_SHARED_ROWS, /* ... the same for all batches, by a stride of 0 */
    ROTARY_WAYS
} rotary_given;

typedef enum rotary_layout {
    ROTARY_LAYOUT_PACKED, /* [batch][heads][len][dim], packed */
    ROTARY_LAYOUT_IN_ROW, /* [batch][len][heads][dim] */
    ROTARY_LAYOUT_GAPS,
    ROTARY_LAYOUTS
} rotary_layout;

typedef struct rotary_case {
    char name[200];
    mha_rotary_desc desc;
    size_t len; /* of the call; 0: the desc's */
    rotary_given given;
    rotary_layout from, to;
    bool in_place;  /* where the types are the same; then `to` is not read */
    bool table_gap; /* between rows of the tables */
    fill_kind fill;
    uint64_t seed;
} rotary_case;

/* All but dim, rotary_dim and pairs is the seed's choice. Four seeds, from a multiple of four on,
 * have the same types, so that they share a program. */
rotary_case rotary_case_pick(uint64_t seed, size_t dim, size_t rotary_dim, mha_rotary_pairs pairs);
/* Names the case, makes the call and compares it with the reference. */
void rotary_case_check(device *d, rotary_case *c, compare_worst *worst);

#endif
