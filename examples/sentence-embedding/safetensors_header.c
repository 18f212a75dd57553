/* Reads the JSON header: an object with, for each tensor, dtype, shape and data_offsets. */
#include "safetensors_header.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All types of the format that have whole bytes. */
static const struct {
    const char *name;
    safetensors_type type;
    size_t bytes;
} types[] = {
    { "F32", SAFETENSORS_FLOAT32, 4 },   { "F16", SAFETENSORS_FLOAT16, 2 },
    { "BF16", SAFETENSORS_BFLOAT16, 2 }, { "BOOL", SAFETENSORS_OTHER, 1 },
    { "U8", SAFETENSORS_OTHER, 1 },      { "I8", SAFETENSORS_OTHER, 1 },
    { "F8_E5M2", SAFETENSORS_OTHER, 1 }, { "F8_E4M3", SAFETENSORS_OTHER, 1 },
    { "F8_E8M0", SAFETENSORS_OTHER, 1 }, { "U16", SAFETENSORS_OTHER, 2 },
    { "I16", SAFETENSORS_OTHER, 2 },     { "U32", SAFETENSORS_OTHER, 4 },
    { "I32", SAFETENSORS_OTHER, 4 },     { "U64", SAFETENSORS_OTHER, 8 },
    { "I64", SAFETENSORS_OTHER, 8 },     { "F64", SAFETENSORS_OTHER, 8 },
    { "C64", SAFETENSORS_OTHER, 8 },
};

/* A whole number, 0 or more. */
static bool to_size(const json_t *json, size_t *size)
{
    const json_int_t value = json_is_integer(json) ? json_integer_value(json) : -1;
    if (value < 0 || (uintmax_t)value > SIZE_MAX)
        return false;
    *size = (size_t)value;
    return true;
}

/* The type, and in `bytes` those of one element. NULL, or what is wrong with it. */
static const char *read_type(safetensors_tensor *tensor, const json_t *json)
{
    const char *const name = json_string_value(json_object_get(json, "dtype"));
    for (size_t i = 0; name && i < sizeof types / sizeof types[0]; i++) {
        if (!strcmp(name, types[i].name)) {
            tensor->type = types[i].type;
            tensor->bytes = types[i].bytes;
            return NULL;
        }
    }
    return name ? "has a dtype that is not known" : "has no dtype";
}

/* A length of 0 makes the tensor empty, but the others must not overflow either. */
static const char *read_shape(safetensors_tensor *tensor, const json_t *json)
{
    const json_t *const shape = json_object_get(json, "shape");
    size_t bytes = tensor->bytes;
    bool is_empty = false;
    if (!json_is_array(shape))
        return "has no shape";
    if (json_array_size(shape) > SAFETENSORS_MAX_RANK)
        return "has more than 8 axes";
    for (; tensor->rank < json_array_size(shape); tensor->rank++) {
        size_t *const length = &tensor->shape[tensor->rank];
        if (!to_size(json_array_get(shape, tensor->rank), length))
            return "has a shape that is not of whole numbers";
        is_empty = is_empty || !*length;
        if (*length && bytes > SIZE_MAX / *length)
            return "has a shape that is too large";
        bytes *= *length ? *length : 1;
    }
    tensor->count = is_empty ? 0 : bytes / tensor->bytes;
    tensor->bytes = is_empty ? 0 : bytes;
    return NULL;
}

static const char *read_offsets(safetensors_tensor *tensor, const json_t *json,
                                const unsigned char *data, size_t data_bytes)
{
    const json_t *const offsets = json_object_get(json, "data_offsets");
    size_t begin = 0, end = 0;
    if (json_array_size(offsets) != 2 || !to_size(json_array_get(offsets, 0), &begin) ||
        !to_size(json_array_get(offsets, 1), &end) || begin > end)
        return "has no data_offsets of a begin and an end";
    if (end > data_bytes)
        return "goes on after the file's end";
    if (end - begin != tensor->bytes)
        return "has data_offsets that do not fit its dtype and shape";
    tensor->data = data + begin;
    return NULL;
}

static bool read_tensors(safetensors_header *self, const unsigned char *data, size_t data_bytes,
                         char *error, size_t error_size)
{
    const char *name;
    json_t *json;
    json_object_foreach((json_t *)self->json, name, json)
    {
        if (!strcmp(name, "__metadata__"))
            continue;
        safetensors_tensor *const tensor = &self->tensors[self->num_tensors++];
        *tensor = (safetensors_tensor){ .name = name };
        const char *trouble = json_is_object(json) ? NULL : "is no object";
        if (!trouble)
            trouble = read_type(tensor, json);
        if (!trouble)
            trouble = read_shape(tensor, json);
        if (!trouble)
            trouble = read_offsets(tensor, json, data, data_bytes);
        if (trouble) {
            snprintf(error, error_size, "its tensor %.100s %s", name, trouble);
            return false;
        }
    }
    return true;
}

static int compare_places(const void *a, const void *b)
{
    const safetensors_tensor *const one = a, *const other = b;
    if (one->data != other->data)
        return one->data < other->data ? -1 : 1;
    return (one->bytes > other->bytes) - (one->bytes < other->bytes); /* empty ones first */
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const safetensors_tensor *)a)->name, ((const safetensors_tensor *)b)->name);
}

/* The tensors, one behind the other, must be the data; leaves them sorted by name. */
static bool check_places(safetensors_header *self, const unsigned char *data, size_t data_bytes,
                         char *error, size_t error_size)
{
    const unsigned char *end = data;
    const char *last = "the header";
    qsort(self->tensors, self->num_tensors, sizeof *self->tensors, compare_places);
    for (size_t i = 0; i < self->num_tensors; i++) {
        const safetensors_tensor *const next = &self->tensors[i];
        if (next->data != end) {
            snprintf(error, error_size, "its tensor %.100s %s %.100s", next->name,
                     next->data < end ? "overlaps" : "leaves a gap behind", last);
            return false;
        }
        end += next->bytes;
        last = next->name;
    }
    if (end != data + data_bytes) {
        snprintf(error, error_size, "it goes on after its last tensor");
        return false;
    }
    qsort(self->tensors, self->num_tensors, sizeof *self->tensors, compare_names);
    return true;
}

bool safetensors_header_read(safetensors_header *self, const char *text, size_t length,
                             const unsigned char *data, size_t data_bytes, char *error,
                             size_t error_size)
{
    json_error_t trouble;
    if (!length || text[0] != '{') {
        snprintf(error, error_size, "its header is no JSON object: it is no .safetensors file");
        return false;
    }
    json_t *const json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &trouble);
    self->json = json;
    if (!json) {
        snprintf(error, error_size, "its header is no good JSON: %s", trouble.text);
        return false;
    }
    self->tensors = calloc(json_object_size(json) + 1, sizeof *self->tensors);
    if (!self->tensors) {
        snprintf(error, error_size, "the host is out of memory");
        return false;
    }
    return read_tensors(self, data, data_bytes, error, error_size) &&
           check_places(self, data, data_bytes, error, error_size);
}

void safetensors_header_free(safetensors_header *self)
{
    free(self->tensors);
    json_decref(self->json);
    *self = (safetensors_header){ 0 };
}

const safetensors_tensor *safetensors_header_find(const safetensors_header *self, const char *name)
{
    const safetensors_tensor key = { .name = name };
    return self->num_tensors
               ? bsearch(&key, self->tensors, self->num_tensors, sizeof key, compare_names)
               : NULL;
}
