/* The public feed-forward network: its weights and rows behind the checks of a call. */
#include "ffn.h"
#include "log.h"
#include "shape.h"

mha_status mha_ffn_create(mha_ffn **out, mha_context *context, const mha_ffn_desc *desc)
{
    static const char who[] = "mha_ffn_create";
    if (out)
        *out = NULL;
    const mha_status status = mha_context_begin_create(context, who, desc, out);
    return status ? status : mha_ffn_make(out, context, desc, who);
}

mha_status mha_ffn_load_as(mha_ffn *ffn, const mha_ffn_weights *weights, const mha_call *call,
                           const char *who)
{
    mha_run_clear_event(call);
    if (!ffn)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = ffn->context;
    if (!weights)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: weights is NULL", who);
    mha_run run;
    mha_ffn_load_views views = { 0 };
    mha_status status = mha_run_begin(&run, context, call, who, 0);
    if (status)
        return mha_context_note(context, status);
    status = mha_ffn_bind_weights(ffn, &run, who, weights, &views);
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        mha_run_will_write(&run, "the weights");
        status = mha_ffn_copy_weights(ffn, &run, &views);
        mha_run_note_load(&run, status, &ffn->loaded);
    }
    return mha_run_end(&run, status);
}

mha_status mha_ffn_load(mha_ffn *ffn, const mha_ffn_weights *weights, const mha_call *call)
{
    return mha_ffn_load_as(ffn, weights, call, "mha_ffn_load");
}

typedef struct row_views {
    mha_view input, output;
} row_views;

static mha_status bind_rows(const mha_ffn *ffn, const mha_run *run, const char *who,
                            const mha_ffn_args *args, size_t rows, row_views *views)
{
    const mha_ffn_desc *desc = &ffn->desc;
    mha_status status = mha_bind_tensor(run, &views->input, who, "input", &args->input,
                                        (size_t[]){ 1, 1, rows, desc->width },
                                        mha_bind_type_bytes(desc->type), MHA_READS);
    if (!status)
        status = mha_bind_tensor(run, &views->output, who, "output", &args->output,
                                 (size_t[]){ 1, 1, rows, desc->output_width },
                                 mha_bind_type_bytes(desc->output_type), MHA_WRITES);
    if (status)
        return status;
    return mha_bind_apart(run, who, (const mha_view *[]){ &views->output, &views->input },
                          (const char *[]){ "output", "input" },
                          (const mha_access[]){ MHA_WRITES, MHA_READS }, 2);
}

mha_status mha_ffn_enqueue_as(mha_ffn *ffn, const mha_ffn_args *args, const mha_call *call,
                              const char *who)
{
    mha_run_clear_event(call);
    if (!ffn)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = ffn->context;
    if (!args)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    const mha_status lost = mha_context_check(context, who);
    if (lost)
        return lost;
    size_t rows = 0;
    mha_status status = mha_ffn_check_call(ffn, who, args->rows, &rows);
    if (status)
        return status;
    mha_run run;
    status = mha_run_begin(&run, context, call, who, mha_ffn_workspace(ffn).bytes);
    if (status)
        return mha_context_note(context, status);
    row_views views;
    status = bind_rows(ffn, &run, who, args, rows, &views);
    if (!status)
        status = mha_run_wait(&run);
    if (!status && rows) {
        size_t region = 0;
        mha_layout_add(&region, ffn->needs.temp_bytes);
        const mha_operand from = mha_projection_rows(&views.input, rows, ffn->desc.width);
        const mha_operand to = mha_projection_rows(&views.output, rows, ffn->desc.output_width);
        status = mha_ffn_forward(ffn, &run, rows, &from, &to, region, "output");
    }
    return mha_run_end(&run, status);
}

mha_status mha_ffn_enqueue(mha_ffn *ffn, const mha_ffn_args *args, const mha_call *call)
{
    return mha_ffn_enqueue_as(ffn, args, call, "mha_ffn_enqueue");
}
