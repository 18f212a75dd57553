/* Splits words into the longest tokens there are, from the left, as BERT does. */
#include "wordpiece.h"

#include "vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tokens that a sentence may name; the first three are needed. */
static const char *const specials[] = { "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]" };
enum {
    UNKNOWN,
    FIRST,
    LAST,
    NUM_NEEDED,
    NUM_SPECIALS = 5
};

struct wordpiece {
    words_options options;
    vocabulary vocabulary;
    int32_t specials[NUM_SPECIALS]; /* their ids; -1: none */
};

/* The ids of a sentence being made. */
typedef struct ids {
    int32_t *at, *end;
    bool is_cut;
} ids;

wordpiece *wordpiece_open(const char *path, const words_options *options, char *error,
                          size_t error_size)
{
    wordpiece *const self = calloc(1, sizeof *self);
    if (!self) {
        snprintf(error, error_size, "the host is out of memory");
        return NULL;
    }
    self->options = *options;
    if (!vocabulary_read(path, &self->vocabulary, error, error_size))
        goto fail;
    for (size_t i = 0; i < NUM_SPECIALS; i++) {
        self->specials[i] = vocabulary_find(&self->vocabulary, specials[i], strlen(specials[i]));
        if (i < NUM_NEEDED && self->specials[i] < 0) {
            snprintf(error, error_size, "it has no token %s", specials[i]);
            goto fail;
        }
    }
    return self;
fail:
    wordpiece_close(self);
    return NULL;
}

void wordpiece_close(wordpiece *self)
{
    if (!self)
        return;
    vocabulary_free(&self->vocabulary);
    free(self);
}

size_t wordpiece_vocabulary_size(const wordpiece *self)
{
    return self->vocabulary.count;
}

const char *wordpiece_token(const wordpiece *self, int32_t id)
{
    return self->vocabulary.tokens[id];
}

static void append(ids *out, int32_t id)
{
    if (out->at < out->end)
        *out->at++ = id;
    else
        out->is_cut = true;
}

/* The longest token that the text from bytes[first] begins with, *length bytes of it; -1: none.
 * It is tried byte by byte: no token of whole characters ends within one. */
static int32_t longest_token(const vocabulary *tokens, const char *text, size_t *length)
{
    size_t bytes = *length < tokens->longest ? *length : tokens->longest;
    int32_t id = -1;
    for (; bytes && id < 0; bytes -= id < 0)
        id = vocabulary_find(tokens, text, bytes);
    *length = bytes;
    return id;
}

/* The tokens of a word, or [UNK] alone where a part of it is none. */
static void append_word(const wordpiece *self, const word *subject, ids *out)
{
    /* The word behind "##"; for a later piece the two bytes before it are overwritten. */
    char text[2 + sizeof subject->text];
    int32_t pieces[sizeof subject->text];
    size_t num_pieces = 0, at = 0;
    memcpy(text + 2, subject->text, subject->bytes);
    while (at < subject->bytes && !subject->is_too_long) {
        const size_t mark = at ? 2 : 0;
        memcpy(text + at, "##", mark);
        size_t length = subject->bytes - at + mark;
        const int32_t id = longest_token(&self->vocabulary, text + at + 2 - mark, &length);
        if (id < 0 || length <= mark)
            break;
        pieces[num_pieces++] = id;
        at += length - mark;
    }
    if (at < subject->bytes || subject->is_too_long)
        append(out, self->specials[UNKNOWN]);
    else
        for (size_t i = 0; i < num_pieces; i++)
            append(out, pieces[i]);
}

static void append_words(const wordpiece *self, const char *text, size_t length, ids *out)
{
    word next;
    words rest = words_of(text, length, &self->options);
    while (!out->is_cut && words_next(&rest, &next))
        append_word(self, &next, out);
}

/* The special token that the text begins with, *length bytes of it; -1: none. */
static int32_t special_at(const wordpiece *self, const char *text, size_t rest, size_t *length)
{
    for (size_t i = 0; i < NUM_SPECIALS; i++) {
        *length = strlen(specials[i]);
        if (self->specials[i] >= 0 && rest >= *length && !memcmp(text, specials[i], *length))
            return self->specials[i];
    }
    return -1;
}

size_t wordpiece_encode(const wordpiece *self, const char *text, size_t length, int32_t *ids_out,
                        size_t capacity, bool *is_cut)
{
    ids out = { .at = ids_out, .end = ids_out + capacity - 1 };
    const char *const end = text + length;
    const char *rest = text; /* what has no tokens yet */
    append(&out, self->specials[FIRST]);
    for (const char *at = text; !out.is_cut && (at = memchr(at, '[', (size_t)(end - at)));) {
        size_t bytes = 0;
        const int32_t id = special_at(self, at, (size_t)(end - at), &bytes);
        if (id >= 0) {
            append_words(self, rest, (size_t)(at - rest), &out);
            append(&out, id);
            rest = at + bytes;
        }
        at += id >= 0 ? bytes : 1;
    }
    append_words(self, rest, (size_t)(end - rest), &out);
    *is_cut = out.is_cut;
    *out.at++ = self->specials[LAST];
    return (size_t)(out.at - ids_out);
}
