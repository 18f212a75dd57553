/* A small BERT of random weights as a file, for the tests of examples/sentence-embedding. */
#ifndef MHA_TESTS_NETWORK_H
#define MHA_TESTS_NETWORK_H

#include "config.h"

#include <mha.h>

enum {
    NETWORK_WIDTH = 8,
    NETWORK_HEADS = 2,
    NETWORK_LAYERS = 2,
    NETWORK_WIDE = 12,
    NETWORK_WORDS = 9,
    NETWORK_PLACES = 6,
    NETWORK_TYPES = 2
};

/* The same as a model's folder says it. */
extern const config network_shape;
extern const char network_config_json[];

/* Where a tensor lies among the network's numbers; columns alone where rows is 0. */
typedef struct network_place {
    char name[80];
    size_t rows, columns, first;
} network_place;

typedef struct network {
    size_t num_places, num_values;
    network_place places[64];
    float values[4096];
} network;

/* The same weights each time, from -1 to 1; to be freed. */
network *network_make(void);

/* Rounds the weights to a type, so that a file of it holds them as they are. */
void network_round(network *self, mha_type type);

typedef struct network_file {
    const char *prefix;  /* before every name */
    const char *missing; /* the tensor that is left out; NULL: none */
    mha_type type;       /* of all tensors */
} network_file;

/* Writes a .safetensors file; fails the test where that cannot be. */
void network_write(const network *self, const char *path, const network_file *how);

#endif
