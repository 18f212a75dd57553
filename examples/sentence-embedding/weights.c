/* Finds and reads the tensors of a BERT. */
#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char file_name[] = "model.safetensors";

bool weights_open(const char *folder, weights *self, char *error, size_t error_size)
{
    char path[4096], reason[400];
    *self = (weights){ .prefix = "" };
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, file_name) >= sizeof path) {
        snprintf(error, error_size, "%s: the path is too long", file_name);
        return false;
    }
    self->file = safetensors_open(path, reason, sizeof reason);
    if (!self->file)
        snprintf(error, error_size, "%s: %s", file_name, reason);
    else if (safetensors_has(self->file, "bert.embeddings.word_embeddings.weight"))
        self->prefix = "bert.";
    return self->file;
}

void weights_close(weights *self)
{
    safetensors_close(self->file);
    self->file = NULL;
}

const safetensors_tensor *weights_find(const weights *self, long layer, const char *name,
                                       size_t rows, size_t columns, char *error, size_t error_size)
{
    char full[200], reason[500];
    const size_t shape[] = { rows, columns };
    if (layer < 0)
        snprintf(full, sizeof full, "%s%s", self->prefix, name);
    else
        snprintf(full, sizeof full, "%sencoder.layer.%ld.%s", self->prefix, layer, name);
    const safetensors_tensor *const tensor = safetensors_find(
        self->file, full, rows ? 2 : 1, rows ? shape : shape + 1, reason, sizeof reason);
    if (!tensor)
        snprintf(error, error_size, "%s: %s", file_name, reason);
    return tensor;
}

float *weights_read(const weights *self, long layer, const char *name, size_t rows, size_t columns,
                    char *error, size_t error_size)
{
    const safetensors_tensor *const tensor =
        weights_find(self, layer, name, rows, columns, error, error_size);
    float *const values = tensor ? calloc(tensor->count, sizeof *values) : NULL;
    if (values)
        safetensors_read(tensor, 0, tensor->count, values);
    else if (tensor)
        snprintf(error, error_size, "the host is out of memory");
    return values;
}
