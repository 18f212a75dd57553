/* The network: a BERT whose last rows are averaged over a sentence's tokens. */
#ifndef MODEL_H
#define MODEL_H

#include "config.h"
#include "embedder.h"

typedef struct model model;

/* Loads a folder's model.safetensors to a device: `device` is cpu, gpu, accelerator, a word as
 * mha_context_options.device_name has it, or NULL for the library's choice. `shape` is copied;
 * `batch` is the most sentences of a call. NULL: `error` holds a sentence. */
model *model_open(const char *folder, const config *shape, const char *device, size_t batch,
                  char *error, size_t error_size);
void model_close(model *self); /* NULL is fine */

/* What makes vectors of length 1, hidden_size wide, of at most `batch` sequences at once. */
embedder model_embedder(model *self);

/* Who attends to whom: probs[length][length] of a layer and head, both from 0, for a sequence. */
bool model_attention(model *self, const int32_t *ids, size_t length, size_t layer, size_t head,
                     float *probs, char *error, size_t error_size);

#endif
