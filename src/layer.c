/* The article's MultiHeadAttention: project, attend, project; and the weights it does that with. */
#include "layer.h"

#include "attention.h"
#include "log.h"
#include "projection.h"
#include "shape.h"

#include <stdlib.h>

enum {
    QUERY,
    KEY,
    VALUE,
    OUTPUT,
    NUM_PROJECTIONS
};

struct mha_layer {
    mha_context *context;
    mha_layer_desc desc; /* resolved */
    mha_attention *attention;
    bool exists[NUM_PROJECTIONS];
    mha_projection projections[NUM_PROJECTIONS];
    mha_kernel copy;
    bool loaded;
    /* The workspace: CLBlast's, then a region for the attention and one for each projection, of
     * what it writes [batch][len][out], or for the output's of what it reads. In bytes. */
    size_t temp_bytes, region_bytes;
    size_t attention_region, regions[NUM_PROJECTIONS];
};

static const char create_who[] = "mha_layer_create";

/* Widths that are 0, and head_dim from model_width. */
static mha_status resolve_widths(const mha_context *context, mha_layer_desc *desc)
{
    mha_attention_desc *attention = &desc->attention;
    if (!attention->heads)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: attention.heads is 0",
                            create_who);
    if (attention->head_dim && attention->heads > SIZE_MAX / attention->head_dim)
        return mha_log_fail(&context->log, MHA_TOO_LARGE,
                            "%s: heads %zu * head_dim %zu passes the largest size_t", create_who,
                            attention->heads, attention->head_dim);
    if (!desc->model_width)
        desc->model_width =
            attention->head_dim ? attention->heads * attention->head_dim : desc->query_width;
    if (!desc->model_width)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: model_width, query_width and attention.head_dim are all 0: one "
                            "must say how wide a head is",
                            create_who);
    if (desc->model_width % attention->heads)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: model_width is %zu, no multiple of the %zu heads", create_who,
                            desc->model_width, attention->heads);
    if (!attention->head_dim)
        attention->head_dim = desc->model_width / attention->heads;
    if (attention->head_dim != desc->model_width / attention->heads)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: model_width %zu is not heads %zu * head_dim %zu", create_who,
                            desc->model_width, attention->heads, attention->head_dim);
    if (!desc->query_width)
        desc->query_width = desc->model_width;
    if (!desc->key_width)
        desc->key_width = desc->query_width;
    if (!desc->value_width)
        desc->value_width = desc->key_width;
    return MHA_OK;
}

static mha_status resolve(mha_layer *layer, const mha_layer_desc *given)
{
    const mha_context *context = layer->context;
    const unsigned known = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN | MHA_LAYER_MERGED_OUTPUT;
    mha_layer_desc *desc = &layer->desc;
    *desc = *given;
    if (desc->flags & ~known)
        return mha_log_fail(&context->log, MHA_UNSUPPORTED, "%s: flags has unknown bits: 0x%x",
                            create_who, desc->flags & ~known);
    if (desc->attention.uses & MHA_USES_OF_ATTENTION_ONLY)
        return mha_log_fail(
            &context->log, MHA_UNSUPPORTED,
            "%s: a layer has no cache, rotary positions or offsets in this version; "
            "an mha_attention does",
            create_who);
    if (desc->projection < MHA_GEMM_DEFAULT || desc->projection > MHA_GEMM_KERNEL)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: projection is no mha_gemm_by: %d", create_who,
                            (int)desc->projection);
    mha_status status = resolve_widths(context, desc);
    if (!status)
        status = mha_shape_resolve(layer->context, &desc->attention, create_who, &desc->attention);
    if (status)
        return status;

    const mha_attention_desc *a = &desc->attention;
    if (a->type != MHA_FLOAT32 || a->key_value_type != MHA_FLOAT32 || a->output_type != MHA_FLOAT32)
        return mha_log_fail(&context->log, MHA_UNSUPPORTED,
                            "%s: a layer's tensors and weights are float32 in this version; an "
                            "mha_attention takes the other types",
                            create_who);
    const size_t merged = a->heads * a->value_dim;
    if (!desc->output_width)
        desc->output_width = desc->flags & MHA_LAYER_MERGED_OUTPUT ? merged : desc->query_width;
    if (!(desc->flags & MHA_LAYER_MERGED_OUTPUT))
        return MHA_OK;
    if (desc->flags & MHA_LAYER_BIAS_OUTPUT)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: MHA_LAYER_BIAS_OUTPUT needs an output projection, and "
                            "MHA_LAYER_MERGED_OUTPUT says that there is none",
                            create_who);
    if (desc->output_width != merged)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: output_width is %zu, and the merged heads are %zu wide",
                            create_who, desc->output_width, merged);
    return MHA_OK;
}

static mha_status set_up_projections(mha_layer *layer)
{
    const mha_layer_desc *desc = &layer->desc;
    const mha_attention_desc *a = &desc->attention;
    const struct {
        const char *name, *bias_name, *stage;
        size_t in, out, len;
    } list[] = {
        { "query", "bias_query", "project query", desc->query_width, a->heads * a->head_dim,
          a->query_len },
        { "key", "bias_key", "project key", desc->key_width, a->kv_heads * a->head_dim,
          a->key_len },
        { "value", "bias_value", "project value", desc->value_width, a->kv_heads * a->value_dim,
          a->key_len },
        { "output", "bias_output", "project output", a->heads * a->value_dim, desc->output_width,
          a->query_len },
    };
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < NUM_PROJECTIONS; i++) {
        layer->exists[i] = i != OUTPUT || !(desc->flags & MHA_LAYER_MERGED_OUTPUT);
        if (!layer->exists[i])
            continue;
        const mha_projection_desc projection = {
            .name = list[i].name,
            .bias_name = list[i].bias_name,
            .stage = list[i].stage,
            .batch = a->batch,
            .len = list[i].len,
            .in = list[i].in,
            .out = list[i].out,
            .has_bias = desc->flags >> i & 1, /* MHA_LAYER_BIAS_QUERY and on, in this order */
            .out_in = desc->flags & MHA_LAYER_OUT_IN,
            .by = desc->projection,
        };
        status =
            mha_projection_setup(&layer->projections[i], layer->context, &projection, create_who);
    }
    return status;
}

static void lay_out(mha_layer *layer)
{
    const size_t batch = layer->desc.attention.batch;
    const mha_needs needs = mha_attention_needs(layer->attention);
    layer->temp_bytes = needs.temp_bytes;
    layer->attention_region = mha_layout_add(&layer->region_bytes, needs.region_bytes);
    for (int i = 0; i < NUM_PROJECTIONS; i++) {
        const mha_projection *p = &layer->projections[i];
        if (!layer->exists[i])
            continue;
        if (p->gemm.temp_bytes > layer->temp_bytes)
            layer->temp_bytes = p->gemm.temp_bytes;
        const size_t width = i == OUTPUT ? p->desc.in : p->desc.out;
        layer->regions[i] =
            mha_layout_add(&layer->region_bytes, batch * p->desc.len * width * sizeof(float));
    }
}

mha_status mha_layer_create(mha_layer **out, mha_context *context, const mha_layer_desc *desc)
{
    if (out)
        *out = NULL;
    mha_status status = mha_context_begin_create(context, create_who, desc, out);
    if (status)
        return status;
    mha_layer *layer = calloc(1, sizeof *layer);
    if (!layer)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a layer");
    layer->context = context;
    status = resolve(layer, desc);
    if (!status)
        status = mha_attention_make(&layer->attention, context, &layer->desc.attention, create_who);
    if (!status)
        status = set_up_projections(layer);
    if (!status)
        status = mha_heads_setup(&layer->copy, context, MHA_FLOAT32, MHA_FLOAT32);
    if (status) {
        mha_layer_destroy(&layer);
        return status;
    }
    lay_out(layer);
    status = mha_shape_check_workspace(context, mha_layer_workspace(layer).bytes, create_who);
    if (status) {
        mha_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return MHA_OK;
}

void mha_layer_destroy(mha_layer **layer)
{
    mha_layer *l = layer ? *layer : NULL;
    if (!l)
        return;
    *layer = NULL;
    for (int i = 0; i < NUM_PROJECTIONS; i++)
        mha_projection_release(&l->projections[i]);
    mha_kernel_release(&l->copy);
    mha_attention_destroy(&l->attention);
    free(l);
}

mha_workspace mha_layer_workspace(const mha_layer *layer)
{
    if (!layer)
        return (mha_workspace){ 0 };
    size_t end = 0;
    mha_layout_add(&end, layer->temp_bytes);
    mha_layout_add(&end, layer->region_bytes);
    return (mha_workspace){ .bytes = end, .alignment = layer->context->alignment };
}

size_t mha_layer_explain(const mha_layer *layer, char *text, size_t capacity)
{
    mha_text out = { .at = text, .capacity = text ? capacity : 0 };
    if (out.capacity)
        text[0] = '\0';
    if (!layer)
        return 0;
    for (int i = 0; i < NUM_PROJECTIONS; i++) {
        const mha_projection *p = &layer->projections[i];
        if (layer->exists[i])
            mha_text_add(&out, "%s: %s, %s\n", p->desc.stage, mha_gemm_way_name(p->gemm.way),
                         p->gemm.reason);
    }
    const size_t used = out.length < out.capacity ? out.length : out.capacity;
    out.length += mha_attention_explain(layer->attention, out.capacity ? text + used : NULL,
                                        out.capacity - used);
    return out.length;
}

const mha_layer_desc *mha_layer_shape(const mha_layer *layer)
{
    return &layer->desc;
}

mha_context *mha_layer_context(const mha_layer *layer)
{
    return layer->context;
}

/* --- Weights --- */

typedef struct load_views {
    mha_view weights[NUM_PROJECTIONS];
    mha_view biases[NUM_PROJECTIONS];
} load_views;

static mha_status bind_weights(const mha_layer *layer, const mha_run *run, const char *who,
                               const mha_layer_weights *weights, load_views *views)
{
    const mha_tensor *matrices[] = { &weights->query, &weights->key, &weights->value,
                                     &weights->output };
    const mha_tensor *biases[] = { &weights->bias_query, &weights->bias_key, &weights->bias_value,
                                   &weights->bias_output };
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < NUM_PROJECTIONS; i++)
        if (layer->exists[i])
            status = mha_projection_bind(&layer->projections[i], run, who, matrices[i], biases[i],
                                         &views->weights[i], &views->biases[i]);
    if (!status && !layer->exists[OUTPUT] &&
        (weights->output.buffer || weights->bias_output.buffer))
        status = mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                              "%s: weights.output or weights.bias_output is given, and "
                              "MHA_LAYER_MERGED_OUTPUT says that there is none",
                              who);
    return status;
}

static mha_status copy_weights(mha_layer *layer, mha_run *run, const load_views *views)
{
    mha_run_will_write(run, "the layer's weights");
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < NUM_PROJECTIONS; i++)
        if (layer->exists[i])
            status = mha_projection_load(&layer->projections[i], run, &layer->copy,
                                         &views->weights[i], &views->biases[i]);
    return status;
}

mha_status mha_layer_load(mha_layer *layer, const mha_layer_weights *weights, const mha_call *call)
{
    static const char who[] = "mha_layer_load";
    mha_run_clear_event(call);
    if (!layer)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = layer->context;
    if (!weights)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: weights is NULL", who);
    mha_run run;
    load_views views = { 0 };
    mha_status status = mha_run_begin(&run, context, call, who, 0);
    if (status)
        return mha_context_note(context, status);
    status = bind_weights(layer, &run, who, weights, &views);
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        status = copy_weights(layer, &run, &views);
        /* A copy that was queued has spoilt the weights of before. */
        layer->loaded = !status || (layer->loaded && !run.wrote[0]);
    }
    return mha_run_end(&run, status);
}

/* --- Forward --- */

typedef struct forward_views {
    mha_view query, key, value, output; /* the caller's, [batch][1][len][width] */
} forward_views;

static mha_status bind_tensors(const mha_layer *layer, const mha_run *run, const char *who,
                               const mha_bound *bound, const mha_attention_args *args,
                               forward_views *views)
{
    const mha_layer_desc *desc = &layer->desc;
    const size_t batch = desc->attention.batch;
    mha_status status = mha_bind_tensor(run, &views->query, who, "query", &args->query,
                                        (size_t[]){ batch, 1, bound->query_len, desc->query_width },
                                        sizeof(float), MHA_READS);
    if (!status)
        status = mha_bind_tensor(run, &views->key, who, "key", &args->key,
                                 (size_t[]){ batch, 1, bound->key_len, desc->key_width },
                                 sizeof(float), MHA_READS);
    if (!status)
        status = mha_bind_tensor(run, &views->value, who, "value", &args->value,
                                 (size_t[]){ batch, 1, bound->key_len, desc->value_width },
                                 sizeof(float), MHA_READS);
    if (!status)
        status = mha_bind_tensor(run, &views->output, who, "output", &args->output,
                                 (size_t[]){ batch, 1, bound->query_len, desc->output_width },
                                 sizeof(float), MHA_WRITES);
    return status;
}

/* The caller's tensors take the place of the attention's in the overlap rule. */
static mha_status check_overlap(const mha_run *run, const mha_bound *bound, const char *who,
                                const forward_views *views)
{
    mha_bound whole = *bound;
    whole.query = views->query;
    whole.key = views->key;
    whole.value = views->value;
    whole.output = views->output;
    return mha_bound_check_overlap(run, &whole, who, "query", false);
}

/* Heads within packed rows [batch][len][heads * dim] of the workspace. */
static mha_view heads_of(const mha_run *run, size_t offset_bytes, size_t heads, size_t len,
                         size_t dim)
{
    return (mha_view){ .buffer = run->workspace,
                       .offset = offset_bytes / sizeof(float),
                       .strides = { len * heads * dim, dim, heads * dim, 1 } };
}

static mha_status project_inputs(mha_layer *layer, mha_run *run, const forward_views *views,
                                 mha_bound *bound, size_t base)
{
    const mha_attention_desc *desc = &layer->desc.attention;
    const struct {
        const mha_view *from;
        mha_view *to;
        size_t len, heads, dim;
    } inputs[] = {
        { &views->query, &bound->query, bound->query_len, desc->heads, desc->head_dim },
        { &views->key, &bound->key, bound->key_len, desc->kv_heads, desc->head_dim },
        { &views->value, &bound->value, bound->key_len, desc->kv_heads, desc->value_dim },
    };
    mha_status status = MHA_OK;
    for (int i = QUERY; !status && i <= VALUE; i++) {
        mha_projection *p = &layer->projections[i];
        const size_t len = inputs[i].len;
        *inputs[i].to =
            heads_of(run, base + layer->regions[i], inputs[i].heads, len, inputs[i].dim);
        const mha_operand from = mha_projection_rows(inputs[i].from, len, p->desc.in);
        const mha_operand to = { inputs[i].to->buffer, inputs[i].to->offset, p->desc.out,
                                 len * p->desc.out };
        status = mha_projection_launch(p, run, len, &from, &to);
    }
    return status;
}

static mha_status forward(mha_layer *layer, mha_run *run, const forward_views *views,
                          mha_bound *bound)
{
    const mha_attention_desc *desc = &layer->desc.attention;
    const size_t len = bound->query_len;
    const size_t merged = desc->heads * desc->value_dim;
    size_t base = 0;
    mha_layout_add(&base, layer->temp_bytes);
    mha_status status = project_inputs(layer, run, views, bound, base);
    if (status)
        return status;
    if (layer->exists[OUTPUT]) {
        bound->output =
            heads_of(run, base + layer->regions[OUTPUT], desc->heads, len, desc->value_dim);
    } else {
        bound->output = views->output;
        bound->output.strides[1] = desc->heads > 1 ? desc->value_dim : 0;
        bound->output.strides[3] = 1;
    }
    status = mha_attention_forward(layer->attention, run, bound, base + layer->attention_region);
    if (status || !layer->exists[OUTPUT])
        return status;
    mha_run_will_write(run, "output");
    mha_projection *p = &layer->projections[OUTPUT];
    const mha_operand from = { bound->output.buffer, bound->output.offset, merged, len * merged };
    const mha_operand to = mha_projection_rows(&views->output, len, p->desc.out);
    return mha_projection_launch(p, run, len, &from, &to);
}

mha_status mha_layer_enqueue(mha_layer *layer, const mha_attention_args *args, const mha_call *call)
{
    static const char who[] = "mha_layer_enqueue";
    mha_run_clear_event(call);
    if (!layer)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = layer->context;
    if (!args)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    const mha_status lost = mha_context_check(context);
    if (lost)
        return lost;
    if (!layer->loaded)
        return mha_log_fail(&context->log, MHA_NOT_LOADED,
                            "%s: the layer has no weights: call mha_layer_load first", who);
    mha_run run;
    mha_bound bound = { 0 };
    forward_views views;
    mha_status status = mha_run_begin(&run, context, call, who, mha_layer_workspace(layer).bytes);
    if (status)
        return mha_context_note(context, status);
    status = mha_bound_take_lengths(&run, &bound, who, &layer->desc.attention, args);
    if (!status) /* which a layer does not use, so that none may be given */
        status = mha_bound_take_offsets(&run, &bound, who, &layer->desc.attention, args);
    if (!status)
        status = bind_tensors(layer, &run, who, &bound, args, &views);
    if (!status)
        status = mha_bound_take_options(&run, &bound, who, &layer->desc.attention, args);
    if (!status)
        status = check_overlap(&run, &bound, who, &views);
    if (!status)
        status = mha_run_wait(&run);
    if (!status)
        status = forward(layer, &run, &views, &bound);
    return mha_run_end(&run, status);
}
