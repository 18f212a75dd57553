/* The header of a .safetensors file. Between safetensors.c and safetensors_header.c only. */
#ifndef SAFETENSORS_HEADER_H
#define SAFETENSORS_HEADER_H

#include "safetensors.h"

typedef struct safetensors_header {
    size_t num_tensors;
    safetensors_tensor *tensors; /* by name */
    void *json;                  /* holds the names */
} safetensors_header;

/* Reads text[length] and gives each tensor its part of data[data_bytes]. False: `error` holds a
 * sentence, and *self may be freed. */
bool safetensors_header_read(safetensors_header *self, const char *text, size_t length,
                             const unsigned char *data, size_t data_bytes, char *error,
                             size_t error_size);
void safetensors_header_free(safetensors_header *self);

/* NULL: none of that name. */
const safetensors_tensor *safetensors_header_find(const safetensors_header *self, const char *name);

#endif
