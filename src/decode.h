/* What decode's kernels for CPUs and those for GPUs differ in on the host. */
#ifndef MHA_DECODE_H
#define MHA_DECODE_H

#include "mha.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct mha_decode_kind {
    const char *room;         /* the file in cl/ */
    const char *part, *merge; /* its kernels */
    const char *options;      /* build options that are always the same, ending in a space */
    size_t group;             /* work-items of a work-group */
    size_t least_share;       /* keys that are worth a part of their own */
    size_t groups_per_unit;   /* work-groups that keep a compute unit busy */
    /* Each part, tile of the rows and key head has a work-group of its own, all along one axis;
     * else a work-group has all rows of a key head, and goes on with other heads. */
    bool one_each;
    /* Query rows that go over the keys together, of `rows` of a key head. */
    size_t (*tile)(const mha_attention_desc *desc, size_t rows);
    size_t (*local_bytes)(const mha_attention_desc *desc, size_t rows);
} mha_decode_kind;

extern const mha_decode_kind mha_decode_cpu;
extern const mha_decode_kind mha_decode_gpu;

#endif
