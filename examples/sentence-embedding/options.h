/* What sentence-embedding is asked for. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "output.h"

typedef struct options {
    const char *folder; /* of the model */
    const char *device; /* NULL: the library's choice */
    output_format format;
    bool are_pairs;
    size_t batch;
    const char *picture; /* NULL: none; else of layer and head, from 0 */
    size_t layer, head;
} options;

extern const char options_program[];

/* False: *exit_code is what the program ends with, and what to say has been printed. */
bool options_read(options *out, int argc, char **argv, int *exit_code);

#endif
