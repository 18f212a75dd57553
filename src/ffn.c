/* The position-wise feed-forward network: project, activate, project; and its weights. */
#include "ffn.h"

#include "log.h"
#include "shape.h"

#include <stdlib.h>

static mha_status check_flags(const mha_log *log, const char *who, const mha_ffn_desc *desc)
{
    const unsigned known = MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_GATE | MHA_FFN_BIAS_OUTPUT |
                           MHA_FFN_GATE | MHA_FFN_OUT_IN;
    if (desc->flags & ~known)
        return mha_log_fail(log, MHA_UNSUPPORTED, "%s: flags has unknown bits: 0x%x", who,
                            desc->flags & ~known);
    if (desc->flags & MHA_FFN_BIAS_GATE && !(desc->flags & MHA_FFN_GATE))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: MHA_FFN_BIAS_GATE needs a gate, and MHA_FFN_GATE is not set", who);
    if (desc->projection < MHA_GEMM_DEFAULT || desc->projection > MHA_GEMM_KERNEL)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: projection is no mha_gemm_by: %d", who,
                            (int)desc->projection);
    return MHA_OK;
}

static mha_status resolve(mha_ffn *ffn, const char *who, const mha_ffn_desc *given)
{
    const mha_log *log = &ffn->context->log;
    mha_ffn_desc *desc = &ffn->desc;
    *desc = *given;
    if (!desc->output_width)
        desc->output_width = desc->width;
    if (!desc->type)
        desc->type = MHA_FLOAT32;
    if (!desc->output_type)
        desc->output_type = desc->type;
    if (!desc->weight_type)
        desc->weight_type = MHA_FLOAT32;
    if (!desc->hidden_width)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: hidden_width is 0, it must be at least 1", who);
    mha_status status = mha_shape_check_rows(log, who, desc->rows, desc->width);
    if (!status)
        status = mha_shape_check_type(log, who, "type", desc->type);
    if (!status)
        status = mha_shape_check_type(log, who, "output_type", desc->output_type);
    if (!status)
        status = mha_shape_check_type(log, who, "weight_type", desc->weight_type);
    if (!status)
        status = check_flags(log, who, desc);
    const mha_activation_desc activation = {
        .rows = desc->rows,
        .width = desc->hidden_width,
        .kind = desc->activation,
        .uses = desc->flags & MHA_FFN_GATE ? MHA_ACTIVATION_GATE : 0,
        .alpha = desc->alpha,
        .tiling = desc->tiling,
    };
    if (!status)
        status = mha_activation_resolve(ffn->context, who, &activation, &ffn->activation_desc);
    return status;
}

static mha_status set_up_projections(mha_ffn *ffn, const char *who)
{
    const mha_ffn_desc *desc = &ffn->desc;
    const struct {
        const char *name, *bias_name, *stage;
        size_t in, out;
        unsigned bias;
    } list[] = {
        { "hidden", "bias_hidden", "feed-forward hidden", desc->width, desc->hidden_width,
          MHA_FFN_BIAS_HIDDEN },
        { "gate", "bias_gate", "feed-forward gate", desc->width, desc->hidden_width,
          MHA_FFN_BIAS_GATE },
        { "output", "bias_output", "feed-forward output", desc->hidden_width, desc->output_width,
          MHA_FFN_BIAS_OUTPUT },
    };
    mha_projection_desc descs[MHA_FFN_PROJECTIONS];
    for (int i = 0; i < MHA_FFN_PROJECTIONS; i++) {
        ffn->exists[i] = i != MHA_FFN_GATED || desc->flags & MHA_FFN_GATE;
        descs[i] = (mha_projection_desc){
            .name = list[i].name,
            .bias_name = list[i].bias_name,
            .stage = list[i].stage,
            .batch = 1,
            .len = desc->rows,
            .in = list[i].in,
            .out = list[i].out,
            .has_bias = desc->flags & list[i].bias,
            .out_in = desc->flags & MHA_FFN_OUT_IN,
            .by = desc->projection,
            .type = i == MHA_FFN_OUTPUT ? MHA_FLOAT32 : desc->type,
            .output_type = i == MHA_FFN_OUTPUT ? desc->output_type : MHA_FLOAT32,
            .weight_type = desc->weight_type,
        };
    }
    /* Without a gate the hidden rows' own product activates them. */
    if (!ffn->exists[MHA_FFN_GATED]) {
        descs[MHA_FFN_HIDDEN].activation = ffn->activation_desc.kind;
        descs[MHA_FFN_HIDDEN].slope = ffn->activation_desc.alpha;
    }
    mha_projection *first = &ffn->projections[MHA_FFN_HIDDEN];
    mha_status status =
        ffn->exists[MHA_FFN_GATED]
            ? mha_projection_setup_parts(first, &ffn->joined, ffn->context, descs, MHA_FFN_OUTPUT,
                                         "feed-forward hidden, gate", who)
            : mha_projection_setup(first, ffn->context, &descs[MHA_FFN_HIDDEN], who);
    if (!status)
        status = mha_projection_setup(&ffn->projections[MHA_FFN_OUTPUT], ffn->context,
                                      &descs[MHA_FFN_OUTPUT], who);
    return status;
}

static void lay_out_temp(mha_ffn *ffn, const mha_projection *projection)
{
    if (ffn->needs.temp_bytes < projection->gemm.temp_bytes)
        ffn->needs.temp_bytes = projection->gemm.temp_bytes;
}

static void lay_out(mha_ffn *ffn)
{
    const size_t bytes = ffn->desc.rows * ffn->desc.hidden_width * sizeof(float);
    mha_layout_add(&ffn->needs.region_bytes, bytes);
    if (ffn->exists[MHA_FFN_GATED])
        ffn->gated_region = mha_layout_add(&ffn->needs.region_bytes, bytes);
    for (int i = 0; i < MHA_FFN_PROJECTIONS; i++)
        lay_out_temp(ffn, &ffn->projections[i]);
    lay_out_temp(ffn, &ffn->joined);
}

mha_status mha_ffn_make(mha_ffn **out, mha_context *context, const mha_ffn_desc *desc,
                        const char *who)
{
    *out = NULL;
    mha_ffn *ffn = calloc(1, sizeof *ffn);
    if (!ffn)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                            "no host memory for a feed-forward network");
    ffn->context = context;
    mha_status status = resolve(ffn, who, desc);
    if (!status)
        status = set_up_projections(ffn, who);
    if (!status && ffn->exists[MHA_FFN_GATED])
        status = mha_activation_setup(&ffn->activation, context, &ffn->activation_desc);
    if (!status)
        status = mha_heads_setup(&ffn->copy, context, ffn->desc.weight_type, MHA_FLOAT32);
    if (!status) {
        lay_out(ffn);
        status = mha_shape_check_workspace(context, mha_ffn_workspace(ffn).bytes, who);
    }
    if (status) {
        mha_ffn_destroy(&ffn);
        return status;
    }
    *out = ffn;
    return MHA_OK;
}

void mha_ffn_destroy(mha_ffn **ffn)
{
    mha_ffn *f = ffn ? *ffn : NULL;
    if (!f)
        return;
    *ffn = NULL;
    for (int i = 0; i < MHA_FFN_PROJECTIONS; i++)
        mha_projection_release(&f->projections[i]);
    mha_projection_release(&f->joined);
    mha_activation_release(&f->activation);
    mha_kernel_release(&f->copy);
    free(f);
}

mha_workspace mha_ffn_workspace(const mha_ffn *ffn)
{
    if (!ffn)
        return (mha_workspace){ 0 };
    size_t end = 0;
    mha_layout_add(&end, ffn->needs.temp_bytes);
    mha_layout_add(&end, ffn->needs.region_bytes);
    return (mha_workspace){ .bytes = end, .alignment = ffn->context->alignment };
}

size_t mha_ffn_explain(const mha_ffn *ffn, char *text, size_t capacity)
{
    mha_text out = { .at = text, .capacity = text ? capacity : 0 };
    if (out.capacity)
        text[0] = '\0';
    if (!ffn)
        return 0;
    const mha_projection *projections = ffn->projections;
    const bool joined = mha_projection_joins(&ffn->joined);
    for (int i = 0; i < MHA_FFN_PROJECTIONS; i++) {
        const mha_projection *p = joined && i == MHA_FFN_HIDDEN ? &ffn->joined : &projections[i];
        if (ffn->exists[i] && !(joined && i == MHA_FFN_GATED))
            mha_projection_explain(p, &out);
    }
    const char *way = "by the product of the hidden rows";
    if (ffn->exists[MHA_FFN_GATED])
        way = "kernel activation_rows, with the gate, in place";
    else if (ffn->desc.activation == MHA_ACTIVATION_NONE)
        way = "none, the hidden rows stay as they are";
    mha_text_add(&out, "activation: %s\n", way);
    return out.length;
}

mha_status mha_ffn_check_call(const mha_ffn *ffn, const char *who, size_t given, size_t *rows)
{
    const mha_log *log = &ffn->context->log;
    *rows = given ? given : ffn->desc.rows;
    if (!ffn->loaded)
        return mha_log_fail(
            log, MHA_NOT_LOADED,
            "%s: the network has no weights: call mha_ffn_load or mha_ffn_load_host first", who);
    if (*rows > ffn->desc.rows)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: the call's rows %zu may be at most the desc's %zu", who, *rows,
                            ffn->desc.rows);
    return MHA_OK;
}

mha_status mha_ffn_bind_weights(const mha_ffn *ffn, const mha_run *run, const char *who,
                                const mha_ffn_weights *weights, mha_ffn_load_views *views)
{
    const mha_tensor *matrices[] = { &weights->hidden, &weights->gate, &weights->output };
    const mha_tensor *biases[] = { &weights->bias_hidden, &weights->bias_gate,
                                   &weights->bias_output };
    mha_status status = MHA_OK;
    if (!ffn->exists[MHA_FFN_GATED] && (weights->gate.buffer || weights->bias_gate.buffer))
        status = mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                              "%s: weights.gate or weights.bias_gate is given, and the flags say "
                              "that there is no gate",
                              who);
    for (int i = 0; !status && i < MHA_FFN_PROJECTIONS; i++)
        if (ffn->exists[i])
            status = mha_projection_bind(&ffn->projections[i], run, who, matrices[i], biases[i],
                                         &views->weights[i], &views->biases[i]);
    return status;
}

mha_status mha_ffn_copy_weights(mha_ffn *ffn, mha_run *run, const mha_ffn_load_views *views)
{
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < MHA_FFN_PROJECTIONS; i++)
        if (ffn->exists[i])
            status = mha_projection_load(&ffn->projections[i], run, &ffn->copy, &views->weights[i],
                                         &views->biases[i]);
    return status;
}

/* The hidden rows and those of the gate, in two products or in one. */
static mha_status project_inputs(mha_ffn *ffn, mha_run *run, size_t rows, const mha_operand *from,
                                 size_t region, mha_view views[2])
{
    const bool has_gate = ffn->exists[MHA_FFN_GATED], joined = mha_projection_joins(&ffn->joined);
    const size_t regions[2] = { region, region + ffn->gated_region };
    mha_status status = MHA_OK;
    for (int i = 0; !status && i <= has_gate; i++) {
        mha_projection *p = joined ? &ffn->joined : &ffn->projections[i];
        const size_t row = p->desc.out, begin = regions[joined ? 0 : i] / sizeof(float);
        views[i] = (mha_view){ .buffer = run->workspace,
                               .offset = joined ? begin + ffn->projections[i].column : begin,
                               .strides = { 0, 0, row, 1 } };
        if (joined && i)
            break; /* the first launch has done both */
        const mha_operand to = { run->workspace, begin, row, rows * row };
        status = mha_projection_launch(p, run, rows, from, &to);
    }
    return status;
}

mha_status mha_ffn_forward(mha_ffn *ffn, mha_run *run, size_t rows, const mha_operand *from,
                           const mha_operand *to, size_t region, const char *output)
{
    const bool has_gate = ffn->exists[MHA_FFN_GATED];
    mha_view views[2] = { 0 };
    mha_status status = project_inputs(ffn, run, rows, from, region, views);
    const mha_view hidden = views[0], gated = views[1];
    /* It is the gate's rows that are activated, and the hidden ones that they open. */
    const mha_activation_rows list = {
        .rows = rows, .input = gated, .gate = hidden, .output = hidden
    };
    if (!status && has_gate)
        status = mha_activation_launch(&ffn->activation, run, &ffn->activation_desc, &list);
    mha_run_will_write(run, output);
    const size_t row = hidden.strides[2];
    const mha_operand to_hidden = { hidden.buffer, hidden.offset, row, rows * row };
    if (!status)
        status =
            mha_projection_launch(&ffn->projections[MHA_FFN_OUTPUT], run, rows, &to_hidden, to);
    return status;
}
