/* A problem word while it is read. Between word.c and word_value.c only. */
#ifndef MHA_TOOLS_WORD_PARSER_H
#define MHA_TOOLS_WORD_PARSER_H

#include "word_table.h"

typedef struct word_parser {
    const char *word;
    const char *next;              /* the first character that is not read yet */
    const char *found[WORD_PARTS]; /* where each part began, or NULL */
    problem *out;
    char *error;
    size_t error_size;
} word_parser;

/* Writes the sentence about the character at `where`. Returns false. */
bool word_refuse(const word_parser *p, const char *where, const char *format, ...);

/* What stands behind the part's letters, into the problem. */
bool word_read_value(word_parser *p, const word_part *part);

#endif
