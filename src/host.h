/* Plain host arrays on their way to the device and back: what all host-array calls share. Each of
 * them checks its arguments, stages its arrays, and ends with the device call on the copies. */
#ifndef MHA_HOST_H
#define MHA_HOST_H

#include "ffn.h"
#include "layer.h"

enum {
    MHA_HOST_MOST = 36 /* arrays of a call: a decoder's weights, 2 * 8 + 2 * 6 + 4 * 2 */
};

/* One array on its way to the device, and back if it is an output. */
typedef struct mha_host_array {
    const char *name;
    void *to; /* where the result goes, or NULL */
    size_t bytes;
    cl_mem *buffer; /* in the device call's arguments */
    size_t shape[4], strides[4];
    size_t element_bytes;
} mha_host_array;

/* One call. Starts with the context and nothing else. */
typedef struct mha_host_call {
    mha_context *context;
    size_t count;
    mha_host_array arrays[MHA_HOST_MOST];
} mha_host_call;

/* Copies an array into a buffer of its own, *to, which must stay until mha_host_end. Without data
 * *to stays without a buffer. Nothing has been read when it fails. */
mha_status mha_host_stage_input(mha_host_call *host, const char *who, const char *name,
                                mha_tensor *to, const mha_host_input *from, const size_t shape[4],
                                size_t element_bytes);
/* keeps: the call does not write all of it, and the rest stays as it is. */
mha_status mha_host_stage_output(mha_host_call *host, const char *who, const char *name,
                                 mha_tensor *from, const mha_host_output *to, const size_t shape[4],
                                 size_t element_bytes, bool keeps);

/* Weights, each given if and only if it exists: a matrix, or a bias with an `in` of 0. */
typedef struct mha_host_weight {
    const char *name;
    mha_host_input from;
    mha_tensor *to;
    size_t in, out;
    bool exists;
} mha_host_weight;
/* Refuses what is given and does not exist, as "the flags say", and leaves it to the device call to
 * miss the others. `turned`: stored out x in. */
mha_status mha_host_stage_weights(mha_host_call *host, const char *who, const mha_host_weight *list,
                                  size_t count, bool turned, mha_type type, const char *says);

/* A device call for the host call `who`, whose sentences it says. */
typedef mha_status mha_host_enqueue(void *object, const void *args, const mha_call *call,
                                    const char *who);
/* Unless a status says that the staging failed: the device call on a queue of its own, until its
 * end, and the outputs back. Then all buffers go. */
mha_status mha_host_end(mha_host_call *host, const char *who, mha_status status,
                        mha_host_enqueue *enqueue, void *object, const void *args,
                        size_t workspace_bytes);

/* Of an attention's call, as the device call sees it. */
typedef struct mha_host_shapes {
    size_t query[4], key[4], value[4], output[4];
    size_t query_len, key_len; /* of a batch */
} mha_host_shapes;

/* What must hold of an attention's options before any array is read: no cache, which goes with
 * `enqueue`, and no array that nobody asked for, which may be of any size. */
mha_status mha_host_check_options(const mha_context *context, const char *who, const char *enqueue,
                                  const mha_attention_desc *desc, const mha_host_args *args);
/* That, before it that there are arguments and a device, and the lengths of a batch. */
mha_status mha_host_check_call(const mha_context *context, const char *who, const char *enqueue,
                               const mha_attention_desc *desc, const mha_host_args *args,
                               size_t *query_len, size_t *key_len);
/* All but the lengths, query, key, value and output. Of shapes->query it reads the batches and
 * rows. */
mha_status mha_host_stage_options(mha_host_call *host, const char *who,
                                  const mha_attention_desc *desc, const mha_host_args *args,
                                  const mha_host_shapes *shapes, mha_attention_args *to);
/* Stages all, lengths too, and ends the call. */
mha_status mha_host_attend(mha_context *context, const char *who, const mha_attention_desc *desc,
                           const mha_host_args *args, const mha_host_shapes *shapes,
                           mha_host_enqueue *enqueue, void *object, size_t workspace_bytes);

mha_status mha_host_stage_layer(mha_host_call *host, const char *who, const mha_layer *layer,
                                const mha_layer_host_weights *weights, mha_layer_weights *to);
mha_status mha_host_stage_ffn(mha_host_call *host, const char *who, const mha_ffn *ffn,
                              const mha_ffn_host_weights *weights, mha_ffn_weights *to);

#endif
