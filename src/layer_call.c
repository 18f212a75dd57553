/* What a layer does in a call: load its weights; project, attend, project. */
#include "layer.h"
#include "log.h"
#include "shape.h"

mha_status mha_layer_check_loaded(const mha_layer *layer, const char *who)
{
    if (layer->loaded)
        return MHA_OK;
    return mha_log_fail(&layer->context->log, MHA_NOT_LOADED,
                        "%s: the layer has no weights: call mha_layer_load or "
                        "mha_layer_load_host first",
                        who);
}

mha_status mha_layer_bind_weights(const mha_layer *layer, const mha_run *run, const char *who,
                                  const mha_layer_weights *weights, mha_layer_load_views *views)
{
    const mha_tensor *matrices[] = { &weights->query, &weights->key, &weights->value,
                                     &weights->output };
    const mha_tensor *biases[] = { &weights->bias_query, &weights->bias_key, &weights->bias_value,
                                   &weights->bias_output };
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < MHA_LAYER_PROJECTIONS; i++)
        if (layer->exists[i])
            status = mha_projection_bind(&layer->projections[i], run, who, matrices[i], biases[i],
                                         &views->weights[i], &views->biases[i]);
    if (!status && !layer->exists[MHA_LAYER_OUTPUT] &&
        (weights->output.buffer || weights->bias_output.buffer))
        status = mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                              "%s: weights.output or weights.bias_output is given, and "
                              "MHA_LAYER_MERGED_OUTPUT says that there is none",
                              who);
    return status;
}

mha_status mha_layer_copy_weights(mha_layer *layer, mha_run *run, const mha_layer_load_views *views)
{
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < MHA_LAYER_PROJECTIONS; i++)
        if (layer->exists[i])
            status = mha_projection_load(&layer->projections[i], run, &layer->copy,
                                         &views->weights[i], &views->biases[i]);
    return status;
}

mha_status mha_layer_load_as(mha_layer *layer, const mha_layer_weights *weights,
                             const mha_call *call, const char *who)
{
    mha_run_clear_event(call);
    if (!layer)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = layer->context;
    if (!weights)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: weights is NULL", who);
    mha_run run;
    mha_layer_load_views views = { 0 };
    mha_status status = mha_run_begin(&run, context, call, who, 0);
    if (status)
        return mha_context_note(context, status);
    status = mha_layer_bind_weights(layer, &run, who, weights, &views);
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        mha_run_will_write(&run, "the layer's weights");
        status = mha_layer_copy_weights(layer, &run, &views);
        mha_run_note_load(&run, status, &layer->loaded);
    }
    return mha_run_end(&run, status);
}

mha_status mha_layer_load(mha_layer *layer, const mha_layer_weights *weights, const mha_call *call)
{
    return mha_layer_load_as(layer, weights, call, "mha_layer_load");
}

mha_status mha_layer_take_options(const mha_layer *layer, const mha_run *run, mha_bound *bound,
                                  const char *who, const mha_attention_args *args)
{
    const mha_attention_desc *desc = &layer->desc.attention;
    mha_status status = mha_bound_take_lengths(run, bound, who, desc, args);
    if (!status) /* which a layer does not use, so that none may be given */
        status = mha_bound_take_offsets(run, bound, who, desc, args);
    if (!status)
        status = mha_bound_take_options(run, bound, who, desc, args);
    if (status)
        return status;
    /* The new keys of a layer's cache are tokens, which the layer projects first. */
    return desc->uses & MHA_USES_APPEND ? mha_bound_take_keys(run, bound, who, desc, args)
                                        : mha_bound_take_new(run, bound, who, desc, args);
}

/* The tokens. With a cache, key and value are the cache, and the new ones are tokens. */
static mha_status bind_tokens(const mha_layer *layer, const mha_run *run, const char *who,
                              const mha_bound *bound, const mha_attention_args *args,
                              mha_layer_views *views)
{
    const mha_layer_desc *desc = &layer->desc;
    const bool appends = desc->attention.uses & MHA_USES_APPEND;
    const size_t keys = appends ? bound->new_len : bound->key_len;
    const mha_type key_type = mha_layer_key_type(layer);
    const struct {
        mha_view *view;
        const char *name;
        const mha_tensor *tensor;
        size_t len, width;
        mha_type type;
        mha_access access;
    } list[] = {
        { &views->query, "query", &args->query, bound->query_len, desc->query_width,
          desc->attention.type, MHA_READS },
        { &views->key, appends ? "new_key" : "key", appends ? &args->new_key : &args->key, keys,
          desc->key_width, key_type, MHA_READS },
        { &views->value, appends ? "new_value" : "value", appends ? &args->new_value : &args->value,
          keys, desc->value_width, key_type, MHA_READS },
        { &views->output, "output", &args->output, bound->query_len, desc->output_width,
          desc->attention.output_type, MHA_WRITES },
    };
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof list[0]; i++)
        status = mha_bind_tensor(run, list[i].view, who, list[i].name, list[i].tensor,
                                 (size_t[]){ desc->attention.batch, 1, list[i].len, list[i].width },
                                 mha_bind_type_bytes(list[i].type), list[i].access);
    return status;
}

/* The caller's tensors take the place of the attention's in the overlap rule. */
static mha_status check_overlap(const mha_layer *layer, const mha_run *run, const mha_bound *bound,
                                const char *who, const mha_layer_views *views)
{
    const bool appends = layer->desc.attention.uses & MHA_USES_APPEND;
    mha_bound whole = *bound;
    whole.query = views->query;
    *(appends ? &whole.new_key : &whole.key) = views->key;
    *(appends ? &whole.new_value : &whole.value) = views->value;
    whole.output = views->output;
    return mha_bound_check_overlap(run, &whole, who, "query", false);
}

/* Heads within rows of `row` elements of the workspace, [batch][len][row]. */
static mha_view heads_of(const mha_run *run, size_t offset, size_t len, size_t dim, size_t row)
{
    return (mha_view){ .buffer = run->workspace,
                       .offset = offset,
                       .strides = { len * row, dim, row, 1 } };
}

static bool same_rows(const mha_view *x, const mha_view *y, const mha_attention_desc *desc,
                      size_t len)
{
    return x->buffer == y->buffer && x->offset == y->offset &&
           (desc->batch == 1 || x->strides[0] == y->strides[0]) &&
           (len == 1 || x->strides[2] == y->strides[2]);
}

/* Query, key and value are the same tokens, and one product projects them. */
static bool joins(const mha_layer *layer, const mha_layer_views *views, const mha_bound *bound,
                  size_t keys)
{
    const mha_attention_desc *desc = &layer->desc.attention;
    const size_t len = bound->query_len;
    return mha_projection_joins(&layer->joined) && keys == len &&
           same_rows(&views->query, &views->key, desc, len) &&
           same_rows(&views->query, &views->value, desc, len);
}

static mha_status project_inputs(mha_layer *layer, mha_run *run, const mha_layer_views *views,
                                 mha_bound *bound, size_t region)
{
    const mha_attention_desc *desc = &layer->desc.attention;
    const bool appends = desc->uses & MHA_USES_APPEND;
    const size_t keys = appends ? bound->new_len : bound->key_len;
    const struct {
        const mha_view *from;
        mha_view *to;
        size_t len, dim;
    } inputs[] = {
        { &views->query, &bound->query, bound->query_len, desc->head_dim },
        { &views->key, appends ? &bound->new_key : &bound->key, keys, desc->head_dim },
        { &views->value, appends ? &bound->new_value : &bound->value, keys, desc->value_dim },
    };
    const bool joined = joins(layer, views, bound, keys);
    mha_status status = MHA_OK;
    for (int i = MHA_LAYER_QUERY; !status && i <= MHA_LAYER_VALUE; i++) {
        mha_projection *p = joined ? &layer->joined : &layer->projections[i];
        const size_t len = inputs[i].len, row = p->desc.out;
        const size_t rows = (region + layer->regions[joined ? MHA_LAYER_QUERY : i]) / sizeof(float);
        *inputs[i].to = heads_of(run, joined ? rows + layer->projections[i].column : rows, len,
                                 inputs[i].dim, row);
        if (joined && i != MHA_LAYER_QUERY)
            continue; /* the first launch has done all three */
        const mha_operand from = mha_projection_rows(inputs[i].from, len, p->desc.in);
        const mha_operand to = { run->workspace, rows, row, len * row };
        status = mha_projection_launch(p, run, len, &from, &to);
    }
    return status;
}

mha_status mha_layer_forward(mha_layer *layer, mha_run *run, const mha_layer_views *views,
                             mha_bound *bound, size_t region, const char *output)
{
    const mha_attention_desc *desc = &layer->desc.attention;
    const size_t len = bound->query_len;
    const size_t merged = desc->heads * desc->value_dim;
    mha_status status = project_inputs(layer, run, views, bound, region);
    if (status)
        return status;
    if (layer->exists[MHA_LAYER_OUTPUT]) {
        bound->output = heads_of(run, (region + layer->regions[MHA_LAYER_OUTPUT]) / sizeof(float),
                                 len, desc->value_dim, merged);
    } else {
        bound->output = views->output;
        bound->output.strides[1] = desc->heads > 1 ? desc->value_dim : 0;
        bound->output.strides[3] = 1;
    }
    status = mha_attention_forward(layer->attention, run, bound, region + layer->attention_region);
    if (status || !layer->exists[MHA_LAYER_OUTPUT])
        return status;
    mha_run_will_write(run, output);
    mha_projection *p = &layer->projections[MHA_LAYER_OUTPUT];
    const mha_operand from = { bound->output.buffer, bound->output.offset, merged, len * merged };
    const mha_operand to = mha_projection_rows(&views->output, len, p->desc.out);
    return mha_projection_launch(p, run, len, &from, &to);
}

mha_status mha_layer_enqueue_as(mha_layer *layer, const mha_attention_args *args,
                                const mha_call *call, const char *who)
{
    mha_run_clear_event(call);
    if (!layer)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = layer->context;
    if (!args)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    const mha_status lost = mha_context_check(context, who);
    if (lost)
        return lost;
    mha_status status = mha_layer_check_loaded(layer, who);
    if (status)
        return status;
    mha_run run;
    mha_bound bound = { 0 };
    mha_layer_views views;
    status = mha_run_begin(&run, context, call, who, mha_layer_workspace(layer).bytes);
    if (status)
        return mha_context_note(context, status);
    status = mha_layer_take_options(layer, &run, &bound, who, args);
    if (!status)
        status = bind_tokens(layer, &run, who, &bound, args, &views);
    if (!status)
        status = check_overlap(layer, &run, &bound, who, &views);
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        size_t region = 0;
        mha_layout_add(&region, layer->needs.temp_bytes);
        status = mha_layer_forward(layer, &run, &views, &bound, region, "output");
    }
    return mha_run_end(&run, status);
}

mha_status mha_layer_enqueue(mha_layer *layer, const mha_attention_args *args, const mha_call *call)
{
    return mha_layer_enqueue_as(layer, args, call, "mha_layer_enqueue");
}
