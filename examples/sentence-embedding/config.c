/* Reads config.json and the small files beside it. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Far above any model, and products of two of them stay far below 2^63. */
#define MAX_SIZE 16777216

/* A file being read; after the first trouble nothing changes. */
typedef struct reader {
    const char *name;
    json_t *json;
    char *error;
    size_t error_size;
    bool failed;
} reader;

static void fail(reader *self, const char *format, ...)
{
    if (self->failed)
        return;
    self->failed = true;
    const int used = snprintf(self->error, self->error_size, "%s: ", self->name);
    va_list list;
    va_start(list, format);
    if (used >= 0 && (size_t)used < self->error_size)
        vsnprintf(self->error + used, self->error_size - (size_t)used, format, list);
    va_end(list);
}

static void end(reader *self)
{
    json_decref(self->json);
    self->json = NULL;
}

/* Opens a file for the keys to be read; false where there is nothing to read. A missing file is a
 * trouble only if it is needed. */
static bool begin(reader *self, const char *folder, const char *name, bool is_needed)
{
    char path[4096];
    json_error_t trouble;
    if (self->failed)
        return false;
    self->name = name;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) {
        fail(self, "the path is too long");
        return false;
    }
    FILE *const file = fopen(path, "rb");
    if (!file) {
        if (is_needed || errno != ENOENT)
            fail(self, "%s", strerror(errno));
        return false;
    }
    self->json = json_loadf(file, JSON_REJECT_DUPLICATES, &trouble);
    fclose(file);
    if (!self->json)
        fail(self, "it is no good JSON: line %d: %s", trouble.line, trouble.text);
    else if (!json_is_object(self->json))
        fail(self, "it is no JSON object");
    if (self->failed)
        end(self);
    return !self->failed;
}

/* A whole number of at least `least`; fallback 0: the key is needed. */
static size_t read_size(reader *self, const char *key, size_t least, size_t fallback)
{
    const json_t *const json = json_object_get(self->json, key);
    const json_int_t value = json_integer_value(json);
    if (!json && fallback)
        return fallback;
    if (!json)
        fail(self, "it has no %s", key);
    else if (!json_is_integer(json) || value < (json_int_t)least || value > MAX_SIZE)
        fail(self, "its %s is no whole number from %zu to %d", key, least, MAX_SIZE);
    return self->failed ? 1 : (size_t)value;
}

static bool read_flag(reader *self, const char *key, bool fallback)
{
    const json_t *const json = json_object_get(self->json, key);
    if (!json || json_is_null(json))
        return fallback;
    if (!json_is_boolean(json))
        fail(self, "its %s is neither true nor false", key);
    return json_is_true(json);
}

/* `fallback` where the key is absent; NULL: the key is needed. */
static const char *read_string(reader *self, const char *key, const char *fallback)
{
    const json_t *const json = json_object_get(self->json, key);
    if (!json && fallback)
        return fallback;
    if (!json_is_string(json))
        fail(self, json ? "its %s is no string" : "it has no %s", key);
    return self->failed ? "" : json_string_value(json);
}

/* Refuses a value other than the one that the network is made for. */
static void require(reader *self, const char *key, const char *fallback, const char *wanted)
{
    const char *const value = read_string(self, key, fallback);
    if (strcmp(value, wanted))
        fail(self, "its %s is \"%.60s\", and only \"%s\" is known", key, value, wanted);
}

static mha_activation_kind read_activation(reader *self)
{
    static const struct {
        const char *name;
        mha_activation_kind activation;
    } names[] = {
        { "gelu", MHA_ACTIVATION_GELU }, { "gelu_new", MHA_ACTIVATION_GELU_TANH },
        { "relu", MHA_ACTIVATION_RELU }, { "gelu_pytorch_tanh", MHA_ACTIVATION_GELU_TANH },
        { "silu", MHA_ACTIVATION_SILU }, { "swish", MHA_ACTIVATION_SILU },
    };
    const char *const value = read_string(self, "hidden_act", "gelu");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(value, names[i].name))
            return names[i].activation;
    fail(self,
         "its hidden_act is \"%.60s\", none of gelu, gelu_new, gelu_pytorch_tanh, relu and silu",
         value);
    return MHA_ACTIVATION_GELU;
}

static float read_eps(reader *self)
{
    const json_t *const json = json_object_get(self->json, "layer_norm_eps");
    const double value = json ? json_number_value(json) : 1e-12;
    if (!(value > 0 && value < 1 && (float)value > 0))
        fail(self, "its layer_norm_eps is no number between 0 and 1");
    return (float)value;
}

/* The defaults are those of Hugging Face's BertConfig; the sizes must be said. */
static void read_network(reader *self, const char *folder, config *out)
{
    if (!begin(self, folder, "config.json", true))
        return;
    require(self, "model_type", NULL, "bert");
    require(self, "position_embedding_type", "absolute", "absolute");
    if (read_flag(self, "is_decoder", false))
        fail(self, "its is_decoder is true, and only encoders are known");
    out->hidden_size = read_size(self, "hidden_size", 1, 0);
    out->heads = read_size(self, "num_attention_heads", 1, 0);
    out->layers = read_size(self, "num_hidden_layers", 1, 0);
    out->intermediate_size = read_size(self, "intermediate_size", 1, 0);
    out->vocabulary_size = read_size(self, "vocab_size", 1, 0);
    out->max_positions = read_size(self, "max_position_embeddings", 3, 0);
    out->token_types = read_size(self, "type_vocab_size", 1, 2);
    out->layer_norm_eps = read_eps(self);
    out->activation = read_activation(self);
    const json_t *const pad = json_object_get(self->json, "pad_token_id");
    if (pad && !json_is_null(pad))
        out->pad_token = (int32_t)read_size(self, "pad_token_id", 0, 0);
    if ((size_t)out->pad_token >= out->vocabulary_size)
        fail(self, "its pad_token_id is not below its vocab_size");
    if (out->hidden_size % out->heads)
        fail(self, "its hidden_size, %zu, is no multiple of its num_attention_heads, %zu",
             out->hidden_size, out->heads);
    end(self);
}

static void read_tokenizer(reader *self, const char *folder, config *out)
{
    out->words = (words_options){ true, true, true };
    if (begin(self, folder, "tokenizer_config.json", false)) {
        out->words.lower_case = read_flag(self, "do_lower_case", true);
        out->words.strip_accents = read_flag(self, "strip_accents", out->words.lower_case);
        out->words.separate_chinese = read_flag(self, "tokenize_chinese_chars", true);
        end(self);
    }
}

/* What sentence-transformers adds to a BERT. */
static void read_sentences(reader *self, const char *folder, config *out)
{
    size_t tokens = 256;
    if (begin(self, folder, "sentence_bert_config.json", false)) {
        tokens = read_size(self, "max_seq_length", 3, 256);
        end(self);
    }
    out->max_tokens = tokens < out->max_positions ? tokens : out->max_positions;
    if (begin(self, folder, "1_Pooling/config.json", false)) {
        const bool others = read_flag(self, "pooling_mode_cls_token", false) ||
                            read_flag(self, "pooling_mode_max_tokens", false) ||
                            read_flag(self, "pooling_mode_mean_sqrt_len_tokens", false);
        if (others || !read_flag(self, "pooling_mode_mean_tokens", true))
            fail(self, "it asks for another pooling than the mean over the tokens");
        end(self);
    }
}

bool config_read(const char *folder, config *out, char *error, size_t error_size)
{
    reader self = { .error = error, .error_size = error_size };
    *out = (config){ 0 };
    read_network(&self, folder, out);
    read_tokenizer(&self, folder, out);
    read_sentences(&self, folder, out);
    return !self.failed;
}
