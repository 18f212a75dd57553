/* The tokenizer of a model's folder. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "config.h"
#include "wordpiece.h"

/* Opens the folder's vocab.txt as its config says, whose network must know every token. NULL:
 * `error` holds a sentence that begins with the file's name. To be closed by wordpiece_close. */
wordpiece *tokenizer_open(const char *folder, const config *shape, char *error, size_t error_size);

#endif
