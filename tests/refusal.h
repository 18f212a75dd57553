/* A good call, to be spoilt in one way at a time. Each way must be refused with one sentence that
 * names the function and the argument, must change nothing, and must not harm the next good call.
 */
#ifndef MHA_TESTS_REFUSAL_H
#define MHA_TESTS_REFUSAL_H

#include "device_memory.h"

/* An argument in the struct of arguments. A good one is packed. */
typedef struct refusal_arg {
    const char *name;     /* as the sentences say it */
    size_t at;            /* where {cl_mem buffer; size_t offset} of it begins in the struct */
    device_tensor tensor; /* what it is in the good call */
    bool strided;         /* size_t strides[4] follow, and count */
    const double *want;   /* of an output: the right values. NULL: an input */
    bool optional;        /* without it the call is another good one */
    const float *before;  /* of a cache, which is read and written: what it holds before the call */
} refusal_arg;

/* `at` of an output that the call writes without being given it: of a layer that is loaded. */
#define REFUSAL_NOWHERE SIZE_MAX

enum {
    REFUSAL_MOST = 16, /* arguments */
    REFUSAL_ARENA_BYTES = 1 << 16
};

typedef mha_status refusal_enqueue(void *object, const void *args, const mha_call *call);

typedef struct refusal {
    device *d;
    const char *who;       /* the public function */
    const char *args_name; /* what it says where it is given no arguments */
    refusal_enqueue *enqueue;
    void *object;
    const void *args;
    size_t args_bytes;
    mha_call call;
    mha_workspace workspace;
    const refusal_arg *list;
    size_t count;
    double limit; /* of the error of an output */
    /* The rest is refusal_open's. */
    float *right[REFUSAL_MOST]; /* what the good call writes, bit for bit */
    char sentence[1024];        /* of the last refusal */
    cl_context foreign;
    cl_command_queue foreign_queue, loose_queue; /* of another context; out-of-order */
    cl_mem foreign_buffer;
    cl_mem arena; /* larger than any argument, read-write */
} refusal;

/* Put an argument on the device, packed, and name it in *arg, and in the struct of arguments at
 * `at`: a float32 tensor, which is an output if `want` is given, and holds `data` before each call
 * if that is too; or int32 numbers, where `at` is that of the buffer of an mha_lengths. */
void refusal_add_tensor(refusal_arg *arg, device *d, void *args, const char *name, size_t at,
                        const size_t shape[4], const float *data, const double *want);
void refusal_add_lengths(refusal_arg *arg, device *d, void *args, const char *name, size_t at,
                         size_t count, const int32_t *data);

/* Makes the good call and compares it with what is wanted. The fields above the line are set. */
void refusal_open(refusal *r);
void refusal_close(refusal *r);

/* Makes a call with these arguments, which must be refused with `status`; `said` must be in the
 * sentence as a word of its own. Then the good call again. */
void refusal_expect(refusal *r, const char *name, const void *args, const mha_call *call,
                    mha_status status, const char *said);

/* All rules of mha_call; of buffers, offsets and flags; of strides; of shared memory. */
void refusal_of_calls(refusal *r);
void refusal_of_buffers(refusal *r);
void refusal_of_strides(refusal *r);
void refusal_of_overlaps(refusal *r);

/* A changed copy of the good arguments, valid until the next: another buffer and offset. */
void *refusal_moved(refusal *r, const refusal_arg *arg, cl_mem buffer, size_t offset);
const refusal_arg *refusal_find(const refusal *r, const char *name);

/* Whether a sentence has a word, which may be several: "call.queue". */
bool refusal_says(const char *sentence, const char *word);
/* Whether it begins with a function's name and a colon. */
bool refusal_is_of(const char *sentence, const char *who);

#endif
