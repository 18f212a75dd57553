/* The public layer norm and RMS norm: the norm stage behind the checks of a call. */
#include "bind.h"
#include "log.h"
#include "norm.h"
#include "shape.h"

#include <stdlib.h>

struct mha_norm {
    mha_context *context;
    mha_norm_desc desc; /* resolved */
    mha_norm_stage stage;
};

mha_status mha_norm_create(mha_norm **out, mha_context *context, const mha_norm_desc *desc)
{
    static const char who[] = "mha_norm_create";
    if (out)
        *out = NULL;
    mha_status status = mha_context_begin_create(context, who, desc, out);
    if (status)
        return status;
    mha_norm *norm = calloc(1, sizeof *norm);
    if (!norm)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a norm");
    norm->context = context;
    status = mha_norm_resolve(context, who, desc, &norm->desc);
    if (!status)
        status = mha_norm_setup(&norm->stage, context, &norm->desc);
    if (status) {
        mha_norm_destroy(&norm);
        return status;
    }
    *out = norm;
    return MHA_OK;
}

void mha_norm_destroy(mha_norm **norm)
{
    mha_norm *n = norm ? *norm : NULL;
    if (!n)
        return;
    *norm = NULL;
    mha_norm_release(&n->stage);
    free(n);
}

enum {
    INPUT,
    RESIDUAL,
    INPUT_BIAS,
    WEIGHT,
    BIAS,
    OUTPUT,
    SUM,
    MEAN,
    INV_STD,
    ARGUMENTS
};

/* One argument of a call: what it is given, and where it is bound. */
typedef struct argument {
    const char *name;
    unsigned bit; /* of uses; 0: it always takes part */
    const mha_tensor *tensor;
    mha_view *view;
    const size_t *shape;
    mha_type type;
    mha_access access;
} argument;

/* output and sum may each be exactly the input or the residual; else what is written shares memory
 * with nothing. An input that is also an output is left out: its place in memory is the output's.
 */
static mha_status check_apart(const mha_run *run, const char *who, const argument *list)
{
    static const mha_view none = { 0 };
    const mha_view *views[ARGUMENTS];
    const char *names[ARGUMENTS];
    mha_access accesses[ARGUMENTS];
    for (int i = 0; i < ARGUMENTS; i++) {
        const argument *a = &list[i];
        bool in_place = false;
        for (int out = OUTPUT; i <= RESIDUAL && out <= SUM; out++)
            in_place |= list[out].view->buffer && list[out].type == a->type &&
                        mha_bind_coincide(a->view, list[out].view);
        views[i] = in_place ? &none : a->view;
        names[i] = a->name;
        accesses[i] = a->access;
    }
    return mha_bind_apart(run, who, views, names, accesses, ARGUMENTS);
}

static mha_status bind_one(const mha_run *run, const char *who, unsigned uses, const argument *a)
{
    const bool used = !a->bit || uses & a->bit;
    if (a->bit && !(used && mha_shape_is_empty(a->shape))) {
        const mha_status status = mha_bind_check_pair(run, who, a->name, used, a->tensor->buffer);
        if (status)
            return status;
    }
    if (!used)
        return MHA_OK;
    return mha_bind_tensor(run, a->view, who, a->name, a->tensor, a->shape,
                           mha_bind_type_bytes(a->type), a->access);
}

static mha_status bind_arguments(const mha_run *run, const char *who, const mha_norm_desc *desc,
                                 const mha_norm_args *args, mha_norm_rows *rows)
{
    rows->rows = args->rows ? args->rows : desc->rows;
    if (rows->rows > desc->rows)
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            "%s: the call's rows %zu may be at most the desc's %zu", who,
                            rows->rows, desc->rows);
    const size_t whole[4] = { 1, 1, rows->rows, desc->width };
    const size_t shared[4] = { 1, 1, rows->rows ? 1 : 0, desc->width };
    const size_t each[4] = { 1, 1, rows->rows, 1 };
    const mha_type type = desc->type, weight_type = desc->weight_type;
    /* clang-format off */
    const argument list[ARGUMENTS] = {
        [INPUT] = { "input", 0, &args->input, &rows->input, whole, type, MHA_READS },
        [RESIDUAL] = { "residual", MHA_NORM_RESIDUAL, &args->residual, &rows->residual, whole,
                       type, MHA_READS },
        [INPUT_BIAS] = { "input_bias", MHA_NORM_INPUT_BIAS, &args->input_bias, &rows->input_bias,
                         shared, weight_type, MHA_READS },
        [WEIGHT] = { "weight", MHA_NORM_WEIGHT, &args->weight, &rows->weight, shared, weight_type,
                     MHA_READS },
        [BIAS] = { "bias", MHA_NORM_BIAS, &args->bias, &rows->bias, shared, weight_type,
                   MHA_READS },
        [OUTPUT] = { "output", 0, &args->output, &rows->output, whole, desc->output_type,
                     MHA_WRITES },
        [SUM] = { "sum", MHA_NORM_SUM, &args->sum, &rows->sum, whole, type, MHA_WRITES },
        [MEAN] = { "mean", MHA_NORM_MEAN, &args->mean, &rows->mean, each, MHA_FLOAT32,
                   MHA_WRITES },
        [INV_STD] = { "inv_std", MHA_NORM_INV_STD, &args->inv_std, &rows->inv_std, each,
                      MHA_FLOAT32, MHA_WRITES },
    };
    /* clang-format on */
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < ARGUMENTS; i++)
        status = bind_one(run, who, desc->uses, &list[i]);
    return status ? status : check_apart(run, who, list);
}

mha_status mha_norm_enqueue(mha_norm *norm, const mha_norm_args *args, const mha_call *call)
{
    static const char who[] = "mha_norm_enqueue";
    mha_run_clear_event(call);
    if (!norm)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = norm->context;
    if (!args)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    mha_run run;
    mha_status status = mha_run_begin(&run, context, call, who, 0);
    if (status)
        return mha_context_note(context, status);
    mha_norm_rows rows = { 0 };
    status = bind_arguments(&run, who, &norm->desc, args, &rows);
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        mha_run_will_write(&run, "output");
        mha_run_will_write(&run, rows.sum.buffer ? "sum" : NULL);
        mha_run_will_write(&run, rows.mean.buffer ? "mean" : NULL);
        mha_run_will_write(&run, rows.inv_std.buffer ? "inv_std" : NULL);
        status = mha_norm_launch(&norm->stage, &run, &norm->desc, &rows);
    }
    return mha_run_end(&run, status);
}
