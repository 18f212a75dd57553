/* From the first create to the last destroy: what is released, and when. */
#include "layer.h"
#include "world.h"

#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <string.h>

TestSuite(lifecycle, .timeout = 600);

typedef struct results {
    float out[WORLD_OUTPUTS], lse[WORLD_ROWS];
} results;

static void open_watched(world *w, mha_gemm_by by)
{
    layer_start();
    world_open(w, by);
    cr_assert(layer_active(), "this OpenCL loader knows no layers");
}

Test(lifecycle, destroy_takes_null_and_twice)
{
    world w;
    world_open(&w, MHA_GEMM_KERNEL);
    mha_softmax *softmax = NULL;
    mha_heads *heads = NULL;
    mha_gemm *gemm = NULL;
    mha_rotary *rotary = NULL;
    mha_context *context = NULL;
    const mha_context_options options = { .cache_dir = "" };
    cr_assert_eq(mha_context_create(&context, &options), MHA_OK);
    cr_assert_eq(mha_softmax_create(&softmax, w.d.context, &w.desc), MHA_OK);
    cr_assert_eq(mha_heads_create(&heads, w.d.context, &(mha_heads_desc){ 1, 1, 1, 1 }), MHA_OK);
    cr_assert_eq(mha_gemm_create(&gemm, w.d.context,
                                 &(mha_gemm_desc){ .m = 1, .n = 1, .k = 1, .by = MHA_GEMM_KERNEL }),
                 MHA_OK);
    cr_assert_eq(mha_rotary_create(&rotary, w.d.context, &w.rotary_desc), MHA_OK);
    for (int times = 0; times < 2; times++) {
        mha_softmax_destroy(&softmax);
        mha_heads_destroy(&heads);
        mha_gemm_destroy(&gemm);
        mha_rotary_destroy(&rotary);
        mha_norm_destroy(&w.norm);
        mha_activation_destroy(&w.activation);
        mha_decoder_destroy(&w.decoder);
        mha_attention_destroy(&w.attention);
        mha_attention_destroy(&w.cache);
        mha_layer_destroy(&w.layer);
        mha_context_destroy(&context);
        cr_expect(!softmax && !heads && !gemm && !rotary && !w.norm && !w.activation &&
                  !w.decoder && !w.attention && !w.cache && !w.layer && !context);
    }
    mha_softmax_destroy(NULL);
    mha_heads_destroy(NULL);
    mha_gemm_destroy(NULL);
    mha_rotary_destroy(NULL);
    mha_norm_destroy(NULL);
    mha_activation_destroy(NULL);
    mha_ffn_destroy(NULL);
    mha_encoder_destroy(NULL);
    mha_decoder_destroy(NULL);
    mha_attention_destroy(NULL);
    mha_layer_destroy(NULL);
    mha_context_destroy(NULL);
    world_close(&w);
}

/* Two contexts and their objects, released in the order that they were made in: no object needs
 * the other context, and CLBlast's cache, emptied by the first, comes back for the second. */
Test(lifecycle, contexts_do_not_need_each_other)
{
    layer_start();
    static world first, second;
    results a, b;
    world_open(&first, MHA_GEMM_CLBLAST);
    cr_assert(layer_active(), "this OpenCL loader knows no layers");
    world_open(&second, MHA_GEMM_CLBLAST);
    cr_expect_eq(world_attend(&first, a.out, a.lse), MHA_OK);
    world_close(&first);
    cr_expect_eq(world_attend(&second, b.out, b.lse), MHA_OK);
    cr_expect(!memcmp(&a, &b, sizeof a), "two contexts, two results");
    cr_expect_eq(world_load(&second), MHA_OK);
    cr_expect_eq(world_run_layer(&second, b.out, b.lse), MHA_OK);
    world_close(&second);
    cr_expect_eq(layer_live(NULL), 0, "%ld objects at the end", layer_live(NULL));
}

/* Everything that the library and CLBlast made is gone with the context that the library made. */
Test(lifecycle, a_context_of_the_library_leaves_nothing)
{
    static const char *const types[] = { "cl_context", "cl_command_queue", "cl_mem",
                                         "cl_program", "cl_kernel",        "cl_event" };
    static const mha_gemm_by ways[] = { MHA_GEMM_KERNEL, MHA_GEMM_CLBLAST, MHA_GEMM_DEFAULT };
    for (size_t way = 0; way < 3; way++) {
        static world w;
        static world_cache got_cache;
        results got;
        open_watched(&w, ways[way]);
        cr_expect_eq(world_attend(&w, got.out, got.lse), MHA_OK);
        cr_expect_eq(world_load(&w), MHA_OK);
        cr_expect_eq(world_run_layer(&w, got.out, got.lse), MHA_OK);
        cr_expect_eq(world_append(&w, &got_cache), MHA_OK);
        cr_expect_eq(world_attend_host(&w, w.attention, got.out, got.lse), MHA_OK);
        cr_expect_eq(world_load_host(&w, w.layer), MHA_OK);
        cr_expect_eq(world_run_layer_host(&w, w.layer, got.out, got.lse), MHA_OK);
        cr_expect_eq(world_load_decoder_host(&w), MHA_OK);
        cr_expect_eq(world_decode_host(&w, got.out), MHA_OK);
        world_close(&w);
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
            cr_expect_eq(layer_live(types[i]), 0, "way %zu: %ld x %s", way, layer_live(types[i]),
                         types[i]);
    }
}

static cl_uint references(cl_context cl)
{
    cl_uint count = 0;
    cr_assert_eq(clGetContextInfo(cl, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL),
                 CL_SUCCESS);
    return count;
}

/* The caller's own cl_context: as many references as before; what CLBlast keeps goes when asked. */
Test(lifecycle, a_context_of_the_caller_is_given_back)
{
    static world w;
    open_watched(&w, MHA_GEMM_KERNEL);
    cl_device_id id = mha_context_device(w.d.context);
    cl_int error = CL_SUCCESS;
    cl_context cl = clCreateContext(NULL, 1, &id, NULL, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS);
    const cl_uint before = references(cl);
    const mha_context_options options = {
        .cl = cl, .device = id, .cache_dir = device_cache_dir(), .log = device_log(&w.d)
    };
    for (int by = MHA_GEMM_CLBLAST; by <= MHA_GEMM_KERNEL; by++) {
        mha_context *context = NULL;
        mha_layer *layer = NULL;
        mha_layer_desc desc = w.layer_desc;
        results got;
        desc.projection = desc.attention.gemm = (mha_gemm_by)by;
        cr_assert_eq(mha_context_create(&context, &options), MHA_OK);
        cr_expect_eq(mha_context_cl(context), cl);
        cr_assert_eq(mha_layer_create(&layer, context, &desc), MHA_OK, "%s", w.d.sentence);
        cr_expect_eq(world_load_host(&w, layer), MHA_OK);
        cr_expect_eq(world_run_layer_host(&w, layer, got.out, got.lse), MHA_OK);
        mha_layer_destroy(&layer);
        mha_context_destroy(&context);
        cr_log_info("references with CLBlast's cache: %u, before: %u", references(cl), before);
        cr_expect_eq(mha_clblast_clear(), MHA_OK);
        cr_expect_eq(references(cl), before, "%u references, not %u", references(cl), before);
    }
    cr_expect_eq(mha_clblast_clear(), MHA_OK, "twice");
    clReleaseContext(cl);
    world_close(&w);
    cr_expect_eq(layer_live(NULL), 0, "%ld objects at the end", layer_live(NULL));
}

/* What runs while its object is destroyed, and all that it leaves. */
typedef enum running {
    RUNNING_ATTENTION,
    RUNNING_LAYER,
    RUNNING_CACHE,
    NUM_RUNNING
} running;

typedef struct left {
    results results;
    world_cache cache;
} left;

static mha_status run_whole(world *w, running kind, left *got)
{
    if (kind == RUNNING_CACHE)
        return world_append(w, &got->cache);
    return kind == RUNNING_LAYER ? world_run_layer(w, got->results.out, got->results.lse)
                                 : world_attend(w, got->results.out, got->results.lse);
}

static mha_status enqueue(world *w, running kind, cl_event *start, cl_event *done)
{
    mha_call call = kind == RUNNING_CACHE   ? w->cache_call
                    : kind == RUNNING_LAYER ? w->layer_call
                                            : w->call;
    call.num_waits = 1;
    call.waits = start;
    call.event = done;
    if (kind == RUNNING_CACHE)
        return mha_attention_enqueue(w->cache, &w->cache_args, &call);
    return kind == RUNNING_LAYER ? mha_layer_enqueue(w->layer, &w->layer_args, &call)
                                 : mha_attention_enqueue(w->attention, &w->args, &call);
}

static void read_left(world *w, running kind, left *got)
{
    if (kind == RUNNING_CACHE) {
        device_read(&w->d, &w->cache_output, got->cache.out);
        device_read(&w->d, &w->cache_lse, got->cache.lse);
        device_read(&w->d, &w->cache_key, got->cache.key);
        device_read(&w->d, &w->cache_value, got->cache.value);
        return;
    }
    device_read(&w->d, kind == RUNNING_LAYER ? &w->layer_output : &w->output, got->results.out);
    device_read(&w->d, kind == RUNNING_LAYER ? &w->layer_lse : &w->lse, got->results.lse);
}

/* An enqueue that waits for the caller, its objects and context destroyed meanwhile: it runs all
 * the same. Nothing in the enqueue may block, or this never ends. */
static void destroy_while_running(mha_gemm_by by, running kind)
{
    static world w;
    static left want, got;
    open_watched(&w, by);
    memset(&want, 0, sizeof want);
    memset(&got, 0, sizeof got);
    cr_assert_eq(world_load(&w), MHA_OK);
    cr_assert_eq(run_whole(&w, kind, &want), MHA_OK);
    world_clear(&w);
    cl_event done = NULL;
    cl_event start = clCreateUserEvent(w.d.cl, NULL);
    cr_assert_eq(enqueue(&w, kind, &start, &done), MHA_OK);
    cl_int state = CL_COMPLETE;
    clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    cr_expect_neq(state, CL_COMPLETE, "it did not wait");
    mha_attention_destroy(&w.attention);
    mha_attention_destroy(&w.cache);
    mha_layer_destroy(&w.layer);
    mha_rotary_destroy(&w.rotary);
    mha_norm_destroy(&w.norm);
    mha_activation_destroy(&w.activation);
    mha_decoder_destroy(&w.decoder);
    /* The world needs its cl_context until it is closed. */
    clRetainContext(w.d.cl);
    mha_context_destroy(&w.d.context);
    clSetUserEventStatus(start, CL_COMPLETE);
    cr_expect_eq(clWaitForEvents(1, &done), CL_SUCCESS);
    read_left(&w, kind, &got);
    cr_expect(!memcmp(&got, &want, sizeof got), "kind %d by %d: another result", (int)kind,
              (int)by);
    device_expect_guards(&w.d, "destroyed while running");
    clReleaseEvent(done);
    clReleaseEvent(start);
    device_forget(&w.d);
    clReleaseCommandQueue(w.d.queue);
    clReleaseContext(w.d.cl);
    cr_expect_eq(layer_live(NULL), 0, "kind %d by %d: %ld objects at the end", (int)kind, (int)by,
                 layer_live(NULL));
}

Test(lifecycle, destroy_while_running)
{
    for (int kind = 0; kind < NUM_RUNNING; kind++) {
        destroy_while_running(MHA_GEMM_KERNEL, (running)kind);
        destroy_while_running(MHA_GEMM_CLBLAST, (running)kind);
    }
}

/* A driver that does not tell how many compute units there are, nor how wide they are: they count
 * as one, of the narrowest kernels, and every call gives what it should. */
Test(lifecycle, a_device_that_tells_little)
{
    static const cl_device_info untold[] = { CL_DEVICE_MAX_COMPUTE_UNITS,
                                             CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT };
    static world full, little;
    static world_cache cache;
    static float want[WORLD_OUTPUTS], got[WORLD_OUTPUTS], lse[WORLD_ROWS];
    open_watched(&full, MHA_GEMM_KERNEL);
    cr_assert_eq(world_load_decoder(&full), MHA_OK);
    cr_assert_eq(world_decode(&full, want), MHA_OK);
    for (size_t i = 0; i < sizeof untold / sizeof untold[0]; i++)
        layer_answer(untold[i], 0);
    world_open(&little, MHA_GEMM_KERNEL);
    mha_device_info info;
    size_t count = 0;
    cr_assert_eq(mha_devices(NULL, &info, 1, &count), MHA_OK);
    cr_expect_eq(info.compute_units, 1);
    cr_assert_eq(world_load_decoder(&little), MHA_OK);
    cr_assert_eq(world_decode(&little, got), MHA_OK);
    for (size_t i = 0; i < WORLD_OUTPUTS; i++)
        cr_expect_float_eq(got[i], want[i], 1e-5, "element %zu", i);
    cr_expect_eq(world_attend(&little, got, lse), MHA_OK);
    cr_expect_eq(world_rotate(&little, got), MHA_OK);
    cr_expect_eq(world_normalise(&little, got), MHA_OK);
    cr_expect_eq(world_activate(&little, got), MHA_OK);
    cr_expect_eq(world_append(&little, &cache), MHA_OK);
    world_close(&little);
    world_close(&full);
}
