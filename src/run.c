/* One enqueue: the rules of the caller's mha_call, the launches in order, the event at the end. */
#include "run.h"

#include "log.h"

#include <assert.h>
#include <stdio.h>

static mha_status check_queue(const mha_context *context, cl_command_queue queue, const char *who)
{
    cl_context cl = NULL;
    cl_device_id device = NULL;
    cl_command_queue_properties properties = 0;
    cl_int error = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof cl, &cl, NULL);
    if (!error)
        error = clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL);
    if (!error)
        error =
            clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    if (error)
        return mha_log_fail(&context->log, error, "%s: clGetCommandQueueInfo of call.queue failed",
                            who);
    if (cl != context->cl || device != context->device.device)
        return mha_log_fail(&context->log, MHA_WRONG_CONTEXT,
                            "%s: call.queue belongs to another %s than the mha_context", who,
                            cl != context->cl ? "OpenCL context" : "device");
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return mha_log_fail(&context->log, MHA_WRONG_QUEUE,
                            "%s: call.queue is out-of-order; the stages need an in-order queue",
                            who);
    return MHA_OK;
}

static mha_status check_workspace(const mha_context *context, cl_mem workspace, const char *who,
                                  size_t bytes)
{
    if (!bytes)
        return MHA_OK;
    if (!workspace)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: call.workspace is NULL, and %zu bytes are needed", who, bytes);
    cl_context cl = NULL;
    cl_mem_flags flags = 0;
    size_t size = 0;
    cl_int error = clGetMemObjectInfo(workspace, CL_MEM_CONTEXT, sizeof cl, &cl, NULL);
    if (!error)
        error = clGetMemObjectInfo(workspace, CL_MEM_SIZE, sizeof size, &size, NULL);
    if (!error)
        error = clGetMemObjectInfo(workspace, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
    if (error)
        return mha_log_fail(&context->log, error, "%s: clGetMemObjectInfo of call.workspace failed",
                            who);
    if (cl != context->cl)
        return mha_log_fail(&context->log, MHA_WRONG_CONTEXT,
                            "%s: call.workspace belongs to another OpenCL context", who);
    if (size < bytes)
        return mha_log_fail(&context->log, MHA_BUFFER_TOO_SMALL,
                            "%s: call.workspace has %zu bytes, and %zu are needed", who, size,
                            bytes);
    if (flags & (CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY))
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: call.workspace is not CL_MEM_READ_WRITE", who);
    return MHA_OK;
}

static mha_status check_waits(const mha_context *context, const mha_call *call, const char *who)
{
    if (!call->num_waits != !call->waits)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: call.num_waits is %u but call.waits is %s", who, call->num_waits,
                            call->waits ? "given" : "NULL");
    for (cl_uint i = 0; i < call->num_waits; i++) {
        if (call->event == &call->waits[i])
            return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                                "%s: call.event is call.waits[%u], which it would overwrite", who,
                                i);
        cl_context cl = NULL;
        const cl_int error = clGetEventInfo(call->waits[i], CL_EVENT_CONTEXT, sizeof cl, &cl, NULL);
        if (error)
            return mha_log_fail(&context->log, error, "%s: clGetEventInfo of call.waits[%u] failed",
                                who, i);
        if (cl != context->cl)
            return mha_log_fail(&context->log, MHA_WRONG_CONTEXT,
                                "%s: call.waits[%u] belongs to another OpenCL context", who, i);
    }
    return MHA_OK;
}

void mha_run_clear_event(const mha_call *call)
{
    if (!call || !call->event)
        return;
    for (cl_uint i = 0; call->waits && i < call->num_waits; i++)
        if (call->event == &call->waits[i])
            return; /* refused later; it is the caller's */
    *call->event = NULL;
}

mha_status mha_run_begin(mha_run *run, mha_context *context, const mha_call *call, const char *who,
                         size_t workspace_bytes)
{
    if (!call)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: call is NULL", who);
    mha_status status = mha_context_check(context, who);
    if (status)
        return status;
    if (!call->queue)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: call.queue is NULL", who);
    status = check_queue(context, call->queue, who);
    if (!status)
        status = check_waits(context, call, who);
    if (!status)
        status = check_workspace(context, call->workspace, who, workspace_bytes);
    if (status)
        return status;
    *run = (mha_run){
        .context = context,
        .call = call,
        .queue = call->queue,
        .workspace = call->workspace,
    };
    return MHA_OK;
}

mha_status mha_run_wait(mha_run *run)
{
    /* CLBlast takes no wait list, so the queue itself waits, once, before all stages. */
    const mha_call *call = run->call;
    if (!call->num_waits)
        return MHA_OK;
    const cl_int error =
        clEnqueueBarrierWithWaitList(run->queue, call->num_waits, call->waits, NULL);
    if (error)
        return mha_log_fail(&run->context->log, error,
                            "clEnqueueBarrierWithWaitList of call.waits failed");
    return MHA_OK;
}

static void say_wrote(const mha_run *run)
{
    char names[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof run->wrote / sizeof run->wrote[0] && run->wrote[i]; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? " and " : "",
                                 run->wrote[i]);
    if (used)
        mha_log_say(&run->context->log, MHA_LOG_ERROR,
                    "before that, the kernel that writes %s was queued", names);
}

mha_status mha_run_end(mha_run *run, mha_status status)
{
    if (!status && run->call->event) {
        status = clEnqueueMarkerWithWaitList(run->queue, 0, NULL, run->call->event);
        if (status) {
            *run->call->event = NULL;
            mha_log_fail(&run->context->log, status, "clEnqueueMarkerWithWaitList failed");
        }
    }
    if (status)
        say_wrote(run);
    return mha_context_note(run->context, status);
}

void mha_run_note_load(const mha_run *run, mha_status status, bool *loaded)
{
    *loaded = !status || (*loaded && !run->wrote[0]);
}

void mha_run_will_write(mha_run *run, const char *output)
{
    size_t i = 0;
    while (i < sizeof run->pending / sizeof run->pending[0] && run->pending[i])
        i++;
    assert(i < sizeof run->pending / sizeof run->pending[0]);
    if (output)
        run->pending[i] = output;
}

/* What was pending is written. The lists are as long as a call has outputs. */
static void note_written(mha_run *run)
{
    for (size_t i = 0; i < sizeof run->pending / sizeof run->pending[0]; i++) {
        const char *output = run->pending[i];
        run->pending[i] = NULL;
        for (size_t k = 0; output && k < sizeof run->wrote / sizeof run->wrote[0]; k++) {
            if (!run->wrote[k])
                run->wrote[k] = output;
            if (run->wrote[k] == output)
                output = NULL;
        }
    }
}

bool mha_run_wants_events(const mha_run *run)
{
    return run->call->stage != NULL;
}

void mha_run_queued(mha_run *run, const char *stage, const char *what, cl_event event)
{
    if (!run->aside)
        note_written(run);
    if (!event)
        return;
    if (run->call->stage)
        run->call->stage(run->call->stage_data, stage, what, event);
    clReleaseEvent(event);
}

mha_status mha_run_launch(mha_run *run, const char *stage, const mha_kernel *kernel,
                          const mha_arg *args, size_t num_args, const mha_grid *grid)
{
    cl_event event = NULL;
    const mha_status status =
        mha_kernel_launch(kernel, &run->context->log, run->queue, args, num_args, grid,
                          mha_run_wants_events(run) ? &event : NULL);
    if (!status)
        mha_run_queued(run, stage, kernel->name, event);
    return status;
}

mha_status mha_run_write(mha_run *run, const char *stage, cl_mem to, size_t offset_bytes,
                         const void *from, size_t bytes)
{
    cl_event event = NULL;
    const cl_int error = clEnqueueWriteBuffer(run->queue, to, CL_FALSE, offset_bytes, bytes, from,
                                              0, NULL, mha_run_wants_events(run) ? &event : NULL);
    if (error)
        return mha_log_fail(&run->context->log, error, "clEnqueueWriteBuffer of %s failed", stage);
    mha_run_queued(run, stage, "clEnqueueWriteBuffer", event);
    return MHA_OK;
}
