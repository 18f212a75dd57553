/* BERT's tokenizer: sentences into the ids of a vocabulary's tokens. */
#ifndef WORDPIECE_H
#define WORDPIECE_H

#include "words.h"

/* Read by any number of threads once it is open. */
typedef struct wordpiece wordpiece;

/* Opens a vocab.txt, whose line n, from 0, is the token of id n. It must have [UNK], [CLS] and
 * [SEP]. NULL: `error` holds a sentence without the path. */
wordpiece *wordpiece_open(const char *path, const words_options *options, char *error,
                          size_t error_size);
void wordpiece_close(wordpiece *self); /* NULL is fine */

size_t wordpiece_vocabulary_size(const wordpiece *self);

/* The token of an id below the vocabulary's size. */
const char *wordpiece_token(const wordpiece *self, int32_t id);

/* Writes [CLS], the sentence's tokens and [SEP] to ids[capacity], capacity at least 2, and returns
 * how many; what does not fit is cut, which *is_cut says. The ids are those of Hugging Face's
 * tokenizers, to the point that [CLS] and its like, written in the sentence, are taken for the
 * tokens. `text` is any bytes, see words.h. */
size_t wordpiece_encode(const wordpiece *self, const char *text, size_t length, int32_t *ids,
                        size_t capacity, bool *is_cut);

#endif
