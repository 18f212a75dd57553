/* Tensors between guards on the default device, and the log's last sentence. */
#include "device_memory.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An odd number of elements more than the guard, so that no vector load finds itself aligned. */
enum {
    BEFORE = DEVICE_GUARD + 3,
    AFTER = DEVICE_GUARD
};

struct device_block {
    device_block *next;
    cl_mem buffer;
    size_t size;          /* bytes */
    size_t bytes;         /* of an element */
    unsigned char *image; /* what should be in it */
    bool *written;        /* [size / bytes]: the elements of outputs, which may hold anything */
};

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    cr_assert(memory, "no memory for %zu elements of %zu bytes", count, size);
    return memory;
}

static void keep_sentence(void *data, mha_log_level level, const char *text)
{
    device *d = data;
    (void)level;
    pthread_mutex_lock(&d->lock);
    snprintf(d->sentence, sizeof d->sentence, "%s", text);
    d->sentences++;
    pthread_mutex_unlock(&d->lock);
}

mha_log device_log(device *d)
{
    return (mha_log){ .fn = keep_sentence, .data = d };
}

const char *device_cache_dir(void)
{
    return BUILD_DIR "/tests/programs";
}

void device_hush(device *d)
{
    pthread_mutex_lock(&d->lock);
    d->sentence[0] = '\0';
    d->sentences = 0;
    pthread_mutex_unlock(&d->lock);
}

void device_open(device *d)
{
    *d = (device){ 0 };
    cr_assert_eq(pthread_mutex_init(&d->lock, NULL), 0);
    /* The driver's own cache is enough: asked for a program's binary, PoCL compiles its kernels
     * once more, which takes longer than all else that a test does. */
    const mha_context_options options = { .cache_dir = "", .log = device_log(d) };
    const mha_status status = mha_context_create(&d->context, &options);
    cr_assert_eq(status, MHA_OK, "no context: %s", d->sentence);
    d->cl = mha_context_cl(d->context);
    cl_int error = CL_SUCCESS;
    d->queue = clCreateCommandQueue(d->cl, mha_context_device(d->context), 0, &error);
    cr_assert_eq(error, CL_SUCCESS, "no queue: %s", mha_status_name(error));
}

bool device_is_cpu(const device *d)
{
    mha_device_info info;
    cr_assert_eq(mha_context_info(d->context, &info), MHA_OK);
    return info.type & CL_DEVICE_TYPE_CPU;
}

void device_close(device *d)
{
    if (!d->context)
        return;
    device_forget(d);
    clReleaseCommandQueue(d->queue);
    mha_context_destroy(&d->context);
    pthread_mutex_destroy(&d->lock);
    *d = (device){ 0 };
}

/* As a float, float16 or bfloat16 a quiet NaN whose bits no computation makes. */
static void poison(unsigned char *at, size_t bytes)
{
    static const unsigned char pattern[4] = { 0xa5, 0xa5, 0xe5, 0x7f };
    /* Its upper half is a NaN of either half type. */
    memcpy(at, pattern + (bytes == 2 ? 2 : 0), bytes);
}

static device_block *add_block(device *d, size_t elements, size_t bytes)
{
    device_block *block = allocate(1, sizeof *block);
    cl_int error = CL_SUCCESS;
    cr_assert(bytes == 1 || bytes == 2 || bytes == 4, "an element of %zu bytes", bytes);
    *block = (device_block){
        .next = d->blocks,
        .size = elements * bytes,
        .bytes = bytes,
        .image = allocate(elements, bytes),
        .written = allocate(elements, sizeof(bool)),
    };
    for (size_t i = 0; i < elements; i++)
        poison(block->image + i * bytes, bytes);
    block->buffer = clCreateBuffer(d->cl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, block->size,
                                   block->image, &error);
    cr_assert_eq(error, CL_SUCCESS, "no buffer of %zu bytes: %s", block->size,
                 mha_status_name(error));
    d->blocks = block;
    return block;
}

device_block *device_block_new(device *d, size_t count, size_t bytes)
{
    return add_block(d, BEFORE + count + AFTER, bytes);
}

static bool is_packed(const size_t strides[4])
{
    return !strides[0] && !strides[1] && !strides[2] && !strides[3];
}

static size_t count_of(const size_t shape[4])
{
    return shape[0] * shape[1] * shape[2] * shape[3];
}

/* The distance of an element, given by its number in packed order, from the first one. */
static size_t distance(const device_tensor *tensor, size_t index)
{
    if (is_packed(tensor->strides))
        return index;
    size_t sum = 0;
    for (int axis = 3; axis >= 0; axis--) {
        sum += index % tensor->shape[axis] * tensor->strides[axis];
        index /= tensor->shape[axis];
    }
    return sum;
}

static void finish(device *d)
{
    const cl_int error = clFinish(d->queue);
    cr_assert_eq(error, CL_SUCCESS, "clFinish: %s", mha_status_name(error));
}

static void upload(device *d, const device_block *block)
{
    const cl_int error = clEnqueueWriteBuffer(d->queue, block->buffer, CL_TRUE, 0, block->size,
                                              block->image, 0, NULL, NULL);
    cr_assert_eq(error, CL_SUCCESS, "clEnqueueWriteBuffer: %s", mha_status_name(error));
}

/* The whole block, for the caller to free. */
static unsigned char *download(device *d, const device_block *block)
{
    unsigned char *now = allocate(block->size, 1);
    const cl_int error =
        clEnqueueReadBuffer(d->queue, block->buffer, CL_TRUE, 0, block->size, now, 0, NULL, NULL);
    cr_assert_eq(error, CL_SUCCESS, "clEnqueueReadBuffer: %s", mha_status_name(error));
    return now;
}

void device_write(device *d, const device_tensor *tensor, const void *data)
{
    device_block *block = tensor->block;
    for (size_t i = 0; i < count_of(tensor->shape); i++) {
        const size_t at = tensor->offset + distance(tensor, i);
        memcpy(block->image + at * block->bytes, (const char *)data + i * block->bytes,
               block->bytes);
    }
    upload(d, block);
}

device_tensor device_place(device *d, device_block *block, size_t start, const size_t shape[4],
                           const size_t strides[4], const void *data)
{
    device_tensor tensor = { .block = block, .offset = BEFORE + start, .bytes = block->bytes };
    memcpy(tensor.shape, shape, sizeof tensor.shape);
    if (strides)
        memcpy(tensor.strides, strides, sizeof tensor.strides);
    const size_t elements = block->size / block->bytes;
    for (size_t i = 0; i < count_of(shape); i++) {
        const size_t at = tensor.offset + distance(&tensor, i);
        cr_assert(at + AFTER < elements, "a tensor that ends behind its block");
        block->written[at] = !data;
    }
    if (data)
        device_write(d, &tensor, data);
    return tensor;
}

static device_tensor place_alone(device *d, const size_t shape[4], const size_t strides[4],
                                 size_t bytes, const void *data)
{
    device_tensor tensor = { 0 };
    memcpy(tensor.shape, shape, sizeof tensor.shape);
    if (strides)
        memcpy(tensor.strides, strides, sizeof tensor.strides);
    const size_t count = count_of(shape);
    device_block *block = device_block_new(d, count ? distance(&tensor, count - 1) + 1 : 0, bytes);
    return device_place(d, block, 0, shape, strides, data);
}

device_tensor device_input(device *d, const size_t shape[4], const size_t strides[4], size_t bytes,
                           const void *data)
{
    cr_assert(data, "an input without data");
    return place_alone(d, shape, strides, bytes, data);
}

device_tensor device_output(device *d, const size_t shape[4], const size_t strides[4], size_t bytes)
{
    return place_alone(d, shape, strides, bytes, NULL);
}

mha_tensor device_arg(const device_tensor *tensor)
{
    mha_tensor arg = { .buffer = tensor->block->buffer, .offset = tensor->offset };
    memcpy(arg.strides, tensor->strides, sizeof arg.strides);
    return arg;
}

cl_mem device_buffer(const device_tensor *tensor)
{
    return tensor->block->buffer;
}

void device_read(device *d, const device_tensor *tensor, void *data)
{
    const device_block *block = tensor->block;
    unsigned char *now = download(d, block);
    for (size_t i = 0; i < count_of(tensor->shape); i++) {
        const size_t at = tensor->offset + distance(tensor, i);
        memcpy((char *)data + i * block->bytes, now + at * block->bytes, block->bytes);
    }
    free(now);
}

mha_call device_call(device *d, mha_workspace need)
{
    mha_call call = { .queue = d->queue };
    if (!need.bytes)
        return call;
    cr_assert_eq(need.bytes % 4, 0);
    device_block *block = add_block(d, need.bytes / 4 + AFTER, 4);
    memset(block->written, true, need.bytes / 4);
    call.workspace = block->buffer;
    return call;
}

void device_expect_guards(device *d, const char *name)
{
    finish(d);
    for (const device_block *block = d->blocks; block; block = block->next) {
        unsigned char *now = download(d, block);
        const size_t elements = block->size / block->bytes;
        size_t at = 0;
        while (at < elements &&
               (block->written[at] ||
                !memcmp(now + at * block->bytes, block->image + at * block->bytes, block->bytes)))
            at++;
        free(now);
        cr_expect_eq(at, elements,
                     "%s: element %zu of a buffer of %zu (guards: %d before, %d after) has changed "
                     "and is no output",
                     name, at, elements, BEFORE, AFTER);
    }
}

void device_forget(device *d)
{
    finish(d);
    while (d->blocks) {
        device_block *block = d->blocks;
        d->blocks = block->next;
        clReleaseMemObject(block->buffer);
        free(block->image);
        free(block->written);
        free(block);
    }
}
