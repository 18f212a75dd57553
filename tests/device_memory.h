/* What tests need of a device: a context whose log is kept, an in-order queue, and tensors between
 * guards, in a packed order or any other. Whatever goes wrong in OpenCL ends the test.
 *
 *     device d;
 *     device_open(&d);
 *     device_tensor x = device_input(&d, shape, NULL, sizeof(float), data);
 *     device_tensor y = device_output(&d, shape, strides, sizeof(float));
 *     ... args.query = device_arg(&x); args.output = device_arg(&y);
 *     ... call = device_call(&d, mha_attention_workspace(attention)); enqueue ...
 *     device_read(&d, &y, result);
 *     device_expect_guards(&d, "the name of the case");
 *     device_forget(&d);
 *     device_close(&d);
 */
#ifndef MHA_TESTS_DEVICE_MEMORY_H
#define MHA_TESTS_DEVICE_MEMORY_H

#include <mha.h>
#include <pthread.h>
#include <stdbool.h>

/* Poisoned elements on either side of a tensor; before it a few more, so that its offset is odd. */
#define DEVICE_GUARD 64

/* A buffer and what should be in it. */
typedef struct device_block device_block;

typedef struct device {
    mha_context *context;
    cl_context cl;
    cl_command_queue queue; /* in-order */
    device_block *blocks;   /* the living ones */
    pthread_mutex_t lock;   /* guards the rest: the log may come from any thread */
    char sentence[1024];    /* the last one that the library said at level `warning` or worse */
    size_t sentences;       /* how many it said */
} device;

/* The default device. The library keeps no programs, since the driver does. */
void device_open(device *d);
/* Whether it is a CPU, for which the library has kernels of its own. */
bool device_is_cpu(const device *d);
/* Forgets, and releases all. Accepts what device_open has not filled, if it is all 0. */
void device_close(device *d);
/* For a context of one's own that logs to `d`, which must be open and stay. */
mha_log device_log(device *d);
/* A folder of the build for programs, for tests that make many contexts. */
const char *device_cache_dir(void);
/* Frees the sentence: the next one counts from here. */
void device_hush(device *d);

/* A tensor in a block. Elements of the block that are no tensor's hold the poison, which is a NaN
 * as a float or half, a number above any length as an int32, and not 0 as a byte. */
typedef struct device_tensor {
    device_block *block;
    size_t offset; /* elements, as all but `bytes` */
    size_t shape[4];
    size_t strides[4]; /* as given: all 0 is packed */
    size_t bytes;      /* of an element */
} device_tensor;

/* A tensor in a block of its own. `strides` NULL: packed. An input has `data`, packed in the order
 * of its shape, and must never change; an output holds NaN. Empty ones have a buffer, too. */
device_tensor device_input(device *d, const size_t shape[4], const size_t strides[4], size_t bytes,
                           const void *data);
device_tensor device_output(device *d, const size_t shape[4], const size_t strides[4],
                            size_t bytes);

/* Several tensors in one buffer: a block of `count` elements between guards, and a tensor that
 * begins `start` elements behind the first guard. `data` NULL: an output. */
device_block *device_block_new(device *d, size_t count, size_t bytes);
device_tensor device_place(device *d, device_block *block, size_t start, const size_t shape[4],
                           const size_t strides[4], const void *data);

/* What the library is given. */
mha_tensor device_arg(const device_tensor *tensor);
cl_mem device_buffer(const device_tensor *tensor);

/* The elements, packed in the order of the shape. Waits for the queue. */
void device_read(device *d, const device_tensor *tensor, void *data);
/* New elements, for what is read by the next call. */
void device_write(device *d, const device_tensor *tensor, const void *data);

/* The queue and a workspace of exactly `need`, full of NaN, with a guard behind it. */
mha_call device_call(device *d, mha_workspace need);

/* Fails the test, naming the case, where any living block has changed in a guard, between the
 * elements of its tensors, or in an input. Waits for the queue. */
void device_expect_guards(device *d, const char *name);

/* Releases all tensors, blocks and workspaces. */
void device_forget(device *d);

#endif
