/* Writes vectors and numbers as lines of a table or as one JSON array. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum output_format {
    OUTPUT_TSV,
    OUTPUT_JSON, /* an item a line; what is not finite is null */
    OUTPUT_IDS   /* ids only, with spaces between them */
} output_format;

typedef struct output {
    FILE *file;
    output_format format;
    size_t num_items;
} output;

void output_begin(output *self, FILE *file, output_format format);
void output_vector(output *self, const float *values, size_t count);
void output_number(output *self, double value);
void output_ids(output *self, const int32_t *ids, size_t count);

/* Ends it and flushes the file. */
void output_end(output *self);

/* False: something could not be written. What the file still holds back may be seen at the end. */
bool output_is_good(const output *self);

#endif
