/* A device that is lost in any call: every later call of its context says so. Belongs to the suite
 * of test_lifecycle.c. */
#include "layer.h"
#include "refusal.h"
#include "world.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct results {
    float out[WORLD_OUTPUTS], lse[WORLD_ROWS];
} results;

static void open_watched(world *w, mha_gemm_by by)
{
    layer_start();
    world_open(w, by);
    cr_assert(layer_active(), "this OpenCL loader knows no layers");
}

/* Everything that can say so. */
static void expect_lost(world *w, const char *name)
{
    mha_context *context = w->d.context;
    static results got;
    const mha_gemm_desc gemm_desc = { .m = 1, .n = 1, .k = 1 };
    const mha_heads_desc heads_desc = { 1, 1, 1, 1 };
    mha_attention *attention = NULL;
    mha_layer *layer = NULL;
    mha_softmax *softmax = NULL;
    mha_gemm *gemm = NULL;
    mha_heads *heads = NULL;
    mha_rotary *rotary = NULL;
    mha_norm *norm = NULL;
    mha_activation *activation = NULL;
    mha_ffn *ffn = NULL;
    mha_decoder *decoder = NULL;
    cl_event event = (cl_event)w;
    mha_call call = w->call;
    call.event = &event;
    const struct {
        const char *call;
        mha_status status;
    } all[] = {
        { "attention_enqueue", mha_attention_enqueue(w->attention, &w->args, &call) },
        { "layer_load", mha_layer_load(w->layer, &w->weights, &w->load_call) },
        { "layer_enqueue", mha_layer_enqueue(w->layer, &w->layer_args, &w->layer_call) },
        { "attention_run", world_attend_host(w, w->attention, got.out, got.lse) },
        { "layer_load_host", world_load_host(w, w->layer) },
        { "layer_run", world_run_layer_host(w, w->layer, got.out, got.lse) },
        { "decoder_load_host", world_load_decoder_host(w) },
        { "decoder_run", world_decode_host(w, got.out) },
        { "attention_create", mha_attention_create(&attention, context, &w->desc) },
        { "layer_create", mha_layer_create(&layer, context, &w->layer_desc) },
        { "softmax_create", mha_softmax_create(&softmax, context, &w->desc) },
        { "gemm_create", mha_gemm_create(&gemm, context, &gemm_desc) },
        { "heads_create", mha_heads_create(&heads, context, &heads_desc) },
        { "rotary_create", mha_rotary_create(&rotary, context, &w->rotary_desc) },
        { "norm_create", mha_norm_create(&norm, context, &w->norm_desc) },
        { "norm_enqueue", mha_norm_enqueue(w->norm, &w->norm_args, &w->norm_call) },
        { "activation_create", mha_activation_create(&activation, context, &w->activation_desc) },
        { "activation_enqueue",
          mha_activation_enqueue(w->activation, &w->activation_args, &w->activation_call) },
        { "ffn_create", mha_ffn_create(&ffn, context, &w->decoder_desc.feed_forward) },
        { "decoder_create", mha_decoder_create(&decoder, context, &w->decoder_desc) },
        { "decoder_load", mha_decoder_load(w->decoder, &w->decoder_weights, &w->load_call) },
        { "decoder_enqueue", mha_decoder_enqueue(w->decoder, &w->decoder_args, &w->decoder_call) },
        { "attention_enqueue with a cache",
          mha_attention_enqueue(w->cache, &w->cache_args, &w->cache_call) },
        { "rotary_enqueue", mha_rotary_enqueue(w->rotary, &w->rotary_args, &w->rotary_call) },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        cr_expect_eq(all[i].status, MHA_DEVICE_LOST, "%s, then mha_%s: %s", name, all[i].call,
                     mha_status_name(all[i].status));
    mha_attention_destroy(&attention);
    mha_layer_destroy(&layer);
    mha_softmax_destroy(&softmax);
    mha_gemm_destroy(&gemm);
    mha_heads_destroy(&heads);
    mha_rotary_destroy(&rotary);
    mha_norm_destroy(&norm);
    mha_activation_destroy(&activation);
    mha_ffn_destroy(&ffn);
    mha_decoder_destroy(&decoder);
    cr_expect(!event, "%s: the event is not NULL", name);
    cr_expect(strstr(w->d.sentence, "lost"), "%s: %s", name, w->d.sentence);
    device_hush(&w->d);
    cr_expect_eq(world_load_host(w, w->layer), MHA_DEVICE_LOST);
    cr_expect(refusal_is_of(w->d.sentence, "mha_layer_load_host"), "%s: %s", name, w->d.sentence);
}

typedef struct lost_row {
    const char *function;
    mha_status (*act)(world *w);
} lost_row;

static mha_status create(world *w)
{
    mha_gemm *gemm = NULL;
    return mha_gemm_create(&gemm, w->d.context, &(mha_gemm_desc){ .m = 1, .n = 1, .k = 1 });
}

static mha_status attend(world *w)
{
    cl_event event = NULL;
    mha_call call = w->call;
    call.event = &event;
    return mha_attention_enqueue(w->attention, &w->args, &call);
}

static mha_status append(world *w)
{
    return mha_attention_enqueue(w->cache, &w->cache_args, &w->cache_call);
}

static mha_status run_layer(world *w)
{
    return mha_layer_enqueue(w->layer, &w->layer_args, &w->layer_call);
}

static mha_status load_layer(world *w)
{
    return world_load(w);
}

static mha_status load_host(world *w)
{
    return world_load_host(w, w->layer);
}

static mha_status attend_host(world *w)
{
    static results got;
    return world_attend_host(w, w->attention, got.out, got.lse);
}

static mha_status run_layer_host(world *w)
{
    static results got;
    return world_run_layer_host(w, w->layer, got.out, got.lse);
}

static mha_status load_decoder_host(world *w)
{
    return world_load_decoder_host(w);
}

static mha_status decode_host(world *w)
{
    static results got;
    return world_decode_host(w, got.out);
}

static const lost_row lost_rows[] = {
    { "clCreateKernel", create },
    { "clSetKernelArg", attend },
    { "clEnqueueNDRangeKernel", attend },
    { "clEnqueueWriteBuffer", attend },
    { "clEnqueueMarkerWithWaitList", attend },
    { "clGetMemObjectInfo", attend },
    { "clGetCommandQueueInfo", attend },
    { "clEnqueueNDRangeKernel", append },
    { "clEnqueueWriteBuffer", append },
    { "clEnqueueNDRangeKernel", run_layer },
    { "clEnqueueNDRangeKernel", load_layer },
    { "clCreateBuffer", attend_host },
    { "clCreateCommandQueue", attend_host },
    { "clFinish", attend_host },
    { "clEnqueueReadBuffer", attend_host },
    { "clCreateBuffer", run_layer_host },
    { "clCreateBuffer", load_host },
    { "clCreateCommandQueue", load_host },
    { "clFinish", load_host },
    { "clCreateBuffer", load_decoder_host },
    { "clEnqueueNDRangeKernel", load_decoder_host },
    { "clCreateBuffer", decode_host },
    { "clEnqueueNDRangeKernel", decode_host },
    { "clEnqueueReadBuffer", decode_host },
};

/* One world a row, since a lost device stays lost. */
static void lose(const lost_row *row, mha_gemm_by by)
{
    static world w;
    char name[80];
    snprintf(name, sizeof name, "%s, row %td by %d", row->function, row - lost_rows, (int)by);
    open_watched(&w, by);
    cr_assert_eq(world_load(&w), MHA_OK);
    cr_assert_eq(world_load_decoder(&w), MHA_OK);
    device_hush(&w.d);
    layer_reset();
    layer_fail(row->function, 1, CL_DEVICE_NOT_AVAILABLE);
    const mha_status status = row->act(&w);
    cr_expect_eq(status, CL_DEVICE_NOT_AVAILABLE, "%s: %s: %s", name, mha_status_name(status),
                 w.d.sentence);
    cr_expect_eq(layer_pending(), 0, "%s", name);
    layer_reset();
    expect_lost(&w, name);
    /* Also where the driver answers nothing but errors by now. */
    layer_fail("clCreateBuffer", 1, CL_OUT_OF_RESOURCES);
    const mha_status after = attend_host(&w);
    cr_expect_eq(after, MHA_DEVICE_LOST, "%s, host arrays: %s", name, mha_status_name(after));
    layer_reset();
    world_close(&w);
    mha_clblast_clear();
    cr_expect_eq(layer_live(NULL), 0, "%s: %ld objects at the end", name, layer_live(NULL));
}

Test(lifecycle, a_lost_device_stays_lost)
{
    for (size_t i = 0; i < sizeof lost_rows / sizeof lost_rows[0]; i++)
        lose(&lost_rows[i], MHA_GEMM_KERNEL);
    static const lost_row by_clblast = { "clEnqueueNDRangeKernel", run_layer };
    lose(&by_clblast, MHA_GEMM_CLBLAST);
}

/* The host calls that the rows above have none of, with nothing given: that is what is wrong with
 * them, until the device is lost. */
static void expect_host_calls(mha_ffn *ffn, mha_encoder *encoder, bool is_lost)
{
    static const mha_ffn_host_weights no_weights;
    static const mha_encoder_host_weights no_encoder_weights;
    const mha_status got[] = {
        mha_ffn_load_host(ffn, &no_weights),
        mha_ffn_run(ffn, &(mha_ffn_host_args){ .rows = 1 }),
        mha_encoder_load_host(encoder, &no_encoder_weights),
        mha_encoder_run(encoder, &(mha_encoder_host_args){ .len = 1 }),
    };
    for (size_t i = 0; i < sizeof got / sizeof got[0]; i++) {
        const mha_status before = i % 2 ? MHA_NOT_LOADED : MHA_INVALID_ARGUMENT;
        const mha_status want = is_lost ? MHA_DEVICE_LOST : before;
        cr_expect_eq(got[i], want, "call %zu: %s, not %s", i, mha_status_name(got[i]),
                     mha_status_name(want));
    }
}

Test(lifecycle, host_calls_after_a_loss)
{
    static world w;
    open_watched(&w, MHA_GEMM_KERNEL);
    const mha_ffn_desc ffn_desc = { .rows = 1, .width = 1, .hidden_width = 1 };
    const mha_encoder_desc encoder_desc = { .self_attention = w.decoder_desc.self_attention,
                                            .feed_forward = w.decoder_desc.feed_forward };
    mha_ffn *ffn = NULL;
    mha_encoder *encoder = NULL;
    cr_assert_eq(mha_ffn_create(&ffn, w.d.context, &ffn_desc), MHA_OK, "%s", w.d.sentence);
    cr_assert_eq(mha_encoder_create(&encoder, w.d.context, &encoder_desc), MHA_OK, "%s",
                 w.d.sentence);
    expect_host_calls(ffn, encoder, false);
    layer_fail("clEnqueueNDRangeKernel", 1, CL_DEVICE_NOT_AVAILABLE);
    cr_expect_eq(attend(&w), CL_DEVICE_NOT_AVAILABLE);
    expect_host_calls(ffn, encoder, true);
    mha_encoder_destroy(&encoder);
    mha_ffn_destroy(&ffn);
    world_close(&w);
}

/* A new context on the same device is none of the old one's business. */
Test(lifecycle, a_new_context_after_a_loss)
{
    static world lost, fresh;
    results got;
    open_watched(&lost, MHA_GEMM_KERNEL);
    layer_fail("clEnqueueNDRangeKernel", 1, CL_DEVICE_NOT_AVAILABLE);
    cr_expect_eq(attend(&lost), CL_DEVICE_NOT_AVAILABLE);
    cr_expect_eq(attend(&lost), MHA_DEVICE_LOST);
    world_open(&fresh, MHA_GEMM_KERNEL);
    cr_expect_eq(world_attend(&fresh, got.out, got.lse), MHA_OK);
    world_close(&fresh);
    world_close(&lost);
}
