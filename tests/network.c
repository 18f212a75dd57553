/* A small BERT of random weights as a file. */
#include "network.h"

#include "half.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const config network_shape = { .hidden_size = NETWORK_WIDTH,
                               .heads = NETWORK_HEADS,
                               .layers = NETWORK_LAYERS,
                               .intermediate_size = NETWORK_WIDE,
                               .vocabulary_size = NETWORK_WORDS,
                               .max_positions = NETWORK_PLACES,
                               .token_types = NETWORK_TYPES,
                               .layer_norm_eps = 1e-3f,
                               .activation = MHA_ACTIVATION_GELU,
                               .max_tokens = NETWORK_PLACES };

const char network_config_json[] =
    "{\"model_type\":\"bert\",\"hidden_size\":8,\"num_attention_heads\":2,"
    "\"num_hidden_layers\":2,\"intermediate_size\":12,\"vocab_size\":9,"
    "\"max_position_embeddings\":6,\"type_vocab_size\":2,\"layer_norm_eps\":1e-3}";

static void add(network *self, const char *name, size_t rows, size_t columns)
{
    network_place *const next = &self->places[self->num_places++];
    const size_t count = (rows ? rows : 1) * columns;
    *next = (network_place){ .rows = rows, .columns = columns, .first = self->num_values };
    snprintf(next->name, sizeof next->name, "%s", name);
    for (size_t i = 0; i < count; i++)
        self->values[self->num_values++] = (float)(rand() % 2001 - 1000) / 1000;
}

static void add_of_layer(network *self, int layer, const char *name, size_t rows, size_t columns)
{
    char full[80], bias[80];
    snprintf(full, sizeof full, "encoder.layer.%d.%s.weight", layer, name);
    snprintf(bias, sizeof bias, "encoder.layer.%d.%s.bias", layer, name);
    add(self, full, rows, columns);
    add(self, bias, 0, rows ? rows : columns);
}

network *network_make(void)
{
    enum {
        WIDTH = NETWORK_WIDTH,
        WIDE = NETWORK_WIDE
    };
    network *const self = calloc(1, sizeof *self);
    cr_assert(self);
    srand(11);
    add(self, "embeddings.word_embeddings.weight", NETWORK_WORDS, WIDTH);
    add(self, "embeddings.position_embeddings.weight", NETWORK_PLACES, WIDTH);
    add(self, "embeddings.token_type_embeddings.weight", NETWORK_TYPES, WIDTH);
    add(self, "embeddings.LayerNorm.weight", 0, WIDTH);
    add(self, "embeddings.LayerNorm.bias", 0, WIDTH);
    for (int layer = 0; layer < NETWORK_LAYERS; layer++) {
        add_of_layer(self, layer, "attention.self.query", WIDTH, WIDTH);
        add_of_layer(self, layer, "attention.self.key", WIDTH, WIDTH);
        add_of_layer(self, layer, "attention.self.value", WIDTH, WIDTH);
        add_of_layer(self, layer, "attention.output.dense", WIDTH, WIDTH);
        add_of_layer(self, layer, "attention.output.LayerNorm", 0, WIDTH);
        add_of_layer(self, layer, "intermediate.dense", WIDE, WIDTH);
        add_of_layer(self, layer, "output.dense", WIDTH, WIDE);
        add_of_layer(self, layer, "output.LayerNorm", 0, WIDTH);
    }
    return self;
}

void network_round(network *self, mha_type type)
{
    for (size_t i = 0; i < self->num_values; i++)
        self->values[i] = half_round(self->values[i], type);
}

/* Appends `count` values to the tensors' bytes, of which there are `size`; returns how many then.
 */
static size_t store(unsigned char *bytes, size_t size, const float *values, size_t count,
                    mha_type type)
{
    if (type == MHA_FLOAT32) {
        memcpy(bytes + size, values, 4 * count);
        return size + 4 * count;
    }
    for (size_t i = 0; i < count; i++, size += 2) {
        const uint16_t bits = half_bits(values[i], type);
        bytes[size] = (unsigned char)bits;
        bytes[size + 1] = (unsigned char)(bits >> 8);
    }
    return size;
}

static void write_file(const char *path, const char *header, size_t length,
                       const unsigned char *bytes, size_t size)
{
    unsigned char begin[8];
    for (int i = 0; i < 8; i++)
        begin[i] = (unsigned char)(length >> 8 * i);
    FILE *const file = fopen(path, "wb");
    cr_assert(file && fwrite(begin, 1, 8, file) == 8 && fwrite(header, 1, length, file) == length &&
                  fwrite(bytes, 1, size, file) == size && !fclose(file),
              "%s cannot be written", path);
}

void network_write(const network *self, const char *path, const network_file *how)
{
    static unsigned char bytes[sizeof self->values];
    char header[16384] = "{";
    const mha_type type = how->type ? how->type : MHA_FLOAT32;
    const char *const name = type == MHA_FLOAT32 ? "F32" : type == MHA_FLOAT16 ? "F16" : "BF16";
    size_t used = 1, size = 0;
    for (size_t i = 0; i < self->num_places; i++) {
        const network_place *const p = &self->places[i];
        char dims[48];
        if (how->missing && !strcmp(p->name, how->missing))
            continue;
        const size_t first = size, rows = p->rows ? p->rows : p->columns;
        size = store(bytes, size, self->values + p->first, (p->rows ? rows : 1) * p->columns, type);
        snprintf(dims, sizeof dims, p->rows ? "%zu,%zu" : "%zu", rows, p->columns);
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
                                 "\"data_offsets\":[%zu,%zu]}",
                                 used > 1 ? "," : "", how->prefix ? how->prefix : "", p->name, name,
                                 dims, first, size);
        cr_assert_lt(used, sizeof header - 1);
    }
    header[used++] = '}';
    write_file(path, header, used, bytes, size);
}
