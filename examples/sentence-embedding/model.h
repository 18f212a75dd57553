/* The network: a BERT whose last rows are averaged over a sentence's tokens. */
#ifndef MODEL_H
#define MODEL_H

#include "config.h"
#include "embedder.h"

#include <mha.h>

typedef struct model model;

typedef struct model_options {
    mha_context *context; /* of the caller, which outlives the model; NULL: one for `device` */
    const char *device; /* cpu, gpu, accelerator, a word as mha_context_options.device_name has it,
                           or NULL for the library's choice */
    size_t batch;       /* the most sentences of a call, at least 1 */
    /* Who computes; 0: the library's choice. The last is of all products. */
    mha_path path;
    mha_tiling tiling;
    mha_gemm_by gemm;
} model_options;

/* Loads a folder's model.safetensors to a device. `shape` is copied. NULL: `error` holds a
 * sentence. */
model *model_open(const char *folder, const config *shape, const model_options *options,
                  char *error, size_t error_size);
void model_close(model *self); /* NULL is fine */

/* What the library says of its choices for a layer, as mha_encoder_explain does. */
size_t model_explain(const model *self, char *text, size_t capacity);

/* From now on what is computed goes to a queue of the context, in order as the library wants it,
 * and `stage`, which may be NULL, is told of each step. */
void model_watch(model *self, cl_command_queue queue, mha_stage_fn *stage, void *stage_data);

/* What makes vectors of length 1, hidden_size wide, of at most `batch` sequences at once. */
embedder model_embedder(model *self);

/* What the last layer makes of the tokens, rows[count][length][hidden_size] of at most `batch`
 * sequences; rows behind a sequence's end mean nothing. */
bool model_last_rows(model *self, const token_batch *sequences, float *rows, char *error,
                     size_t error_size);

/* Who attends to whom: probs[length][length] of a layer and head, both from 0, for a sequence. */
bool model_attention(model *self, const int32_t *ids, size_t length, size_t layer, size_t head,
                     float *probs, char *error, size_t error_size);

#endif
