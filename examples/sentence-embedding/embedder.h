/* What makes vectors of tokens: the network, or a test's stand-in. */
#ifndef EMBEDDER_H
#define EMBEDDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct token_batch {
    size_t count, length;
    const int32_t *ids;     /* [count][length]; behind a sequence's end, the pad token */
    const int32_t *lengths; /* [count], each from 1 to length */
} token_batch;

typedef struct embedder {
    size_t width;
    void *data;
    /* Writes a vector for each sequence to embeddings[count][width]. False: `error` holds a
     * sentence. */
    bool (*embed)(void *data, const token_batch *batch, float *embeddings, char *error,
                  size_t error_size);
} embedder;

#endif
