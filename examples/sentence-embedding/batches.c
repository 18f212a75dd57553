/* Collects sequences, sorts them by length and has them embedded batch by batch. */
#include "batches.h"

#include <stdlib.h>
#include <string.h>

/* So many that few batches have much padding, so few that memory and the wait stay small. */
#define WINDOW 16

bool batches_create(batches *self, size_t batch, size_t max_tokens, size_t width, int32_t pad_token)
{
    const size_t room = WINDOW * batch;
    *self = (batches){ .batch = batch,
                       .room = room,
                       .max_tokens = max_tokens,
                       .width = width,
                       .pad_token = pad_token };
    self->ids = calloc(room, max_tokens * sizeof *self->ids);
    self->lengths = calloc(room, sizeof *self->lengths);
    self->embeddings = calloc(room, width * sizeof *self->embeddings);
    self->order = calloc(room, sizeof *self->order);
    self->places = calloc(max_tokens + 1, sizeof *self->places);
    self->batch_ids = calloc(batch, max_tokens * sizeof *self->batch_ids);
    self->batch_lengths = calloc(batch, sizeof *self->batch_lengths);
    self->batch_embeddings = calloc(batch, width * sizeof *self->batch_embeddings);
    if (self->ids && self->lengths && self->embeddings && self->order && self->places &&
        self->batch_ids && self->batch_lengths && self->batch_embeddings)
        return true;
    batches_free(self);
    return false;
}

void batches_free(batches *self)
{
    free(self->batch_embeddings);
    free(self->batch_lengths);
    free(self->batch_ids);
    free(self->places);
    free(self->order);
    free(self->embeddings);
    free(self->lengths);
    free(self->ids);
    *self = (batches){ 0 };
}

int32_t *batches_next(const batches *self)
{
    return self->ids + self->count * self->max_tokens;
}

void batches_add(batches *self, size_t length)
{
    self->lengths[self->count++] = (int32_t)length;
}

/* Sorts `order` by length, the longest first, so that a device's memory is asked for most of it at
 * once; equals stay as they came. By counting, as lengths are small. */
static void sort_by_length(batches *self)
{
    size_t *const places = self->places;
    /* places[n]: how many are longer than n, thus where those of length n begin. */
    memset(places, 0, (self->max_tokens + 1) * sizeof *places);
    for (size_t i = 0; i < self->count; i++)
        places[self->lengths[i] - 1]++;
    for (size_t length = self->max_tokens; length-- > 0;)
        places[length] += places[length + 1];
    for (size_t i = 0; i < self->count; i++)
        self->order[places[self->lengths[i]]++] = i;
}

/* One batch of the sequences order[0] to order[count - 1], which has the longest first. */
static bool embed_batch(batches *self, const size_t *order, size_t count, const embedder *maker,
                        char *error, size_t error_size)
{
    const size_t length = (size_t)self->lengths[order[0]];
    for (size_t i = 0; i < count; i++) {
        const size_t own = (size_t)self->lengths[order[i]];
        int32_t *const row = self->batch_ids + i * length;
        memcpy(row, self->ids + order[i] * self->max_tokens, own * sizeof *row);
        for (size_t j = own; j < length; j++)
            row[j] = self->pad_token;
        self->batch_lengths[i] = (int32_t)own;
    }
    const token_batch batch = { count, length, self->batch_ids, self->batch_lengths };
    if (!maker->embed(maker->data, &batch, self->batch_embeddings, error, error_size))
        return false;
    for (size_t i = 0; i < count; i++)
        memcpy(self->embeddings + order[i] * self->width, self->batch_embeddings + i * self->width,
               self->width * sizeof *self->embeddings);
    return true;
}

bool batches_embed(batches *self, const embedder *maker, char *error, size_t error_size)
{
    /* As few batches as may be, all of one size: one of a few would cost as much as a full one. */
    const size_t calls = (self->count + self->batch - 1) / self->batch;
    const size_t most = calls ? (self->count + calls - 1) / calls : 0;
    sort_by_length(self);
    for (size_t first = 0; first < self->count; first += most) {
        const size_t left = self->count - first;
        const size_t count = left < most ? left : most;
        if (!embed_batch(self, self->order + first, count, maker, error, error_size))
            return false;
    }
    return true;
}

void batches_clear(batches *self)
{
    self->count = 0;
}
