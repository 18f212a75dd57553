/* Maps a .safetensors file: 8 bytes of length, a JSON header of that length, the tensors' bytes. */
#define _POSIX_C_SOURCE 200809L
#include "safetensors.h"

#include "safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The limit of the format's own reader. */
#define MAX_HEADER_BYTES 100000000u

struct safetensors_file {
    const unsigned char *map;
    size_t map_bytes;
    safetensors_header header;
};

/* Maps a plain file of at least one byte. */
static bool map_file(safetensors_file *self, int file, char *error, size_t error_size)
{
    struct stat facts;
    if (fstat(file, &facts)) {
        snprintf(error, error_size, "%s", strerror(errno));
    } else if (!S_ISREG(facts.st_mode)) {
        snprintf(error, error_size, "it is not a plain file");
    } else if (facts.st_size < 8) {
        snprintf(error, error_size, "it is shorter than the 8 bytes that a file begins with");
    } else if ((uintmax_t)facts.st_size > SIZE_MAX) {
        snprintf(error, error_size, "it is larger than this machine's memory can be");
    } else {
        void *const map = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (map != MAP_FAILED) {
            self->map = map;
            self->map_bytes = (size_t)facts.st_size;
            return true;
        }
        snprintf(error, error_size, "it cannot be mapped: %s", strerror(errno));
    }
    return false;
}

static bool read_header(safetensors_file *self, char *error, size_t error_size)
{
    uint64_t length = 0;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)self->map[i] << 8 * i;
    if (length > MAX_HEADER_BYTES) {
        snprintf(error, error_size,
                 "its header would have %llu bytes, above %u: it is no .safetensors file",
                 (unsigned long long)length, MAX_HEADER_BYTES);
        return false;
    }
    if (length > self->map_bytes - 8) {
        snprintf(error, error_size, "it ends within its header");
        return false;
    }
    const size_t begin = 8 + (size_t)length;
    return safetensors_header_read(&self->header, (const char *)self->map + 8, (size_t)length,
                                   self->map + begin, self->map_bytes - begin, error, error_size);
}

safetensors_file *safetensors_open(const char *path, char *error, size_t error_size)
{
    safetensors_file *self = calloc(1, sizeof *self);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (!self)
        snprintf(error, error_size, "the host is out of memory");
    else if (file < 0)
        snprintf(error, error_size, "%s", strerror(errno));
    if (!self || file < 0 || !map_file(self, file, error, error_size) ||
        !read_header(self, error, error_size)) {
        safetensors_close(self);
        self = NULL;
    }
    if (file >= 0)
        close(file); /* the mapping stays */
    return self;
}

void safetensors_close(safetensors_file *self)
{
    if (!self)
        return;
    safetensors_header_free(&self->header);
    /* munmap's argument is not const, but it only takes the address. */
    if (self->map)
        munmap((void *)(uintptr_t)self->map, self->map_bytes);
    free(self);
}

bool safetensors_has(const safetensors_file *self, const char *name)
{
    return safetensors_header_find(&self->header, name);
}

/* "384 x 1536", or "a scalar". */
static const char *print_shape(unsigned rank, const size_t *shape, char *text, size_t size)
{
    int used = snprintf(text, size, "%s", rank ? "" : "a scalar");
    for (unsigned axis = 0; axis < rank && (size_t)used < size; axis++)
        used += snprintf(text + used, size - (size_t)used, axis ? " x %zu" : "%zu", shape[axis]);
    return text;
}

const safetensors_tensor *safetensors_find(const safetensors_file *self, const char *name,
                                           unsigned rank, const size_t *shape, char *error,
                                           size_t error_size)
{
    const safetensors_tensor *const tensor = safetensors_header_find(&self->header, name);
    if (!tensor) {
        snprintf(error, error_size, "it has no tensor %s", name);
    } else if (tensor->rank != rank ||
               (rank && memcmp(tensor->shape, shape, rank * sizeof *shape))) {
        char has[200], wanted[200];
        snprintf(error, error_size, "its tensor %s is %s, not %s", name,
                 print_shape(tensor->rank, tensor->shape, has, sizeof has),
                 print_shape(rank, shape, wanted, sizeof wanted));
    } else if (tensor->type == SAFETENSORS_OTHER) {
        snprintf(error, error_size, "its tensor %s is none of F32, F16 and BF16", name);
    } else {
        return tensor;
    }
    return NULL;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float float_of_half(unsigned bits)
{
    const unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = ldexpf((float)(fraction | 1024), (int)exponent - 25);
    if (!exponent)
        value = ldexpf((float)fraction, -24);
    else if (exponent == 31)
        value = fraction ? NAN : INFINITY;
    return bits >> 15 ? -value : value;
}

void safetensors_read(const safetensors_tensor *tensor, size_t first, size_t count, float *out)
{
    const size_t bytes = tensor->type == SAFETENSORS_FLOAT32 ? 4 : 2;
    const unsigned char *at = tensor->data + first * bytes;
    for (size_t i = 0; i < count; i++, at += bytes) {
        const unsigned low = at[0] | (unsigned)at[1] << 8;
        if (tensor->type == SAFETENSORS_FLOAT32)
            out[i] = float_of_bits(low | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        else if (tensor->type == SAFETENSORS_BFLOAT16)
            out[i] = float_of_bits((uint32_t)low << 16);
        else
            out[i] = float_of_half(low);
    }
}
