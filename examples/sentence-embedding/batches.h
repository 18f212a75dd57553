/* Sequences of tokens into vectors: collects some, sorts them by length so that a batch has little
 * padding, and gives the vectors back in the order in which the sequences came. */
#ifndef BATCHES_H
#define BATCHES_H

#include "embedder.h"

/* Zero-initialised it may be freed. */
typedef struct batches {
    size_t batch, room, max_tokens, width;
    int32_t pad_token;
    size_t count;           /* sequences collected */
    int32_t *ids;           /* [room][max_tokens] */
    int32_t *lengths;       /* [room] */
    float *embeddings;      /* [room][width], after batches_embed */
    size_t *order, *places; /* [room], [max_tokens + 1], for sorting */
    /* Of one batch: what the embedder gets and gives. */
    int32_t *batch_ids, *batch_lengths;
    float *batch_embeddings;
} batches;

/* Room for 16 batches of `batch` sequences; all sizes at least 1. False: the host is out of memory,
 * and there is nothing to free. */
bool batches_create(batches *self, size_t batch, size_t max_tokens, size_t width,
                    int32_t pad_token);
void batches_free(batches *self);

/* Where the max_tokens ids of the next sequence go. There must be room: count < room. */
int32_t *batches_next(const batches *self);

/* Counts in the sequence that has been written there, of 1 to max_tokens ids. */
void batches_add(batches *self, size_t length);

/* Makes the vectors of all sequences collected, in batches of one size: no call has more sequences
 * than the first, nor has one of a later batches_embed where this one's room was full. False:
 * `error` holds the embedder's sentence. */
bool batches_embed(batches *self, const embedder *maker, char *error, size_t error_size);

/* Forgets the sequences and their vectors. */
void batches_clear(batches *self);

#endif
