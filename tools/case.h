/* A conformance case: the folder of a case.txt and its tensors, as tests/cases/FORMAT.md tells. */
#ifndef MHA_TOOLS_CASE_H
#define MHA_TOOLS_CASE_H

#include "npy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum case_type {
    CASE_FLOAT32,
    CASE_FLOAT16,
    CASE_BFLOAT16,
    CASE_FLOAT64,
    CASE_INT64,
    CASE_INT32,
    CASE_UINT8,
    CASE_BOOL
} case_type;

/* "float32" ... "bool", and the bytes of one element. */
const char *case_type_name(case_type type);
size_t case_type_bytes(case_type type);

/* Element `index` of an array of `type` as a number; int64 beyond 2^53 is rounded. */
double case_type_value(case_type type, const void *data, size_t index);

typedef struct case_tensor {
    const char *name;
    case_type type;
    unsigned rank; /* 0: a scalar */
    size_t shape[NPY_MAX_RANK];
    size_t count; /* the product of the shape */
    /* Where element [0]..[0] lies in `data` and how far apart the others are, in elements: as the
     * case says, or packed. */
    bool strided; /* the case says */
    size_t strides[NPY_MAX_RANK];
    size_t offset;
    size_t storage; /* elements in `data` */
    void *data;
    /* Of outputs: |got - want| <= atol + rtol * |want|. */
    double rtol, atol;
    /* Of outputs, the first row that is not compared: SIZE_MAX where all are, or of each batch
     * where skip_input is given. */
    size_t skip_row;
    const struct case_tensor *skip_input;
    bool used; /* set by case_input and by whoever compares an output */
} case_tensor;

typedef struct case_entry {
    const char *key;
    char *value;
    unsigned line;
    bool used; /* set by the look-ups */
} case_entry;

typedef struct case_file {
    const char *name, *op;
    char *path; /* of case.txt */
    size_t num_entries, num_inputs, num_outputs;
    case_entry *entries;
    case_tensor *inputs, *outputs;
    /* The first thing found wrong, as "PATH:LINE: sentence"; "" while nothing is. */
    char error[1024];
    char *text; /* what the names and values point into */
} case_file;

/* Reads `folder`/case.txt and all its tensors. False: file->error says why, with the line where
 * there is one, and `file` may still be asked for error (only), then freed. */
bool case_read(const char *folder, case_file *file);
void case_free(case_file *file);

/* The value of a key, or `fallback` where the key is absent. A value that is not what is asked for
 * gives `fallback` and sets file->error, if it is the first: look after the last one. */
const char *case_string(case_file *file, const char *key, const char *fallback);
long case_int(case_file *file, const char *key, long fallback);
double case_float(case_file *file, const char *key, double fallback);
bool case_flag(case_file *file, const char *key, bool fallback);
bool case_has(const case_file *file, const char *key);

/* NULL where there is none of that name. */
const case_tensor *case_input(case_file *file, const char *name);
case_tensor *case_output(case_file *file, const char *name);

/* The first key, or input, that no look-up asked for and that says more than a description does:
 * whoever runs the case does not know all of it. NULL: none. */
const char *case_unused_key(const case_file *file);
const char *case_unused_input(const case_file *file);

#endif
