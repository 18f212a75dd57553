/* From the rows of a sentence's tokens to its vector, on the host. */
#ifndef ROWS_H
#define ROWS_H

#include <stddef.h>

/* The mean of the first `length` of rows[length or more][width], then of length 1 (or 0). */
void rows_pool(const float *rows, size_t length, size_t width, float *out);

#endif
