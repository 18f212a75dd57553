/* Reads .safetensors files: tensors by name, in place in a mapped file.
 * Format: https://github.com/huggingface/safetensors#format */
#ifndef SAFETENSORS_H
#define SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>

#define SAFETENSORS_MAX_RANK 8

typedef enum safetensors_type {
    SAFETENSORS_FLOAT32,
    SAFETENSORS_FLOAT16,
    SAFETENSORS_BFLOAT16,
    SAFETENSORS_OTHER /* a type of the format that no one here reads */
} safetensors_type;

typedef struct safetensors_tensor {
    const char *name;
    safetensors_type type;
    unsigned rank; /* 0: a scalar */
    size_t shape[SAFETENSORS_MAX_RANK];
    size_t count; /* the product of the shape */
    const unsigned char *data;
    size_t bytes;
} safetensors_tensor;

/* Read by any number of threads once it is open. */
typedef struct safetensors_file safetensors_file;

/* Maps the file and checks all of it but the tensors' values: the header, every type and shape, and
 * that the tensors cover the file without overlap or gap. NULL: `error` holds a sentence without
 * the path. The file must not shrink while it is open: reading what is gone ends the program. */
safetensors_file *safetensors_open(const char *path, char *error, size_t error_size);
void safetensors_close(safetensors_file *self); /* NULL is fine */

bool safetensors_has(const safetensors_file *self, const char *name);

/* The tensor of that name, shape[rank] (NULL for a scalar) and one of the three float types; a part
 * of the file, do not free it. NULL: `error` holds a sentence that names the tensor, and both
 * shapes if they differ. */
const safetensors_tensor *safetensors_find(const safetensors_file *self, const char *name,
                                           unsigned rank, const size_t *shape, char *error,
                                           size_t error_size);

/* Elements first to first + count - 1 of a float tensor, which has so many, as float32. */
void safetensors_read(const safetensors_tensor *tensor, size_t first, size_t count, float *out);

#endif
