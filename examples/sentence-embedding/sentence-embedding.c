/* Vectors for sentences, by a BERT on any OpenCL device. */
#define _POSIX_C_SOURCE 200809L
#include "heatmap.h"
#include "model.h"
#include "options.h"
#include "sentences.h"
#include "tokenizer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>

/* All that is opened, in that order; NULL where it is not. */
typedef struct program {
    options options;
    config config;
    wordpiece *tokenizer;
    model *model;
    char error[600];
} program;

static bool open_tokenizer(program *self)
{
    if (config_read(self->options.folder, &self->config, self->error, sizeof self->error))
        self->tokenizer =
            tokenizer_open(self->options.folder, &self->config, self->error, sizeof self->error);
    return self->tokenizer;
}

static bool open_model(program *self, size_t batch, char *error, size_t error_size)
{
    const model_options how = { .device = self->options.device, .batch = batch };
    self->model = model_open(self->options.folder, &self->config, &how, error, error_size);
    return self->model;
}

/* Opens the model for as many sentences as the first batch has, than which none is larger: a few
 * cost what a few do, whatever --batch says. */
static bool embed(void *data, const token_batch *batch, float *embeddings, char *error,
                  size_t error_size)
{
    program *const self = data;
    if (!self->model && !open_model(self, batch->count, error, error_size))
        return false;
    const embedder maker = model_embedder(self->model);
    return maker.embed(maker.data, batch, embeddings, error, error_size);
}

static bool write_sentences(program *self)
{
    const bool needs_model = self->options.format != OUTPUT_IDS;
    const embedder maker = { self->config.hidden_size, self, embed };
    const sentences work = { .tokenizer = self->tokenizer,
                             .maker = needs_model ? &maker : NULL,
                             .max_tokens = self->config.max_tokens,
                             .batch = self->options.batch,
                             .pad_token = self->config.pad_token,
                             .are_pairs = self->options.are_pairs,
                             .notes = stderr,
                             .program = options_program };
    return sentences_run(&work, stdin, stdout, self->options.format, self->error,
                         sizeof self->error);
}

/* The attention of a sentence's tokens, with the tokens as labels. */
static bool draw(program *self, const int32_t *ids, size_t count)
{
    char title[100];
    bool good = false;
    const char **const labels = calloc(count, sizeof *labels);
    float *const weights = calloc(count, count * sizeof *weights);
    for (size_t i = 0; labels && i < count; i++)
        labels[i] = wordpiece_token(self->tokenizer, ids[i]);
    snprintf(title, sizeof title, "layer %zu, head %zu: each row attends to columns",
             self->options.layer, self->options.head);
    if (!labels || !weights)
        snprintf(self->error, sizeof self->error, "the host is out of memory");
    else
        good = model_attention(self->model, ids, count, self->options.layer, self->options.head,
                               weights, self->error, sizeof self->error) &&
               heatmap_draw(&(heatmap){ title, count, labels, weights }, self->options.picture,
                            self->error, sizeof self->error);
    free(weights);
    free(labels);
    return good;
}

static bool draw_first_sentence(program *self)
{
    char *line = NULL;
    size_t room = 0, count = 0;
    bool is_cut = false, good = false;
    int32_t *const ids = calloc(self->config.max_tokens, sizeof *ids);
    const long length = sentences_read_line(stdin, &line, &room);
    if (ids && length >= 0)
        count = wordpiece_encode(self->tokenizer, line, (size_t)length, ids,
                                 self->config.max_tokens, &is_cut);
    if (is_cut)
        fprintf(stderr, "%s: the sentence has more than %zu tokens; the rest is left out\n",
                options_program, self->config.max_tokens);
    if (!count)
        snprintf(self->error, sizeof self->error, "%s",
                 ids ? "there is no sentence to draw" : "the host is out of memory");
    else
        good = open_model(self, 1, self->error, sizeof self->error) && draw(self, ids, count);
    free(line);
    free(ids);
    return good;
}

/* Streams that came closed are opened so that to read or write them fails: else the next file of
 * the driver would get such a number, and be written to. */
static void open_closed_streams(void)
{
    for (int stream = 0; stream < 3; stream++)
        if (fcntl(stream, F_GETFD) < 0)
            open("/dev/null", stream ? O_RDONLY : O_WRONLY);
}

int main(int argc, char **argv)
{
    program self = { 0 };
    int exit_code = 0;
    open_closed_streams();
    signal(SIGPIPE, SIG_IGN); /* a reader that has gone shows where something is written */
    if (!options_read(&self.options, argc, argv, &exit_code))
        return exit_code;
    const bool good = open_tokenizer(&self) &&
                      (self.options.picture ? draw_first_sentence(&self) : write_sentences(&self));
    if (!good)
        fprintf(stderr, "%s: %s\n", options_program, self.error);
    model_close(self.model);
    wordpiece_close(self.tokenizer);
    return good ? 0 : 1;
}
