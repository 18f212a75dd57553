/* What a BERT does to each row by itself, on the host. */
#ifndef ROWS_H
#define ROWS_H

#include "config.h"

/* rows[count][width] := (rows - mean) / sqrt(variance + eps) * scale + shift, each row by itself.
 */
void rows_normalize(float *rows, size_t count, size_t width, const float *scale, const float *shift,
                    float eps);

void rows_activate(float *values, size_t count, config_activation activation);

/* The mean of the first `length` of rows[length or more][width], then of length 1 (or 0). */
void rows_pool(const float *rows, size_t length, size_t width, float *out);

#endif
