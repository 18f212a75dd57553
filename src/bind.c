/* From a call's arguments to views that kernels may trust: every rule that drivers do not check. */
#include "bind.h"

#include "log.h"
#include "shape.h"
/* The facts of a buffer, and of the buffer it is a part of. */
typedef struct buffer_facts {
    size_t size;
    cl_mem root;
    size_t origin; /* bytes into root */
} buffer_facts;

static mha_status check_buffer(const mha_run *run, buffer_facts *out, const char *who,
                               const char *name, cl_mem buffer, mha_access access)
{
    const mha_log *log = &run->context->log;
    cl_context cl = NULL;
    cl_mem parent = NULL;
    cl_mem_flags flags = 0;
    size_t size = 0, origin = 0;
    cl_int error = clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof cl, &cl, NULL);
    if (!error)
        error = clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, NULL);
    if (!error)
        error = clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
    if (!error)
        error =
            clGetMemObjectInfo(buffer, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL);
    if (!error && parent)
        error = clGetMemObjectInfo(buffer, CL_MEM_OFFSET, sizeof origin, &origin, NULL);
    if (error)
        return mha_log_fail(log, error, "%s: clGetMemObjectInfo of %s failed", who, name);
    if (cl != run->context->cl)
        return mha_log_fail(log, MHA_WRONG_CONTEXT,
                            "%s: the buffer of %s belongs to another OpenCL context than the "
                            "mha_context",
                            who, name);
    if (access & MHA_WRITES && flags & CL_MEM_READ_ONLY)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: the buffer of %s is CL_MEM_READ_ONLY, and it is written", who,
                            name);
    if (access & MHA_READS && flags & CL_MEM_WRITE_ONLY)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: the buffer of %s is CL_MEM_WRITE_ONLY, and it is read", who, name);
    *out = (buffer_facts){ .size = size, .root = parent ? parent : buffer, .origin = origin };
    return MHA_OK;
}

/* Whether two indexes of an output could name one element: taken from the shortest stride up, each
 * stride must step over all that the shorter ones reach. */
static bool repeats_itself(const size_t shape[4], const size_t strides[4])
{
    bool done[4] = { false };
    size_t reach = 1;
    for (int round = 0; round < 4; round++) {
        int next = -1;
        for (int axis = 0; axis < 4; axis++)
            if (!done[axis] && shape[axis] > 1 && (next < 0 || strides[axis] < strides[next]))
                next = axis;
        if (next < 0)
            return false;
        if (strides[next] < reach)
            return true;
        done[next] = true;
        reach += (shape[next] - 1) * strides[next];
    }
    return false;
}

/* Strides as kernels want them: packed ones spelled out, 0 along axes of length 1. */
static mha_status resolve_strides(const mha_run *run, size_t out[4], const char *who,
                                  const char *name, const mha_tensor *tensor, const size_t shape[4],
                                  mha_access access)
{
    const bool packed =
        !tensor->strides[0] && !tensor->strides[1] && !tensor->strides[2] && !tensor->strides[3];
    size_t step = 1;
    for (int axis = 3; axis >= 0; axis--) {
        const size_t stride = packed ? step : tensor->strides[axis];
        out[axis] = shape[axis] > 1 ? stride : 0;
        step *= shape[axis];
    }
    if (shape[3] > 1 && out[3] != 1)
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            "%s: %s.strides[3] is %zu; the last axis must be contiguous, so 1", who,
                            name, out[3]);
    if (access & MHA_WRITES && repeats_itself(shape, out))
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            "%s: the strides of %s (%zu, %zu, %zu, %zu) make it write an element "
                            "twice",
                            who, name, out[0], out[1], out[2], out[3]);
    return MHA_OK;
}

mha_status mha_bind_tensor(const mha_run *run, mha_view *out, const char *who, const char *name,
                           const mha_tensor *tensor, const size_t shape[4], size_t bytes,
                           mha_access access)
{
    const mha_log *log = &run->context->log;
    *out = (mha_view){ 0 };
    const bool empty = mha_shape_is_empty(shape);
    if (!tensor->buffer && empty)
        return MHA_OK;
    if (!tensor->buffer)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: %s is not given", who, name);
    buffer_facts facts;
    mha_status status = check_buffer(run, &facts, who, name, tensor->buffer, access);
    if (!status && !empty)
        status = resolve_strides(run, out->strides, who, name, tensor, shape, access);
    if (status)
        return status;

    const mha_size reach = mha_shape_reach(shape, tensor->strides);
    if (reach.overflows || reach.value > SIZE_MAX / bytes ||
        tensor->offset > SIZE_MAX / bytes - reach.value)
        return mha_log_fail(log, MHA_TOO_LARGE,
                            "%s: offset and strides of %s pass the largest size_t", who, name);
    const size_t end = (tensor->offset + reach.value) * bytes;
    if (!empty && end > facts.size)
        return mha_log_fail(log, MHA_BUFFER_TOO_SMALL,
                            "%s: %s [%zu][%zu][%zu][%zu] ends at byte %zu of its buffer, which has "
                            "%zu",
                            who, name, shape[0], shape[1], shape[2], shape[3], end, facts.size);
    out->buffer = tensor->buffer;
    out->offset = tensor->offset;
    out->root = facts.root;
    out->first_byte = facts.origin + tensor->offset * bytes;
    out->end_byte = empty ? out->first_byte : facts.origin + end;
    return MHA_OK;
}

size_t mha_bind_type_bytes(mha_type type)
{
    return type == MHA_FLOAT32 ? 4 : 2;
}

mha_view mha_bind_packed(cl_mem buffer, size_t offset_bytes, const size_t shape[4])
{
    mha_view view = { .buffer = buffer, .offset = offset_bytes / sizeof(float) };
    size_t step = 1;
    for (int axis = 3; axis >= 0; axis--) {
        view.strides[axis] = shape[axis] > 1 ? step : 0;
        step *= shape[axis];
    }
    return view;
}

mha_status mha_bind_check_pair(const mha_run *run, const char *who, const char *name, bool used,
                               bool given)
{
    if (used == given)
        return MHA_OK;
    return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                        used ? "%s: %s is not given, but desc.uses says that it takes part"
                             : "%s: %s is given, but desc.uses does not say that it takes part",
                        who, name);
}

mha_status mha_bind_lengths(const mha_run *run, mha_bound_lengths *out, const char *who,
                            const char *name, bool used, const mha_lengths *lengths, size_t count,
                            size_t most, const char *most_name)
{
    const mha_log *log = &run->context->log;
    *out = (mha_bound_lengths){ 0 };
    if (lengths->host && lengths->buffer)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: %s is given in host memory and as a buffer; give one", who, name);
    if (used && !count && !lengths->host && !lengths->buffer)
        return MHA_OK; /* none are read */
    mha_status status = mha_bind_check_pair(run, who, name, used, lengths->host || lengths->buffer);
    if (status || !used)
        return status;
    out->count = count;
    out->host = lengths->host;
    for (size_t i = 0; lengths->host && i < count; i++)
        if (lengths->host[i] < 0 || (size_t)lengths->host[i] > most)
            return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                                "%s: %s[%zu] is %ld, it must be from 0 to %s, which is %zu", who,
                                name, i, (long)lengths->host[i], most_name, most);
    if (lengths->host)
        return MHA_OK;
    mha_view view;
    status = mha_bind_tensor(run, &view, who, name,
                             &(mha_tensor){ .buffer = lengths->buffer, .offset = lengths->offset },
                             (size_t[]){ 1, 1, 1, count }, sizeof(cl_int), MHA_READS);
    out->buffer = view.buffer;
    out->offset = view.offset;
    out->root = view.root;
    out->first_byte = view.first_byte;
    out->end_byte = view.end_byte;
    return status;
}

mha_status mha_bind_upload_one(mha_run *run, mha_bound_lengths *lengths, const char *stage,
                               size_t offset_bytes)
{
    if (!lengths->host || !lengths->count)
        return MHA_OK;
    lengths->buffer = run->workspace;
    lengths->offset = offset_bytes / sizeof(cl_int);
    return mha_run_write(run, stage, run->workspace, offset_bytes, lengths->host,
                         lengths->count * sizeof(cl_int));
}

static bool is_empty(const mha_view *view)
{
    return view->first_byte == view->end_byte;
}

static bool meet(const mha_view *a, const mha_view *b)
{
    return a->root && a->root == b->root && !is_empty(a) && !is_empty(b) &&
           a->first_byte < b->end_byte && b->first_byte < a->end_byte;
}

/* The whole workspace as a view, so that nothing else may lie in it. */
static mha_status view_workspace(const mha_run *run, mha_view *out, const char *who)
{
    *out = (mha_view){ 0 };
    if (!run->workspace)
        return MHA_OK;
    buffer_facts facts;
    const mha_status status =
        check_buffer(run, &facts, who, "workspace", run->workspace, MHA_WRITES);
    if (!status)
        *out = (mha_view){ .root = facts.root,
                           .first_byte = facts.origin,
                           .end_byte = facts.origin + facts.size };
    return status;
}

mha_status mha_bind_apart(const mha_run *run, const char *who, const mha_view *const *views,
                          const char *const *names, const mha_access *accesses, size_t count)
{
    mha_view workspace;
    const mha_status status = view_workspace(run, &workspace, who);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++) {
        if (meet(views[i], &workspace))
            return mha_log_fail(&run->context->log, MHA_OVERLAP,
                                "%s: %s lies in the buffer of call.workspace", who, names[i]);
        for (size_t j = 0; accesses[i] & MHA_WRITES && j < count; j++)
            if (j != i && meet(views[i], views[j]))
                return mha_log_fail(&run->context->log, MHA_OVERLAP,
                                    "%s: %s shares memory with %s: bytes %zu to %zu and %zu to %zu "
                                    "of one buffer",
                                    who, names[i], names[j], views[i]->first_byte,
                                    views[i]->end_byte, views[j]->first_byte, views[j]->end_byte);
    }
    return MHA_OK;
}

bool mha_bind_coincide(const mha_view *a, const mha_view *b)
{
    return a->root == b->root && a->first_byte == b->first_byte && a->end_byte == b->end_byte &&
           a->strides[0] == b->strides[0] && a->strides[1] == b->strides[1] &&
           a->strides[2] == b->strides[2];
}
