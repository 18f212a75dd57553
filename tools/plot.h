/* Draws the results of mha-bench by gnuplot: speed over length, and a roofline. */
#ifndef MHA_TOOLS_PLOT_H
#define MHA_TOOLS_PLOT_H

#include "roofline.h"
#include "word.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct plot plot;

/* Whether a file of this name can be drawn: .png, .svg or .pdf. */
bool plot_knows(const char *file);

/* Room for so many results. NULL: gnuplot is missing, or the file, which is made at once, cannot be
 * written; `error` says so. `file` outlives the plot. */
plot *plot_open(const char *file, size_t most, char *error, size_t error_size);
void plot_close(plot **self);

/* Results that differ in nothing but their length become one curve. What has no rate above 0 is
 * left out. `path` is "-" where there is no choice. */
void plot_add(plot *self, const problem *subject, const char *path, double gflops,
              double gbytes_per_s);

/* False: `error` says why there is no drawing. A peak of 0 is not drawn. */
bool plot_draw(plot *self, const char *device, const roofline_peaks *peaks, char *error,
               size_t error_size);

#endif
