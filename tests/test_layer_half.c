/* A layer of half types against the reference: of the tokens, of the output, of the weights; and
 * with host arrays. Belongs to the suite of test_layer.c. */
#include "layer_case.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    mha_type type, key_value_type, output_type, weight_type;
} mixes[] = {
    { MHA_FLOAT16, MHA_TYPE_DEFAULT, MHA_TYPE_DEFAULT, MHA_FLOAT16 },
    { MHA_BFLOAT16, MHA_TYPE_DEFAULT, MHA_TYPE_DEFAULT, MHA_BFLOAT16 },
    { MHA_TYPE_DEFAULT, MHA_TYPE_DEFAULT, MHA_TYPE_DEFAULT, MHA_FLOAT16 },
    { MHA_FLOAT16, MHA_TYPE_DEFAULT, MHA_FLOAT32, MHA_TYPE_DEFAULT },
    { MHA_TYPE_DEFAULT, MHA_BFLOAT16, MHA_FLOAT16, MHA_BFLOAT16 },
};

enum {
    MIXES = sizeof mixes / sizeof mixes[0]
};

static layer_case with_types(const layer_case *given, size_t mix)
{
    layer_case c = *given;
    c.desc.attention.type = mixes[mix].type;
    c.desc.attention.key_value_type = mixes[mix].key_value_type;
    c.desc.attention.output_type = mixes[mix].output_type;
    c.desc.weight_type = mixes[mix].weight_type;
    c.self = c.self && !mixes[mix].key_value_type; /* else they cannot be one memory */
    return c;
}

/* Shorter calls, gaps, rows and columns as parts of one matrix, no output projection, one product
 * for query, key and value or three; a k that is summed in several pieces. */
static const layer_case cases[] = {
    { .desc = { .attention = { ATTENTION_SIZES(2, 4, 17, 33, 8), .kv_heads = 2 },
                .query_width = 24,
                .key_width = 20,
                .value_width = 28,
                .output_width = 13,
                .flags = MHA_LAYER_BIAS_ALL },
      .query_len = 15,
      .key_len = 31,
      .layout = LAYOUT_GAPS,
      .weights = WEIGHTS_GAPS },
    { .desc = { .attention = { .batch = 2,
                               .heads = 4,
                               .query_len = 19,
                               .key_len = 19,
                               .uses = MHA_USES_KEY_LENGTHS | MHA_USES_PROBS | MHA_USES_LSE },
                .query_width = 64,
                .flags = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN },
      .weights = WEIGHTS_TOGETHER,
      .self = true },
    { .desc = { .attention = { ATTENTION_SIZES(2, 3, 5, 9, 7), .uses = MHA_USES_BIAS },
                .query_width = 11,
                .flags = MHA_LAYER_MERGED_OUTPUT | MHA_LAYER_BIAS_KEY },
      .layout = LAYOUT_LEN_FIRST },
    { .desc = { .attention = { ATTENTION_SIZES(1, 2, 3, 4, 5) }, .query_width = 1100 } },
    { .desc = { .attention = { ATTENTION_SIZES(2, 2, 3, 0, 5) }, .flags = MHA_LAYER_BIAS_ALL } },
    { .desc = { .attention = { ATTENTION_SIZES(0, 2, 3, 4, 5) } } },
};

enum {
    CASES = sizeof cases / sizeof cases[0]
};

Test(layer, half_types)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < CASES; n++)
        for (size_t mix = 0; mix < MIXES; mix++)
            for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
                layer_case c = with_types(&cases[n], mix);
                c.seed = 64 * (n + 1);
                c.desc.projection = (mha_gemm_by)by;
                c.desc.attention.path = n % 2 ? MHA_PATH_COMPOSED : MHA_PATH_DEFAULT;
                layer_check(&d, &c, &worst);
            }
    compare_log("layer of half types", 3 * CASES * MIXES, &worst);
    device_close(&d);
}

/* Where CLBlast multiplies half types, the library says what it does around it. */
Test(layer, half_types_are_explained)
{
    device d;
    device_open(&d);
    for (int half = 0; half < 2; half++) {
        layer_case c = half ? with_types(&cases[0], 0) : cases[0];
        char text[2048];
        mha_layer *layer = NULL;
        c.desc.projection = MHA_GEMM_CLBLAST;
        cr_assert_eq(mha_layer_create(&layer, d.context, &c.desc), MHA_OK, "%s", d.sentence);
        mha_layer_explain(layer, text, sizeof text);
        cr_expect_eq(strstr(text, "float32 copies of half types") != NULL, half, "%s", text);
        mha_layer_destroy(&layer);
    }
    device_close(&d);
}

/* What a host array of a type holds; the caller frees it. */
static mha_host_input host_of(mha_type type, const float *data, size_t count)
{
    return (mha_host_input){ .data = data ? stored_pack(type, data, count) : NULL };
}

static void free_host(mha_host_input *input)
{
    free((void *)(uintptr_t)input->data);
}

static void load_host(device *d, mha_layer *layer, const layer_data *data)
{
    const mha_layer_desc *desc = &data->desc;
    const size_t width = desc->query_width; /* of everything in this case */
    mha_host_input matrices[4], biases[4];
    for (int i = 0; i < 4; i++) {
        matrices[i] = host_of(desc->weight_type, data->matrices[i], width * width);
        biases[i] = host_of(desc->weight_type, data->biases[i], width);
    }
    const mha_layer_host_weights weights = { matrices[0],    matrices[1],    matrices[2],
                                             matrices[3],    biases[0].data, biases[1].data,
                                             biases[2].data, biases[3].data };
    cr_assert_eq(mha_layer_load_host(layer, &weights), MHA_OK, "%s: %s", data->name, d->sentence);
    for (int i = 0; i < 4; i++) {
        free_host(&matrices[i]);
        free_host(&biases[i]);
    }
}

/* Host arrays are the types' bits, and give what the device's memory gives. */
Test(layer, half_types_in_host_memory)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t mix = 0; mix < MIXES; mix++) {
        layer_case c = with_types(&cases[1], mix);
        c.desc.attention.uses = 0;
        layer_data *data = layer_data_new(&c);
        const mha_layer_desc *desc = &data->desc;
        const mha_attention_desc *a = &desc->attention;
        const mha_type type = layer_output_type(desc);
        const size_t count = a->batch * a->query_len * desc->query_width;
        mha_layer *layer = NULL;
        cr_assert_eq(mha_layer_create(&layer, d.context, &c.desc), MHA_OK, "%s", d.sentence);
        load_host(&d, layer, data);
        mha_host_input query = host_of(a->type, data->query, count);
        mha_host_input key = host_of(layer_key_type(desc), data->key, count);
        mha_host_input value = host_of(layer_key_type(desc), data->value, count);
        void *output = calloc(count, stored_bytes(type));
        cr_assert(output);
        const mha_host_args args = {
            .query = query, .key = key, .value = value, .output.data = output
        };
        cr_assert_eq(mha_layer_run(layer, &args), MHA_OK, "%s: %s", data->name, d.sentence);
        stored_unpack(type, data->output, output, count);
        float *got = malloc(count * sizeof *got);
        cr_assert(got);
        memcpy(got, data->output, count * sizeof *got);
        layer_run(&d, layer, data, &worst);
        cr_expect(!memcmp(got, data->output, count * sizeof *got), "%s: not as on the device",
                  data->name);
        free_host(&query);
        free_host(&key);
        free_host(&value);
        free(output);
        free(got);
        mha_layer_destroy(&layer);
        layer_data_free(data);
    }
    device_close(&d);
}
