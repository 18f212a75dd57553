/* The text of each kernel file, put into the library at build time by cl/embed.py. */
#ifndef MHA_SOURCE_H
#define MHA_SOURCE_H

#include <stddef.h>

typedef struct mha_source {
    const char *room; /* the stem of the file: "softmax" for cl/softmax.cl */
    const char *text; /* not 0-terminated */
    size_t length;
} mha_source;

extern const mha_source mha_sources[];
extern const size_t mha_num_sources;

#endif
