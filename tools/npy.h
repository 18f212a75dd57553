/* Reads NumPy's .npy files, versions 1.0 to 3.0, as far as conformance cases need them. */
#ifndef MHA_TOOLS_NPY_H
#define MHA_TOOLS_NPY_H

#include <stdbool.h>
#include <stddef.h>

#define NPY_MAX_RANK 8

typedef enum npy_type {
    NPY_FLOAT16, /* <f2 */
    NPY_FLOAT32, /* <f4 */
    NPY_FLOAT64, /* <f8 */
    NPY_UINT16,  /* <u2, which also carries the bits of bfloat16 */
    NPY_INT32,   /* <i4 */
    NPY_INT64,   /* <i8 */
    NPY_UINT8,   /* |u1 */
    NPY_BOOL     /* |b1, one byte, 0 or 1 */
} npy_type;

typedef struct npy_array {
    npy_type type;
    size_t item_bytes;
    unsigned rank; /* 0: a scalar, of count 1 */
    size_t shape[NPY_MAX_RANK];
    size_t count; /* the product of the shape */
    void *data;   /* count items in C order, never NULL; release with npy_free */
} npy_array;

/* Reads the whole file. False: *array is all zero and `error` holds a sentence without the path.
 * Refuses Fortran order, other types, a rank above NPY_MAX_RANK, and a file whose length is not
 * exactly that of its header and data; allocates nothing that the file does not hold. */
bool npy_read(const char *path, npy_array *array, char *error, size_t error_size);

void npy_free(npy_array *array);

/* The name that NumPy's files have for a type, such as "<f4". */
const char *npy_type_name(npy_type type);

#endif
