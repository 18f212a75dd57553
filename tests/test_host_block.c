/* Feed-forward networks, encoder and decoder layers on host arrays, beside what the cases of
 * test_ffn.c and test_block.c do of it: options of their attentions, and arrays that are one.
 * Belongs to the suite of test_host.c. */
#include "block_host.h"
#include "host_memory.h"
#include "page_end.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 2,
    HEADS = 2,
    LEN = 4,
    KEYS = 6,
    SOME = 3,      /* tokens of the call, of LEN */
    SOME_KEYS = 5, /* of the memory in the call, of KEYS */
    DIM = 5,
    WIDTH = 9,
    ROWS = BATCH * SOME * WIDTH,
    SELF_PROBS = BATCH * HEADS * SOME * SOME,
    SELF_LSE = BATCH * HEADS * SOME,
    CROSS_SCORES = BATCH * HEADS * SOME * SOME_KEYS,
    BIAS = BATCH * SOME * SOME_KEYS, /* one for all heads */
    MASK = BATCH * HEADS * SOME_KEYS /* one for all queries */
};

static const size_t bias_shape[4] = { BATCH, 1, SOME, SOME_KEYS };
static const size_t mask_shape[4] = { BATCH, HEADS, 1, SOME_KEYS };
static const size_t probs_shape[4] = { BATCH, HEADS, SOME, SOME };
static const size_t lse_shape[4] = { BATCH, HEADS, SOME, 1 };
static const size_t scores_shape[4] = { BATCH, HEADS, SOME, SOME_KEYS };
static const int32_t key_lengths[BATCH] = { SOME_KEYS, 2 };

/* Without the options, as the reference that makes the data knows it. */
static const block_case plain = {
    .desc = { .self_attention = { .attention = { .batch = BATCH,
                                                 .heads = HEADS,
                                                 .query_len = LEN,
                                                 .head_dim = DIM,
                                                 .uses = MHA_USES_CAUSAL,
                                                 .diagonal = MHA_TOP_LEFT },
                                  .query_width = WIDTH,
                                  .flags = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN,
                                  .projection = MHA_GEMM_KERNEL },
              .cross_attention = { .attention = { .heads = HEADS,
                                                  .key_len = KEYS,
                                                  .head_dim = DIM,
                                                  .key_value_type = MHA_BFLOAT16 },
                                   .key_width = 7,
                                   .flags = MHA_LAYER_BIAS_ALL,
                                   .projection = MHA_GEMM_KERNEL },
              .feed_forward = { .hidden_width = 11,
                                .activation = MHA_ACTIVATION_SILU,
                                .flags = MHA_FFN_GATE | MHA_FFN_BIAS_OUTPUT,
                                .projection = MHA_GEMM_KERNEL },
              .feed_forward_place = MHA_FFN_AROUND,
              .norm.uses = MHA_NORM_WEIGHT | MHA_NORM_BIAS,
              .norm_place = MHA_NORM_BEFORE },
    .len = SOME,
    .gaps = true,
    .seed = 501,
};

static mha_decoder_desc with_options(void)
{
    mha_decoder_desc desc = plain.desc;
    mha_attention_desc *self = &desc.self_attention.attention;
    mha_attention_desc *cross = &desc.cross_attention.attention;
    self->uses |= MHA_USES_PROBS | MHA_USES_LSE;
    cross->uses |= MHA_USES_BIAS | MHA_USES_MASK | MHA_USES_KEY_LENGTHS | MHA_USES_SCORES;
    cross->bias_broadcast = MHA_AXIS_HEADS;
    cross->mask_broadcast = MHA_AXIS_QUERY;
    cross->bias_type = MHA_FLOAT16;
    return desc;
}

typedef struct results {
    float output[ROWS], probs[SELF_PROBS], lse[SELF_LSE], scores[CROSS_SCORES];
} results;

typedef struct options {
    float bias[BIAS];
    unsigned char mask[MASK];
} options;

/* Memory of a short call is packed at its own length. */
static void run_on_device(device *d, mha_decoder *decoder, const block_data *data,
                          const options *given, results *got)
{
    const mha_decoder_weights weights = block_place_decoder(d, data);
    cr_assert_eq(mha_decoder_load(decoder, &weights, &(mha_call){ .queue = d->queue }), MHA_OK,
                 "%s", d->sentence);
    const size_t rows[4] = { 1, 1, BATCH * SOME, WIDTH };
    const size_t memory[4] = { BATCH, 1, SOME_KEYS, data->memory_width };
    void *stored = stored_pack(MHA_BFLOAT16, data->memory, memory[0] * memory[2] * memory[3]);
    void *bias = stored_pack(MHA_FLOAT16, given->bias, BIAS);
    const device_tensor from = device_input(d, rows, NULL, sizeof(float), data->input);
    const device_tensor keys = device_input(d, memory, NULL, 2, stored);
    const device_tensor biases = device_input(d, bias_shape, NULL, 2, bias);
    const device_tensor masks = device_input(d, mask_shape, NULL, 1, given->mask);
    const device_tensor to = device_output(d, rows, NULL, sizeof(float));
    const device_tensor probs = device_output(d, probs_shape, NULL, sizeof(float));
    const device_tensor lse = device_output(d, lse_shape, NULL, sizeof(float));
    const device_tensor scores = device_output(d, scores_shape, NULL, sizeof(float));
    free(stored);
    free(bias);
    const mha_decoder_args args = {
        .len = SOME,
        .input = device_arg(&from),
        .output = device_arg(&to),
        .memory = device_arg(&keys),
        .self_attention = { .probs = device_arg(&probs), .lse = device_arg(&lse) },
        .cross_attention = { .key_len = SOME_KEYS,
                             .bias = device_arg(&biases),
                             .mask = device_arg(&masks),
                             .scores = device_arg(&scores),
                             .key_lengths.host = key_lengths },
    };
    const mha_call call = device_call(d, mha_decoder_workspace(decoder));
    cr_assert_eq(mha_decoder_enqueue(decoder, &args, &call), MHA_OK, "%s", d->sentence);
    device_read(d, &to, got->output);
    device_read(d, &probs, got->probs);
    device_read(d, &lse, got->lse);
    device_read(d, &scores, got->scores);
}

static void run_on_host(device *d, mha_decoder *decoder, const block_data *data,
                        const options *given, results *got)
{
    const size_t rows[4] = { 1, 1, BATCH * SOME, WIDTH };
    const size_t memory[4] = { BATCH, 1, SOME_KEYS, data->memory_width };
    const mha_decoder_host_weights weights = block_host_decoder(data, true);
    const mha_decoder_host_args args = {
        .len = SOME,
        .input = host_input(MHA_FLOAT32, rows, true, data->input),
        .memory = host_input(MHA_BFLOAT16, memory, true, data->memory),
        .output = host_output(MHA_FLOAT32, rows, true),
        .self_attention = { .probs = host_output(MHA_FLOAT32, probs_shape, false),
                            .lse = host_output(MHA_FLOAT32, lse_shape, true) },
        .cross_attention = { .key_len = SOME_KEYS,
                             .bias = host_input(MHA_FLOAT16, bias_shape, true, given->bias),
                             .mask.data = page_end_copy(given->mask, MASK),
                             .scores = host_output(MHA_FLOAT32, scores_shape, true),
                             .key_lengths = page_end_copy(key_lengths, sizeof key_lengths) },
    };
    cr_assert_eq(mha_decoder_load_host(decoder, &weights), MHA_OK, "%s", d->sentence);
    cr_assert_eq(mha_decoder_run(decoder, &args), MHA_OK, "%s", d->sentence);
    host_read("output", &args.output, MHA_FLOAT32, rows, got->output);
    host_read("probs", &args.self_attention.probs, MHA_FLOAT32, probs_shape, got->probs);
    host_read("lse", &args.self_attention.lse, MHA_FLOAT32, lse_shape, got->lse);
    host_read("scores", &args.cross_attention.scores, MHA_FLOAT32, scores_shape, got->scores);
}

/* A call shorter than the desc in both lengths, with options that go in and come out of either
 * attention. */
Test(host, decoder_with_options_as_on_the_device)
{
    static results want, got;
    options given;
    device d;
    device_open(&d);
    block_data *data = block_data_new(&plain);
    const mha_decoder_desc desc = with_options();
    fill_floats(given.bias, BIAS, 7, FILL_NORMAL);
    stored_round(MHA_FLOAT16, given.bias, BIAS);
    fill_mask(given.mask, MASK, 8, 0.6);
    mha_decoder *on_device = NULL, *on_host = NULL;
    cr_assert_eq(mha_decoder_create(&on_device, d.context, &desc), MHA_OK, "%s", d.sentence);
    cr_assert_eq(mha_decoder_create(&on_host, d.context, &desc), MHA_OK, "%s", d.sentence);
    run_on_device(&d, on_device, data, &given, &want);
    run_on_host(&d, on_host, data, &given, &got);
    cr_expect(!memcmp(got.output, want.output, sizeof got.output), "output");
    cr_expect(!memcmp(got.probs, want.probs, sizeof got.probs), "probs");
    cr_expect(!memcmp(got.lse, want.lse, sizeof got.lse), "lse");
    cr_expect(!memcmp(got.scores, want.scores, sizeof got.scores), "scores");
    /* The mask counts. */
    memset(given.mask, 1, sizeof given.mask);
    run_on_host(&d, on_host, data, &given, &got);
    cr_expect(memcmp(got.output, want.output, sizeof got.output), "another mask, the same output");
    mha_decoder_destroy(&on_device);
    mha_decoder_destroy(&on_host);
    block_data_free(data);
    device_close(&d);
}

static mha_encoder *new_encoder(const device *d, const mha_encoder_desc *desc,
                                const mha_encoder_host_weights *weights)
{
    mha_encoder *encoder = NULL;
    cr_assert_eq(mha_encoder_create(&encoder, d->context, desc), MHA_OK, "%s", d->sentence);
    cr_assert_eq(mha_encoder_load_host(encoder, weights), MHA_OK, "%s", d->sentence);
    return encoder;
}

/* The output in the place of the input, of the network and of the whole layer. */
Test(host, blocks_in_place)
{
    enum {
        COUNT = BATCH * LEN * WIDTH
    };
    static float all[COUNT], want[COUNT];
    block_case c = plain;
    c.is_encoder = true;
    c.gaps = false;
    c.len = 0;
    device d;
    device_open(&d);
    block_data *data = block_data_new(&c);
    const mha_encoder_desc desc = block_encoder_desc(&c.desc);
    const mha_encoder_host_weights weights = block_host_encoder(data, false);
    mha_encoder *encoder = new_encoder(&d, &desc, &weights);
    memcpy(all, data->input, sizeof all);
    mha_encoder_host_args args = { .input.data = data->input, .output.data = want };
    cr_assert_eq(mha_encoder_run(encoder, &args), MHA_OK, "%s", d.sentence);
    args.input.data = args.output.data = all;
    cr_expect_eq(mha_encoder_run(encoder, &args), MHA_OK, "%s", d.sentence);
    cr_expect(!memcmp(all, want, sizeof all), "encoder: another result");
    compare_all("in place", "output", all, data->want, COUNT, block_limit(data), NULL);
    mha_encoder_destroy(&encoder);

    mha_ffn_desc network = c.desc.feed_forward;
    network.width = WIDTH;
    network.rows = BATCH * LEN;
    mha_ffn *ffn = NULL;
    cr_assert_eq(mha_ffn_create(&ffn, d.context, &network), MHA_OK, "%s", d.sentence);
    cr_assert_eq(mha_ffn_load_host(ffn, &weights.feed_forward), MHA_OK, "%s", d.sentence);
    memcpy(all, data->input, sizeof all);
    mha_ffn_host_args rows = { .input.data = data->input, .output.data = want };
    cr_assert_eq(mha_ffn_run(ffn, &rows), MHA_OK, "%s", d.sentence);
    rows.input.data = rows.output.data = all;
    cr_expect_eq(mha_ffn_run(ffn, &rows), MHA_OK, "%s", d.sentence);
    cr_expect(!memcmp(all, want, sizeof all), "network: another result");
    mha_ffn_destroy(&ffn);
    block_data_free(data);
    device_close(&d);
}

/* PyTorch's in_proj_weight: rows of query, key and value in one array, and so their biases. */
Test(host, encoder_weights_in_one_array)
{
    static float all[3 * HEADS * DIM * WIDTH], biases[3 * HEADS * DIM];
    static float want[ROWS], got[ROWS];
    block_case c = plain;
    c.is_encoder = true;
    c.gaps = false;
    device d;
    device_open(&d);
    block_data *data = block_data_new(&c);
    const mha_encoder_desc desc = block_encoder_desc(&c.desc);
    mha_encoder_host_weights weights = block_host_encoder(data, true);
    mha_encoder *encoder = new_encoder(&d, &desc, &weights);
    mha_encoder_host_args args = { .len = SOME, .input.data = data->input, .output.data = want };
    cr_assert_eq(mha_encoder_run(encoder, &args), MHA_OK, "%s", d.sentence);
    mha_layer_host_weights *layer = &weights.self_attention;
    mha_host_input *const matrices[3] = { &layer->query, &layer->key, &layer->value };
    const void **const vectors[3] = { &layer->bias_query, &layer->bias_key, &layer->bias_value };
    for (size_t i = 0; i < 3; i++) {
        float *matrix = all + i * HEADS * DIM * WIDTH, *vector = biases + i * HEADS * DIM;
        memcpy(matrix, data->layers[0][i], HEADS * DIM * WIDTH * sizeof *matrix);
        memcpy(vector, data->layers[0][4 + i], HEADS * DIM * sizeof *vector);
        *matrices[i] = (mha_host_input){ .data = matrix };
        *vectors[i] = vector;
    }
    mha_encoder_destroy(&encoder);
    encoder = new_encoder(&d, &desc, &weights);
    args.output.data = got;
    cr_assert_eq(mha_encoder_run(encoder, &args), MHA_OK, "%s", d.sentence);
    cr_expect(!memcmp(got, want, sizeof got), "another result");
    mha_encoder_destroy(&encoder);
    block_data_free(data);
    device_close(&d);
}

/* No rows are no work, and no array is touched. */
Test(host, blocks_of_nobody)
{
    block_case c = plain;
    c.desc.self_attention.attention.batch = 0;
    device d;
    device_open(&d);
    block_data *data = block_data_new(&c);
    const mha_decoder_host_weights weights = block_host_decoder(data, false);
    mha_decoder *decoder = NULL;
    cr_assert_eq(mha_decoder_create(&decoder, d.context, &c.desc), MHA_OK, "%s", d.sentence);
    cr_assert_eq(mha_decoder_load_host(decoder, &weights), MHA_OK, "%s", d.sentence);
    void *no_memory = page_untouchable();
    cr_expect_eq(mha_decoder_run(decoder, &(mha_decoder_host_args){ 0 }), MHA_OK, "%s", d.sentence);
    cr_expect_eq(mha_decoder_run(decoder, &(mha_decoder_host_args){ .input.data = no_memory,
                                                                    .memory.data = no_memory,
                                                                    .output.data = no_memory }),
                 MHA_OK, "%s", d.sentence);
    mha_decoder_destroy(&decoder);
    block_data_free(data);
    device_close(&d);
}
