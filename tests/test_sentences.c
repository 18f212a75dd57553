/* From lines of text to lines of output, with a stand-in for the network. */
#define _POSIX_C_SOURCE 200809L
#include "batches.h"
#include "scratch.h"
#include "sentences.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Gives for each sequence its length, its token behind [CLS], and the length of its batch; notes
 * what it was asked for. */
typedef struct stand_in {
    size_t calls, first, padding; /* first: sequences of the first call, and of none are more */
    size_t fails_at;              /* this call, counted from 1 */
} stand_in;

static bool embed(void *data, const token_batch *batch, float *embeddings, char *error,
                  size_t error_size)
{
    stand_in *const self = data;
    if (++self->calls == self->fails_at) {
        snprintf(error, error_size, "the device is lost");
        return false;
    }
    if (self->calls == 1)
        self->first = batch->count;
    cr_assert_leq(batch->count, self->first);
    for (size_t i = 0; i < batch->count; i++) {
        const int32_t *const ids = batch->ids + i * batch->length;
        const size_t length = (size_t)batch->lengths[i];
        cr_assert_leq(length, batch->length);
        for (size_t j = length; j < batch->length; j++, self->padding++)
            cr_assert_eq(ids[j], 77);
        embeddings[3 * i] = (float)length;
        embeddings[3 * i + 1] = length > 1 ? (float)ids[1] : 0;
        embeddings[3 * i + 2] = (float)batch->length;
    }
    return true;
}

/* 500 sequences of all lengths, added until there is no more room. */
Test(batches, order_and_padding)
{
    char error[100] = "";
    stand_in network = { 0 };
    const embedder maker = { 3, &network, embed };
    batches all;
    srand(3);
    cr_assert(batches_create(&all, 32, 20, 3, 77));
    cr_assert_eq(all.room, 512);
    for (int i = 0; i < 500; i++) {
        const size_t length = 1 + (size_t)rand() % 20;
        int32_t *const ids = batches_next(&all);
        for (size_t j = 0; j < length; j++)
            ids[j] = i;
        batches_add(&all, length);
    }
    cr_assert(batches_embed(&all, &maker, error, sizeof error));
    for (int i = 0; i < 500; i++) {
        const float *const got = all.embeddings + 3 * i;
        cr_expect_eq(got[0], (float)all.lengths[i], "sequence %d", i);
        cr_expect_eq(got[1], all.lengths[i] > 1 ? (float)i : 0, "sequence %d", i);
    }
    cr_assert_eq(network.calls, 16);
    cr_assert_eq(network.first, 32);
    /* Sorted, a batch has at most a few lengths: about 5 in 100 places; unsorted, half of them. */
    cr_assert_lt(network.padding, 500);
    batches_clear(&all);
    cr_assert_eq(all.count, 0);
    batches_free(&all);
}

/* As few batches as may be, all of one size but the last, which has what is left. */
Test(batches, sizes)
{
    static const struct {
        size_t count, calls, first;
    } rows[] = { { 0, 0, 0 },   { 1, 1, 1 },   { 32, 1, 32 },
                 { 33, 2, 17 }, { 65, 3, 22 }, { 512, 16, 32 } };
    char error[100] = "";
    batches all;
    cr_assert(batches_create(&all, 32, 20, 3, 77));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stand_in network = { 0 };
        const embedder maker = { 3, &network, embed };
        while (all.count < rows[i].count) {
            *batches_next(&all) = (int32_t)all.count;
            batches_add(&all, 1);
        }
        cr_assert(batches_embed(&all, &maker, error, sizeof error));
        cr_expect_eq(network.calls, rows[i].calls, "%zu: %zu", rows[i].count, network.calls);
        cr_expect_eq(network.first, rows[i].first, "%zu: %zu", rows[i].count, network.first);
        batches_clear(&all);
    }
    batches_free(&all);
}

TestSuite(sentences, .init = scratch_make, .fini = scratch_remove);

static const char vocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n";

/* What the sentences give and what was noted, both to be freed. */
typedef struct outcome {
    bool good;
    char *text, *notes;
    char error[200];
    stand_in network;
} outcome;

typedef struct setting {
    output_format format;
    bool are_pairs;
    size_t fails_at;
} setting;

static outcome run(const char *input, size_t size, const setting *how)
{
    outcome out = { .network.fails_at = how->fails_at };
    size_t text_size = 0, notes_size = 0;
    scratch_write("vocab.txt", vocabulary, sizeof vocabulary - 1);
    scratch_write("input", input, size);
    wordpiece *const tokenizer =
        wordpiece_open(scratch_path("vocab.txt"), &(words_options){ true, true, true }, out.error,
                       sizeof out.error);
    cr_assert(tokenizer, "%s", out.error);
    FILE *const in = fopen(scratch_path("input"), "rb");
    FILE *const text = open_memstream(&out.text, &text_size);
    FILE *const notes = open_memstream(&out.notes, &notes_size);
    cr_assert(in && text && notes);
    const embedder maker = { 3, &out.network, embed };
    const sentences self = { .tokenizer = tokenizer,
                             .maker = how->format == OUTPUT_IDS ? NULL : &maker,
                             .max_tokens = 6,
                             .batch = 2,
                             .pad_token = 77,
                             .are_pairs = how->are_pairs,
                             .notes = notes,
                             .program = "test" };
    out.good = sentences_run(&self, in, text, how->format, out.error, sizeof out.error);
    fclose(in);
    fclose(text);
    fclose(notes);
    wordpiece_close(tokenizer);
    return out;
}

static void check(const char *input, const setting *how, const char *text, const char *notes)
{
    outcome out = run(input, strlen(input), how);
    cr_assert(out.good, "%s", out.error);
    cr_expect_str_eq(out.text, text);
    cr_expect_str_eq(out.notes, notes);
    free(out.text);
    free(out.notes);
}

/* The vectors are length, first token, length of the batch. */
Test(sentences, tsv)
{
    const setting how = { .format = OUTPUT_TSV };
    check("", &how, "", "");
    check("a b\n", &how, "4\t4\t4\n", "");
    check("b\r\n\nc a", &how, "3\t5\t4\n2\t3\t2\n4\t6\t4\n", "");
    check("a b c a b\n", &how, "6\t4\t6\n",
          "test: line 1 has more than 6 tokens; the rest is left out\n");
}

Test(sentences, json)
{
    const setting how = { .format = OUTPUT_JSON };
    check("", &how, "[\n]\n", "");
    check("a b\nc\n", &how, "[\n[4,4,4],\n[3,6,4]\n]\n", "");
}

Test(sentences, ids)
{
    const setting how = { .format = OUTPUT_IDS };
    check("A b?\n\na a a a a\n", &how, "2 4 5 1 3\n2 3\n2 4 4 4 4 3\n",
          "test: line 3 has more than 6 tokens; the rest is left out\n");
}

Test(sentences, cuts_are_noted_once)
{
    const setting how = { .format = OUTPUT_IDS };
    check(
        "a\na a a a a\n\na a a a a a\n", &how, "2 4 3\n2 4 4 4 4 3\n2 3\n2 4 4 4 4 3\n",
        "test: 2 sentences, the first in line 2, have more than 6 tokens; the rest is left out\n");
}

/* More lines than a window of 32 holds, in their order. */
Test(sentences, many_lines)
{
    char input[400] = "", wanted[2000] = "";
    for (int i = 0; i < 70; i++) {
        strcat(input, i % 3 ? "a\n" : "\n");
        strcat(wanted, i % 3 ? "2 4 3\n" : "2 3\n");
    }
    check(input, &(setting){ .format = OUTPUT_IDS }, wanted, "");
    outcome out = run(input, strlen(input), &(setting){ .format = OUTPUT_TSV });
    cr_assert(out.good, "%s", out.error);
    const char *line = out.text;
    for (int i = 0; i < 70; i++) {
        cr_expect(!strncmp(line, i % 3 ? "3\t4\t" : "2\t3\t", 4), "line %d: %.9s", i, line);
        line = strchr(line, '\n') + 1;
    }
    cr_assert_eq(*line, '\0');
    cr_assert_eq(out.network.calls, 35);
    free(out.text);
    free(out.notes);
}

Test(sentences, pairs)
{
    const setting how = { .format = OUTPUT_TSV, .are_pairs = true };
    outcome out = run("a\tb c\na\ta\n", 10, &how);
    cr_assert(out.good, "%s", out.error);
    char *end = NULL;
    /* Each sentence is in a batch of 2: by length, (b c, a) and (a, a). */
    const double first = strtod(out.text, &end);
    cr_assert_float_eq(first, (3 * 4 + 4 * 5 + 4 * 4) / sqrt((9. + 16 + 16) * (16 + 25 + 16)),
                       1e-8);
    cr_assert_float_eq(strtod(end, &end), 1, 1e-8);
    cr_assert_str_eq(end, "\n");
    free(out.text);
    free(out.notes);
}

Test(sentences, lines_that_are_no_pairs)
{
    static const char *const lines[] = { "a\tb\nab\n", "a\tb\na\tb\tc\n", "a\tb\n\n" };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        outcome out =
            run(lines[i], strlen(lines[i]), &(setting){ .format = OUTPUT_TSV, .are_pairs = true });
        cr_expect(!out.good);
        cr_expect_str_eq(out.error, "line 2 is no pair: two sentences with one tab between them");
        free(out.text);
        free(out.notes);
    }
}

Test(sentences, a_network_that_fails)
{
    char input[200] = "";
    for (int i = 0; i < 70; i++)
        strcat(input, "a\n");
    /* In the second window, so that the first has been written. */
    outcome out = run(input, strlen(input), &(setting){ .format = OUTPUT_TSV, .fails_at = 17 });
    cr_assert(!out.good);
    cr_assert_str_eq(out.error, "the device is lost");
    cr_assert_eq(strlen(out.text), 32 * strlen("3\t4\t3\n"));
    free(out.text);
    free(out.notes);
}

Test(sentences, a_line_of_a_megabyte)
{
    const size_t size = 1024 * 1024;
    char *const line = malloc(size);
    cr_assert(line);
    for (size_t i = 0; i < size; i++)
        line[i] = i % 2 ? ' ' : 'a';
    outcome out = run(line, size, &(setting){ .format = OUTPUT_IDS });
    cr_assert(out.good, "%s", out.error);
    cr_assert_str_eq(out.text, "2 4 4 4 4 3\n");
    free(out.text);
    free(out.notes);
    free(line);
}
