/* A good call, to be spoilt in one way at a time. */
#include "refusal.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What mha_tensor and mha_matrix begin with, and mha_lengths ends with. */
typedef struct place {
    cl_mem buffer;
    size_t offset;
} place;

static size_t elements(const device_tensor *tensor)
{
    return tensor->shape[0] * tensor->shape[1] * tensor->shape[2] * tensor->shape[3];
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

bool refusal_says(const char *sentence, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = strstr(sentence, word); at; at = strstr(at + 1, word))
        if ((at == sentence || !is_letter(at[-1])) && !is_letter(at[length]))
            return true;
    return false;
}

bool refusal_is_of(const char *sentence, const char *who)
{
    const size_t length = strlen(who);
    return !strncmp(sentence, who, length) && sentence[length] == ':';
}

const refusal_arg *refusal_find(const refusal *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->list[i].name, name))
            return &r->list[i];
    cr_assert_fail("%s has no argument %s", r->who, name);
    return NULL;
}

void *refusal_moved(refusal *r, const refusal_arg *arg, cl_mem buffer, size_t offset)
{
    static union {
        max_align_t align;
        unsigned char bytes[4096];
    } copy;
    cr_assert(r->args_bytes <= sizeof copy.bytes);
    memcpy(copy.bytes, r->args, r->args_bytes);
    memcpy(copy.bytes + arg->at, &(place){ buffer, offset }, sizeof(place));
    return copy.bytes;
}

/* --- The good call --- */

static void put_place(void *args, size_t at, const device_tensor *tensor)
{
    memcpy((char *)args + at, &(place){ device_buffer(tensor), tensor->offset }, sizeof(place));
}

void refusal_add_tensor(refusal_arg *arg, device *d, void *args, const char *name, size_t at,
                        const size_t shape[4], const float *data, const double *want)
{
    *arg = (refusal_arg){
        .name = name, .at = at, .strided = true, .want = want, .before = want ? data : NULL
    };
    arg->tensor = want ? device_output(d, shape, NULL, sizeof(float))
                       : device_input(d, shape, NULL, sizeof(float), data);
    put_place(args, at, &arg->tensor);
}

void refusal_add_lengths(refusal_arg *arg, device *d, void *args, const char *name, size_t at,
                         size_t count, const int32_t *data)
{
    *arg = (refusal_arg){ .name = name, .at = at };
    arg->tensor = device_input(d, (size_t[]){ 1, 1, 1, count }, NULL, sizeof(int32_t), data);
    put_place(args, at, &arg->tensor);
}

/* What an output holds before each call, for the caller to free. */
static float *make_before(const refusal_arg *arg)
{
    const size_t count = elements(&arg->tensor);
    float *data = malloc(count * sizeof *data);
    cr_assert(data);
    for (size_t k = 0; k < count; k++)
        data[k] = arg->before ? arg->before[k] : NAN;
    return data;
}

static void clear_outputs(refusal *r)
{
    for (size_t i = 0; i < r->count; i++) {
        if (!r->list[i].want)
            continue;
        float *before = make_before(&r->list[i]);
        device_write(r->d, &r->list[i].tensor, before);
        free(before);
    }
}

static float *read_output(refusal *r, const refusal_arg *arg)
{
    float *data = malloc(elements(&arg->tensor) * sizeof *data);
    cr_assert(data);
    device_read(r->d, &arg->tensor, data);
    return data;
}

static bool is_near(double got, double want, double limit)
{
    return isinf(want) ? got == want : fabs(got - want) <= limit;
}

static void expect_right(refusal *r, size_t i, const char *name)
{
    const refusal_arg *arg = &r->list[i];
    const size_t count = elements(&arg->tensor);
    float *now = read_output(r, arg);
    if (r->right[i]) {
        cr_expect(!memcmp(now, r->right[i], count * sizeof *now),
                  "%s: %s: %s of the next good call is another", r->who, name, arg->name);
        free(now);
        return;
    }
    for (size_t k = 0; k < count; k++)
        cr_expect(is_near(now[k], arg->want[k], r->limit), "%s: %s[%zu] is %g, not %g", r->who,
                  arg->name, k, now[k], arg->want[k]);
    r->right[i] = now;
}

static void expect_good(refusal *r, const char *name)
{
    device_hush(r->d);
    const mha_status status = r->enqueue(r->object, r->args, &r->call);
    cr_assert_eq(status, MHA_OK, "%s: %s: the next good call: %s: %s", r->who, name,
                 mha_status_name(status), r->d->sentence);
    cr_expect_eq(r->d->sentences, 0, "%s: %s: the next good call: %s", r->who, name,
                 r->d->sentence);
    for (size_t i = 0; i < r->count; i++)
        if (r->list[i].want)
            expect_right(r, i, name);
    device_expect_guards(r->d, name);
    clear_outputs(r);
}

static cl_mem make_buffer(cl_context cl, cl_mem_flags flags, size_t bytes)
{
    cl_int error = CL_SUCCESS;
    cl_mem buffer = clCreateBuffer(cl, flags, bytes, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateBuffer: %s", mha_status_name(error));
    return buffer;
}

void refusal_open(refusal *r)
{
    cl_int error = CL_SUCCESS;
    cl_device_id id = mha_context_device(r->d->context);
    cr_assert(r->count <= REFUSAL_MOST);
    r->foreign = clCreateContext(NULL, 1, &id, NULL, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS);
    r->foreign_queue = clCreateCommandQueue(r->foreign, id, 0, &error);
    cr_assert_eq(error, CL_SUCCESS);
    r->foreign_buffer = make_buffer(r->foreign, CL_MEM_READ_WRITE, REFUSAL_ARENA_BYTES);
    r->arena = make_buffer(r->d->cl, CL_MEM_READ_WRITE, REFUSAL_ARENA_BYTES);
    r->loose_queue =
        clCreateCommandQueue(r->d->cl, id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
    if (error)
        r->loose_queue = NULL; /* a device may have none */
    clear_outputs(r);
    expect_good(r, "first");
}

void refusal_close(refusal *r)
{
    for (size_t i = 0; i < r->count; i++)
        free(r->right[i]);
    clReleaseMemObject(r->arena);
    clReleaseMemObject(r->foreign_buffer);
    if (r->loose_queue)
        clReleaseCommandQueue(r->loose_queue);
    clReleaseCommandQueue(r->foreign_queue);
    clReleaseContext(r->foreign);
}

/* --- A spoilt one --- */

static void expect_untouched(refusal *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++) {
        const refusal_arg *arg = &r->list[i];
        if (!arg->want)
            continue;
        float *now = read_output(r, arg), *before = make_before(arg);
        size_t k = 0;
        while (k < elements(&arg->tensor) && !memcmp(&now[k], &before[k], sizeof *now))
            k++;
        cr_expect_eq(k, elements(&arg->tensor), "%s: %s: refused, but %s[%zu] is written", r->who,
                     name, arg->name, k);
        free(now);
        free(before);
    }
    device_expect_guards(r->d, name);
}

void refusal_expect(refusal *r, const char *name, const void *args, const mha_call *call,
                    mha_status status, const char *said)
{
    /* Any pointer that is not NULL: a refused call sets it to NULL without a look at it. */
    cl_event event = (cl_event)(uintptr_t)r;
    mha_call whole;
    if (call) {
        whole = *call;
        whole.event = &event;
    }
    device_hush(r->d);
    const mha_status got = r->enqueue(r->object, args, call ? &whole : NULL);
    cr_expect_eq(got, status, "%s: %s: %s, not %s: %s", r->who, name, mha_status_name(got),
                 mha_status_name(status), r->d->sentence);
    memcpy(r->sentence, r->d->sentence, sizeof r->sentence);
    if (got) {
        cr_expect(!call || !event, "%s: %s: refused, but the event is not NULL", r->who, name);
        cr_expect_eq(r->d->sentences, 1, "%s: %s: %zu sentences, the last: %s", r->who, name,
                     r->d->sentences, r->d->sentence);
        cr_expect(refusal_is_of(r->d->sentence, r->who), "%s: %s: does not name the function: %s",
                  r->who, name, r->d->sentence);
        cr_expect(refusal_says(r->d->sentence, said), "%s: %s: does not say %s: %s", r->who, name,
                  said, r->d->sentence);
        expect_untouched(r, name);
    } else {
        clFinish(whole.queue);
        clReleaseEvent(event);
        clear_outputs(r);
    }
    expect_good(r, name);
}
