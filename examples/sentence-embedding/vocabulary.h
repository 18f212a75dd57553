/* A vocab.txt: the tokens of a model, found by id and by text. */
#ifndef VOCABULARY_H
#define VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vocabulary {
    char *text;          /* the file, each line with an end of its own */
    const char **tokens; /* [count]: line n is token n */
    int32_t *sorted;     /* [num_sorted]: ids by the bytes of their tokens, without empty ones */
    size_t count, num_sorted;
    size_t longest; /* bytes of the longest token */
} vocabulary;

/* False: `error` holds a sentence without the path, and there is nothing to free. Refuses a file
 * with a byte 0, one without tokens, and one with a token twice. */
bool vocabulary_read(const char *path, vocabulary *self, char *error, size_t error_size);
void vocabulary_free(vocabulary *self);

/* The id of the token that is these bytes, or -1. */
int32_t vocabulary_find(const vocabulary *self, const char *bytes, size_t length);

#endif
