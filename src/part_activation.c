/* The public activation functions: the activation stage behind the checks of a call. */
#include "activation.h"
#include "bind.h"
#include "log.h"
#include "shape.h"

#include <stdlib.h>

struct mha_activation {
    mha_context *context;
    mha_activation_desc desc; /* resolved */
    mha_activation_stage stage;
};

mha_status mha_activation_create(mha_activation **out, mha_context *context,
                                 const mha_activation_desc *desc)
{
    static const char who[] = "mha_activation_create";
    if (out)
        *out = NULL;
    mha_status status = mha_context_begin_create(context, who, desc, out);
    if (status)
        return status;
    mha_activation *activation = calloc(1, sizeof *activation);
    if (!activation)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                            "no host memory for an activation");
    activation->context = context;
    status = mha_activation_resolve(context, who, desc, &activation->desc);
    if (!status)
        status = mha_activation_setup(&activation->stage, context, &activation->desc);
    if (status) {
        mha_activation_destroy(&activation);
        return status;
    }
    *out = activation;
    return MHA_OK;
}

void mha_activation_destroy(mha_activation **activation)
{
    mha_activation *a = activation ? *activation : NULL;
    if (!a)
        return;
    *activation = NULL;
    mha_activation_release(&a->stage);
    free(a);
}

/* output may be exactly the input or the gate; it shares memory with nothing else. */
static mha_status check_apart(const mha_run *run, const char *who, const mha_activation_desc *desc,
                              const mha_activation_rows *rows)
{
    static const mha_view none = { 0 };
    static const char *const names[] = { "output", "input", "gate" };
    static const mha_access accesses[] = { MHA_WRITES, MHA_READS, MHA_READS };
    const mha_view *views[] = { &rows->output, &rows->input, &rows->gate };
    for (int i = 1; desc->type == desc->output_type && i < 3; i++)
        if (mha_bind_coincide(views[i], views[0]))
            views[i] = &none;
    return mha_bind_apart(run, who, views, names, accesses, sizeof views / sizeof views[0]);
}

static mha_status bind_arguments(const mha_run *run, const char *who,
                                 const mha_activation_desc *desc, const mha_activation_args *args,
                                 mha_activation_rows *rows)
{
    rows->rows = args->rows ? args->rows : desc->rows;
    if (rows->rows > desc->rows)
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            "%s: the call's rows %zu may be at most the desc's %zu", who,
                            rows->rows, desc->rows);
    const size_t shape[4] = { 1, 1, rows->rows, desc->width };
    const size_t bytes = mha_bind_type_bytes(desc->type);
    const bool gated = desc->uses & MHA_ACTIVATION_GATE && rows->rows;
    mha_status status =
        mha_bind_tensor(run, &rows->input, who, "input", &args->input, shape, bytes, MHA_READS);
    if (!status && (gated || !(desc->uses & MHA_ACTIVATION_GATE)))
        status = mha_bind_check_pair(run, who, "gate", gated, args->gate.buffer);
    if (!status && gated)
        status =
            mha_bind_tensor(run, &rows->gate, who, "gate", &args->gate, shape, bytes, MHA_READS);
    if (!status)
        status = mha_bind_tensor(run, &rows->output, who, "output", &args->output, shape,
                                 mha_bind_type_bytes(desc->output_type), MHA_WRITES);
    return status ? status : check_apart(run, who, desc, rows);
}

mha_status mha_activation_enqueue(mha_activation *activation, const mha_activation_args *args,
                                  const mha_call *call)
{
    static const char who[] = "mha_activation_enqueue";
    mha_run_clear_event(call);
    if (!activation)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = activation->context;
    if (!args)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    mha_run run;
    mha_status status = mha_run_begin(&run, context, call, who, 0);
    if (status)
        return mha_context_note(context, status);
    mha_activation_rows rows = { 0 };
    status = bind_arguments(&run, who, &activation->desc, args, &rows);
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        mha_run_will_write(&run, "output");
        status = mha_activation_launch(&activation->stage, &run, &activation->desc, &rows);
    }
    return mha_run_end(&run, status);
}
