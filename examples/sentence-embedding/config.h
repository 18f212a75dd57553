/* What a model's folder says of its network and its tokenizer. */
#ifndef CONFIG_H
#define CONFIG_H

#include "words.h"

#include <mha.h>

typedef struct config {
    /* config.json, all sizes at least 1; heads divides hidden_size */
    size_t hidden_size, heads, layers, intermediate_size;
    size_t vocabulary_size, max_positions, token_types;
    float layer_norm_eps;
    mha_activation_kind activation;
    int32_t pad_token; /* below vocabulary_size */
    /* tokenizer_config.json, or lower case without accents where the file is not there */
    words_options words;
    /* sentence_bert_config.json's max_seq_length, or 256 where the file is not there; at least 3,
     * at most max_positions */
    size_t max_tokens;
} config;

/* Reads the files of a folder. False: `error` holds a sentence that begins with the file's name.
 * Refuses what is not a plain BERT encoder whose tokens are averaged. */
bool config_read(const char *folder, config *out, char *error, size_t error_size);

#endif
