/* BERT's basic tokenizing: a text into words, cleaned, each mark of punctuation by itself. */
#ifndef WORDS_H
#define WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longer words are one unknown token, so nobody needs their text. */
#define WORD_MAX_CHARACTERS 100

typedef struct words_options {
    bool lower_case;
    bool strip_accents;    /* decomposes characters and drops the marks among the parts */
    bool separate_chinese; /* each ideograph is a word */
} words_options;

/* A text being read. */
typedef struct words {
    words_options options;
    const char *at, *end;
    int32_t ahead[8]; /* normalised characters that were read from the text and not yet taken */
    size_t num_ahead, first_ahead;
} words;

typedef struct word {
    char text[4 * WORD_MAX_CHARACTERS]; /* UTF-8 without an end */
    size_t bytes;
    bool is_too_long; /* then the text is only its beginning */
} word;

/* The text, any bytes, must outlive the reading. Bytes that are not UTF-8 are dropped, as U+FFFD
 * is, for which they stand; so are control characters. */
words words_of(const char *text, size_t length, const words_options *options);

/* The next word, at least a byte long. False: there is none. */
bool words_next(words *self, word *out);

#endif
