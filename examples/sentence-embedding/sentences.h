/* From lines of text to lines of output: reads sentences, has them embedded, writes the results in
 * the order of the lines. */
#ifndef SENTENCES_H
#define SENTENCES_H

#include "embedder.h"
#include "output.h"
#include "wordpiece.h"

typedef struct sentences {
    const wordpiece *tokenizer;
    const embedder *maker; /* NULL with OUTPUT_IDS, which needs none */
    size_t max_tokens, batch;
    int32_t pad_token;
    bool are_pairs; /* a line is two sentences with a tab between them; their cosine is written */
    FILE *notes;    /* gets a line if sentences were cut */
    const char *program; /* begins that line */
} sentences;

/* Reads all of `in`; a line may be empty and of any length. False: `error` holds a sentence; what
 * came before it may have been written. */
bool sentences_run(const sentences *self, FILE *in, FILE *out, output_format format, char *error,
                   size_t error_size);

/* Reads the next line into *line, room *room, without its "\n" or "\r\n". Returns its length, or -1
 * at the end or where `in` cannot be read. */
long sentences_read_line(FILE *in, char **line, size_t *room);

#endif
