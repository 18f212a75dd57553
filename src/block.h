/* What encoder and decoder layers are made of: steps in order, each a branch beside the stream of
 * rows, with a norm before it or behind it. */
#ifndef MHA_BLOCK_H
#define MHA_BLOCK_H

#include "add.h"
#include "convert.h"
#include "ffn.h"
#include "layer.h"
#include "norm.h"

/* The steps that there may be, in order. */
enum {
    MHA_BLOCK_FFN_BEFORE,
    MHA_BLOCK_SELF,
    MHA_BLOCK_CROSS,
    MHA_BLOCK_FFN,
    MHA_BLOCK_STEPS
};

/* One step: a layer or a network, and the weights of its norm. */
typedef struct mha_block_step {
    bool exists;
    mha_layer *layer;
    mha_ffn *ffn;
    cl_mem norm; /* [weight | bias][width], NULL: none */
} mha_block_step;

typedef struct mha_block {
    mha_context *context;
    size_t batch, len, width;   /* rows are tokens: batch * len of them at most */
    mha_type type, output_type; /* of input and output; all between them is float32 */
    mha_type norm_type;         /* of the caller's weights of norms, which are kept in float32 */
    bool norm_first;
    mha_block_step steps[MHA_BLOCK_STEPS];
    mha_convert_stage enter; /* the input to the stream, where it is of a half type */
    /* The norm of the input alone, and the one that adds a branch to the stream first; at the end,
     * to the output: a norm, or the sum alone. */
    mha_norm_desc first_desc, joined_desc, last_desc;
    mha_norm_stage first, joined, last;
    mha_add_stage add;
    mha_kernel copy;
    bool loaded;
    /* Of the workspace: what each step needs, one after the other in the same place, the rows of a
     * branch and those of the stream. In bytes. */
    mha_needs needs;
    size_t branch_region, stream_region;
} mha_block;

struct mha_encoder {
    mha_block block;
};

struct mha_decoder {
    mha_block block;
};

/* What the public descs have in common. cross NULL: none. */
typedef struct mha_block_desc {
    const mha_layer_desc *self, *cross;
    const mha_ffn_desc *ffn;
    mha_ffn_place ffn_place;
    const mha_norm_desc *norm;
    mha_norm_place norm_place;
} mha_block_desc;

/* Each public struct of weights has fields of these names, on the device or on the host: what
 * stands in the braces of an initialiser by step. */
#define MHA_BLOCK_ENCODER_WEIGHTS(w)                                    \
    .layers = { [MHA_BLOCK_SELF] = &(w)->self_attention },              \
    .ffns = { [MHA_BLOCK_FFN_BEFORE] = &(w)->feed_forward_before,       \
              [MHA_BLOCK_FFN] = &(w)->feed_forward },                   \
    .norms = { [MHA_BLOCK_FFN_BEFORE] = &(w)->norm_feed_forward_before, \
               [MHA_BLOCK_SELF] = &(w)->norm_self_attention,            \
               [MHA_BLOCK_FFN] = &(w)->norm_feed_forward }
#define MHA_BLOCK_DECODER_WEIGHTS(w)                                    \
    .layers = { [MHA_BLOCK_SELF] = &(w)->self_attention,                \
                [MHA_BLOCK_CROSS] = &(w)->cross_attention },            \
    .ffns = { [MHA_BLOCK_FFN_BEFORE] = &(w)->feed_forward_before,       \
              [MHA_BLOCK_FFN] = &(w)->feed_forward },                   \
    .norms = { [MHA_BLOCK_FFN_BEFORE] = &(w)->norm_feed_forward_before, \
               [MHA_BLOCK_SELF] = &(w)->norm_self_attention,            \
               [MHA_BLOCK_CROSS] = &(w)->norm_cross_attention,          \
               [MHA_BLOCK_FFN] = &(w)->norm_feed_forward }

/* On failure the caller releases. `who` is the public function. */
mha_status mha_block_setup(mha_block *block, mha_context *context, const mha_block_desc *desc,
                           const char *who);
void mha_block_release(mha_block *block);
mha_workspace mha_block_workspace(const mha_block *block);
size_t mha_block_explain(const mha_block *block, char *text, size_t capacity);

/* Of a step that there is not, all are empty. */
typedef struct mha_block_weights {
    const mha_layer_weights *layers[MHA_BLOCK_STEPS];
    const mha_ffn_weights *ffns[MHA_BLOCK_STEPS];
    const mha_norm_weights *norms[MHA_BLOCK_STEPS];
} mha_block_weights;
mha_status mha_block_load(mha_block *block, const mha_block_weights *weights, const mha_call *call,
                          const char *who);

typedef struct mha_block_args {
    size_t len;
    const mha_tensor *input, *output, *memory;
    const mha_attention_args *self, *cross; /* options */
} mha_block_args;
mha_status mha_block_enqueue(mha_block *block, const mha_block_args *args, const mha_call *call,
                             const char *who);

/* What calls on device memory and on host arrays refuse alike: a call before the weights were
 * loaded; weights given for a step that there is not; an argument that the block gives its
 * attention itself; more tokens than the desc's, with 0 for all of them. */
mha_status mha_block_check_loaded(const mha_block *block, const char *who);
mha_status mha_block_check_step(const mha_block *block, const char *who, int step, bool given);
typedef struct mha_block_own {
    const char *name;
    bool given;
} mha_block_own;
mha_status mha_block_check_own(const mha_block *block, const char *who, const mha_block_own *list,
                               size_t count);
mha_status mha_block_take_len(const mha_block *block, const char *who, size_t given, size_t *len);

/* "self_attention", for the sentences about one step: "mha_decoder_load: self_attention". */
enum {
    MHA_BLOCK_WHO = 80
};
const char *mha_block_say(char text[MHA_BLOCK_WHO], const char *who, int step);

#endif
