/* Every rule of contexts, devices and statuses, and of calls without an object. */
#define _POSIX_C_SOURCE 200809L
#include "refusal.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct context_row {
    const char *name;
    mha_context_options options;
    bool has_cl, has_device; /* of the test's own */
    mha_status status;
    const char *says;
} context_row;

static const context_row context_rows[] = {
    { "cl without device", { 0 }, true, false, MHA_INVALID_ARGUMENT, "device" },
    { "device without cl", { 0 }, false, true, MHA_INVALID_ARGUMENT, "cl" },
    { "cl and a name", { .device_name = "0:0" }, true, true, MHA_INVALID_ARGUMENT, "device_name" },
    { "cl and a type",
      { .device_type = CL_DEVICE_TYPE_ALL },
      true,
      true,
      MHA_INVALID_ARGUMENT,
      "device_type" },
    { "no such name",
      { .device_name = "no such device" },
      false,
      false,
      MHA_NO_DEVICE,
      "no such device" },
    { "no such number", { .device_name = "99:99" }, false, false, MHA_NO_DEVICE, "99:99" },
    { "no such type",
      { .device_type = CL_DEVICE_TYPE_CUSTOM },
      false,
      false,
      MHA_NO_DEVICE,
      "type" },
    { "name and type that do not fit",
      { .device_name = "0:0", .device_type = CL_DEVICE_TYPE_CUSTOM },
      false,
      false,
      MHA_NO_DEVICE,
      "0:0" },
    { "an empty name", { .device_name = "" }, false, false, MHA_OK, "" },
    { "by number", { .device_name = "0:0" }, false, false, MHA_OK, "" },
    { "by type", { .device_type = CL_DEVICE_TYPE_ALL }, false, false, MHA_OK, "" },
    { "cl and an empty name", { .device_name = "" }, true, true, MHA_OK, "" },
};

Test(errors, context_create)
{
    device d;
    device_open(&d);
    for (size_t i = 0; i < sizeof context_rows / sizeof context_rows[0]; i++) {
        const context_row *row = &context_rows[i];
        mha_context_options options = row->options;
        options.log = device_log(&d);
        options.cache_dir = device_cache_dir();
        options.cl = row->has_cl ? d.cl : NULL;
        options.device = row->has_device ? mha_context_device(d.context) : NULL;
        mha_context *context = d.context;
        device_hush(&d);
        const mha_status status = mha_context_create(&context, &options);
        cr_expect_eq(status, row->status, "%s: %s: %s", row->name, mha_status_name(status),
                     d.sentence);
        cr_expect_eq(!context, !!status, "%s", row->name);
        cr_expect_eq(d.sentences, !!status, "%s: %zu sentences, the last: %s", row->name,
                     d.sentences, d.sentence);
        cr_expect(!status || refusal_says(d.sentence, row->says), "%s: %s", row->name, d.sentence);
        mha_context_destroy(&context);
    }
    mha_context_options options = { .log = device_log(&d) };
    device_hush(&d);
    cr_expect_eq(mha_context_create(NULL, &options), MHA_INVALID_ARGUMENT);
    cr_expect(d.sentences == 1 && refusal_says(d.sentence, "out"), "%s", d.sentence);
    cr_expect_eq(mha_context_create(NULL, NULL), MHA_INVALID_ARGUMENT);
    device_close(&d);
}

/* The first platform with two devices, into pair[]. */
static bool find_two_devices(cl_device_id pair[2])
{
    cl_platform_id platforms[8];
    cl_uint num_platforms = 0, num_devices = 0;
    clGetPlatformIDs(8, platforms, &num_platforms);
    for (cl_uint i = 0; i < num_platforms && i < 8; i++)
        if (!clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 2, pair, &num_devices) &&
            num_devices > 1)
            return true;
    return false;
}

static void expect_sentence(const device *d, mha_status got, mha_status want, const char *says)
{
    cr_expect_eq(got, want, "%s: %s", mha_status_name(got), d->sentence);
    cr_expect(d->sentences == 1 && refusal_says(d->sentence, says), "%s", d->sentence);
}

/* A context of two devices, with the library on the first: a queue of the second is refused. And
 * the second is not one of a context on the first. */
Test(errors, another_device)
{
    setenv("POCL_DEVICES", "basic basic", 1); /* PoCL, where that is the driver, then has two */
    device d;
    cl_device_id pair[2];
    device_open(&d);
    if (!find_two_devices(pair)) {
        device_close(&d);
        cr_skip_test("no platform here has two devices");
    }
    cl_int error = CL_SUCCESS;
    cl_context one = clCreateContext(NULL, 1, pair, NULL, NULL, &error);
    cl_context both = clCreateContext(NULL, 2, pair, NULL, NULL, &error);
    cl_command_queue second = clCreateCommandQueue(both, pair[1], 0, &error);
    cr_assert_eq(error, CL_SUCCESS);
    mha_context_options options = {
        .cl = one, .device = pair[1], .log = device_log(&d), .cache_dir = device_cache_dir()
    };
    mha_context *context = NULL;
    device_hush(&d);
    expect_sentence(&d, mha_context_create(&context, &options), MHA_WRONG_CONTEXT, "device");

    options.cl = both;
    options.device = pair[0];
    cr_assert_eq(mha_context_create(&context, &options), MHA_OK, "%s", d.sentence);
    mha_heads *heads = NULL;
    cr_assert_eq(mha_heads_create(&heads, context, &(mha_heads_desc){ 1, 1, 1, 1 }), MHA_OK);
    mha_tensor tensors[2] = { { 0 } };
    for (int i = 0; i < 2; i++)
        tensors[i].buffer = clCreateBuffer(both, CL_MEM_READ_WRITE, sizeof(float), NULL, NULL);
    const mha_call call = { .queue = second };
    device_hush(&d);
    expect_sentence(&d, mha_heads_split_enqueue(heads, &tensors[0], &tensors[1], &call),
                    MHA_WRONG_CONTEXT, "call.queue");
    for (int i = 0; i < 2; i++)
        clReleaseMemObject(tensors[i].buffer);
    mha_heads_destroy(&heads);
    mha_context_destroy(&context);
    clReleaseCommandQueue(second);
    clReleaseContext(both);
    clReleaseContext(one);
    device_close(&d);
}

/* NULL where an object belongs: nobody to log to, a status, and an event that is NULL. */
Test(errors, no_object)
{
    int there = 0;
    cl_event event = NULL;
    const mha_call call = { .event = &event };
    const mha_attention_args args = { 0 };
    const mha_tensor tensor = { 0 };
#define EXPECT_REFUSED(expression)                                \
    do {                                                          \
        event = (cl_event)&there;                                 \
        cr_expect_eq((expression), MHA_INVALID_ARGUMENT);         \
        cr_expect(!event, #expression ": the event is not NULL"); \
    } while (0)
    EXPECT_REFUSED(mha_attention_enqueue(NULL, &args, &call));
    EXPECT_REFUSED(mha_layer_enqueue(NULL, &args, &call));
    EXPECT_REFUSED(mha_layer_load(NULL, &(mha_layer_weights){ 0 }, &call));
    EXPECT_REFUSED(mha_gemm_enqueue(NULL, &(mha_gemm_args){ 0 }, &call));
    EXPECT_REFUSED(mha_heads_split_enqueue(NULL, &tensor, &tensor, &call));
    EXPECT_REFUSED(mha_heads_merge_enqueue(NULL, &tensor, &tensor, &call));
    EXPECT_REFUSED(mha_softmax_enqueue(NULL, &tensor, &args, &call));
    EXPECT_REFUSED(mha_rotary_enqueue(NULL, &(mha_rotary_args){ 0 }, &call));
    EXPECT_REFUSED(mha_norm_enqueue(NULL, &(mha_norm_args){ 0 }, &call));
    EXPECT_REFUSED(mha_activation_enqueue(NULL, &(mha_activation_args){ 0 }, &call));
    EXPECT_REFUSED(mha_encoder_load(NULL, &(mha_encoder_weights){ 0 }, &call));
    EXPECT_REFUSED(mha_encoder_enqueue(NULL, &(mha_encoder_args){ 0 }, &call));
    EXPECT_REFUSED(mha_decoder_load(NULL, &(mha_decoder_weights){ 0 }, &call));
    EXPECT_REFUSED(mha_decoder_enqueue(NULL, &(mha_decoder_args){ 0 }, &call));
    EXPECT_REFUSED(mha_ffn_load(NULL, &(mha_ffn_weights){ 0 }, &call));
    EXPECT_REFUSED(mha_ffn_enqueue(NULL, &(mha_ffn_args){ 0 }, &call));
    const mha_host_args host = { 0 };
    cr_expect_eq(mha_attention_run(NULL, &host), MHA_INVALID_ARGUMENT);
    cr_expect_eq(mha_layer_run(NULL, &host), MHA_INVALID_ARGUMENT);
    cr_expect_eq(mha_layer_load_host(NULL, &(mha_layer_host_weights){ 0 }), MHA_INVALID_ARGUMENT);
    cr_expect_eq(mha_attention_workspace(NULL).bytes, 0);
    cr_expect_eq(mha_layer_workspace(NULL).bytes, 0);
    cr_expect_eq(mha_gemm_workspace(NULL).bytes, 0);
    cr_expect_eq(mha_softmax_workspace(NULL).bytes, 0);
    cr_expect_eq(mha_rotary_workspace(NULL).bytes, 0);
    cr_expect(!mha_context_cl(NULL) && !mha_context_device(NULL));
    mha_device_info info;
    cr_expect_eq(mha_context_info(NULL, &info), MHA_INVALID_ARGUMENT);
    char text[2] = "x";
    cr_expect_eq(mha_attention_explain(NULL, text, sizeof text), 0);
    cr_expect_eq(mha_layer_explain(NULL, text, sizeof text), 0);
}

Test(errors, context_info)
{
    device d;
    device_open(&d);
    mha_device_info info;
    cr_expect_eq(mha_context_info(d.context, &info), MHA_OK);
    cr_expect_eq(info.device, mha_context_device(d.context));
    device_hush(&d);
    cr_expect_eq(mha_context_info(d.context, NULL), MHA_INVALID_ARGUMENT);
    cr_expect(d.sentences == 1 && refusal_says(d.sentence, "info"), "%s", d.sentence);
    device_close(&d);
}

Test(errors, devices)
{
    device d;
    device_open(&d);
    const mha_log log = device_log(&d);
    size_t count = 99;
    device_hush(&d);
    cr_expect_eq(mha_devices(&log, NULL, 0, NULL), MHA_INVALID_ARGUMENT);
    cr_expect(d.sentences == 1 && refusal_says(d.sentence, "count"), "%s", d.sentence);
    cr_expect_eq(mha_devices(&log, NULL, 2, &count), MHA_INVALID_ARGUMENT);
    cr_expect(d.sentences == 2 && refusal_says(d.sentence, "infos"), "%s", d.sentence);
    cr_expect_eq(count, 0);
    cr_expect_eq(mha_devices(NULL, NULL, 2, &count), MHA_INVALID_ARGUMENT);

    cr_assert_eq(mha_devices(NULL, NULL, 0, &count), MHA_OK);
    cr_assert(count > 0 && count < 100);
    static mha_device_info infos[101];
    memset(infos, 0x55, sizeof infos);
    const mha_device_info none = infos[0];
    size_t again = 0;
    cr_expect_eq(mha_devices(&log, infos, 0, &again), MHA_OK);
    cr_expect(!memcmp(infos, &none, sizeof none), "nothing may be written with capacity 0");
    cr_expect_eq(mha_devices(&log, infos, 100, &again), MHA_OK);
    cr_expect_eq(again, count);
    cr_expect(!memcmp(&infos[count], &none, sizeof none), "one more than count is written");
    size_t defaults = 0;
    for (size_t i = 0; i < count; i++)
        defaults += infos[i].is_default;
    cr_expect_eq(defaults, 1);
    device_close(&d);
}

#define CL_NAME(name) \
    {                 \
        name, #name   \
    }
static const struct {
    mha_status value;
    const char *name;
} foreign_names[] = { CL_NAME(CL_DEVICE_NOT_FOUND),
                      CL_NAME(CL_DEVICE_NOT_AVAILABLE),
                      CL_NAME(CL_COMPILER_NOT_AVAILABLE),
                      CL_NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE),
                      CL_NAME(CL_OUT_OF_RESOURCES),
                      CL_NAME(CL_OUT_OF_HOST_MEMORY),
                      CL_NAME(CL_PROFILING_INFO_NOT_AVAILABLE),
                      CL_NAME(CL_MEM_COPY_OVERLAP),
                      CL_NAME(CL_BUILD_PROGRAM_FAILURE),
                      CL_NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET),
                      CL_NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
                      CL_NAME(CL_INVALID_VALUE),
                      CL_NAME(CL_INVALID_DEVICE_TYPE),
                      CL_NAME(CL_INVALID_PLATFORM),
                      CL_NAME(CL_INVALID_DEVICE),
                      CL_NAME(CL_INVALID_CONTEXT),
                      CL_NAME(CL_INVALID_QUEUE_PROPERTIES),
                      CL_NAME(CL_INVALID_COMMAND_QUEUE),
                      CL_NAME(CL_INVALID_HOST_PTR),
                      CL_NAME(CL_INVALID_MEM_OBJECT),
                      CL_NAME(CL_INVALID_BINARY),
                      CL_NAME(CL_INVALID_BUILD_OPTIONS),
                      CL_NAME(CL_INVALID_PROGRAM),
                      CL_NAME(CL_INVALID_PROGRAM_EXECUTABLE),
                      CL_NAME(CL_INVALID_KERNEL_NAME),
                      CL_NAME(CL_INVALID_KERNEL_DEFINITION),
                      CL_NAME(CL_INVALID_KERNEL),
                      CL_NAME(CL_INVALID_ARG_INDEX),
                      CL_NAME(CL_INVALID_ARG_VALUE),
                      CL_NAME(CL_INVALID_ARG_SIZE),
                      CL_NAME(CL_INVALID_KERNEL_ARGS),
                      CL_NAME(CL_INVALID_WORK_DIMENSION),
                      CL_NAME(CL_INVALID_WORK_GROUP_SIZE),
                      CL_NAME(CL_INVALID_WORK_ITEM_SIZE),
                      CL_NAME(CL_INVALID_GLOBAL_OFFSET),
                      CL_NAME(CL_INVALID_EVENT_WAIT_LIST),
                      CL_NAME(CL_INVALID_EVENT),
                      CL_NAME(CL_INVALID_OPERATION),
                      CL_NAME(CL_INVALID_BUFFER_SIZE),
                      CL_NAME(CL_INVALID_GLOBAL_WORK_SIZE),
                      CL_NAME(CL_INVALID_PROPERTY),
                      { -1001, "CL_PLATFORM_NOT_FOUND_KHR" },
                      { -1011, "CLBlastInsufficientMemoryA" },
                      { -2039, "CLBlastUnexpectedError" },
#define OWN_NAME(name, value, text) { name, #name },
                      MHA_STATUS_MAP(OWN_NAME)
#undef OWN_NAME
};

Test(errors, statuses_have_names)
{
    for (size_t i = 0; i < sizeof foreign_names / sizeof foreign_names[0]; i++) {
        const mha_status value = foreign_names[i].value;
        cr_expect_str_eq(mha_status_name(value), foreign_names[i].name);
        cr_expect_str_neq(mha_status_text(value), "");
        cr_expect_str_neq(mha_status_text(value), "unknown status", "%s", foreign_names[i].name);
    }
    static const mha_status unknown[] = { 14, 99, 12345, INT_MAX, -29, -999, -99999, INT_MIN };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        cr_expect_str_eq(mha_status_name(unknown[i]), "unknown status");
        cr_expect_str_eq(mha_status_text(unknown[i]), "unknown status");
    }
    cr_expect_eq(mha_version(),
                 (unsigned)(MHA_VERSION_MAJOR << 16 | MHA_VERSION_MINOR << 8 | MHA_VERSION_PATCH));
}
