/* One case on its way through the library: its tensors in guarded buffers, its call, its verdict.
 *
 * An operation binds what it needs, calls check_ready once everything that the case says has been
 * read, then calls the library and hands each status to check_status. The first trouble decides:
 * after it the functions here do nothing, so that an operation reads as one straight line. */
#ifndef MHA_TOOLS_CHECK_H
#define MHA_TOOLS_CHECK_H

#include "case.h"
#include "guarded.h"

#include <mha.h>

typedef enum check_verdict {
    CHECK_UNDECIDED,
    CHECK_PASSED,
    CHECK_FAILED,
    CHECK_SKIPPED /* the case asks for what the library, or this program, cannot do yet */
} check_verdict;

/* What all cases of a run share. */
typedef struct check_setup {
    mha_context *context;
    cl_command_queue queue;
    mha_path path; /* of every attention */
    mha_tiling tiling;
    mha_gemm_by gemm;    /* of every product */
    const char *device;  /* the word that the context was opened with; NULL: the default */
    const char *model;   /* the folder for SentenceEmbedding; NULL: where fetch-model puts it */
    char sentence[1024]; /* the last error message, which the context's log callback leaves here */
} check_setup;

typedef enum check_role {
    CHECK_INPUT,    /* must not change */
    CHECK_OUTPUT,   /* starts as NaN, or as the input of the same name */
    CHECK_WORKSPACE /* may become anything */
} check_role;

typedef struct check_buffer {
    const char *name;
    check_role role;
    case_type type;
    size_t heads; /* of an output: the case wants the mean over so many heads; else 1 */
    guarded guarded;
} check_buffer;

#define CHECK_MAX_BUFFERS 48
#define CHECK_MAX_LENGTHS 4

typedef struct check {
    check_setup *setup;
    case_file *file;
    bool expects_error;
    /* Lengths go in host memory in the first pass and in a buffer in the second, which is made if
     * the first one used any. */
    bool lengths_on_device, uses_lengths;
    int32_t *lengths[CHECK_MAX_LENGTHS];
    size_t num_lengths;
    size_t num_buffers;
    check_buffer buffers[CHECK_MAX_BUFFERS];
    /* The first call that failed. */
    mha_status status;
    const char *call;
    /* The verdict and why; of a passed case "". */
    check_verdict verdict;
    char text[1024];
    /* The worst element of the outputs that were compared, as a part of its tolerance. */
    double worst;
    char explain[2048]; /* what the library said of its choice of kernels, "" if nothing */
} check;

/* Decide, unless something is decided. */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
void check_fail(check *self, const char *format, ...);
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
void check_skip(check *self, const char *format, ...);

/* A verdict is there or a call has failed. */
bool check_stopped(const check *self);

/* The input of that name; without one the check fails and NULL comes back. */
const case_tensor *check_need(check *self, const char *name);

/* Does the call have to write this output? Those of a case that expects an error are not listed. */
bool check_wants(const check *self, const char *name);

/* A tensor in a buffer of its own, or in that of the inputs it is said to be one with. Without
 * strides, except those that the case gives, right-aligned. */
mha_tensor check_input(check *self, const case_tensor *tensor);

/* The same for data that was made from a case's tensor. `data` is copied. */
mha_tensor check_made_input(check *self, const char *name, case_type type, const void *data,
                            size_t count);

/* The output of that name, of `count` elements of `type`, or the input of the same name. `heads`:
 * see check_buffer. */
mha_tensor check_output(check *self, const char *name, case_type type, size_t count, size_t heads);

/* An output of that name which starts as `data`, which is copied; the case need not want it. */
mha_tensor check_made_output(check *self, const char *name, case_type type, const void *data,
                             size_t count);

/* The type that the case gives an output, `other` where it lists none of that name. */
case_type check_output_type(const check *self, const char *name, case_type other);

/* `count` whole numbers of a packed tensor, from the one at `first`, as lengths; and numbers that
 * were made from a case. At most CHECK_MAX_LENGTHS times a case. */
mha_lengths check_lengths(check *self, const case_tensor *tensor, size_t first, size_t count);
mha_lengths check_made_lengths(check *self, const char *name, const int32_t *numbers, size_t count);

/* The library's name for an element type. Float64 and integers decide for a skip. */
mha_type check_type(check *self, case_type type);

/* Everything is bound: skips a case that says more than was asked for. True: call the library. */
bool check_ready(check *self);

/* A call in the queue with the workspace that an object asks for. */
mha_call check_call(check *self, mha_workspace workspace);
void check_status(check *self, mha_status status, const char *call);

/* Waits, compares, decides. Buffers are released by check_release only. */
void check_finish(check *self);
void check_release(check *self);

#endif
