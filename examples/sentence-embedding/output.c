/* Writes vectors and numbers. */
#include "output.h"

#include <math.h>

void output_begin(output *self, FILE *file, output_format format)
{
    *self = (output){ .file = file, .format = format };
    if (format == OUTPUT_JSON)
        putc('[', file);
}

static void begin_item(output *self)
{
    if (self->format == OUTPUT_JSON)
        fputs(self->num_items ? ",\n" : "\n", self->file);
    self->num_items++;
}

static void end_item(output *self)
{
    if (self->format != OUTPUT_JSON)
        putc('\n', self->file);
}

/* With the digits that give the same float32 when they are read. */
static void print(output *self, double value)
{
    if (self->format == OUTPUT_JSON && !isfinite(value))
        fputs("null", self->file);
    else
        fprintf(self->file, "%.9g", value);
}

void output_vector(output *self, const float *values, size_t count)
{
    begin_item(self);
    if (self->format == OUTPUT_JSON)
        putc('[', self->file);
    for (size_t i = 0; i < count; i++) {
        if (i)
            putc(self->format == OUTPUT_JSON ? ',' : '\t', self->file);
        print(self, values[i]);
    }
    if (self->format == OUTPUT_JSON)
        putc(']', self->file);
    end_item(self);
}

void output_number(output *self, double value)
{
    begin_item(self);
    print(self, value);
    end_item(self);
}

void output_ids(output *self, const int32_t *ids, size_t count)
{
    begin_item(self);
    for (size_t i = 0; i < count; i++)
        fprintf(self->file, i ? " %d" : "%d", (int)ids[i]);
    end_item(self);
}

void output_end(output *self)
{
    if (self->format == OUTPUT_JSON)
        fputs("\n]\n", self->file);
    fflush(self->file); /* which notes a failure where output_is_good sees it */
}

bool output_is_good(const output *self)
{
    return !ferror(self->file);
}
