/* What a character is to BERT's tokenizer. */
#ifndef CHARACTERS_H
#define CHARACTERS_H

#include <stdint.h>

typedef enum character_kind {
    CHARACTER_ORDINARY,    /* part of a word */
    CHARACTER_SPACE,       /* ends a word */
    CHARACTER_PUNCTUATION, /* a word by itself */
    CHARACTER_CHINESE,     /* a word by itself, if the tokenizer is told so */
    CHARACTER_ACCENT,      /* a mark that takes no room, dropped with the accents */
    CHARACTER_CONTROL      /* dropped: control and format characters, private use, U+FFFD */
} character_kind;

/* Hugging Face's tokenizers know the categories of Unicode 8.0, and so does this function, whatever
 * utf8proc's own version is: characters that came later are ordinary. */
character_kind character_kind_of(int32_t code_point);

#endif
