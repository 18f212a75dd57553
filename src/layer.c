/* The article's MultiHeadAttention: its description, its stages, its workspace. What it does in a
 * call is in layer_call.c. */
#include "layer.h"

#include "log.h"
#include "shape.h"

#include <stdlib.h>

/* Widths that are 0, and head_dim from model_width. */
static mha_status resolve_widths(const mha_context *context, const char *who, mha_layer_desc *desc)
{
    mha_attention_desc *attention = &desc->attention;
    if (!attention->heads)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: attention.heads is 0", who);
    if (attention->head_dim && attention->heads > SIZE_MAX / attention->head_dim)
        return mha_log_fail(&context->log, MHA_TOO_LARGE,
                            "%s: heads %zu * head_dim %zu passes the largest size_t", who,
                            attention->heads, attention->head_dim);
    if (!desc->model_width)
        desc->model_width =
            attention->head_dim ? attention->heads * attention->head_dim : desc->query_width;
    if (!desc->model_width)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: model_width, query_width and attention.head_dim are all 0: one "
                            "must say how wide a head is",
                            who);
    if (desc->model_width % attention->heads)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: model_width is %zu, no multiple of the %zu heads", who,
                            desc->model_width, attention->heads);
    if (!attention->head_dim)
        attention->head_dim = desc->model_width / attention->heads;
    if (attention->head_dim != desc->model_width / attention->heads)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: model_width %zu is not heads %zu * head_dim %zu", who,
                            desc->model_width, attention->heads, attention->head_dim);
    if (!desc->query_width)
        desc->query_width = desc->model_width;
    if (!desc->key_width)
        desc->key_width = desc->query_width;
    if (!desc->value_width)
        desc->value_width = desc->key_width;
    return MHA_OK;
}

static mha_status resolve(mha_layer *layer, const char *who, const mha_layer_desc *given)
{
    const mha_context *context = layer->context;
    const unsigned known = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN | MHA_LAYER_MERGED_OUTPUT;
    mha_layer_desc *desc = &layer->desc;
    *desc = *given;
    if (desc->flags & ~known)
        return mha_log_fail(&context->log, MHA_UNSUPPORTED, "%s: flags has unknown bits: 0x%x", who,
                            desc->flags & ~known);
    if (desc->attention.uses & MHA_USES_OFFSETS)
        return mha_log_fail(&context->log, MHA_UNSUPPORTED,
                            "%s: a layer takes no offsets in this version; an mha_attention does",
                            who);
    if (desc->projection < MHA_GEMM_DEFAULT || desc->projection > MHA_GEMM_KERNEL)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: projection is no mha_gemm_by: %d", who, (int)desc->projection);
    mha_status status = resolve_widths(context, who, desc);
    if (!status)
        status = mha_shape_resolve(layer->context, &desc->attention, who, &desc->attention);
    if (status)
        return status;

    if (!desc->weight_type)
        desc->weight_type = MHA_FLOAT32;
    status = mha_shape_check_type(&context->log, who, "weight_type", desc->weight_type);
    if (status)
        return status;
    const mha_attention_desc *a = &desc->attention;
    const size_t merged = a->heads * a->value_dim;
    if (!desc->output_width)
        desc->output_width = desc->flags & MHA_LAYER_MERGED_OUTPUT ? merged : desc->query_width;
    if (!(desc->flags & MHA_LAYER_MERGED_OUTPUT))
        return MHA_OK;
    if (desc->flags & MHA_LAYER_BIAS_OUTPUT)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: MHA_LAYER_BIAS_OUTPUT needs an output projection, and "
                            "MHA_LAYER_MERGED_OUTPUT says that there is none",
                            who);
    if (desc->output_width != merged)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: output_width is %zu, and the merged heads are %zu wide", who,
                            desc->output_width, merged);
    return MHA_OK;
}

mha_type mha_layer_key_type(const mha_layer *layer)
{
    const mha_attention_desc *a = &layer->desc.attention;
    return a->uses & MHA_USES_APPEND ? a->new_type : a->key_value_type;
}

/* What is projected is float32, and the merged heads are unless they are the output. */
static mha_status set_up_attention(mha_layer *layer, const char *who)
{
    mha_attention_desc desc = layer->desc.attention;
    desc.type = desc.new_type = MHA_FLOAT32;
    if (!(desc.uses & MHA_USES_APPEND))
        desc.key_value_type = MHA_FLOAT32;
    if (!(layer->desc.flags & MHA_LAYER_MERGED_OUTPUT))
        desc.output_type = MHA_FLOAT32;
    return mha_attention_make(&layer->attention, layer->context, &desc, who);
}

static mha_status set_up_projections(mha_layer *layer, const char *who)
{
    const mha_layer_desc *desc = &layer->desc;
    const mha_attention_desc *a = &desc->attention;
    const size_t keys = a->uses & MHA_USES_APPEND ? a->new_len : a->key_len;
    const struct {
        const char *name, *bias_name, *stage;
        size_t in, out, len;
        mha_type type;
    } list[] = {
        { "query", "bias_query", "project query", desc->query_width, a->heads * a->head_dim,
          a->query_len, a->type },
        { "key", "bias_key", "project key", desc->key_width, a->kv_heads * a->head_dim, keys,
          mha_layer_key_type(layer) },
        { "value", "bias_value", "project value", desc->value_width, a->kv_heads * a->value_dim,
          keys, mha_layer_key_type(layer) },
        { "output", "bias_output", "project output", a->heads * a->value_dim, desc->output_width,
          a->query_len, MHA_FLOAT32 },
    };
    mha_projection_desc descs[MHA_LAYER_PROJECTIONS];
    for (int i = 0; i < MHA_LAYER_PROJECTIONS; i++)
        descs[i] = (mha_projection_desc){
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
            .type = list[i].type,
            .output_type = i == MHA_LAYER_OUTPUT ? a->output_type : MHA_FLOAT32,
            .weight_type = desc->weight_type,
        };
    for (int i = 0; i < MHA_LAYER_PROJECTIONS; i++)
        layer->exists[i] = i != MHA_LAYER_OUTPUT || !(desc->flags & MHA_LAYER_MERGED_OUTPUT);
    mha_status status =
        mha_projection_setup_parts(layer->projections, &layer->joined, layer->context, descs,
                                   MHA_LAYER_OUTPUT, "project query, key, value", who);
    if (!status && layer->exists[MHA_LAYER_OUTPUT])
        status = mha_projection_setup(&layer->projections[MHA_LAYER_OUTPUT], layer->context,
                                      &descs[MHA_LAYER_OUTPUT], who);
    return status;
}

/* What CLBlast needs for a product. */
static void lay_out_temp(mha_layer *layer, const mha_projection *projection)
{
    if (projection->gemm.temp_bytes > layer->needs.temp_bytes)
        layer->needs.temp_bytes = projection->gemm.temp_bytes;
}

static void lay_out(mha_layer *layer)
{
    const size_t batch = layer->desc.attention.batch;
    const mha_needs needs = mha_attention_needs(layer->attention);
    layer->needs.temp_bytes = needs.temp_bytes;
    lay_out_temp(layer, &layer->joined);
    layer->attention_region = mha_layout_add(&layer->needs.region_bytes, needs.region_bytes);
    for (int i = 0; i < MHA_LAYER_PROJECTIONS; i++) {
        const mha_projection *p = &layer->projections[i];
        if (!layer->exists[i])
            continue;
        lay_out_temp(layer, p);
        const size_t width = i == MHA_LAYER_OUTPUT ? p->desc.in : p->desc.out;
        layer->regions[i] =
            mha_layout_add(&layer->needs.region_bytes, batch * p->desc.len * width * sizeof(float));
    }
}

mha_status mha_layer_make(mha_layer **out, mha_context *context, const mha_layer_desc *desc,
                          const char *who)
{
    *out = NULL;
    mha_layer *layer = calloc(1, sizeof *layer);
    if (!layer)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a layer");
    layer->context = context;
    mha_status status = resolve(layer, who, desc);
    if (!status)
        status = set_up_attention(layer, who);
    if (!status)
        status = set_up_projections(layer, who);
    if (!status)
        status = mha_heads_setup(&layer->copy, context, layer->desc.weight_type, MHA_FLOAT32);
    if (!status) {
        lay_out(layer);
        status = mha_shape_check_workspace(context, mha_layer_workspace(layer).bytes, who);
    }
    if (status) {
        mha_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return MHA_OK;
}

mha_status mha_layer_create(mha_layer **out, mha_context *context, const mha_layer_desc *desc)
{
    static const char who[] = "mha_layer_create";
    if (out)
        *out = NULL;
    const mha_status status = mha_context_begin_create(context, who, desc, out);
    return status ? status : mha_layer_make(out, context, desc, who);
}

void mha_layer_destroy(mha_layer **layer)
{
    mha_layer *l = layer ? *layer : NULL;
    if (!l)
        return;
    *layer = NULL;
    for (int i = 0; i < MHA_LAYER_PROJECTIONS; i++)
        mha_projection_release(&l->projections[i]);
    mha_projection_release(&l->joined);
    mha_kernel_release(&l->copy);
    mha_attention_destroy(&l->attention);
    free(l);
}

mha_workspace mha_layer_workspace(const mha_layer *layer)
{
    if (!layer)
        return (mha_workspace){ 0 };
    size_t end = 0;
    mha_layout_add(&end, layer->needs.temp_bytes);
    mha_layout_add(&end, layer->needs.region_bytes);
    return (mha_workspace){ .bytes = end, .alignment = layer->context->alignment };
}

size_t mha_layer_explain(const mha_layer *layer, char *text, size_t capacity)
{
    mha_text out = { .at = text, .capacity = text ? capacity : 0 };
    if (out.capacity)
        text[0] = '\0';
    if (!layer)
        return 0;
    for (int i = 0; i < MHA_LAYER_PROJECTIONS; i++) {
        if (layer->exists[i])
            mha_projection_explain(&layer->projections[i], &out);
    }
    if (mha_projection_joins(&layer->joined))
        mha_text_add(&out, "%s: one product where all three are the same tokens\n",
                     layer->joined.desc.stage);
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
