/* The tensors of a case: parses their lines and loads their files. */
#include "case_tensors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS 64

static const struct {
    const char *name;
    size_t bytes;
    npy_type file; /* what the .npy file holds */
} types[] = {
    [CASE_FLOAT32] = { "float32", 4, NPY_FLOAT32 },  [CASE_FLOAT16] = { "float16", 2, NPY_FLOAT16 },
    [CASE_BFLOAT16] = { "bfloat16", 2, NPY_UINT16 }, [CASE_FLOAT64] = { "float64", 8, NPY_FLOAT64 },
    [CASE_INT64] = { "int64", 8, NPY_INT64 },        [CASE_INT32] = { "int32", 4, NPY_INT32 },
    [CASE_UINT8] = { "uint8", 1, NPY_UINT8 },        [CASE_BOOL] = { "bool", 1, NPY_BOOL },
};

const char *case_type_name(case_type type)
{
    return types[type].name;
}

size_t case_type_bytes(case_type type)
{
    return types[type].bytes;
}

/* IEEE 754 binary16. */
static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31;
    const double fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == 31)
        return fraction > 0 ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, -24);
    return sign * ldexp(fraction + 1024, exponent - 25);
}

static double bfloat_value(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

double case_type_value(case_type type, const void *data, size_t index)
{
    switch (type) {
    case CASE_FLOAT32:
        return ((const float *)data)[index];
    case CASE_FLOAT16:
        return half_value(((const uint16_t *)data)[index]);
    case CASE_BFLOAT16:
        return bfloat_value(((const uint16_t *)data)[index]);
    case CASE_FLOAT64:
        return ((const double *)data)[index];
    case CASE_INT64:
        return (double)((const int64_t *)data)[index];
    case CASE_INT32:
        return ((const int32_t *)data)[index];
    case CASE_UINT8:
    case CASE_BOOL:
        break;
    }
    return ((const uint8_t *)data)[index];
}

/* A whole number without a sign, up to `stop`, which must follow it. NULL: it is not one. */
static const char *take_number(const char *text, char stop, size_t *number)
{
    if (*text < '0' || *text > '9')
        return NULL;
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno || value > SIZE_MAX || (*end != stop && *end))
        return NULL;
    *number = (size_t)value;
    return end;
}

/* "2x3x4" or "4,2,1": numbers between separators. False where there are more than NPY_MAX_RANK. */
static bool take_numbers(const char *text, char separator, size_t *numbers, unsigned *count)
{
    *count = 0;
    while (*count < NPY_MAX_RANK) {
        text = take_number(text, separator, &numbers[(*count)++]);
        if (!text || !*text)
            return text != NULL;
        text++;
    }
    return false;
}

/* count, and the strides of a packed tensor. */
static bool pack(case_tensor *tensor)
{
    size_t product = types[tensor->type].bytes;
    for (unsigned axis = tensor->rank; axis-- > 0;) {
        tensor->strides[axis] = product / types[tensor->type].bytes;
        const size_t length = tensor->shape[axis] ? tensor->shape[axis] : 1;
        if (product > SIZE_MAX / length)
            return false;
        product *= length;
    }
    tensor->count = product / types[tensor->type].bytes;
    for (unsigned axis = 0; axis < tensor->rank; axis++)
        if (!tensor->shape[axis])
            tensor->count = 0;
    tensor->storage = tensor->count;
    return true;
}

/* Is the last element of a strided tensor inside its storage? */
static bool fits_storage(const case_tensor *tensor)
{
    size_t last = tensor->offset;
    if (!tensor->count)
        return true;
    for (unsigned axis = 0; axis < tensor->rank; axis++) {
        const size_t steps = tensor->shape[axis] - 1;
        if (steps && tensor->strides[axis] > (SIZE_MAX - last) / steps)
            return false;
        last += steps * tensor->strides[axis];
    }
    return last < tensor->storage;
}

/* The words behind FILE: strides=, offset= and storage=, all three or none. */
static bool read_storage(case_file *file, unsigned line, case_tensor *tensor, char **words,
                         size_t num_words)
{
    unsigned seen = 0;
    for (size_t i = 0; i < num_words; i++) {
        const char *const value = strchr(words[i], '=');
        unsigned bit = 0, rank = 0;
        if (value && !strncmp(words[i], "strides=", 8))
            bit = take_numbers(value + 1, ',', tensor->strides, &rank) && rank == tensor->rank;
        else if (value && !strncmp(words[i], "offset=", 7))
            bit = take_number(value + 1, '\0', &tensor->offset) ? 2 : 0;
        else if (value && !strncmp(words[i], "storage=", 8))
            bit = take_number(value + 1, '\0', &tensor->storage) ? 4 : 0;
        if (!bit || (seen & bit))
            return case_fail(file, line, "\"%s\" is not strides=, offset= or storage= of \"%s\"",
                             words[i], tensor->name);
        seen |= bit;
    }
    if (seen && seen != 7)
        return case_fail(file, line, "strides=, offset= and storage= belong together");
    tensor->strided = seen != 0;
    if (!fits_storage(tensor))
        return case_fail(file, line, "\"%s\" does not fit into its storage", tensor->name);
    return true;
}

/* NAME DTYPE SHAPE into `tensor`. */
static bool read_type(case_file *file, unsigned line, case_tensor *tensor, char **words)
{
    tensor->name = words[0];
    tensor->skip_row = SIZE_MAX;
    if (!case_is_name(words[0]))
        return case_fail(file, line, "\"%s\" is not the name of a tensor", words[0]);
    size_t type = 0;
    while (type < sizeof types / sizeof types[0] && strcmp(words[1], types[type].name))
        type++;
    if (type == sizeof types / sizeof types[0])
        return case_fail(file, line, "\"%s\" is not a type of the format", words[1]);
    tensor->type = (case_type)type;
    if (strcmp(words[2], "scalar") && !take_numbers(words[2], 'x', tensor->shape, &tensor->rank))
        return case_fail(file, line, "\"%s\" is not a shape", words[2]);
    if (!pack(tensor))
        return case_fail(file, line, "the shape %s is too large", words[2]);
    return true;
}

/* Storage is flat, whatever shape the file gives it. */
static bool same_shape(const case_tensor *tensor, const npy_array *array)
{
    if (tensor->strided)
        return array->count == tensor->storage;
    return array->rank == tensor->rank &&
           (!array->rank ||
            !memcmp(array->shape, tensor->shape, array->rank * sizeof array->shape[0]));
}

/* The items of the file, once they are what the line says; the tensor takes them over. */
static bool take_items(case_file *file, unsigned line, case_tensor *tensor, npy_array *array,
                       const char *name)
{
    npy_type wanted = types[tensor->type].file;
    if (tensor->type == CASE_BOOL && array->type == NPY_UINT8)
        wanted = NPY_UINT8; /* NumPy's older way to store one */
    if (array->type != wanted)
        return case_fail(file, line, "%s: it holds %s, not %s", name, npy_type_name(array->type),
                         types[tensor->type].name);
    if (!same_shape(tensor, array))
        return case_fail(file, line, "%s: its shape is not that of \"%s\"", name, tensor->name);
    if (tensor->type == CASE_BOOL)
        for (size_t i = 0; i < array->count; i++)
            if (((const unsigned char *)array->data)[i] > 1)
                return case_fail(file, line, "%s: it holds a bool that is neither 0 nor 1", name);
    tensor->data = array->data;
    array->data = NULL;
    return true;
}

static bool load(case_file *file, unsigned line, case_tensor *tensor, const char *folder,
                 const char *name)
{
    if (strpbrk(name, "/\\:") || name[0] == '.')
        return case_fail(file, line, "\"%s\" is not the name of a file in this folder", name);
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char *const path = malloc(bytes);
    if (!path)
        return case_fail(file, line, "the host is out of memory");
    snprintf(path, bytes, "%s/%s", folder, name);
    npy_array array;
    char error[128];
    bool ok = npy_read(path, &array, error, sizeof error);
    free(path);
    if (!ok)
        return case_fail(file, line, "%s: %s", name, error);
    ok = take_items(file, line, tensor, &array, name);
    npy_free(&array);
    return ok;
}

static const case_entry *find_indexed(const case_file *file, const char *kind, size_t index)
{
    char key[48];
    snprintf(key, sizeof key, "%s.%zu", kind, index);
    for (size_t i = 0; i < file->num_entries; i++)
        if (!strcmp(file->entries[i].key, key))
            return &file->entries[i];
    return NULL;
}

/* Words with one space between them; they point into the text. 0: not so, or too many. */
static size_t cut(char *text, char **words, size_t capacity)
{
    for (size_t count = 0; count < capacity;) {
        if (!*text || *text == ' ')
            return 0;
        words[count++] = text;
        text = strchr(text, ' ');
        if (!text)
            return count;
        *text++ = '\0';
    }
    return 0;
}

/* The lines KIND.0 to KIND.(count - 1); another one of that kind is a mistake. */
static bool read_kind(case_file *file, const char *kind, case_tensor *tensors, size_t count,
                      const char *folder)
{
    for (size_t i = 0; i < count; i++) {
        const case_entry *const entry = find_indexed(file, kind, i);
        if (!entry)
            return case_fail(file, 0, "%s.%zu is missing", kind, i);
        char *words[7];
        const size_t num_words = cut(entry->value, words, 7);
        if (num_words < 4 || (tensors == file->outputs && num_words > 4))
            return case_fail(file, entry->line, "the line is not NAME DTYPE SHAPE FILE%s",
                             tensors == file->outputs ? "" : " [strides= offset= storage=]");
        if (!read_type(file, entry->line, &tensors[i], words) ||
            !read_storage(file, entry->line, &tensors[i], words + 4, num_words - 4))
            return false;
        for (size_t k = 0; k < i; k++)
            if (!strcmp(tensors[k].name, words[0]))
                return case_fail(file, entry->line, "\"%s\" is there twice", words[0]);
        if (!load(file, entry->line, &tensors[i], folder, words[3]))
            return false;
    }
    return true;
}

static bool read_tolerances(case_file *file)
{
    for (size_t i = 0; i < file->num_outputs; i++) {
        const case_entry *const entry = find_indexed(file, "output_tol", i);
        if (!entry)
            return case_fail(file, 0, "output_tol.%zu is missing", i);
        char *first, *second = NULL;
        case_tensor *const output = &file->outputs[i];
        output->rtol = strtod(entry->value, &first);
        if (first != entry->value && *first == ' ')
            output->atol = strtod(first + 1, &second);
        if (!second || second == first + 1 || *second || !isfinite(output->rtol) ||
            !isfinite(output->atol) || output->rtol < 0 || output->atol < 0)
            return case_fail(file, entry->line, "\"%s\" is not RTOL ATOL", entry->value);
    }
    return true;
}

/* output_skip.N = rows_ge X, X being a number or an input of one number per batch. */
static bool read_skips(case_file *file)
{
    for (size_t i = 0; i < file->num_outputs; i++) {
        const case_entry *const entry = find_indexed(file, "output_skip", i);
        if (!entry)
            continue;
        case_tensor *const output = &file->outputs[i];
        if (strncmp(entry->value, "rows_ge ", 8) || output->rank < 2)
            return case_fail(file, entry->line, "\"%s\" is not rows_ge X of an output with rows",
                             entry->value);
        const char *const limit = entry->value + 8;
        if (take_number(limit, '\0', &output->skip_row))
            continue;
        for (size_t k = 0; k < file->num_inputs; k++)
            if (!strcmp(file->inputs[k].name, limit))
                output->skip_input = &file->inputs[k];
        const case_tensor *const input = output->skip_input;
        if (!input || input->rank != 1 || input->shape[0] != output->shape[0])
            return case_fail(file, entry->line, "\"%s\" is no input of one number per batch",
                             limit);
    }
    return true;
}

/* An index at or beyond `count` means that the count is wrong or the line is in excess. */
static bool check_indices(case_file *file, const char *kind, size_t count)
{
    const size_t length = strlen(kind);
    for (size_t i = 0; i < file->num_entries; i++) {
        const case_entry *const entry = &file->entries[i];
        if (!strncmp(entry->key, kind, length) && entry->key[length] == '.' &&
            strtoul(entry->key + length + 1, NULL, 10) >= count)
            return case_fail(file, entry->line, "%s is one more than there should be", entry->key);
    }
    return true;
}

static bool read_count(case_file *file, const char *key, size_t *count, case_tensor **tensors)
{
    const long value = case_int(file, key, -1);
    if (value < 0 || value > MAX_TENSORS)
        return case_fail(file, 0, "\"%s\" is missing or not a number up to %d", key, MAX_TENSORS);
    *tensors = calloc((size_t)value + 1, sizeof **tensors);
    if (!*tensors)
        return case_fail(file, 0, "the host is out of memory");
    *count = (size_t)value;
    return true;
}

bool case_read_tensors(case_file *file, const char *folder)
{
    return read_count(file, "inputs", &file->num_inputs, &file->inputs) &&
           read_count(file, "outputs", &file->num_outputs, &file->outputs) &&
           check_indices(file, "input", file->num_inputs) &&
           check_indices(file, "output", file->num_outputs) &&
           check_indices(file, "output_tol", file->num_outputs) &&
           check_indices(file, "output_skip", file->num_outputs) &&
           read_kind(file, "input", file->inputs, file->num_inputs, folder) &&
           read_kind(file, "output", file->outputs, file->num_outputs, folder) &&
           read_tolerances(file) && read_skips(file);
}

void case_free_tensors(case_file *file)
{
    for (size_t i = 0; i < file->num_inputs; i++)
        free(file->inputs[i].data);
    for (size_t i = 0; i < file->num_outputs; i++)
        free(file->outputs[i].data);
    free(file->inputs);
    free(file->outputs);
    file->inputs = file->outputs = NULL;
    file->num_inputs = file->num_outputs = 0;
}

const case_tensor *case_input(case_file *file, const char *name)
{
    for (size_t i = 0; i < file->num_inputs; i++) {
        if (!strcmp(file->inputs[i].name, name)) {
            file->inputs[i].used = true;
            return &file->inputs[i];
        }
    }
    return NULL;
}

case_tensor *case_output(case_file *file, const char *name)
{
    for (size_t i = 0; i < file->num_outputs; i++)
        if (!strcmp(file->outputs[i].name, name))
            return &file->outputs[i];
    return NULL;
}

const char *case_unused_input(const case_file *file)
{
    for (size_t i = 0; i < file->num_inputs; i++)
        if (!file->inputs[i].used)
            return file->inputs[i].name;
    return NULL;
}
