/* Collects the lines' tokens in batches and writes what becomes of them. */
#define _POSIX_C_SOURCE 200809L
#include "sentences.h"

#include "batches.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One reading. */
typedef struct run {
    const sentences *self;
    output out;
    batches batches;
    size_t line;               /* counted from 1 */
    size_t num_cut, first_cut; /* sentences that were cut, and the line of the first */
    char *error;
    size_t error_size;
} run;

long sentences_read_line(FILE *in, char **line, size_t *room)
{
    ssize_t length = getline(line, room, in);
    if (length > 0 && (*line)[length - 1] == '\n')
        length--;
    if (length > 0 && (*line)[length - 1] == '\r')
        length--;
    return length;
}

static size_t encode(run *state, const char *text, size_t length, int32_t *ids)
{
    const sentences *const self = state->self;
    bool is_cut = false;
    const size_t count =
        wordpiece_encode(self->tokenizer, text, length, ids, self->max_tokens, &is_cut);
    if (is_cut && !state->num_cut++)
        state->first_cut = state->line;
    return count;
}

static void add_sentence(run *state, const char *text, size_t length)
{
    batches_add(&state->batches, encode(state, text, length, batches_next(&state->batches)));
}

static bool add_pair(run *state, const char *line, size_t length)
{
    const char *const tab = memchr(line, '\t', length);
    const char *const end = line + length;
    if (!tab || memchr(tab + 1, '\t', (size_t)(end - tab - 1))) {
        snprintf(state->error, state->error_size,
                 "line %zu is no pair: two sentences with one tab between them", state->line);
        return false;
    }
    add_sentence(state, line, (size_t)(tab - line));
    add_sentence(state, tab + 1, (size_t)(end - tab - 1));
    return true;
}

/* 0 where one of the two is all zero. */
static double cosine(const float *a, const float *b, size_t width)
{
    double product = 0, square_a = 0, square_b = 0;
    for (size_t i = 0; i < width; i++) {
        product += (double)a[i] * b[i];
        square_a += (double)a[i] * a[i];
        square_b += (double)b[i] * b[i];
    }
    const double norms = sqrt(square_a) * sqrt(square_b);
    return norms > 0 || isnan(norms) ? product / norms : 0;
}

/* Nothing more is read where nothing can be written. */
static bool check_output(const run *state)
{
    if (output_is_good(&state->out))
        return true;
    snprintf(state->error, state->error_size, "the output cannot be written");
    return false;
}

/* Embeds and writes what has been collected. */
static bool write_collected(run *state)
{
    batches *const all = &state->batches;
    if (!batches_embed(all, state->self->maker, state->error, state->error_size))
        return false;
    const size_t step = state->self->are_pairs ? 2 : 1;
    for (size_t i = 0; i < all->count; i += step) {
        const float *const vector = all->embeddings + i * all->width;
        if (state->self->are_pairs)
            output_number(&state->out, cosine(vector, vector + all->width, all->width));
        else
            output_vector(&state->out, vector, all->width);
    }
    batches_clear(all);
    return check_output(state);
}

static bool take_line(run *state, const char *line, size_t length)
{
    if (state->out.format == OUTPUT_IDS) {
        int32_t *const ids = batches_next(&state->batches);
        output_ids(&state->out, ids, encode(state, line, length, ids));
        return check_output(state);
    }
    if (!state->self->are_pairs)
        add_sentence(state, line, length);
    else if (!add_pair(state, line, length))
        return false;
    /* The room is a multiple of 2, so a pair fits where anything does. */
    return state->batches.count < state->batches.room || write_collected(state);
}

static bool take_lines(run *state, FILE *in)
{
    char *line = NULL;
    size_t room = 0;
    bool good = true;
    errno = 0;
    for (long length; good && (length = sentences_read_line(in, &line, &room)) >= 0;) {
        state->line++;
        good = take_line(state, line, (size_t)length);
    }
    if (good && !feof(in)) {
        snprintf(state->error, state->error_size, "the input cannot be read: %s", strerror(errno));
        good = false;
    }
    free(line);
    return good && (!state->batches.count || write_collected(state));
}

/* One line for all of them: a text that is no list of sentences may have any number. */
static void note_cuts(const run *state)
{
    const sentences *const self = state->self;
    if (state->num_cut == 1)
        fprintf(self->notes, "%s: line %zu has more than %zu tokens; the rest is left out\n",
                self->program, state->first_cut, self->max_tokens);
    else if (state->num_cut)
        fprintf(self->notes,
                "%s: %zu sentences, the first in line %zu, have more than %zu tokens; the rest is"
                " left out\n",
                self->program, state->num_cut, state->first_cut, self->max_tokens);
}

bool sentences_run(const sentences *self, FILE *in, FILE *out, output_format format, char *error,
                   size_t error_size)
{
    run state = { .self = self, .error = error, .error_size = error_size };
    const size_t width = self->maker ? self->maker->width : 1;
    if (!batches_create(&state.batches, self->batch, self->max_tokens, width, self->pad_token)) {
        snprintf(error, error_size, "the host is out of memory");
        return false;
    }
    output_begin(&state.out, out, format);
    bool good = take_lines(&state, in);
    output_end(&state.out);
    good = good && check_output(&state);
    note_cuts(&state);
    batches_free(&state.batches);
    return good;
}
