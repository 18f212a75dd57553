/* Draws a square matrix of weights with a label for each row and column, by gnuplot. */
#ifndef HEATMAP_H
#define HEATMAP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct heatmap {
    const char *title;
    size_t size;
    const char *const *labels; /* [size], UTF-8 */
    const float *weights;      /* [size][size]: row by row, from the top */
} heatmap;

/* Writes a PNG file. Labels and title may hold any text: nothing in them is a command to gnuplot.
 * False: `error` holds a sentence, such as that gnuplot is not installed. */
bool heatmap_draw(const heatmap *self, const char *path, char *error, size_t error_size);

#endif
