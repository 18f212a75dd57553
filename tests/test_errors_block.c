/* Every rule of the enqueue and load of a decoder layer, and of an encoder layer what is its own:
 * what is wrong is refused by name, nothing is written, and the next good call is right. */
#include "block_case.h"
#include "refusal_scene.h"

#include <criterion/criterion.h>
#include <string.h>

enum {
    BATCH = 2,
    LEN = 3,
    KEYS = 4,
    WIDTH = 8,
    ARGUMENTS = 4
};

static const block_case good = {
    .desc = { .self_attention = { .attention = { .batch = BATCH,
                                                 .heads = 2,
                                                 .query_len = LEN,
                                                 .uses = MHA_USES_CAUSAL,
                                                 .diagonal = MHA_TOP_LEFT },
                                  .query_width = WIDTH,
                                  .flags = MHA_LAYER_BIAS_ALL,
                                  .projection = MHA_GEMM_KERNEL },
              .cross_attention = { .attention = { .heads = 2,
                                                  .key_len = KEYS,
                                                  .head_dim = 4,
                                                  .uses = MHA_USES_MASK,
                                                  .mask_broadcast = MHA_AXIS_BATCH |
                                                                    MHA_AXIS_HEADS |
                                                                    MHA_AXIS_QUERY },
                                   .flags = MHA_LAYER_BIAS_ALL,
                                   .projection = MHA_GEMM_KERNEL },
              .feed_forward = { .hidden_width = 9,
                                .activation = MHA_ACTIVATION_RELU,
                                .projection = MHA_GEMM_KERNEL },
              .norm.uses = MHA_NORM_WEIGHT | MHA_NORM_BIAS },
    .seed = 77,
};

typedef struct scene {
    device d;
    block_data *data;
    mha_decoder *decoder;
    mha_decoder_weights weights;
    mha_decoder_args args;
    refusal_arg list[ARGUMENTS];
    refusal r;
} scene;

static mha_status enqueue(void *object, const void *args, const mha_call *call)
{
    return mha_decoder_enqueue(object, args, call);
}

/* A mask that hides nothing, so that the reference need not know of it. */
static void add_arguments(scene *s)
{
    static const unsigned char all[KEYS] = { 1, 1, 1, 1 };
    const size_t rows[4] = { 1, 1, BATCH * LEN, WIDTH };
    refusal_add_tensor(&s->list[0], &s->d, &s->args, "input", offsetof(mha_decoder_args, input),
                       rows, s->data->input, NULL);
    refusal_add_tensor(&s->list[1], &s->d, &s->args, "output", offsetof(mha_decoder_args, output),
                       rows, NULL, s->data->want);
    refusal_add_tensor(&s->list[2], &s->d, &s->args, "memory", offsetof(mha_decoder_args, memory),
                       SCENE_SHAPE(BATCH, 1, KEYS, WIDTH), s->data->memory, NULL);
    s->list[3] = (refusal_arg){ .name = "mask",
                                .at = offsetof(mha_decoder_args, cross_attention.mask),
                                .strided = true };
    s->list[3].tensor = device_input(&s->d, SCENE_SHAPE(1, 1, 1, KEYS), NULL, 1, all);
    s->args.cross_attention.mask = device_arg(&s->list[3].tensor);
}

static void open_scene(scene *s)
{
    *s = (scene){ 0 };
    device_open(&s->d);
    block_case plain = good; /* as the reference knows it */
    plain.desc.cross_attention.attention.uses = 0;
    plain.desc.cross_attention.attention.mask_broadcast = 0;
    plain.desc.self_attention.attention.head_dim = 4;
    s->data = block_data_new(&plain);
    s->weights = block_place_decoder(&s->d, s->data);
    cr_assert_eq(mha_decoder_create(&s->decoder, s->d.context, &good.desc), MHA_OK, "%s",
                 s->d.sentence);
    add_arguments(s);
    const mha_workspace workspace = mha_decoder_workspace(s->decoder);
    const mha_call load = { .queue = s->d.queue };
    cr_assert_eq(mha_decoder_load(s->decoder, &s->weights, &load), MHA_OK, "%s", s->d.sentence);
    s->r = (refusal){
        .d = &s->d,
        .who = "mha_decoder_enqueue",
        .args_name = "args",
        .enqueue = enqueue,
        .object = s->decoder,
        .args = &s->args,
        .args_bytes = sizeof s->args,
        .call = device_call(&s->d, workspace),
        .workspace = workspace,
        .list = s->list,
        .count = ARGUMENTS,
        .limit = block_limit(s->data),
    };
    refusal_open(&s->r);
}

static void close_scene(scene *s)
{
    refusal_close(&s->r);
    mha_decoder_destroy(&s->decoder);
    block_data_free(s->data);
    device_close(&s->d);
}

Test(errors, decoder_enqueue)
{
    static scene s;
    open_scene(&s);
    refusal_of_calls(&s.r);
    refusal_of_buffers(&s.r);
    refusal_of_strides(&s.r);
    refusal_of_overlaps(&s.r);
    close_scene(&s);
}

/* What the block gives its attentions itself, and lengths above the desc's. */
Test(errors, decoder_arguments_of_its_own)
{
    static scene s;
    open_scene(&s);
    mha_decoder_args wrong[8];
    const char *const says[8] = { "query",   "key",    "output",    "new_key",
                                  "key_len", "memory", "query_len", "self_attention" };
    for (size_t i = 0; i < 8; i++)
        wrong[i] = s.args;
    wrong[0].self_attention.query = s.args.input;
    wrong[1].cross_attention.key = s.args.memory;
    wrong[2].cross_attention.output = s.args.output;
    wrong[3].self_attention.new_key = s.args.input;
    wrong[4].cross_attention.key_len = KEYS + 1;
    wrong[5].memory = (mha_tensor){ 0 };
    wrong[6].len = LEN + 1;
    wrong[7].self_attention.mask = s.args.cross_attention.mask;
    for (size_t i = 0; i < 8; i++)
        refusal_expect(&s.r, says[i], &wrong[i], &s.r.call, MHA_INVALID_ARGUMENT, says[i]);
    close_scene(&s);
}

/* A weight that is missing, one too many, one too small, one of another context; each is refused by
 * its step, and the weights of before stay. */
Test(errors, decoder_load)
{
    static scene s;
    open_scene(&s);
    mha_decoder_weights wrong[6];
    const struct {
        mha_status status;
        const char *says;
    } rules[6] = {
        { MHA_INVALID_ARGUMENT, "self_attention" },
        { MHA_INVALID_ARGUMENT, "feed_forward_before" },
        { MHA_BUFFER_TOO_SMALL, "cross_attention" },
        { MHA_WRONG_CONTEXT, "feed_forward" },
        { MHA_INVALID_ARGUMENT, "norm.bias" },
        { MHA_INVALID_ARGUMENT, "gate" },
    };
    for (size_t i = 0; i < 6; i++)
        wrong[i] = s.weights;
    wrong[0].self_attention.key = (mha_tensor){ 0 };
    wrong[1].norm_feed_forward_before = s.weights.norm_feed_forward;
    wrong[2].cross_attention.output.offset += 1 << 20;
    wrong[3].feed_forward.output.buffer = s.r.foreign_buffer;
    wrong[4].norm_cross_attention.bias = (mha_tensor){ 0 };
    wrong[5].feed_forward.gate = s.weights.feed_forward.hidden;
    const mha_call load = { .queue = s.d.queue };
    for (size_t i = 0; i < 6; i++) {
        device_hush(&s.d);
        cr_expect_eq(mha_decoder_load(s.decoder, &wrong[i], &load), rules[i].status, "%s: %s",
                     rules[i].says, s.d.sentence);
        cr_expect(s.d.sentences == 1 && refusal_says(s.d.sentence, "mha_decoder_load") &&
                      refusal_says(s.d.sentence, rules[i].says),
                  "%s: %s", rules[i].says, s.d.sentence);
    }
    device_hush(&s.d);
    cr_expect_eq(mha_decoder_load(s.decoder, NULL, &load), MHA_INVALID_ARGUMENT);
    cr_expect(refusal_says(s.d.sentence, "weights"), "%s", s.d.sentence);
    mha_decoder_args none = s.args;
    none.len = LEN + 1;
    refusal_expect(&s.r, "after refused loads", &none, &s.r.call, MHA_INVALID_ARGUMENT, "len");
    close_scene(&s);
}

Test(errors, encoder_without_weights)
{
    device d;
    device_open(&d);
    const mha_encoder_desc desc = block_encoder_desc(&good.desc);
    mha_encoder *encoder = NULL;
    cr_assert_eq(mha_encoder_create(&encoder, d.context, &desc), MHA_OK, "%s", d.sentence);
    const mha_call call = device_call(&d, mha_encoder_workspace(encoder));
    device_hush(&d);
    cr_expect_eq(mha_encoder_enqueue(encoder, &(mha_encoder_args){ 0 }, &call), MHA_NOT_LOADED);
    cr_expect(d.sentences == 1 && refusal_says(d.sentence, "mha_encoder_enqueue"), "%s",
              d.sentence);
    device_hush(&d);
    cr_expect_eq(mha_encoder_load(encoder, &(mha_encoder_weights){ 0 }, &call),
                 MHA_INVALID_ARGUMENT);
    cr_expect(refusal_says(d.sentence, "self_attention"), "%s", d.sentence);
    cr_expect_eq(mha_encoder_enqueue(encoder, NULL, &call), MHA_INVALID_ARGUMENT);
    cr_expect(refusal_says(d.sentence, "args"), "%s", d.sentence);
    mha_encoder_destroy(&encoder);
    device_close(&d);
}
