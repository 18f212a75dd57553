/* Seeded test data, the same on every machine: element i depends on the seed and i only, so that a
 * longer array begins with the shorter one. By Philox ("Parallel random numbers: as easy as 1, 2,
 * 3", 2011). */
#ifndef MHA_TESTS_FILL_H
#define MHA_TESTS_FILL_H

#include <stddef.h>
#include <stdint.h>

/* What a computation may meet, the extremes on purpose. */
typedef enum fill_kind {
    FILL_NORMAL,  /* mean 0, deviation 1, within 4.9 */
    FILL_UNIFORM, /* [-1, 1) */
    FILL_LARGE, /* [-1e4, 1e4): scores whose exponential overflows unless the maximum goes first */
    FILL_EQUAL, /* one value in [-1, 1) everywhere */
    FILL_ONE_HOT, /* 0, but one 1 among each 16 elements */
    FILL_TINY,    /* [-1e-20, 1e-20): products are subnormal */
    FILL_KINDS    /* how many there are */
} fill_kind;

/* A static string, such as "one hot". */
const char *fill_kind_name(fill_kind kind);

void fill_floats(float *data, size_t count, uint64_t seed, fill_kind kind);

/* [low, high). */
void fill_uniform(float *data, size_t count, uint64_t seed, float low, float high);

/* Bytes of a mask: 1 with `probability`, else 0. */
void fill_mask(unsigned char *data, size_t count, uint64_t seed, double probability);

/* Integers in [0, max]. */
void fill_lengths(int32_t *data, size_t count, uint64_t seed, int32_t max);

#endif
