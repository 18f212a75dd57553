/* The tensors of a BERT by the names that they have in its model.safetensors. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "config.h"
#include "safetensors.h"

typedef struct weights {
    safetensors_file *file;
    const char *prefix; /* some files begin every name with "bert." */
} weights;

/* Opens a folder's model.safetensors. False: `error` holds a sentence that begins with its name. */
bool weights_open(const char *folder, weights *self, char *error, size_t error_size);
void weights_close(weights *self);

/* The tensor "encoder.layer.LAYER.NAME", or NAME where layer is -1, of rows x columns, or of
 * `columns` where rows is 0. NULL: `error` holds a sentence. */
const safetensors_tensor *weights_find(const weights *self, long layer, const char *name,
                                       size_t rows, size_t columns, char *error, size_t error_size);

/* All of that tensor as float32, to be freed. NULL: the same. */
float *weights_read(const weights *self, long layer, const char *name, size_t rows, size_t columns,
                    char *error, size_t error_size);

#endif
