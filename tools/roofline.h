/* What a device can do at best, measured by kernels that do nothing else: the two roofs of
 * "Roofline: an insightful visual performance model", 2009. */
#ifndef MHA_TOOLS_ROOFLINE_H
#define MHA_TOOLS_ROOFLINE_H

#include <mha.h>
#include <stddef.h>

typedef struct roofline roofline;

/* The best that was seen so far. */
typedef struct roofline_peaks {
    double gflops;              /* of float32 multiplications with an addition, two each */
    double gbytes_per_s;        /* from and to memory, of data larger than the caches */
    double cached_gbytes_per_s; /* from caches; 0: the device tells of none */
    double cached_bytes;        /* so much lay in them */
} roofline_peaks;

/* Takes device memory for as long as it is open: 384 MiB, or a sixteenth of all where that is less.
 * Measures nothing yet. On failure *out is NULL. */
mha_status roofline_open(roofline **out, const mha_context *context);
void roofline_close(roofline **self);

/* The first time tries vectors of all widths, about a second; later only the best, some tenths of
 * one, since a machine that was busy may be quiet now. What the device cannot build is left out. */
mha_status roofline_measure(roofline *self);

roofline_peaks roofline_best(const roofline *self);

/* The bandwidth of calls that do nothing but read so many bytes, from whatever caches hold them; of
 * memory if there are more than was taken. After roofline_measure. */
mha_status roofline_read_rate(const roofline *self, double bytes, double *gbytes_per_s);

#endif
