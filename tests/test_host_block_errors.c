/* Host-array calls of feed-forward networks, encoder and decoder layers that are refused: by name,
 * no array changes, and none is read without need. Belongs to the suite of test_host.c. */
#include "block_host.h"
#include "page_end.h"
#include "refusal.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

enum {
    BATCH = 2,
    LEN = 3,
    KEYS = 4,
    WIDTH = 8,
    ROWS = BATCH * LEN,
    COUNT = ROWS * WIDTH
};

static const block_case good = {
    .desc = { .self_attention = { .attention = { .batch = BATCH,
                                                 .heads = 2,
                                                 .query_len = LEN,
                                                 .head_dim = 4 },
                                  .query_width = WIDTH,
                                  .flags = MHA_LAYER_BIAS_ALL,
                                  .projection = MHA_GEMM_KERNEL },
              .cross_attention = { .attention = { .heads = 2, .key_len = KEYS, .head_dim = 4 },
                                   .flags = MHA_LAYER_BIAS_ALL,
                                   .projection = MHA_GEMM_KERNEL },
              .feed_forward = { .hidden_width = 9,
                                .activation = MHA_ACTIVATION_RELU,
                                .flags = MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_OUTPUT,
                                .projection = MHA_GEMM_KERNEL },
              .norm.uses = MHA_NORM_WEIGHT },
    .seed = 78,
};

typedef struct scene {
    device d;
    block_data *data;
    mha_decoder *decoder;
    mha_ffn *ffn; /* the decoder's */
    mha_decoder_host_weights weights;
    mha_decoder_host_args args;
    mha_ffn_host_args rows;
    float right[COUNT], ffn_right[COUNT];
} scene;

static float output[COUNT];

static void open_scene(scene *s)
{
    *s = (scene){ 0 };
    device_open(&s->d);
    s->data = block_data_new(&good);
    mha_ffn_desc ffn = good.desc.feed_forward;
    ffn.rows = ROWS;
    ffn.width = WIDTH;
    cr_assert_eq(mha_decoder_create(&s->decoder, s->d.context, &good.desc), MHA_OK, "%s",
                 s->d.sentence);
    cr_assert_eq(mha_ffn_create(&s->ffn, s->d.context, &ffn), MHA_OK, "%s", s->d.sentence);
    s->weights = block_host_decoder(s->data, false);
    s->args = (mha_decoder_host_args){ .input.data = s->data->input,
                                       .memory.data = s->data->memory,
                                       .output.data = output };
    s->rows = (mha_ffn_host_args){ .input.data = s->data->input, .output.data = output };
}

static void load(scene *s)
{
    cr_assert_eq(mha_decoder_load_host(s->decoder, &s->weights), MHA_OK, "%s", s->d.sentence);
    cr_assert_eq(mha_ffn_load_host(s->ffn, &s->weights.feed_forward), MHA_OK, "%s", s->d.sentence);
    cr_assert_eq(mha_decoder_run(s->decoder, &s->args), MHA_OK, "%s", s->d.sentence);
    memcpy(s->right, output, sizeof output);
    cr_assert_eq(mha_ffn_run(s->ffn, &s->rows), MHA_OK, "%s", s->d.sentence);
    memcpy(s->ffn_right, output, sizeof output);
}

static void close_scene(scene *s)
{
    mha_decoder_destroy(&s->decoder);
    mha_ffn_destroy(&s->ffn);
    block_data_free(s->data);
    device_close(&s->d);
}

static void clear_output(scene *s)
{
    for (size_t i = 0; i < COUNT; i++)
        output[i] = NAN;
    device_hush(&s->d);
}

/* What a refused call leaves: one sentence that says who and what, and the output as it was. */
static void expect_said(scene *s, const char *name, mha_status status, mha_status want,
                        const char *who, const char *says)
{
    cr_expect_eq(status, want, "%s: %s, not %s: %s", name, mha_status_name(status),
                 mha_status_name(want), s->d.sentence);
    cr_expect_eq(s->d.sentences, 1, "%s: %zu sentences", name, s->d.sentences);
    cr_expect(refusal_says(s->d.sentence, who), "%s: does not say %s: %s", name, who,
              s->d.sentence);
    cr_expect(refusal_says(s->d.sentence, says), "%s: does not say %s: %s", name, says,
              s->d.sentence);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert(isnan(output[i]), "%s: output[%zu] is %g", name, i, output[i]);
}

static void expect_run_refused(scene *s, const char *name, const mha_decoder_host_args *args,
                               mha_status want, const char *says)
{
    clear_output(s);
    const mha_status status = mha_decoder_run(s->decoder, args);
    expect_said(s, name, status, want, "mha_decoder_run", says);
    cr_expect_eq(mha_decoder_run(s->decoder, &s->args), MHA_OK, "%s: the next good call: %s", name,
                 s->d.sentence);
    cr_expect(!memcmp(output, s->right, sizeof output), "%s: the next good call is another", name);
}

static void expect_rows_refused(scene *s, const char *name, const mha_ffn_host_args *args,
                                mha_status want, const char *says)
{
    clear_output(s);
    const mha_status status = mha_ffn_run(s->ffn, args);
    expect_said(s, name, status, want, "mha_ffn_run", says);
    cr_expect_eq(mha_ffn_run(s->ffn, &s->rows), MHA_OK, "%s: the next good call: %s", name,
                 s->d.sentence);
    cr_expect(!memcmp(output, s->ffn_right, sizeof output), "%s: the next good call is another",
              name);
}

Test(host, ffn_calls_that_are_refused)
{
    static scene s;
    open_scene(&s);
    clear_output(&s);
    mha_status status = mha_ffn_run(s.ffn, &s.rows);
    expect_said(&s, "no weights", status, MHA_NOT_LOADED, "mha_ffn_run", "weights");
    load(&s);
    void *no_memory = page_untouchable();
    mha_ffn_host_args args = { .rows = ROWS + 1,
                               .input.data = no_memory,
                               .output.data = no_memory };
    expect_rows_refused(&s, "too many rows", &args, MHA_INVALID_ARGUMENT, "rows");
    expect_rows_refused(&s, "no arguments", NULL, MHA_INVALID_ARGUMENT, "args");
    args = s.rows;
    args.input.data = NULL;
    expect_rows_refused(&s, "no input", &args, MHA_INVALID_ARGUMENT, "input");
    args = s.rows;
    args.output.data = NULL;
    expect_rows_refused(&s, "no output", &args, MHA_INVALID_ARGUMENT, "output");
    args = s.rows;
    args.output.strides[2] = args.output.strides[3] = 1;
    expect_rows_refused(&s, "an output on itself", &args, MHA_INVALID_ARGUMENT, "output");
    args = s.rows;
    args.input.strides[2] = SIZE_MAX / 2;
    args.input.strides[3] = 1;
    expect_rows_refused(&s, "an input that overflows", &args, MHA_TOO_LARGE, "input");
    cr_expect_eq(mha_ffn_run(NULL, &args), MHA_INVALID_ARGUMENT);
    close_scene(&s);
}

/* Every weight missing in turn, and every one that there is none of; the network keeps its own. */
Test(host, ffn_weights_that_are_refused)
{
    static const struct {
        const char *name;
        size_t at;
        bool exists;
    } places[] = {
        { "hidden", offsetof(mha_ffn_host_weights, hidden.data), true },
        { "gate", offsetof(mha_ffn_host_weights, gate.data), false },
        { "output", offsetof(mha_ffn_host_weights, output.data), true },
        { "bias_hidden", offsetof(mha_ffn_host_weights, bias_hidden), true },
        { "bias_gate", offsetof(mha_ffn_host_weights, bias_gate), false },
        { "bias_output", offsetof(mha_ffn_host_weights, bias_output), true },
    };
    static scene s;
    open_scene(&s);
    load(&s);
    void *no_memory = page_untouchable();
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        mha_ffn_host_weights weights = s.weights.feed_forward;
        const void *other = places[i].exists ? NULL : no_memory;
        memcpy((char *)&weights + places[i].at, &other, sizeof other);
        clear_output(&s);
        const mha_status status = mha_ffn_load_host(s.ffn, &weights);
        expect_said(&s, places[i].name, status, MHA_INVALID_ARGUMENT, "mha_ffn_load_host",
                    places[i].name);
    }
    clear_output(&s);
    mha_ffn_host_weights far = s.weights.feed_forward;
    far.output.strides[2] = SIZE_MAX / 4;
    far.output.strides[3] = 1;
    expect_said(&s, "weights that overflow", mha_ffn_load_host(s.ffn, &far), MHA_TOO_LARGE,
                "mha_ffn_load_host", "output");
    clear_output(&s);
    expect_said(&s, "no weights", mha_ffn_load_host(s.ffn, NULL), MHA_INVALID_ARGUMENT,
                "mha_ffn_load_host", "weights");
    cr_expect_eq(mha_ffn_load_host(NULL, &far), MHA_INVALID_ARGUMENT);
    cr_expect_eq(mha_ffn_run(s.ffn, &s.rows), MHA_OK, "%s", s.d.sentence);
    cr_expect(!memcmp(output, s.ffn_right, sizeof output), "the network has other weights");
    close_scene(&s);
}

Test(host, decoder_calls_that_are_refused)
{
    static scene s;
    static float other[COUNT];
    open_scene(&s);
    clear_output(&s);
    const mha_status status = mha_decoder_run(s.decoder, &s.args);
    expect_said(&s, "no weights", status, MHA_NOT_LOADED, "mha_decoder_run", "weights");
    load(&s);
    void *no_memory = page_untouchable();
    const mha_decoder_host_args unread = { .input.data = no_memory,
                                           .memory.data = no_memory,
                                           .output.data = no_memory };
    mha_decoder_host_args wrong[12];
    static const char *const says[12] = { "len",   "key_len",   "query",   "key",
                                          "value", "query_len", "key_len", "output",
                                          "bias",  "mask",      "lse",     "alibi_slopes" };
    for (size_t i = 0; i < 12; i++)
        wrong[i] = unread;
    wrong[0].len = LEN + 1;
    wrong[1].cross_attention.key_len = KEYS + 1;
    wrong[2].self_attention.query.data = no_memory;
    wrong[3].cross_attention.key.data = no_memory;
    wrong[4].self_attention.value.data = no_memory;
    wrong[5].cross_attention.query_len = LEN;
    wrong[6].self_attention.key_len = LEN;
    wrong[7].cross_attention.output.data = no_memory;
    wrong[8].self_attention.bias.data = no_memory;
    wrong[9].cross_attention.mask.data = no_memory;
    wrong[10].self_attention.lse.data = no_memory;
    wrong[11].cross_attention.alibi_slopes.data = no_memory;
    for (size_t i = 0; i < 12; i++)
        expect_run_refused(&s, says[i], &wrong[i], MHA_INVALID_ARGUMENT, says[i]);
    expect_run_refused(&s, "the step", &wrong[9], MHA_INVALID_ARGUMENT, "cross_attention");
    expect_run_refused(&s, "no arguments", NULL, MHA_INVALID_ARGUMENT, "args");
    mha_decoder_host_args args = s.args;
    args.input.data = NULL;
    expect_run_refused(&s, "no input", &args, MHA_INVALID_ARGUMENT, "input");
    args = s.args;
    args.memory.data = NULL;
    expect_run_refused(&s, "no memory", &args, MHA_INVALID_ARGUMENT, "memory");
    args = s.args;
    args.output.data = NULL;
    expect_run_refused(&s, "no output", &args, MHA_INVALID_ARGUMENT, "output");
    args = s.args;
    args.output = (mha_host_output){ output, { 0, 0, 1, 1 } };
    expect_run_refused(&s, "an output on itself", &args, MHA_INVALID_ARGUMENT, "output");
    args = s.args;
    args.memory = (mha_host_input){ other, { SIZE_MAX / 2, 0, WIDTH, 1 } };
    expect_run_refused(&s, "a memory that overflows", &args, MHA_TOO_LARGE, "memory");
    args = s.args;
    args.self_attention.key_lengths = (const int32_t[BATCH]){ 1, 1 };
    expect_run_refused(&s, "lengths, unasked", &args, MHA_INVALID_ARGUMENT, "key_lengths");
    args = s.args;
    args.cross_attention.dropout_seed = 1;
    expect_run_refused(&s, "a seed, unasked", &args, MHA_INVALID_ARGUMENT, "dropout_seed");
    cr_expect_eq(mha_decoder_run(NULL, &args), MHA_INVALID_ARGUMENT);
    close_scene(&s);
}

/* A weight that is missing or one too many, refused by its step; the decoder keeps its own. */
Test(host, decoder_weights_that_are_refused)
{
    static scene s;
    open_scene(&s);
    load(&s);
    void *no_memory = page_untouchable();
    mha_decoder_host_weights wrong[9];
    static const struct {
        const char *step, *says;
    } rules[9] = {
        { "self_attention", "key" },          { "cross_attention", "bias_output" },
        { "feed_forward", "output" },         { "cross_attention", "norm.weight" },
        { "feed_forward", "gate" },           { "self_attention", "norm.bias" },
        { "feed_forward_before", "weights" }, { "feed_forward_before", "weights" },
        { "feed_forward", "norm.weight" },
    };
    for (size_t i = 0; i < 9; i++)
        wrong[i] = s.weights;
    wrong[0].self_attention.key.data = NULL;
    wrong[1].cross_attention.bias_output = NULL;
    wrong[2].feed_forward.output.data = NULL;
    wrong[3].norm_cross_attention.weight = NULL;
    wrong[4].feed_forward.gate.data = no_memory;
    wrong[5].norm_self_attention.bias = no_memory;
    wrong[6].feed_forward_before.hidden.data = no_memory;
    wrong[7].norm_feed_forward_before.weight = no_memory;
    wrong[8].norm_feed_forward.weight = NULL;
    for (size_t i = 0; i < 9; i++) {
        clear_output(&s);
        const mha_status status = mha_decoder_load_host(s.decoder, &wrong[i]);
        expect_said(&s, rules[i].says, status, MHA_INVALID_ARGUMENT, rules[i].step, rules[i].says);
        cr_expect(refusal_says(s.d.sentence, "mha_decoder_load_host"), "%s", s.d.sentence);
    }
    clear_output(&s);
    mha_decoder_host_weights far = s.weights;
    far.cross_attention.value.strides[2] = SIZE_MAX / 2;
    far.cross_attention.value.strides[3] = 1;
    expect_said(&s, "weights that overflow", mha_decoder_load_host(s.decoder, &far), MHA_TOO_LARGE,
                "cross_attention", "value");
    clear_output(&s);
    expect_said(&s, "no weights", mha_decoder_load_host(s.decoder, NULL), MHA_INVALID_ARGUMENT,
                "mha_decoder_load_host", "weights");
    cr_expect_eq(mha_decoder_load_host(NULL, &far), MHA_INVALID_ARGUMENT);
    cr_expect_eq(mha_decoder_run(s.decoder, &s.args), MHA_OK, "%s", s.d.sentence);
    cr_expect(!memcmp(output, s.right, sizeof output), "the decoder has other weights");
    close_scene(&s);
}

/* What an encoder has of its own: its names; and a cache, which goes with the enqueue. */
Test(host, encoder_calls_that_are_refused)
{
    static scene s;
    open_scene(&s);
    mha_encoder_desc desc = block_encoder_desc(&good.desc);
    desc.self_attention.attention.uses = MHA_USES_APPEND;
    desc.self_attention.attention.key_len = KEYS;
    mha_encoder *encoder = NULL;
    cr_assert_eq(mha_encoder_create(&encoder, s.d.context, &desc), MHA_OK, "%s", s.d.sentence);
    void *no_memory = page_untouchable();
    const mha_encoder_host_args args = { .input.data = no_memory, .output.data = no_memory };
    clear_output(&s);
    expect_said(&s, "a cache", mha_encoder_run(encoder, &args), MHA_UNSUPPORTED, "mha_encoder_run",
                "mha_encoder_enqueue");
    clear_output(&s);
    expect_said(&s, "no arguments", mha_encoder_run(encoder, NULL), MHA_INVALID_ARGUMENT,
                "mha_encoder_run", "args");
    clear_output(&s);
    expect_said(&s, "no weights", mha_encoder_load_host(encoder, NULL), MHA_INVALID_ARGUMENT,
                "mha_encoder_load_host", "weights");
    clear_output(&s);
    expect_said(&s, "empty weights",
                mha_encoder_load_host(encoder, &(mha_encoder_host_weights){ 0 }),
                MHA_INVALID_ARGUMENT, "mha_encoder_load_host", "self_attention");
    cr_expect_eq(mha_encoder_run(NULL, &args), MHA_INVALID_ARGUMENT);
    cr_expect_eq(mha_encoder_load_host(NULL, NULL), MHA_INVALID_ARGUMENT);
    mha_encoder_destroy(&encoder);
    close_scene(&s);
}
