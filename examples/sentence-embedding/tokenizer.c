/* The tokenizer of a model's folder. */
#include "tokenizer.h"

#include <stdio.h>

wordpiece *tokenizer_open(const char *folder, const config *shape, char *error, size_t error_size)
{
    char path[4096], reason[400];
    if ((size_t)snprintf(path, sizeof path, "%s/vocab.txt", folder) >= sizeof path) {
        snprintf(error, error_size, "vocab.txt: the path is too long");
        return NULL;
    }
    wordpiece *const self = wordpiece_open(path, &shape->words, reason, sizeof reason);
    if (!self) {
        snprintf(error, error_size, "vocab.txt: %s", reason);
        return NULL;
    }
    const size_t tokens = wordpiece_vocabulary_size(self);
    if (tokens <= shape->vocabulary_size)
        return self;
    snprintf(error, error_size, "vocab.txt: it has %zu tokens, and config.json speaks of %zu",
             tokens, shape->vocabulary_size);
    wordpiece_close(self);
    return NULL;
}
