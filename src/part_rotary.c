/* The public rotary position embedding: the rotary stage behind the checks of a call. */
#include "bound.h"
#include "log.h"
#include "rotary.h"
#include "shape.h"

#include <stdlib.h>

struct mha_rotary {
    mha_context *context;
    mha_rotary_desc desc; /* resolved */
    mha_kernel rows;
};

static mha_status check_axes(const mha_log *log, const char *who, const mha_rotary_desc *desc)
{
    const struct {
        const char *name;
        size_t size, least;
    } axes[] = {
        { "batch", desc->batch, 0 }, { "heads", desc->heads, 1 },         { "len", desc->len, 0 },
        { "dim", desc->dim, 2 },     { "positions", desc->positions, 0 },
    };
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        if (axes[i].size < axes[i].least)
            return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: %s is %zu, it must be at least %zu",
                                who, axes[i].name, axes[i].size, axes[i].least);
        if (axes[i].size > INT32_MAX / 2)
            return mha_log_fail(log, MHA_TOO_LARGE, "%s: %s is %zu, the most is %d", who,
                                axes[i].name, axes[i].size, INT32_MAX / 2);
    }
    if (mha_size_of((size_t[]){ sizeof(float), desc->batch, desc->heads, desc->len, desc->dim }, 5)
            .overflows)
        return mha_log_fail(log, MHA_TOO_LARGE, "%s: the bytes pass the largest size_t", who);
    return MHA_OK;
}

/* Every rule of a description, after its defaults have been put in. */
static mha_status resolve(const mha_context *context, const char *who, const mha_rotary_desc *desc,
                          mha_rotary_desc *out)
{
    const mha_log *log = &context->log;
    *out = *desc;
    if (!out->rotary_dim)
        out->rotary_dim = out->dim;
    if (!out->type)
        out->type = MHA_FLOAT32;
    if (!out->output_type)
        out->output_type = out->type;
    mha_status status = check_axes(log, who, out);
    if (status)
        return status;
    if (out->rotary_dim % 2 || out->rotary_dim > out->dim)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: rotary_dim is %zu, it must be even and at most dim, which is %zu",
                            who, out->rotary_dim, out->dim);
    if (out->pairs != MHA_ROTARY_HALVES && out->pairs != MHA_ROTARY_INTERLEAVED)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: pairs is no mha_rotary_pairs: %d", who,
                            (int)out->pairs);
    status = mha_shape_check_type(log, who, "type", out->type);
    return status ? status : mha_shape_check_type(log, who, "output_type", out->output_type);
}

mha_status mha_rotary_create(mha_rotary **out, mha_context *context, const mha_rotary_desc *desc)
{
    static const char who[] = "mha_rotary_create";
    if (out)
        *out = NULL;
    mha_status status = mha_context_begin_create(context, who, desc, out);
    if (status)
        return status;
    mha_rotary *rotary = calloc(1, sizeof *rotary);
    if (!rotary)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                            "no host memory for a rotary embedding");
    rotary->context = context;
    status = resolve(context, who, desc, &rotary->desc);
    if (!status)
        status = mha_shape_check_workspace(context, mha_rotary_workspace(rotary).bytes, who);
    if (!status)
        status = mha_rotary_setup(&rotary->rows, context, &rotary->desc);
    if (status) {
        mha_rotary_destroy(&rotary);
        return status;
    }
    *out = rotary;
    return MHA_OK;
}

void mha_rotary_destroy(mha_rotary **rotary)
{
    mha_rotary *r = rotary ? *rotary : NULL;
    if (!r)
        return;
    *rotary = NULL;
    mha_kernel_release(&r->rows);
    free(r);
}

mha_workspace mha_rotary_workspace(const mha_rotary *rotary)
{
    if (!rotary || !rotary->desc.positions || !rotary->desc.batch || !rotary->desc.len)
        return (mha_workspace){ 0 };
    return (mha_workspace){ .bytes = rotary->desc.batch * rotary->desc.len * sizeof(cl_int),
                            .alignment = rotary->context->alignment };
}

/* The length of the call and the positions of its rows: in `out`, whether ids or offsets. */
static mha_status bind_positions(const mha_run *run, const char *who, const mha_rotary_desc *desc,
                                 const mha_rotary_args *args, mha_bound_lengths *out,
                                 mha_rotary_rows *rows)
{
    const mha_log *log = &run->context->log;
    const bool has_ids = args->position_ids.host || args->position_ids.buffer;
    const bool has_offsets = args->offsets.host || args->offsets.buffer;
    const size_t len = args->len ? args->len : desc->len;
    if (len > desc->len)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: the call's len %zu may be at most the desc's %zu", who, len,
                            desc->len);
    if (has_ids && has_offsets)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: position_ids and offsets are both given; give one", who);
    if (!desc->positions && (has_ids || has_offsets))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: %s is given, but desc.positions is 0: the tables have the rows' "
                            "own order",
                            who, has_ids ? "position_ids" : "offsets");
    if (desc->positions && !has_ids && len > desc->positions)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: without position_ids len, which is %zu, may be at most "
                            "desc.positions, which is %zu",
                            who, len, desc->positions);
    rows->len = len;
    if (has_ids) {
        rows->ids = out;
        return mha_bind_lengths(run, out, who, "position_ids", true, &args->position_ids,
                                desc->batch * len, desc->positions - 1, "positions - 1");
    }
    rows->starts = out;
    return mha_bind_lengths(run, out, who, "offsets", has_offsets, &args->offsets,
                            len ? desc->batch : 0, desc->positions - len, "positions - len");
}

static mha_status bind_tensors(const mha_run *run, const char *who, const mha_rotary_desc *desc,
                               const mha_rotary_args *args, mha_rotary_rows *rows)
{
    const size_t shape[4] = { desc->batch, desc->heads, rows->len, desc->dim };
    const size_t half = desc->rotary_dim / 2;
    const bool reads = desc->batch && rows->len;
    const size_t shared[4] = { reads ? 1 : 0, 1, desc->positions, half };
    const size_t own[4] = { desc->batch, 1, rows->len, half };
    const size_t *table = desc->positions ? shared : own;
    mha_status status = mha_bind_tensor(run, &rows->from, who, "input", &args->input, shape,
                                        mha_bind_type_bytes(desc->type), MHA_READS);
    if (!status)
        status = mha_bind_tensor(run, &rows->to, who, "output", &args->output, shape,
                                 mha_bind_type_bytes(desc->output_type), MHA_WRITES);
    if (!status)
        status = mha_bind_tensor(run, &rows->cos, who, "cos", &args->cos, table, sizeof(float),
                                 MHA_READS);
    if (!status)
        status = mha_bind_tensor(run, &rows->sin, who, "sin", &args->sin, table, sizeof(float),
                                 MHA_READS);
    return status;
}

/* output may be exactly the input; it shares memory with nothing else. */
static mha_status check_apart(const mha_run *run, const char *who, const mha_rotary_desc *desc,
                              const mha_rotary_rows *rows, const mha_bound_lengths *positions)
{
    static const mha_view none = { 0 };
    const bool in_place =
        desc->type == desc->output_type && mha_bind_coincide(&rows->from, &rows->to);
    const mha_view given = { .root = positions->root,
                             .first_byte = positions->first_byte,
                             .end_byte = positions->end_byte };
    const mha_view *views[] = { &rows->to, in_place ? &none : &rows->from, &rows->cos, &rows->sin,
                                &given };
    const char *const names[] = { "output", "input", "cos", "sin",
                                  rows->ids ? "position_ids" : "offsets" };
    static const mha_access accesses[] = { MHA_WRITES, MHA_READS, MHA_READS, MHA_READS, MHA_READS };
    return mha_bind_apart(run, who, views, names, accesses, sizeof views / sizeof views[0]);
}

mha_status mha_rotary_enqueue(mha_rotary *rotary, const mha_rotary_args *args, const mha_call *call)
{
    static const char who[] = "mha_rotary_enqueue";
    mha_run_clear_event(call);
    if (!rotary)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = rotary->context;
    const mha_rotary_desc *desc = &rotary->desc;
    if (!args)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    mha_run run;
    mha_status status = mha_run_begin(&run, context, call, who, mha_rotary_workspace(rotary).bytes);
    if (status)
        return mha_context_note(context, status);
    mha_bound_lengths positions = { 0 };
    mha_rotary_rows rows = { 0 };
    status = bind_positions(&run, who, desc, args, &positions, &rows);
    if (!status)
        status = bind_tensors(&run, who, desc, args, &rows);
    if (!status)
        status = check_apart(&run, who, desc, &rows, &positions);
    if (!status)
        status = mha_run_wait(&run);
    if (!status)
        status = mha_bind_upload_one(&run, &positions, "positions", 0);
    if (!status) {
        mha_run_will_write(&run, "output");
        status = mha_rotary_launch(&rotary->rows, &run, desc, &rows);
    }
    return mha_run_end(&run, status);
}
