/* A steady state in which a call does nothing but its work: what CLBlast does beside it is counted.
 * Belongs to the suite of test_lifecycle.c. */
#include "layer.h"
#include "world.h"

#include <clblast_c.h>
#include <criterion/criterion.h>
#include <criterion/logging.h>
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

/* What no enqueue may do the second time. */
static const char *const costly[] = { "clCreateContext",
                                      "clCreateCommandQueue",
                                      "clCreateCommandQueueWithProperties",
                                      "clCreateBuffer",
                                      "clCreateSubBuffer",
                                      "clCreateProgramWithSource",
                                      "clCreateProgramWithBinary",
                                      "clBuildProgram",
                                      "clCreateKernel",
                                      "clCreateUserEvent",
                                      "clEnqueueMapBuffer",
                                      "clEnqueueReadBuffer",
                                      "clFinish",
                                      "clFlush",
                                      "clWaitForEvents",
                                      "clSetEventCallback" };

/* CLBlast's exceptions, as measured with 1.5.3. Every product makes its kernel objects anew, from
 * programs that are there: one below XGEMM_MIN_INDIRECT_SIZE, up to four above. What it copies A, B
 * and C to comes out of the workspace: the library does large batched products one by one, since
 * CLBlast would allocate for them. */
typedef struct exceptions {
    long kernels, buffers;
} exceptions;

static void expect_steady(const char *name, exceptions most)
{
    for (size_t i = 0; i < sizeof costly / sizeof costly[0]; i++) {
        const long count = layer_count(costly[i]);
        const long limit = !strcmp(costly[i], "clCreateKernel")   ? most.kernels
                           : !strcmp(costly[i], "clCreateBuffer") ? most.buffers
                                                                  : 0;
        if (count)
            cr_log_info("%s: %ld x %s", name, count, costly[i]);
        cr_expect_leq(count, limit, "%s: %ld x %s, not %ld", name, count, costly[i], limit);
    }
}

static void note_stage(void *data, const char *stage, const char *what, cl_event event)
{
    char *list = data;
    (void)what;
    (void)event;
    strcat(strcat(list, stage), "; ");
}

/* A call with the cache appends, rotates, decodes and merges. */
static void expect_stages(world *w)
{
    char list[256] = "";
    mha_call call = w->cache_call;
    call.stage = note_stage;
    call.stage_data = list;
    cr_assert_eq(mha_attention_enqueue(w->cache, &w->cache_args, &call), MHA_OK);
    clFinish(w->d.queue);
    cr_expect_str_eq(list, "append positions; append key; append value; rotate query; decode; "
                           "merge parts; ");
}

enum {
    CACHE_KERNELS = 5
};

static void try_steady(mha_gemm_by by, exceptions of_attention, exceptions of_layer,
                       exceptions of_decoder)
{
    static world w;
    static world_cache got_cache;
    results got;
    open_watched(&w, by);
    cr_assert_eq(world_load(&w), MHA_OK);
    cr_assert_eq(world_attend(&w, got.out, got.lse), MHA_OK);
    cr_assert_eq(world_run_layer(&w, got.out, got.lse), MHA_OK);
    cr_assert_eq(world_rotate(&w, got.out), MHA_OK);
    cr_assert_eq(world_normalise(&w, got.out), MHA_OK);
    cr_assert_eq(world_activate(&w, got.out), MHA_OK);
    cr_assert_eq(world_load_decoder(&w), MHA_OK);
    cr_assert_eq(world_decode(&w, got.out), MHA_OK);
    cr_assert_eq(world_append(&w, &got_cache), MHA_OK);
    expect_stages(&w);
    const long before = layer_live(NULL);
    layer_reset();
    cr_expect_eq(mha_attention_enqueue(w.attention, &w.args, &w.call), MHA_OK);
    expect_steady("attention", of_attention);
    layer_reset();
    cr_expect_eq(mha_layer_enqueue(w.layer, &w.layer_args, &w.layer_call), MHA_OK);
    expect_steady("layer", of_layer);
    layer_reset();
    cr_expect_eq(mha_layer_load(w.layer, &w.weights, &w.load_call), MHA_OK);
    expect_steady("load", (exceptions){ 0, 0 });
    layer_reset();
    cr_expect_eq(mha_rotary_enqueue(w.rotary, &w.rotary_args, &w.rotary_call), MHA_OK);
    expect_steady("rotary", (exceptions){ 0, 0 });
    layer_reset();
    cr_expect_eq(mha_norm_enqueue(w.norm, &w.norm_args, &w.norm_call), MHA_OK);
    expect_steady("norm", (exceptions){ 0, 0 });
    cr_expect_eq(layer_count("clEnqueueNDRangeKernel"), 1);
    layer_reset();
    cr_expect_eq(mha_activation_enqueue(w.activation, &w.activation_args, &w.activation_call),
                 MHA_OK);
    expect_steady("activation", (exceptions){ 0, 0 });
    cr_expect_eq(layer_count("clEnqueueNDRangeKernel"), 1);
    layer_reset();
    cr_expect_eq(mha_decoder_enqueue(w.decoder, &w.decoder_args, &w.decoder_call), MHA_OK);
    expect_steady("decoder", of_decoder);
    layer_reset();
    cr_expect_eq(mha_decoder_load(w.decoder, &w.decoder_weights, &w.load_call), MHA_OK);
    expect_steady("decoder's load", (exceptions){ 0, 0 });
    layer_reset();
    cr_expect_eq(mha_attention_enqueue(w.cache, &w.cache_args, &w.cache_call), MHA_OK);
    expect_steady("cache", (exceptions){ 0, 0 });
    cr_expect_eq(layer_count("clEnqueueNDRangeKernel"), CACHE_KERNELS);
    cr_expect_eq(layer_count("clEnqueueWriteBuffer"), 1, "the positions");
    cr_expect_eq(layer_live(NULL), before);
    world_close(&w);
}

Test(lifecycle, steady_state)
{
    try_steady(MHA_GEMM_KERNEL, (exceptions){ 0, 0 }, (exceptions){ 0, 0 }, (exceptions){ 0, 0 });
}

/* Two products, six with the projections; twelve projections of a decoder layer. */
Test(lifecycle, steady_state_with_clblast)
{
    try_steady(MHA_GEMM_CLBLAST, (exceptions){ 2, 0 }, (exceptions){ 6, 0 }, (exceptions){ 12, 0 });
}

/* A product of half types goes through the workspace around CLBlast, and through local memory else.
 */
static void try_half_product(device *d, mha_gemm_by by, unsigned flags, exceptions most)
{
    enum {
        SIZE = 20
    };
    const mha_gemm_desc desc = {
        .m = SIZE, .n = SIZE, .k = SIZE, .flags = flags, .beta = 1, .by = by, .type = MHA_BFLOAT16
    };
    const size_t shape[4] = { 1, 1, SIZE, SIZE };
    static const uint16_t data[SIZE * SIZE] = { 0 };
    const device_tensor in = device_input(d, shape, NULL, sizeof *data, data);
    const device_tensor out = device_output(d, shape, NULL, sizeof *data);
    const mha_matrix b = { .buffer = device_buffer(&in), .offset = in.offset };
    const bool loads = flags & MHA_GEMM_LOADED_B;
    const mha_gemm_args args = { .a.buffer = device_buffer(&in),
                                 .a.offset = in.offset,
                                 .b = loads ? (mha_matrix){ 0 } : b,
                                 .c.buffer = device_buffer(&out),
                                 .c.offset = out.offset };
    mha_gemm *gemm = NULL;
    cr_assert_eq(mha_gemm_create(&gemm, d->context, &desc), MHA_OK, "%s", d->sentence);
    const mha_call call = device_call(d, mha_gemm_workspace(gemm));
    if (loads) {
        layer_reset();
        cr_assert_eq(mha_gemm_load(gemm, &b, &call), MHA_OK, "%s", d->sentence);
        expect_steady("load of B", (exceptions){ 0, 0 });
    }
    cr_assert_eq(mha_gemm_enqueue(gemm, &args, &call), MHA_OK, "%s", d->sentence);
    layer_reset();
    cr_expect_eq(mha_gemm_enqueue(gemm, &args, &call), MHA_OK);
    expect_steady("half product", most);
    mha_gemm_destroy(&gemm);
    device_forget(d);
}

Test(lifecycle, steady_state_of_half_products)
{
    device d;
    layer_start();
    device_open(&d);
    for (unsigned flags = 0; flags <= MHA_GEMM_LOADED_B; flags += MHA_GEMM_LOADED_B) {
        try_half_product(&d, MHA_GEMM_KERNEL, flags, (exceptions){ 0, 0 });
        try_half_product(&d, MHA_GEMM_CLBLAST, flags, (exceptions){ 1, 0 });
    }
    device_close(&d);
    cr_expect_eq(layer_live(NULL), 0);
}

/* A self-attention of one buffer for all inputs. */
static void try_large(device *d, size_t batch, size_t heads, bool is_layer, exceptions most)
{
    const size_t len = 60, dim = 32;
    const mha_attention_desc desc = { .batch = batch,
                                      .heads = heads,
                                      .query_len = len,
                                      .key_len = len,
                                      .head_dim = dim,
                                      .path = MHA_PATH_COMPOSED,
                                      .gemm = MHA_GEMM_CLBLAST };
    const mha_layer_desc layer_desc = { .attention = desc, .projection = MHA_GEMM_CLBLAST };
    const size_t bytes = batch * heads * len * dim * sizeof(float);
    const size_t weight_bytes = heads * dim * heads * dim * sizeof(float);
    cl_mem in = clCreateBuffer(d->cl, CL_MEM_READ_WRITE, bytes, NULL, NULL);
    cl_mem out = clCreateBuffer(d->cl, CL_MEM_READ_WRITE, bytes, NULL, NULL);
    cl_mem weight = clCreateBuffer(d->cl, CL_MEM_READ_WRITE, weight_bytes, NULL, NULL);
    const mha_attention_args args = {
        .query.buffer = in, .key.buffer = in, .value.buffer = in, .output.buffer = out
    };
    const mha_layer_weights weights = { .query.buffer = weight,
                                        .key.buffer = weight,
                                        .value.buffer = weight,
                                        .output.buffer = weight };
    mha_attention *attention = NULL;
    mha_layer *layer = NULL;
    mha_call call;
    if (is_layer) {
        cr_assert_eq(mha_layer_create(&layer, d->context, &layer_desc), MHA_OK, "%s", d->sentence);
        call = device_call(d, mha_layer_workspace(layer));
        cr_assert_eq(mha_layer_load(layer, &weights, &call), MHA_OK, "%s", d->sentence);
    } else {
        cr_assert_eq(mha_attention_create(&attention, d->context, &desc), MHA_OK);
        call = device_call(d, mha_attention_workspace(attention));
    }
    layer_reset();
    cr_expect_eq(is_layer ? mha_layer_enqueue(layer, &args, &call)
                          : mha_attention_enqueue(attention, &args, &call),
                 MHA_OK, "%s", d->sentence);
    expect_steady(is_layer ? "large layer" : "large attention", most);
    mha_attention_destroy(&attention);
    mha_layer_destroy(&layer);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    clReleaseMemObject(weight);
}

/* Every product goes to CLBlast's kernels for large ones, however small it is. */
Test(lifecycle, steady_state_of_large_products)
{
    device d;
    layer_start();
    device_open(&d);
    const char *names[] = { "XGEMM_MIN_INDIRECT_SIZE" };
    cr_assert_eq(CLBlastOverrideParameters(mha_context_device(d.context), "GemmRoutine",
                                           CLBlastPrecisionSingle, 1, names, (const size_t[]){ 1 }),
                 CLBlastSuccess);
    try_large(&d, 1, 1, false, (exceptions){ 2 * 4, 0 });
    try_large(&d, 1, 2, false, (exceptions){ 2 * 2 * 4, 0 });
    try_large(&d, 1, 1, true, (exceptions){ 6 * 4, 0 });
    try_large(&d, 2, 2, true, (exceptions){ 4 * 4 + 2 * 4 * 4, 0 });
    device_close(&d);
    cr_expect_eq(layer_live(NULL), 0);
}
