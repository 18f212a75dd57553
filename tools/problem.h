/* A problem made ready to run: its seeded data on the host and on a device, and the attention, the
 * layer or the matrix product that solves it. */
#ifndef MHA_TOOLS_PROBLEM_H
#define MHA_TOOLS_PROBLEM_H

#include "word.h"

#include <mha.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum problem_slot {
    PROBLEM_QUERY, /* of a gemm: the first factor */
    /* Of a layer that is self-attention: empty, query is all three. A cache: what it holds before
     * the call, which changes it. Key, of a gemm: the second factor; of a decoder layer: the
     * memory. */
    PROBLEM_KEY,
    PROBLEM_VALUE,
    PROBLEM_BIAS,
    PROBLEM_MASK,
    PROBLEM_LENGTHS,
    PROBLEM_LENGTHS_PER_QUERY,
    PROBLEM_STARTS,
    PROBLEM_MEMORY_LENGTHS, /* of a decoder layer */
    PROBLEM_QUERY_OFFSETS,
    PROBLEM_KEY_OFFSETS,
    PROBLEM_POSITIONS, /* of the first new key of each batch */
    PROBLEM_NEW_KEY,
    PROBLEM_NEW_VALUE,
    PROBLEM_COS, /* of rotary positions */
    PROBLEM_SIN,
    PROBLEM_SLOPES,
    PROBLEM_SINKS,
    PROBLEM_WEIGHT_QUERY,
    PROBLEM_WEIGHT_KEY,
    PROBLEM_WEIGHT_VALUE,
    PROBLEM_WEIGHT_OUTPUT,
    PROBLEM_BIAS_QUERY,
    PROBLEM_BIAS_KEY,
    PROBLEM_BIAS_VALUE,
    PROBLEM_BIAS_OUTPUT,
    PROBLEM_CROSS_WEIGHT_QUERY, /* the same eight, of a decoder layer's attention to its memory */
    PROBLEM_CROSS_BIAS_OUTPUT = PROBLEM_CROSS_WEIGHT_QUERY + 7,
    PROBLEM_FFN_HIDDEN, /* of a block, in the order of its network's projections */
    PROBLEM_FFN_GATE,
    PROBLEM_FFN_OUTPUT,
    PROBLEM_FFN_BIAS_HIDDEN,
    PROBLEM_FFN_BIAS_GATE,
    PROBLEM_FFN_BIAS_OUTPUT,
    PROBLEM_NORM_ATTENTION, /* [weight | bias][width] */
    PROBLEM_NORM_CROSS,
    PROBLEM_NORM_FFN,
    PROBLEM_OUTPUT,
    PROBLEM_SCORES,
    PROBLEM_PROBS,
    PROBLEM_LSE,
    PROBLEM_SLOTS
} problem_slot;

/* From a weight of a layer to the same of the attention to a memory. */
enum {
    PROBLEM_TO_CROSS = PROBLEM_CROSS_WEIGHT_QUERY - PROBLEM_WEIGHT_QUERY
};

_Static_assert(PROBLEM_BIAS_OUTPUT - PROBLEM_WEIGHT_QUERY == 7,
               "an attention's weights are eight in a row; who takes them counts on their order");

/* Packed. A slot that the problem does not use has `used` false and nothing else. */
typedef struct problem_tensor {
    bool used;
    size_t count; /* elements; may be 0 */
    size_t item_bytes;
    mha_type type; /* 0: bytes or integers */
    /* Of inputs, and of what has no memory. Of a type: floats that the type holds exactly, in the
     * order of the shape. */
    void *host;
    cl_mem memory;
    size_t shape[4]; /* of a merged one: memory is [0][2][1][3], and so are its strides */
    bool is_merged;
} problem_tensor;

typedef struct problem_options {
    uint64_t seed;
    mha_path path;
    mha_tiling tiling;
    mha_gemm_by gemm;
    mha_gemm_by projection;
    const char *model; /* the folder of a model; NULL: as model_folder says */
} problem_options;

typedef struct problem_model problem_model;

typedef struct problem_ready {
    problem_kind kind;
    bool is_merged;      /* of an attention */
    bool is_scattered;   /* of a cache: the new keys join at random positions */
    bool is_self;        /* of a layer: query, key and value are one tensor */
    mha_layer_desc desc; /* with the options, and no 0 that stands for a size */
    mha_gemm_desc gemm_desc;
    mha_ffn_desc ffn; /* of an encoder or decoder layer, with its width; and so are these: */
    mha_norm_desc norm;
    mha_norm_place norm_place;
    mha_layer_desc cross; /* of a decoder layer, as desc: its attention to the memory */
    size_t repeats;       /* layers of a model, of which all this tells; else 1 */
    float mask_share;     /* of the pairs that a mask lets be seen */
    size_t key_length;    /* of each batch; 0: random ones */
    size_t memory_length; /* likewise, of a decoder layer */
    bool draws_lengths;   /* of a model, which has lengths in any case: they are random */
    mha_context *context;
    mha_attention *attention; /* this */
    mha_layer *layer;         /* or this */
    mha_encoder *encoder;     /* or this */
    mha_decoder *decoder;     /* or this */
    mha_gemm *gemm;           /* or this */
    problem_model *model;     /* or this: its vectors are the output, which lies on the host */
    uint64_t dropout_seed;
    uint32_t dropout_offset;
    mha_workspace need;
    cl_mem workspace;
    problem_tensor tensors[PROBLEM_SLOTS];
} problem_ready;

/* Fills, uploads, creates and loads, and waits for it. On failure *out is NULL, and `reason` may
 * hold a sentence, else the library has said why. */
mha_status problem_open(problem_ready **out, mha_context *context, const problem *subject,
                        const problem_options *options, char *reason, size_t reason_size);
void problem_close(problem_ready **self);

/* Queues the problem once, or makes a model's vectors. `stage` may be NULL. */
mha_status problem_enqueue(const problem_ready *self, cl_command_queue queue, mha_stage_fn *stage,
                           void *stage_data);

/* The queries and keys that batch b has; in a ring all keys that ever joined count. */
size_t problem_queries(const problem_ready *self, size_t b);
size_t problem_keys(const problem_ready *self, size_t b);

/* Floats in the order of a tensor's shape into the order of its memory, or back. */
void problem_reorder(const problem_tensor *tensor, const float *from, float *to, bool into_memory);

/* What the library says of its choices. The caller frees it; NULL without memory. */
char *problem_explain(const problem_ready *self);

#endif
