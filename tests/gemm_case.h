/* The data of a matrix product, its place on the device and what the reference says of it. */
#ifndef MHA_TESTS_GEMM_CASE_H
#define MHA_TESTS_GEMM_CASE_H

#include "compare.h"
#include "device_memory.h"
#include "fill.h"
#include "reference.h"

typedef struct gemm_case {
    mha_gemm_desc desc;
    size_t m;                  /* of the call; 0: the desc's */
    size_t gap;                /* elements between rows and between matrices of a, b and c */
    bool a_shared, b_shared;   /* one matrix for all batches */
    bool a_touches, c_touches; /* with a gap: there is none between the matrices of a or c */
    fill_kind fill;
    uint64_t seed;
} gemm_case;

typedef struct gemm_data {
    char name[192];
    gemm_case given;
    size_t batch, m;
    float *a, *b, *c, *bias; /* as their types hold them */
    float *got;
    double *want;
    device_tensor result;
    mha_gemm_args args;
} gemm_data;

/* A seeded one; `by` and the rest of the seed's choices do not depend on each other. */
gemm_case gemm_case_pick(uint64_t seed, mha_gemm_by by);
/* The same with types that are not all float32, one of so many mixes. */
enum {
    GEMM_MIXES = 7
};
gemm_case gemm_case_pick_half(uint64_t seed, mha_gemm_by by);
/* `given` with the types of a mix. */
gemm_case gemm_case_mix(const gemm_case *given, size_t mix);

/* `given` with one of the activation functions; sums that the functions tell apart. */
enum {
    GEMM_ACTIVATIONS = 5
};
gemm_case gemm_case_activate(const gemm_case *given, size_t which);

/* Fills, asks the reference, and puts everything on the device. */
gemm_data *gemm_data_new(device *d, const gemm_case *given);
/* Reads the result, compares it, looks at the guards; frees the data and all tensors. */
bool gemm_data_finish(device *d, gemm_data *data, compare_worst *worst);

#endif
