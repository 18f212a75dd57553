/* Every OpenCL call that the library makes fails in turn: the call returns that status, nothing
 * leaks, what was made stays usable. Belongs to the suite of test_lifecycle.c. */
#include "layer.h"
#include "world.h"

#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What no call of the library or CLBlast returns by itself here. */
#define INJECTED CL_OUT_OF_RESOURCES

/* Results of the good calls, and of the one under test. */
typedef struct results {
    float out[WORLD_OUTPUTS], lse[WORLD_ROWS];
} results;

/* A product whose B is loaded: of this matrix with itself. */
enum {
    PRODUCT_SIZE = 4
};
typedef struct product {
    mha_gemm *gemm;
    mha_matrix factor;
    device_tensor output;
    float right[PRODUCT_SIZE * PRODUCT_SIZE];
} product;

typedef struct trial {
    world w;
    product product;
    results attention, layer, rotary, norm, activation, decoder; /* right ones */
    world_cache cache;                                           /* likewise */
    long queued; /* kernels, before the call failed */
    /* What a deed makes, and releases. */
    mha_context *context;
    mha_attention *made_attention, *made_cache;
    mha_layer *made_layer;
    mha_softmax *softmax;
    mha_heads *heads;
    mha_rotary *made_rotary;
    mha_norm *made_norm;
    mha_activation *made_activation;
    mha_encoder *made_encoder;
    mha_decoder *made_decoder;
    mha_gemm *gemm;
} trial;

/* Something to do while a call fails. */
typedef struct deed {
    const char *name;
    mha_status (*act)(trial *t);
    void (*after)(trial *t, mha_status status, const char *name); /* what must still hold */
    bool creates; /* makes objects, so that CLBlast's cache is no leak */
} deed;

/* --- deeds --- */

/* Not with CLBlast, which builds its programs anew in each trial: so many products take it minutes,
 * and show nothing of it that a layer's do not. */
static mha_status create_blocks(trial *t)
{
    const mha_decoder_desc *decoder = &t->w.decoder_desc;
    mha_encoder_desc encoder = { .self_attention = decoder->self_attention,
                                 .feed_forward = decoder->feed_forward };
    encoder.self_attention.attention.type = MHA_FLOAT16;
    const mha_status status = mha_encoder_create(&t->made_encoder, t->context, &encoder);
    return status ? status : mha_decoder_create(&t->made_decoder, t->context, decoder);
}

static mha_status create_all(trial *t)
{
    const world *w = &t->w;
    const mha_context_options options = { .cache_dir = device_cache_dir(),
                                          .log = device_log(&t->w.d) };
    const mha_gemm_by by = w->desc.gemm;
    mha_attention_desc cache_desc = w->cache_desc;
    cache_desc.path = MHA_PATH_DEFAULT; /* decode needs to know how much local memory there is */
    mha_status status = mha_context_create(&t->context, &options);
    if (!status)
        status = mha_attention_create(&t->made_attention, t->context, &w->desc);
    if (!status)
        status = mha_attention_create(&t->made_cache, t->context, &cache_desc);
    if (!status)
        status = mha_layer_create(&t->made_layer, t->context, &w->layer_desc);
    if (!status)
        status = mha_softmax_create(&t->softmax, t->context, &w->desc);
    if (!status)
        status = mha_heads_create(&t->heads, t->context, &(mha_heads_desc){ 1, 2, 3, 4 });
    if (!status)
        status = mha_rotary_create(&t->made_rotary, t->context, &w->rotary_desc);
    if (!status)
        status = mha_norm_create(&t->made_norm, t->context, &w->norm_desc);
    if (!status)
        status = mha_activation_create(&t->made_activation, t->context, &w->activation_desc);
    if (!status && by == MHA_GEMM_KERNEL)
        status = create_blocks(t);
    if (!status)
        status = mha_gemm_create(&t->gemm, t->context,
                                 &(mha_gemm_desc){ .m = 2,
                                                   .n = 3,
                                                   .k = 4,
                                                   .flags = MHA_GEMM_LOADED_B,
                                                   .by = by,
                                                   .type = MHA_FLOAT16 });
    return status;
}

static void destroy_all(trial *t, mha_status status, const char *name)
{
    cr_expect(!status || !t->gemm, "%s: an object after a failed create", name);
    mha_gemm_destroy(&t->gemm);
    mha_decoder_destroy(&t->made_decoder);
    mha_encoder_destroy(&t->made_encoder);
    mha_activation_destroy(&t->made_activation);
    mha_norm_destroy(&t->made_norm);
    mha_rotary_destroy(&t->made_rotary);
    mha_heads_destroy(&t->heads);
    mha_softmax_destroy(&t->softmax);
    mha_layer_destroy(&t->made_layer);
    mha_attention_destroy(&t->made_cache);
    mha_attention_destroy(&t->made_attention);
    mha_context_destroy(&t->context);
}

static void ignore_stage(void *data, const char *stage, const char *what, cl_event event)
{
    (void)data;
    (void)stage;
    (void)what;
    (void)event;
}

typedef mha_status enqueue_fn(world *w, const mha_call *call);

/* An enqueue with all that a call may have, so that all kinds of events are made. */
static mha_status enqueue(trial *t, enqueue_fn *act, mha_call call)
{
    world *w = &t->w;
    cl_int error = CL_SUCCESS;
    cl_event event = NULL;
    cl_event wait = clCreateUserEvent(w->d.cl, &error);
    if (!wait)
        return error;
    call.num_waits = 1;
    call.waits = &wait;
    call.event = &event;
    call.stage = ignore_stage;
    const mha_status status = act(w, &call);
    cr_expect_eq(!event, !!status, "event and status: %s", mha_status_name(status));
    if (event)
        clReleaseEvent(event);
    clSetUserEventStatus(wait, CL_COMPLETE);
    clReleaseEvent(wait);
    return status;
}

static mha_status attend(world *w, const mha_call *call)
{
    return mha_attention_enqueue(w->attention, &w->args, call);
}

static mha_status run_layer(world *w, const mha_call *call)
{
    return mha_layer_enqueue(w->layer, &w->layer_args, call);
}

static mha_status rotate(world *w, const mha_call *call)
{
    return mha_rotary_enqueue(w->rotary, &w->rotary_args, call);
}

static mha_status normalise(world *w, const mha_call *call)
{
    return mha_norm_enqueue(w->norm, &w->norm_args, call);
}

static mha_status activate(world *w, const mha_call *call)
{
    return mha_activation_enqueue(w->activation, &w->activation_args, call);
}

static mha_status decode(world *w, const mha_call *call)
{
    return mha_decoder_enqueue(w->decoder, &w->decoder_args, call);
}

static mha_status append(world *w, const mha_call *call)
{
    return mha_attention_enqueue(w->cache, &w->cache_args, call);
}

static mha_status enqueue_attention(trial *t)
{
    return enqueue(t, attend, t->w.call);
}

static mha_status enqueue_layer(trial *t)
{
    return enqueue(t, run_layer, t->w.layer_call);
}

static mha_status enqueue_rotary(trial *t)
{
    return enqueue(t, rotate, t->w.rotary_call);
}

static mha_status enqueue_norm(trial *t)
{
    return enqueue(t, normalise, t->w.norm_call);
}

static mha_status enqueue_activation(trial *t)
{
    return enqueue(t, activate, t->w.activation_call);
}

static mha_status enqueue_decoder(trial *t)
{
    return enqueue(t, decode, t->w.decoder_call);
}

static mha_status enqueue_cache(trial *t)
{
    return enqueue(t, append, t->w.cache_call);
}

static void expect_right(const char *name, const results *got, const results *want)
{
    cr_expect(!memcmp(got, want, sizeof *got), "%s: the next good call is another", name);
}

/* An output, or cache that was as in `before`, is untouched unless the sentence says that its
 * kernel was queued; and what it says is so. */
static void expect_claim_since(trial *t, const char *name, const char *output,
                               const device_tensor *tensor, size_t count, const float *before)
{
    static float now[WORLD_CACHED];
    const char *sentence = t->w.d.sentence;
    const bool claims =
        strstr(sentence, "queued") && (strstr(sentence, output) || strstr(sentence, "all kernels"));
    device_read(&t->w.d, tensor, now);
    size_t i = 0;
    while (i < count && (before ? now[i] == before[i] : isnan(now[i])))
        i++;
    cr_expect(i == count || claims, "%s: %s is written, and it is not said: %s", name, output,
              sentence);
    /* Of several kernels of CLBlast's nobody knows which were queued. */
    cr_expect(i < count || !claims || t->w.desc.gemm == MHA_GEMM_CLBLAST,
              "%s: %s is not written, but it is said: %s", name, output, sentence);
}

static void expect_claim(trial *t, const char *name, const char *output,
                         const device_tensor *tensor, size_t count)
{
    expect_claim_since(t, name, output, tensor, count, NULL);
}

static void attend_again(trial *t, mha_status status, const char *name)
{
    results got;
    if (status) {
        expect_claim(t, name, "output", &t->w.output, WORLD_OUTPUTS);
        expect_claim(t, name, "lse", &t->w.lse, WORLD_ROWS);
    }
    const mha_status again = world_attend(&t->w, got.out, got.lse);
    cr_expect_eq(again, MHA_OK, "%s: the next good call: %s", name, mha_status_name(again));
    expect_right(name, &got, &t->attention);
}

/* After a call on host arrays, which says nothing of the world's outputs. */
static void attend_as_ever(trial *t, mha_status status, const char *name)
{
    (void)status;
    attend_again(t, MHA_OK, name);
}

static void run_layer_again(trial *t, mha_status status, const char *name)
{
    results got;
    if (status) {
        expect_claim(t, name, "output", &t->w.layer_output, WORLD_OUTPUTS);
        expect_claim(t, name, "lse", &t->w.layer_lse, WORLD_ROWS);
    }
    const mha_status again = world_run_layer(&t->w, got.out, got.lse);
    cr_expect_eq(again, MHA_OK, "%s: the next good call: %s", name, mha_status_name(again));
    expect_right(name, &got, &t->layer);
}

static void rotate_again(trial *t, mha_status status, const char *name)
{
    results got = { 0 };
    if (status)
        expect_claim(t, name, "output", &t->w.rotary_output, WORLD_OUTPUTS);
    const mha_status again = world_rotate(&t->w, got.out);
    cr_expect_eq(again, MHA_OK, "%s: the next good call: %s", name, mha_status_name(again));
    expect_right(name, &got, &t->rotary);
}

static void normalise_again(trial *t, mha_status status, const char *name)
{
    results got = { 0 };
    if (status) {
        const world *w = &t->w;
        expect_claim(t, name, "output", &w->norm_output, WORLD_OUTPUTS);
        expect_claim(t, name, "sum", &w->norm_sum, WORLD_OUTPUTS);
        expect_claim(t, name, "mean", &w->norm_mean, WORLD_NORM_ROWS);
        expect_claim(t, name, "inv_std", &w->norm_inv_std, WORLD_NORM_ROWS);
    }
    const mha_status again = world_normalise(&t->w, got.out);
    cr_expect_eq(again, MHA_OK, "%s: the next good call: %s", name, mha_status_name(again));
    expect_right(name, &got, &t->norm);
}

static void activate_again(trial *t, mha_status status, const char *name)
{
    results got = { 0 };
    if (status)
        expect_claim(t, name, "output", &t->w.activation_output, WORLD_OUTPUTS);
    const mha_status again = world_activate(&t->w, got.out);
    cr_expect_eq(again, MHA_OK, "%s: the next good call: %s", name, mha_status_name(again));
    expect_right(name, &got, &t->activation);
}

static void decode_again(trial *t, mha_status status, const char *name)
{
    results got = { 0 };
    if (status)
        expect_claim(t, name, "output", &t->w.decoder_output, WORLD_OUTPUTS);
    const mha_status again = world_decode(&t->w, got.out);
    cr_expect_eq(again, MHA_OK, "%s: the next good call: %s", name, mha_status_name(again));
    expect_right(name, &got, &t->decoder);
}

static mha_status load_product(trial *t)
{
    const mha_call call = { .queue = t->w.d.queue };
    return mha_gemm_load(t->product.gemm, &t->product.factor, &call);
}

static mha_status multiply(trial *t, float got[PRODUCT_SIZE * PRODUCT_SIZE])
{
    device *d = &t->w.d;
    product *p = &t->product;
    const mha_gemm_args args = {
        .a = p->factor, .c = { .buffer = device_buffer(&p->output), .offset = p->output.offset }
    };
    const mha_call call = { .queue = d->queue };
    const mha_status status = mha_gemm_enqueue(p->gemm, &args, &call);
    if (!status)
        device_read(d, &p->output, got);
    return status;
}

static void open_product(trial *t, mha_gemm_by by)
{
    device *d = &t->w.d;
    product *p = &t->product;
    float data[PRODUCT_SIZE * PRODUCT_SIZE];
    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++)
        data[i] = (float)i;
    const size_t shape[4] = { 1, 1, PRODUCT_SIZE, PRODUCT_SIZE };
    const device_tensor input = device_input(d, shape, NULL, sizeof *data, data);
    const mha_gemm_desc desc = { .m = PRODUCT_SIZE,
                                 .n = PRODUCT_SIZE,
                                 .k = PRODUCT_SIZE,
                                 .flags = MHA_GEMM_LOADED_B,
                                 .by = by };
    p->factor = (mha_matrix){ .buffer = device_buffer(&input), .offset = input.offset };
    p->output = device_output(d, shape, NULL, sizeof *data);
    cr_assert_eq(mha_gemm_create(&p->gemm, d->context, &desc), MHA_OK, "%s", d->sentence);
    cr_assert_eq(mha_gemm_workspace(p->gemm).bytes, 0);
    cr_assert_eq(load_product(t), MHA_OK, "%s", d->sentence);
    cr_assert_eq(multiply(t, p->right), MHA_OK, "%s", d->sentence);
}

/* As load_again. */
static void load_product_again(trial *t, mha_status status, const char *name)
{
    float got[PRODUCT_SIZE * PRODUCT_SIZE];
    const mha_status before = multiply(t, got);
    cr_expect(!before || (before == MHA_NOT_LOADED && status && t->queued),
              "%s: B is gone, and no copy was queued: %s", name, mha_status_name(before));
    if (!before)
        cr_expect(!memcmp(got, t->product.right, sizeof got), "%s: another product", name);
    cr_expect_eq(load_product(t), MHA_OK, "%s: the next load", name);
    cr_expect_eq(multiply(t, got), MHA_OK, "%s: the next good call", name);
    cr_expect(!memcmp(got, t->product.right, sizeof got), "%s: another product", name);
}

static mha_status load_decoder(trial *t)
{
    return world_load_decoder(&t->w);
}

static mha_status load_decoder_host(trial *t)
{
    return world_load_decoder_host(&t->w);
}

/* As load_again. */
static void load_decoder_again(trial *t, mha_status status, const char *name)
{
    results got = { 0 };
    const mha_status before = world_decode(&t->w, got.out);
    cr_expect(!before || (before == MHA_NOT_LOADED && status && t->queued),
              "%s: the weights are gone, and no copy was queued: %s", name,
              mha_status_name(before));
    if (!before)
        expect_right(name, &got, &t->decoder);
    cr_expect_eq(world_load_decoder(&t->w), MHA_OK, "%s: the next load", name);
    decode_again(t, MHA_OK, name);
}

/* The caches are written before the output. */
static void append_again(trial *t, mha_status status, const char *name)
{
    static world_cache got;
    if (status) {
        const world *w = &t->w;
        expect_claim_since(t, name, "key", &w->cache_key, WORLD_CACHED, w->data.cached_key);
        expect_claim_since(t, name, "value", &w->cache_value, WORLD_CACHED, w->data.cached_value);
        expect_claim(t, name, "output", &w->cache_output, WORLD_NEW_OUTPUTS);
        expect_claim(t, name, "lse", &w->cache_lse, WORLD_NEW_ROWS);
    }
    const mha_status again = world_append(&t->w, &got);
    cr_expect_eq(again, MHA_OK, "%s: the next good call: %s", name, mha_status_name(again));
    cr_expect(!memcmp(&got, &t->cache, sizeof got), "%s: the next good call is another", name);
}

static mha_status load(trial *t)
{
    return world_load(&t->w);
}

static mha_status load_host(trial *t)
{
    return world_load_host(&t->w, t->w.layer);
}

static void run_layer_as_ever(trial *t, mha_status status, const char *name)
{
    (void)status;
    run_layer_again(t, MHA_OK, name);
}

/* A failed load keeps the old weights, unless copies were queued, which the sentence says. */
static void load_again(trial *t, mha_status status, const char *name)
{
    results got;
    const mha_status before = world_run_layer(&t->w, got.out, got.lse);
    cr_expect(!before || (before == MHA_NOT_LOADED && status && t->queued),
              "%s: the weights are gone, and no copy was queued: %s", name,
              mha_status_name(before));
    if (!before)
        expect_right(name, &got, &t->layer);
    cr_expect_eq(world_load(&t->w), MHA_OK, "%s: the next load", name);
    run_layer_again(t, MHA_OK, name);
}

typedef mha_status host_fn(world *w, results *got);

/* Host arrays: on an error no output has changed, unless copying back failed. */
static mha_status run_host(trial *t, host_fn *run, const results *want)
{
    world *w = &t->w;
    results got;
    for (size_t i = 0; i < WORLD_OUTPUTS; i++)
        got.out[i] = NAN;
    for (size_t i = 0; i < WORLD_ROWS; i++)
        got.lse[i] = NAN;
    const results before = got;
    const mha_status status = run(w, &got);
    if (!status)
        expect_right("host", &got, want);
    else if (!strstr(w->d.sentence, "back"))
        cr_expect(!memcmp(&got, &before, sizeof got), "an output array has changed: %s",
                  w->d.sentence);
    return status;
}

static mha_status attend_host(world *w, results *got)
{
    return world_attend_host(w, w->attention, got->out, got->lse);
}

static mha_status run_attention_host(trial *t)
{
    return run_host(t, attend_host, &t->attention);
}

static mha_status layer_host(world *w, results *got)
{
    return world_run_layer_host(w, w->layer, got->out, got->lse);
}

static mha_status run_layer_host(trial *t)
{
    return run_host(t, layer_host, &t->layer);
}

/* A decoder has no lse, which its right results have as 0. */
static mha_status decode_host(world *w, results *got)
{
    const mha_status status = world_decode_host(w, got->out);
    if (!status)
        memset(got->lse, 0, sizeof got->lse);
    return status;
}

static mha_status run_decoder_host(trial *t)
{
    return run_host(t, decode_host, &t->decoder);
}

static void decode_as_ever(trial *t, mha_status status, const char *name)
{
    (void)status;
    decode_again(t, MHA_OK, name);
}

/* --- the loop --- */

/* Calls whose failure need not be one of the library's. */
static bool may_succeed(const char *function, const deed *what)
{
    /* A fact that a driver does not tell stays unknown, a binary that it does not take or give is
     * compiled anew, a platform without an answer is passed over. */
    static const char *const facts[] = { "clGetDeviceInfo",  "clGetPlatformInfo",
                                         "clGetDeviceIDs",   "clCreateProgramWithBinary",
                                         "clGetProgramInfo", "clBuildProgram" };
    for (size_t i = 0; what->creates && i < sizeof facts / sizeof facts[0]; i++)
        if (!strcmp(function, facts[i]))
            return true;
    return false;
}

/* Statuses of their own: a platform that does not list its devices is passed over, and there may
 * be none left; CLBlast says which matrix is no valid buffer. */
static bool is_translated(const char *function, mha_status status)
{
    enum {
        CLBLAST_INVALID_MATRIX_A = -1022,
        CLBLAST_INVALID_MATRIX_C = -1020
    };
    if (!strcmp(function, "clGetDeviceIDs"))
        return status == MHA_NO_DEVICE;
    return !strcmp(function, "clGetMemObjectInfo") && status >= CLBLAST_INVALID_MATRIX_A &&
           status <= CLBLAST_INVALID_MATRIX_C;
}

/* A release that does nothing is a leak by definition; user events are the tests' own. */
static bool is_left_out(const char *function)
{
    return !strncmp(function, "clRelease", strlen("clRelease")) || strstr(function, "UserEvent");
}

static long live_now(trial *t, const deed *what)
{
    clFinish(t->w.d.queue);
    if (what->creates)
        mha_clblast_clear();
    return layer_live(NULL);
}

/* The nth call of a function fails in a deed. False: there were fewer calls. */
static bool fail_once(trial *t, const deed *what, const char *function, long nth)
{
    char name[160];
    snprintf(name, sizeof name, "%s, %s call %ld", what->name, function, nth);
    world_clear(&t->w);
    const long before = live_now(t, what);
    device_hush(&t->w.d);
    layer_fail(function, nth, INJECTED);
    const mha_status status = what->act(t);
    const bool hit = !layer_pending();
    t->queued = layer_count("clEnqueueNDRangeKernel") -
                (hit && !strcmp(function, "clEnqueueNDRangeKernel"));
    layer_reset();
    if (hit && status) {
        cr_expect(status == INJECTED || is_translated(function, status), "%s: %s: %s", name,
                  mha_status_name(status), t->w.d.sentence);
        cr_expect_geq(t->w.d.sentences, 1, "%s: nothing is said", name);
    } else if (hit) {
        cr_expect(may_succeed(function, what), "%s: the call succeeds", name);
    } else {
        cr_expect_eq(status, MHA_OK, "%s: %s: %s", name, mha_status_name(status), t->w.d.sentence);
    }
    what->after(t, hit ? status : MHA_OK, name);
    cr_expect_eq(live_now(t, what), before, "%s: %ld objects more than before", name,
                 live_now(t, what) - before);
    return hit;
}

static void fail_all(const deed *what, mha_gemm_by by)
{
    static trial t;
    layer_start();
    memset(&t, 0, sizeof t);
    world_open(&t.w, by);
    cr_assert(layer_active(), "this OpenCL loader knows no layers");
    cr_assert_eq(world_load(&t.w), MHA_OK);
    cr_assert_eq(world_attend(&t.w, t.attention.out, t.attention.lse), MHA_OK);
    cr_assert_eq(world_run_layer(&t.w, t.layer.out, t.layer.lse), MHA_OK);
    cr_assert_eq(world_rotate(&t.w, t.rotary.out), MHA_OK);
    cr_assert_eq(world_normalise(&t.w, t.norm.out), MHA_OK);
    cr_assert_eq(world_activate(&t.w, t.activation.out), MHA_OK);
    cr_assert_eq(world_load_decoder(&t.w), MHA_OK);
    cr_assert_eq(world_decode(&t.w, t.decoder.out), MHA_OK);
    cr_assert_eq(world_append(&t.w, &t.cache), MHA_OK);
    open_product(&t, by);
    long hits = 0;
    for (size_t i = 0; layer_function(i); i++) {
        if (is_left_out(layer_function(i)))
            continue;
        /* Each create with CLBlast builds its programs anew: of many calls not every one fails. */
        const long part = what->creates && by == MHA_GEMM_CLBLAST ? 4 : 1000;
        for (long nth = 1; fail_once(&t, what, layer_function(i), nth); nth += 1 + nth / part)
            hits++;
    }
    cr_log_info("%s by %s: %ld calls failed in turn", what->name,
                by == MHA_GEMM_KERNEL ? "kernels" : "CLBlast", hits);
    cr_expect_gt(hits, 3);
    mha_gemm_destroy(&t.product.gemm);
    world_close(&t.w);
    mha_clblast_clear();
    cr_expect_eq(layer_live(NULL), 0, "%s: %ld objects at the end", what->name, layer_live(NULL));
}

static const deed deeds[] = {
    { "create", create_all, destroy_all, true },
    { "attention", enqueue_attention, attend_again, false },
    { "layer", enqueue_layer, run_layer_again, false },
    { "load", load, load_again, false },
    { "load from host", load_host, load_again, false },
    { "attention on host arrays", run_attention_host, attend_as_ever, false },
    { "layer on host arrays", run_layer_host, run_layer_as_ever, false },
    { "product's load", load_product, load_product_again, false },
    { "rotary", enqueue_rotary, rotate_again, false },
    { "norm", enqueue_norm, normalise_again, false },
    { "activation", enqueue_activation, activate_again, false },
    { "decoder", enqueue_decoder, decode_again, false },
    { "decoder's load", load_decoder, load_decoder_again, false },
    { "decoder's load from host", load_decoder_host, load_decoder_again, false },
    { "decoder on host arrays", run_decoder_host, decode_as_ever, false },
    { "cache", enqueue_cache, append_again, false },
};

Test(lifecycle, failing_create)
{
    fail_all(&deeds[0], MHA_GEMM_KERNEL);
}

Test(lifecycle, failing_create_with_clblast)
{
    fail_all(&deeds[0], MHA_GEMM_CLBLAST);
}

Test(lifecycle, failing_calls)
{
    for (size_t i = 1; i < sizeof deeds / sizeof deeds[0]; i++)
        fail_all(&deeds[i], MHA_GEMM_KERNEL);
}

Test(lifecycle, failing_calls_with_clblast)
{
    for (size_t i = 1; i < sizeof deeds / sizeof deeds[0]; i++)
        fail_all(&deeds[i], MHA_GEMM_CLBLAST);
}
