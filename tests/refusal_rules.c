/* The ways to spoil a good call that all calls share: mha_call, buffers, strides, shared memory. */
#include "refusal.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    NAME_SIZE = 128
};

static cl_mem make_part(cl_mem whole, size_t origin, size_t bytes)
{
    cl_int error = CL_SUCCESS;
    const cl_buffer_region region = { origin, bytes };
    cl_mem part = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateSubBuffer: %s", mha_status_name(error));
    return part;
}

static cl_mem make_buffer(const refusal *r, cl_mem_flags flags, size_t bytes)
{
    cl_int error = CL_SUCCESS;
    cl_mem buffer = clCreateBuffer(r->d->cl, flags, bytes, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateBuffer: %s", mha_status_name(error));
    return buffer;
}

static size_t size_of(cl_mem buffer)
{
    size_t size = 0;
    cr_assert_eq(clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, NULL), CL_SUCCESS);
    return size;
}

static size_t elements(const device_tensor *tensor)
{
    return tensor->shape[0] * tensor->shape[1] * tensor->shape[2] * tensor->shape[3];
}

static size_t alignment_of(const refusal *r)
{
    cl_uint bits = 0;
    cr_assert_eq(clGetDeviceInfo(mha_context_device(r->d->context), CL_DEVICE_MEM_BASE_ADDR_ALIGN,
                                 sizeof bits, &bits, NULL),
                 CL_SUCCESS);
    return bits / 8;
}

/* --- mha_call --- */

static void expect_workspace(refusal *r, const char *name, cl_mem workspace, mha_status status)
{
    mha_call call = r->call;
    call.workspace = workspace;
    refusal_expect(r, name, r->args, &call, status, "workspace");
    if (workspace)
        clReleaseMemObject(workspace);
}

static void refuse_workspaces(refusal *r)
{
    const size_t bytes = r->workspace.bytes;
    if (!bytes)
        return;
    expect_workspace(r, "no workspace", NULL, MHA_INVALID_ARGUMENT);
    expect_workspace(r, "workspace one byte short", make_buffer(r, CL_MEM_READ_WRITE, bytes - 1),
                     MHA_BUFFER_TOO_SMALL);
    expect_workspace(r, "workspace in a part one byte short",
                     make_part(r->call.workspace, 0, bytes - 1), MHA_BUFFER_TOO_SMALL);
    expect_workspace(r, "read-only workspace", make_buffer(r, CL_MEM_READ_ONLY, bytes),
                     MHA_INVALID_ARGUMENT);
    expect_workspace(r, "write-only workspace", make_buffer(r, CL_MEM_WRITE_ONLY, bytes),
                     MHA_INVALID_ARGUMENT);
    clRetainMemObject(r->foreign_buffer);
    cr_assert(bytes <= REFUSAL_ARENA_BYTES, "%s: the foreign workspace is too small", r->who);
    expect_workspace(r, "workspace of another context", r->foreign_buffer, MHA_WRONG_CONTEXT);
}

static void refuse_waits(refusal *r)
{
    cl_int error = CL_SUCCESS;
    cl_event event = clCreateUserEvent(r->foreign, &error);
    cr_assert_eq(error, CL_SUCCESS);
    clSetUserEventStatus(event, CL_COMPLETE);
    mha_call call = r->call;
    call.num_waits = 1;
    refusal_expect(r, "a number of waits without waits", r->args, &call, MHA_INVALID_ARGUMENT,
                   "call.num_waits");
    call.waits = &event;
    refusal_expect(r, "wait for an event of another context", r->args, &call, MHA_WRONG_CONTEXT,
                   "call.waits");
    call.num_waits = 0;
    refusal_expect(r, "waits without a number", r->args, &call, MHA_INVALID_ARGUMENT, "call.waits");
    clReleaseEvent(event);
}

void refusal_of_calls(refusal *r)
{
    mha_call call = r->call;
    refusal_expect(r, "no call", r->args, NULL, MHA_INVALID_ARGUMENT, "call");
    refusal_expect(r, "no arguments", NULL, &call, MHA_INVALID_ARGUMENT, r->args_name);
    call.queue = NULL;
    refusal_expect(r, "no queue", r->args, &call, MHA_INVALID_ARGUMENT, "call.queue");
    call.queue = r->foreign_queue;
    refusal_expect(r, "queue of another context", r->args, &call, MHA_WRONG_CONTEXT, "call.queue");
    call.queue = r->loose_queue;
    if (r->loose_queue)
        refusal_expect(r, "out-of-order queue", r->args, &call, MHA_WRONG_QUEUE, "call.queue");
    refuse_waits(r);
    refuse_workspaces(r);
}

/* --- Buffers, offsets, flags --- */

static void expect_moved(refusal *r, const refusal_arg *arg, const char *how, cl_mem buffer,
                         size_t offset, mha_status status)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%s: %s", arg->name, how);
    refusal_expect(r, name, refusal_moved(r, arg, buffer, offset), &r->call, status, arg->name);
}

static void refuse_flag(refusal *r, const refusal_arg *arg, cl_mem_flags flag, const char *how)
{
    const size_t bytes = size_of(device_buffer(&arg->tensor));
    const size_t offset = arg->tensor.offset;
    cl_mem closed = make_buffer(r, flag, bytes);
    expect_moved(r, arg, how, closed, offset, MHA_INVALID_ARGUMENT);
    cl_mem part = make_part(closed, 0, bytes);
    expect_moved(r, arg, "part of such a buffer", part, offset, MHA_INVALID_ARGUMENT);
    clReleaseMemObject(part);
    clReleaseMemObject(closed);
}

static void refuse_buffers_of(refusal *r, const refusal_arg *arg)
{
    const device_tensor *tensor = &arg->tensor;
    const size_t count = elements(tensor);
    cl_mem good = device_buffer(tensor);
    if (!arg->optional)
        expect_moved(r, arg, "no buffer", NULL, 0, MHA_INVALID_ARGUMENT);
    expect_moved(r, arg, "buffer of another context", r->foreign_buffer, 0, MHA_WRONG_CONTEXT);
    expect_moved(r, arg, "one element too far", good, size_of(good) / tensor->bytes - count + 1,
                 MHA_BUFFER_TOO_SMALL);
    expect_moved(r, arg, "far behind the end", good, size_of(good), MHA_BUFFER_TOO_SMALL);
    expect_moved(r, arg, "the least offset that overflows", good,
                 SIZE_MAX / tensor->bytes - count + 1, MHA_TOO_LARGE);
    expect_moved(r, arg, "the largest offset", good, SIZE_MAX, MHA_TOO_LARGE);
    cl_mem part = make_part(good, 0, (tensor->offset + count) * tensor->bytes - 1);
    expect_moved(r, arg, "in a part one byte short", part, tensor->offset, MHA_BUFFER_TOO_SMALL);
    clReleaseMemObject(part);
    if (arg->want)
        refuse_flag(r, arg, CL_MEM_READ_ONLY, "read-only");
    if (!arg->want || arg->before)
        refuse_flag(r, arg, CL_MEM_WRITE_ONLY, "write-only");
}

void refusal_of_buffers(refusal *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->list[i].at != REFUSAL_NOWHERE)
            refuse_buffers_of(r, &r->list[i]);
}

/* --- Strides --- */

static void expect_strides(refusal *r, const refusal_arg *arg, const char *how,
                           const size_t strides[4], mha_status status)
{
    char name[512];
    snprintf(name, sizeof name, "%s: %s", arg->name, how);
    unsigned char *args = refusal_moved(r, arg, device_buffer(&arg->tensor), arg->tensor.offset);
    memcpy(args + arg->at + offsetof(mha_tensor, strides), strides, 4 * sizeof strides[0]);
    refusal_expect(r, name, args, &r->call, status, arg->name);
}

/* Axis by axis, so that each is wrong in an otherwise good set. */
static void refuse_strides_of(refusal *r, const refusal_arg *arg)
{
    const size_t *shape = arg->tensor.shape;
    const size_t packed[4] = { shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1 };
    size_t strides[4];
    char how[NAME_SIZE];
    for (int axis = 0; axis < 4; axis++) {
        if (shape[axis] < 2)
            continue;
        for (size_t stride = 0; axis == 3 && stride <= 2; stride += 2) {
            memcpy(strides, packed, sizeof strides);
            strides[3] = stride;
            snprintf(how, sizeof how, "last stride %zu", stride);
            expect_strides(r, arg, how, strides, MHA_INVALID_ARGUMENT);
        }
        for (size_t less = 1; axis < 3 && arg->want && less <= packed[axis];
             less += packed[axis] - (packed[axis] > 1)) {
            memcpy(strides, packed, sizeof strides);
            strides[axis] = packed[axis] - less;
            snprintf(how, sizeof how, "stride %zu of axis %d writes twice", strides[axis], axis);
            expect_strides(r, arg, how, strides, MHA_INVALID_ARGUMENT);
        }
        memcpy(strides, packed, sizeof strides);
        /* The end in bytes is the same modulo 2^64, if nobody looks. */
        strides[axis] += SIZE_MAX / arg->tensor.bytes + 1;
        snprintf(how, sizeof how, "stride of axis %d overflows", axis);
        if (axis < 3 && arg->tensor.bytes > 1)
            expect_strides(r, arg, how, strides, MHA_TOO_LARGE);
        strides[axis] = SIZE_MAX / (shape[axis] - 1);
        if (axis < 3)
            expect_strides(r, arg, how, strides, MHA_TOO_LARGE);
        strides[axis] = packed[axis] + size_of(device_buffer(&arg->tensor));
        snprintf(how, sizeof how, "stride of axis %d ends behind the buffer", axis);
        if (axis < 3)
            expect_strides(r, arg, how, strides, MHA_BUFFER_TOO_SMALL);
    }
}

void refusal_of_strides(refusal *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->list[i].strided && r->list[i].at != REFUSAL_NOWHERE)
            refuse_strides_of(r, &r->list[i]);
}

/* --- Shared memory --- */

/* Moves `other` as well, into the arguments that refusal_moved has made. */
static void expect_shared(refusal *r, const char *how, const refusal_arg *output, cl_mem one,
                          size_t one_offset, const refusal_arg *other, cl_mem two,
                          size_t two_offset)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%s with %s, %s", output->name, other->name, how);
    unsigned char *args = refusal_moved(r, output, one, one_offset);
    const struct {
        cl_mem buffer;
        size_t offset;
    } place = { two, two_offset };
    memcpy(args + other->at, &place, sizeof place);
    refusal_expect(r, name, args, &r->call, MHA_OVERLAP, output->name);
    cr_expect(refusal_says(r->sentence, other->name), "%s: %s: does not name both: %s", r->who,
              name, r->sentence);
}

static void refuse_pair(refusal *r, const refusal_arg *output, const refusal_arg *other)
{
    const size_t end = elements(&output->tensor) * output->tensor.bytes;
    const size_t step = alignment_of(r);
    expect_shared(r, "in the last element", output, r->arena, 0, other, r->arena,
                  (end - 1) / other->tensor.bytes);
    const size_t other_end = elements(&other->tensor) * other->tensor.bytes;
    expect_shared(r, "in the first element", output, r->arena,
                  (other_end - 1) / output->tensor.bytes, other, r->arena, 0);
    cl_mem part = make_part(r->arena, step, REFUSAL_ARENA_BYTES - step);
    const size_t inside = (step + end - 1) / other->tensor.bytes;
    expect_shared(r, "one in a part", output, part, 0, other, r->arena, inside);
    cl_mem same = make_part(r->arena, 0, REFUSAL_ARENA_BYTES);
    expect_shared(r, "both in parts", output, part, 0, other, same, inside);
    clReleaseMemObject(same);
    clReleaseMemObject(part);
}

static void refuse_in_workspace(refusal *r, const refusal_arg *arg)
{
    const size_t middle = REFUSAL_ARENA_BYTES / 2;
    char name[NAME_SIZE];
    mha_call call = r->call;
    cr_assert(r->workspace.bytes <= middle, "%s: the arena is too small", r->who);
    call.workspace = r->arena;
    snprintf(name, sizeof name, "%s in the workspace", arg->name);
    refusal_expect(r, name, refusal_moved(r, arg, r->arena, middle / arg->tensor.bytes), &call,
                   MHA_OVERLAP, arg->name);
    call.workspace = make_part(r->arena, 0, middle);
    snprintf(name, sizeof name, "%s in the part that is the workspace", arg->name);
    refusal_expect(r, name, refusal_moved(r, arg, r->arena, middle / arg->tensor.bytes - 1), &call,
                   MHA_OVERLAP, arg->name);
    clReleaseMemObject(call.workspace);
}

void refusal_of_overlaps(refusal *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const refusal_arg *arg = &r->list[i];
        if (arg->at == REFUSAL_NOWHERE)
            continue;
        for (size_t k = 0; arg->want && k < r->count; k++)
            if (k != i && r->list[k].at != REFUSAL_NOWHERE)
                refuse_pair(r, arg, &r->list[k]);
        if (r->workspace.bytes)
            refuse_in_workspace(r, arg);
    }
}
