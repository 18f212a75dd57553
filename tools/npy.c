/* Reads .npy files: an outer frame of magic, version and length around a header that is a Python
 * dict literal, then the items. */
#include "npy.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NumPy pads its headers to a few hundred bytes; longer ones are taken for damage. */
#define MAX_HEADER_BYTES 65535

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [NPY_FLOAT16] = { "<f2", 2 }, [NPY_FLOAT32] = { "<f4", 4 }, [NPY_FLOAT64] = { "<f8", 8 },
    [NPY_UINT16] = { "<u2", 2 },  [NPY_INT32] = { "<i4", 4 },   [NPY_INT64] = { "<i8", 8 },
    [NPY_UINT8] = { "|u1", 1 },   [NPY_BOOL] = { "|b1", 1 },
};

const char *npy_type_name(npy_type type)
{
    return types[type].name;
}

/* A header being read: the text and the place in it. `error` is the first thing found wrong. */
typedef struct header {
    const char *at;
    const char *error;
    bool has_descr, has_order, has_shape;
} header;

static void skip_spaces(header *h)
{
    h->at += strspn(h->at, " \t\n");
}

static bool take(header *h, char wanted)
{
    skip_spaces(h);
    if (*h->at != wanted)
        return false;
    h->at++;
    return true;
}

/* A quoted word into text[size]. */
static bool take_string(header *h, char *text, size_t size)
{
    skip_spaces(h);
    const char quote = *h->at;
    if (quote != '\'' && quote != '"')
        return false;
    const char *const first = h->at + 1;
    const char *const last = strchr(first, quote);
    if (!last || (size_t)(last - first) >= size)
        return false;
    memcpy(text, first, (size_t)(last - first));
    text[last - first] = '\0';
    h->at = last + 1;
    return true;
}

static void read_type(header *h, npy_array *array)
{
    char name[8];
    if (!take_string(h, name, sizeof name)) {
        h->error = "its descr is not one plain type";
        return;
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (!strcmp(name, types[i].name)) {
            array->type = (npy_type)i;
            array->item_bytes = types[i].bytes;
            return;
        }
    }
    h->error = "its type is none of <f2 <f4 <f8 <u2 <i4 <i8 |u1 |b1";
}

static void read_order(header *h)
{
    skip_spaces(h);
    if (!strncmp(h->at, "False", 5))
        h->at += 5;
    else if (!strncmp(h->at, "True", 4))
        h->error = "it is in Fortran order, and only C order is read";
    else
        h->error = "its fortran_order is neither True nor False";
}

/* (), (3,), (2, 3) or (2, 3,). */
static void read_shape(header *h, npy_array *array)
{
    h->error = "its shape is not a tuple of whole numbers";
    if (!take(h, '('))
        return;
    while (!take(h, ')')) {
        if (*h->at < '0' || *h->at > '9')
            return;
        char *end;
        errno = 0;
        const unsigned long long length = strtoull(h->at, &end, 10);
        if (errno || length > SIZE_MAX) {
            h->error = "its shape is too large";
            return;
        }
        if (array->rank == NPY_MAX_RANK) {
            h->error = "it has more than 8 axes";
            return;
        }
        h->at = end;
        array->shape[array->rank++] = (size_t)length;
        /* "(3)" is a number to Python, not a tuple. */
        if (!take(h, ',') && (array->rank < 2 || *h->at != ')'))
            return;
    }
    h->error = NULL;
}

/* One key and its value; each key once and no other. */
static void read_entry(header *h, npy_array *array)
{
    char key[16];
    if (!take_string(h, key, sizeof key) || !take(h, ':')) {
        h->error = "its header is not a dict of descr, fortran_order and shape";
    } else if (!strcmp(key, "descr") && !h->has_descr) {
        h->has_descr = true;
        read_type(h, array);
    } else if (!strcmp(key, "fortran_order") && !h->has_order) {
        h->has_order = true;
        read_order(h);
    } else if (!strcmp(key, "shape") && !h->has_shape) {
        h->has_shape = true;
        read_shape(h, array);
    } else {
        h->error = "its header has a repeated key or an unknown one";
    }
}

static const char *read_header(const char *text, npy_array *array)
{
    header h = { .at = text };
    if (!take(&h, '{'))
        return "its header is not a dict of descr, fortran_order and shape";
    while (!take(&h, '}')) {
        read_entry(&h, array);
        if (h.error)
            return h.error;
        skip_spaces(&h);
        if (!take(&h, ',') && *h.at != '}')
            return "its header is not a dict of descr, fortran_order and shape";
    }
    skip_spaces(&h);
    if (*h.at)
        return "its header goes on after the dict";
    if (!h.has_descr || !h.has_order || !h.has_shape)
        return "its header lacks descr, fortran_order or shape";
    return NULL;
}

/* count and *bytes from the shape. A 0 anywhere makes the count 0, but the other lengths must not
 * overflow either: nobody may multiply them again and be surprised. */
static const char *multiply_shape(npy_array *array, size_t *bytes)
{
    size_t product = array->item_bytes;
    bool empty = false;
    for (unsigned axis = 0; axis < array->rank; axis++) {
        const size_t length = array->shape[axis];
        empty = empty || !length;
        if (length && product > SIZE_MAX / length)
            return "its shape is too large";
        product *= length ? length : 1;
    }
    *bytes = empty ? 0 : product;
    array->count = *bytes / array->item_bytes;
    return NULL;
}

static bool host_is_little_endian(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

/* The bytes from here to the end, or -1; the position stays. */
static long bytes_left(FILE *file)
{
    const long here = ftell(file);
    if (here < 0 || fseek(file, 0, SEEK_END))
        return -1;
    const long end = ftell(file);
    if (end < here || fseek(file, here, SEEK_SET))
        return -1;
    return end - here;
}

/* Magic, version and header; leaves the file at the first item. */
static const char *read_frame(FILE *file, npy_array *array)
{
    unsigned char frame[12];
    if (fread(frame, 1, 10, file) != 10 || memcmp(frame, "\x93NUMPY", 6))
        return "it is not a .npy file";
    const unsigned version = frame[6];
    if (version < 1 || version > 3 || frame[7] != 0)
        return "its format version is none of 1.0, 2.0 and 3.0";
    size_t length = frame[8] | (size_t)frame[9] << 8;
    if (version > 1) {
        if (fread(frame + 10, 1, 2, file) != 2)
            return "its header is cut off";
        length |= (size_t)frame[10] << 16 | (size_t)frame[11] << 24;
    }
    if (length > MAX_HEADER_BYTES)
        return "its header is longer than 65535 bytes";
    char *const text = malloc(length + 1);
    if (!text)
        return "the host is out of memory";
    const char *error = NULL;
    if (fread(text, 1, length, file) != length)
        error = "its header is cut off";
    else if (memchr(text, '\0', length))
        error = "its header is not text";
    text[length] = '\0';
    if (!error)
        error = read_header(text, array);
    free(text);
    return error;
}

static const char *read_items(FILE *file, npy_array *array)
{
    size_t bytes = 0;
    const char *const error = multiply_shape(array, &bytes);
    if (error)
        return error;
    const long left = bytes_left(file);
    if (left < 0)
        return "its length cannot be found out";
    if ((unsigned long)left < bytes)
        return "it ends before its last item";
    if ((unsigned long)left > bytes)
        return "it goes on after its last item";
    array->data = malloc(bytes ? bytes : 1);
    if (!array->data)
        return "the host is out of memory";
    if (fread(array->data, 1, bytes, file) != bytes)
        return "it cannot be read to its end";
    if (array->type == NPY_BOOL) {
        for (size_t i = 0; i < bytes; i++)
            if (((const unsigned char *)array->data)[i] > 1)
                return "it holds a bool that is neither 0 nor 1";
    }
    return NULL;
}

bool npy_read(const char *path, npy_array *array, char *error, size_t error_size)
{
    memset(array, 0, sizeof *array);
    FILE *const file = fopen(path, "rb");
    if (!file) {
        snprintf(error, error_size, "%s", strerror(errno));
        return false;
    }
    const char *trouble = NULL;
    if (!host_is_little_endian())
        trouble = "its items are little-endian and this machine is not";
    if (!trouble)
        trouble = read_frame(file, array);
    if (!trouble)
        trouble = read_items(file, array);
    fclose(file);
    if (!trouble)
        return true;
    snprintf(error, error_size, "%s", trouble);
    npy_free(array);
    return false;
}

void npy_free(npy_array *array)
{
    free(array->data);
    memset(array, 0, sizeof *array);
}
