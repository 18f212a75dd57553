/* How a roof is measured. Between roofline.c and roofline_run.c only. */
#ifndef MHA_TOOLS_ROOFLINE_PARTS_H
#define MHA_TOOLS_ROOFLINE_PARTS_H

#include "roofline.h"

typedef enum roof {
    ROOF_FMA,
    ROOF_READ,
    ROOF_COPY,
    ROOF_CACHED,
    ROOFS
} roof;

/* A way to do it: how wide vectors are, how many are in flight, work-items of a group. Wide vectors
 * one by one fit a CPU, narrow ones side by side a GPU; trying says which is the best. Two units of
 * four steps each keep 8 sums busy, of five 10; a CPU with 16 registers has no room for 16. */
typedef struct shape {
    cl_uint width, sums;
    size_t group;
} shape;

/* A kernel with its shape. */
typedef struct way {
    cl_kernel kernel;
    shape shape;
} way;

enum {
    ROOFLINE_MOST_RETURNED = 1024 /* floats that a work-group returns */
};

struct roofline {
    cl_context context;
    cl_device_id device;
    cl_command_queue queue;
    size_t groups;       /* at most */
    size_t cached_bytes; /* of data, that caches hold; 0: there are none */
    size_t bytes;        /* of data, the half of which is copied into `written` */
    cl_mem data, written;
    way best[ROOFS];
    double rate[ROOFS]; /* operations or bytes of a nanosecond */
};

/* What a roof goes over. */
size_t roofline_bytes(const roofline *self, roof which);

/* The best rate of some runs that are long enough for a clock, over so many bytes where it goes
 * over any. What is below the rate `hopeless` is run once. */
mha_status roofline_try(const roofline *self, roof which, size_t bytes, const way *w,
                        double hopeless, double *rate);

/* Tries all shapes and keeps the best. A device that can do none of them says why. */
mha_status roofline_find_best(roofline *self, roof which);

#endif
