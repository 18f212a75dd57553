/* SentenceEmbedding: a whole network, that of examples/sentence-embedding. */
#include "ops.h"

#include "compare.h"
#include "model.h"
#include "model_folder.h"
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A case's sentences and the model that they are for. */
typedef struct embedding {
    char folder[4096];
    config shape;
    wordpiece *tokenizer;
    token_batch batch;
    int32_t *ids, *lengths; /* what batch points to */
    int32_t *sentence;      /* one sentence's tokens, at most shape.max_tokens */
    float *rows, *vectors;  /* of the network */
} embedding;

static bool find_model(check *self, embedding *made)
{
    char reason[200];
    if (model_folder(self->setup->model, made->folder, sizeof made->folder, reason, sizeof reason))
        return true;
    check_skip(self, "%s", reason);
    return false;
}

static bool open_tokenizer(check *self, embedding *made)
{
    char reason[600];
    if (config_read(made->folder, &made->shape, reason, sizeof reason))
        made->tokenizer = tokenizer_open(made->folder, &made->shape, reason, sizeof reason);
    if (!made->tokenizer)
        check_fail(self, "the model in %.300s: %s", made->folder, reason);
    return made->tokenizer;
}

/* Room for count sequences of `length` tokens and for what becomes of them. */
static bool make_room(check *self, embedding *made, size_t count, size_t length)
{
    const size_t width = made->shape.hidden_size;
    if (!count || !length || length > made->shape.max_tokens) {
        check_fail(self, "%zu sentences of %zu tokens: the model takes at most %zu tokens", count,
                   length, made->shape.max_tokens);
        return false;
    }
    made->ids = calloc(count, length * sizeof *made->ids);
    made->lengths = calloc(count, sizeof *made->lengths);
    made->sentence = calloc(made->shape.max_tokens, sizeof *made->sentence);
    made->rows = calloc(count, length * width * sizeof *made->rows);
    made->vectors = calloc(count, width * sizeof *made->vectors);
    made->batch = (token_batch){ count, length, made->ids, made->lengths };
    const bool good = made->ids && made->lengths && made->sentence && made->rows && made->vectors;
    if (!good)
        check_fail(self, "the host is out of memory");
    return good;
}

/* Tokens of sentence `index` into its row of the batch, which is padded. */
static void encode(check *self, embedding *made, size_t index)
{
    char key[32];
    bool is_cut = false;
    snprintf(key, sizeof key, "sentence.%zu", index);
    const char *const text = case_string(self->file, key, NULL);
    if (!text) {
        check_fail(self, "the case has no %s", key);
        return;
    }
    const size_t count = wordpiece_encode(made->tokenizer, text, strlen(text), made->sentence,
                                          made->shape.max_tokens, &is_cut);
    int32_t *const row = made->ids + index * made->batch.length;
    if (count > made->batch.length)
        check_fail(self, "%s has %zu tokens, not up to %zu", key, count, made->batch.length);
    for (size_t i = 0; i < made->batch.length; i++)
        row[i] = i < count ? made->sentence[i] : made->shape.pad_token;
    made->lengths[index] = (int32_t)count;
}

/* Whole numbers that must be exactly those of an input. */
static void compare_exactly(check *self, const case_tensor *want, const int32_t *got)
{
    for (size_t i = 0; i < want->count; i++) {
        const double wanted = case_type_value(want->type, want->data, i);
        char index[64];
        compare_print_index(want, i, index, sizeof index);
        if (got[i] != wanted)
            check_fail(self, "%s%s is %d, not %.9g", want->name, index, (int)got[i], wanted);
    }
}

/* The sentences' tokens, which must be the case's. */
static bool encode_all(check *self, embedding *made)
{
    const case_tensor *const ids = check_need(self, "token_ids");
    const case_tensor *const lengths = check_need(self, "valid_lens");
    case_string(self->file, "model", NULL); /* says what the folder holds */
    if (!ids || !lengths)
        return false;
    if (ids->rank != 2 || lengths->rank != 1 || lengths->count != ids->shape[0] || ids->strided ||
        lengths->strided)
        check_fail(self, "token_ids is not [batch][len], or valid_lens not [batch]");
    if (!check_ready(self) || !make_room(self, made, ids->shape[0], ids->shape[1]))
        return false;
    for (size_t i = 0; i < made->batch.count; i++)
        encode(self, made, i);
    compare_exactly(self, lengths, made->lengths);
    compare_exactly(self, ids, made->ids);
    return !check_stopped(self);
}

/* Through the network: the last layer's rows, and the vectors as the example makes them. */
static bool run_network(check *self, embedding *made)
{
    const check_setup *const setup = self->setup;
    const model_options options = { .device = setup->device,
                                    .batch = made->batch.count,
                                    .path = setup->path,
                                    .tiling = setup->tiling,
                                    .gemm = setup->gemm };
    char reason[600];
    model *const network = model_open(made->folder, &made->shape, &options, reason, sizeof reason);
    bool good =
        network && model_last_rows(network, &made->batch, made->rows, reason, sizeof reason);
    if (good) {
        const embedder maker = model_embedder(network);
        good = maker.embed(maker.data, &made->batch, made->vectors, reason, sizeof reason);
    }
    model_close(network);
    if (!good && strstr(reason, "the path asked for"))
        check_skip(self, "%s", reason);
    else if (!good)
        check_fail(self, "the model in %.300s: %s", made->folder, reason);
    return good;
}

/* What lies in host memory as an output, for check_finish to compare. */
static void give(check *self, const char *name, const float *values, size_t count)
{
    const case_tensor *const want = case_output(self->file, name);
    if (want && want->count != count)
        check_fail(self, "the case's %s has %zu elements, but its sentences make %zu", name,
                   want->count, count);
    else if (want)
        check_made_output(self, name, CASE_FLOAT32, values, count);
}

void ops_sentence_embedding(check *self)
{
    embedding made = { 0 };
    if (find_model(self, &made) && open_tokenizer(self, &made) && encode_all(self, &made) &&
        run_network(self, &made)) {
        const size_t values = made.batch.count * made.shape.hidden_size;
        give(self, "last_hidden", made.rows, made.batch.length * values);
        give(self, "embeddings", made.vectors, values);
    }
    free(made.vectors);
    free(made.rows);
    free(made.sentence);
    free(made.lengths);
    free(made.ids);
    wordpiece_close(made.tokenizer);
}
