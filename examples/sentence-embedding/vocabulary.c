/* Reads a vocab.txt and finds tokens by bisection: 15 comparisons in BERT's 30522. */
#include "vocabulary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (64u * 1024 * 1024) /* the largest vocabularies have a few MB */

/* The whole file and a 0 behind it. NULL: *trouble says why. */
static char *read_file(const char *path, size_t *length, const char **trouble)
{
    FILE *const file = fopen(path, "rb");
    if (!file) {
        *trouble = strerror(errno);
        return NULL;
    }
    char *text = NULL;
    size_t room = 0, size = 0;
    *trouble = NULL;
    do {
        room = room ? 2 * room : 1024 * 1024;
        char *const larger = realloc(text, room + 1);
        if (!larger) {
            *trouble = "the host is out of memory";
            break;
        }
        text = larger;
        size += fread(text + size, 1, room - size, file);
    } while (size == room && room < MAX_BYTES);
    if (!*trouble && ferror(file))
        *trouble = "it cannot be read";
    if (!*trouble && size == MAX_BYTES)
        *trouble = "it is larger than 64 MB";
    fclose(file);
    if (*trouble) {
        free(text);
        return NULL;
    }
    text[size] = '\0';
    *length = size;
    return text;
}

static size_t count_lines(const char *text, size_t length)
{
    size_t lines = 0;
    for (size_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    return lines + (length && text[length - 1] != '\n');
}

/* Ends each line where its "\n" or "\r\n" was. */
static void split_lines(vocabulary *self)
{
    char *line = self->text;
    for (size_t id = 0; id < self->count; id++) {
        size_t length = strcspn(line, "\n");
        char *const next = line + length + (line[length] == '\n');
        if (length && line[length - 1] == '\r')
            length--;
        line[length] = '\0';
        self->tokens[id] = line;
        if (length > self->longest)
            self->longest = length;
        line = next;
    }
}

/* An id and its token, which qsort's comparison must find without the vocabulary. */
typedef struct entry {
    const char *token;
    int32_t id;
} entry;

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->token, ((const entry *)b)->token);
}

/* NULL, or why not, in a sentence in error[]. */
static bool sort_tokens(vocabulary *self, char *error, size_t error_size)
{
    entry *const entries = malloc(self->count * sizeof *entries);
    if (!entries) {
        snprintf(error, error_size, "the host is out of memory");
        return false;
    }
    for (size_t id = 0; id < self->count; id++)
        if (*self->tokens[id])
            entries[self->num_sorted++] = (entry){ self->tokens[id], (int32_t)id };
    qsort(entries, self->num_sorted, sizeof *entries, compare_entries);
    bool good = true;
    for (size_t i = 0; i < self->num_sorted && good; i++) {
        self->sorted[i] = entries[i].id;
        good = !i || strcmp(entries[i - 1].token, entries[i].token);
        if (!good)
            snprintf(error, error_size, "its lines %d and %d are the same token",
                     entries[i - 1].id + 1, entries[i].id + 1);
    }
    free(entries);
    return good;
}

bool vocabulary_read(const char *path, vocabulary *self, char *error, size_t error_size)
{
    size_t length = 0;
    const char *trouble = NULL;
    *self = (vocabulary){ .text = read_file(path, &length, &trouble) };
    if (self->text) {
        self->count = count_lines(self->text, length);
        self->tokens = calloc(self->count + 1, sizeof *self->tokens);
        self->sorted = calloc(self->count + 1, sizeof *self->sorted);
        if (!self->tokens || !self->sorted)
            trouble = "the host is out of memory";
        else if (!self->count)
            trouble = "it is empty";
        else if (memchr(self->text, '\0', length))
            trouble = "it is not text";
    }
    if (trouble)
        snprintf(error, error_size, "%s", trouble);
    else
        split_lines(self);
    if (!trouble && sort_tokens(self, error, error_size))
        return true;
    vocabulary_free(self);
    return false;
}

void vocabulary_free(vocabulary *self)
{
    free(self->sorted);
    free(self->tokens);
    free(self->text);
    *self = (vocabulary){ 0 };
}

int32_t vocabulary_find(const vocabulary *self, const char *bytes, size_t length)
{
    size_t low = 0, high = self->num_sorted;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const char *const token = self->tokens[self->sorted[middle]];
        const int order = strncmp(token, bytes, length);
        if (!order && !token[length])
            return self->sorted[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}
