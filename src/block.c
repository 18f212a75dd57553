/* Encoder and decoder layers: their steps, norms and workspace. What they do in a call is in
 * block_call.c. */
#include "block.h"

#include "log.h"
#include "shape.h"

#include <stdio.h>

static const char *const step_names[MHA_BLOCK_STEPS] = { "feed_forward_before", "self_attention",
                                                         "cross_attention", "feed_forward" };

const char *mha_block_say(char text[MHA_BLOCK_WHO], const char *who, int step)
{
    snprintf(text, MHA_BLOCK_WHO, "%s: %s", who, step_names[step]);
    return text;
}

mha_status mha_block_check_loaded(const mha_block *block, const char *who)
{
    if (block->loaded)
        return MHA_OK;
    return mha_log_fail(&block->context->log, MHA_NOT_LOADED,
                        "%s: there are no weights: load them first", who);
}

mha_status mha_block_check_step(const mha_block *block, const char *who, int step, bool given)
{
    if (block->steps[step].exists || !given)
        return MHA_OK;
    return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT,
                        "%s: weights are given, and the desc has no such step", who);
}

mha_status mha_block_check_own(const mha_block *block, const char *who, const mha_block_own *list,
                               size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].given)
            return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT,
                                "%s: %s is given, and it is the block that gives it", who,
                                list[i].name);
    return MHA_OK;
}

mha_status mha_block_take_len(const mha_block *block, const char *who, size_t given, size_t *len)
{
    *len = given ? given : block->len;
    if (*len <= block->len)
        return MHA_OK;
    return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT,
                        "%s: the call's len %zu may be at most the desc's query_len, which is %zu",
                        who, *len, block->len);
}

/* The widths that a block needs of a layer, whose own rules hold already. */
static mha_status check_layer(const mha_block *block, const char *who, int step)
{
    const mha_log *log = &block->context->log;
    const mha_layer_desc *desc = &block->steps[step].layer->desc;
    const size_t width = block->width;
    if (desc->flags & MHA_LAYER_MERGED_OUTPUT)
        return mha_log_fail(log, MHA_UNSUPPORTED,
                            "%s: MHA_LAYER_MERGED_OUTPUT is set, and a block's attention ends with "
                            "its output projection",
                            who);
    if (desc->query_width != width || desc->output_width != width)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: query_width is %zu and output_width %zu, both must be the block's "
                            "width, which is %zu",
                            who, desc->query_width, desc->output_width, width);
    if (desc->key_width != desc->value_width ||
        (step == MHA_BLOCK_SELF && desc->key_width != width))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: key_width is %zu and value_width %zu, but keys and values are %s",
                            who, desc->key_width, desc->value_width,
                            step == MHA_BLOCK_SELF ? "the block's own rows" : "one memory");
    return MHA_OK;
}

/* A length that is 0 is `len`, another is refused. */
static mha_status take_length(const mha_block *block, const char *who, const char *name,
                              size_t *length, size_t len)
{
    if (*length && *length != len)
        return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT,
                            "%s: %s is %zu, it must be 0 or what the block's rows say, %zu", who,
                            name, *length, len);
    *length = len;
    return MHA_OK;
}

/* A type that is 0 is the block's, another is refused; between input and output all is float32. */
static mha_status take_type(const mha_block *block, const char *who, const char *name,
                            mha_type *type)
{
    if (*type && *type != block->type)
        return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT,
                            "%s: %s is %d, it must be 0 or the type of the block's rows, %d", who,
                            name, (int)*type, (int)block->type);
    *type = MHA_FLOAT32;
    return MHA_OK;
}

/* The types of the block's rows, which its self attention says. */
static mha_status resolve_types(mha_block *block, const char *who, const mha_attention_desc *desc)
{
    const mha_log *log = &block->context->log;
    block->type = desc->type ? desc->type : MHA_FLOAT32;
    block->output_type = desc->output_type ? desc->output_type : block->type;
    const mha_status status = mha_shape_check_type(log, who, "attention.type", block->type);
    return status ? status
                  : mha_shape_check_type(log, who, "attention.output_type", block->output_type);
}

/* Types of an attention whose queries, and new keys if there are any, are the block's rows. */
static mha_status take_attention_types(const mha_block *block, const char *who,
                                       mha_attention_desc *a)
{
    mha_type *const others[] = { &a->key_value_type, &a->bias_type };
    for (int i = 0; i < 2; i++)
        if (!*others[i])
            *others[i] = block->type;
    const mha_status status = take_type(block, who, "attention.type", &a->type);
    return status ? status : take_type(block, who, "attention.new_type", &a->new_type);
}

static mha_status make_self(mha_block *block, const mha_block_desc *desc, const char *caller)
{
    char text[MHA_BLOCK_WHO];
    const char *who = mha_block_say(text, caller, MHA_BLOCK_SELF);
    mha_layer_desc layer = *desc->self;
    mha_attention_desc *a = &layer.attention;
    const bool appends = a->uses & MHA_USES_APPEND;
    mha_status status =
        appends ? take_length(block, who, "attention.new_len", &a->new_len, a->query_len)
                : take_length(block, who, "attention.key_len", &a->key_len, a->query_len);
    if (!status)
        status = resolve_types(block, who, a);
    if (!status)
        status = take_attention_types(block, who, a);
    if (!status && !appends)
        status = take_type(block, who, "attention.key_value_type", &a->key_value_type);
    a->output_type = MHA_FLOAT32;
    if (!status)
        status = mha_layer_make(&block->steps[MHA_BLOCK_SELF].layer, block->context, &layer, who);
    if (status)
        return status;
    block->batch = a->batch;
    block->len = a->query_len;
    block->width = block->steps[MHA_BLOCK_SELF].layer->desc.query_width;
    return check_layer(block, who, MHA_BLOCK_SELF);
}

static mha_status make_cross(mha_block *block, const mha_block_desc *desc, const char *caller)
{
    char text[MHA_BLOCK_WHO];
    const char *who = mha_block_say(text, caller, MHA_BLOCK_CROSS);
    mha_layer_desc layer = *desc->cross;
    mha_attention_desc *a = &layer.attention;
    if (a->uses & MHA_USES_APPEND)
        return mha_log_fail(&block->context->log, MHA_UNSUPPORTED,
                            "%s: MHA_USES_APPEND is of the self attention: a memory does not grow",
                            who);
    mha_status status = take_length(block, who, "attention.batch", &a->batch, block->batch);
    if (!status)
        status = take_length(block, who, "attention.query_len", &a->query_len, block->len);
    if (!status)
        status = take_attention_types(block, who, a);
    if (!status)
        status = take_type(block, who, "attention.output_type", &a->output_type);
    if (!layer.query_width)
        layer.query_width = block->width;
    if (!status)
        status = mha_layer_make(&block->steps[MHA_BLOCK_CROSS].layer, block->context, &layer, who);
    return status ? status : check_layer(block, who, MHA_BLOCK_CROSS);
}

static mha_status make_ffn(mha_block *block, const mha_block_desc *desc, const char *caller,
                           int step)
{
    char text[MHA_BLOCK_WHO];
    const char *who = mha_block_say(text, caller, step);
    mha_ffn_desc ffn = *desc->ffn;
    mha_status status = take_length(block, who, "rows", &ffn.rows, block->batch * block->len);
    if (!status)
        status = take_length(block, who, "width", &ffn.width, block->width);
    if (!status)
        status = take_length(block, who, "output_width", &ffn.output_width, block->width);
    if (!status)
        status = take_type(block, who, "type", &ffn.type);
    if (!status)
        status = take_type(block, who, "output_type", &ffn.output_type);
    return status ? status : mha_ffn_make(&block->steps[step].ffn, block->context, &ffn, who);
}

static mha_status make_steps(mha_block *block, const mha_block_desc *desc, const char *who)
{
    mha_block_step *steps = block->steps;
    const mha_ffn_place place = desc->ffn_place;
    steps[MHA_BLOCK_FFN_BEFORE].exists = place != MHA_FFN_AFTER;
    steps[MHA_BLOCK_SELF].exists = true;
    steps[MHA_BLOCK_CROSS].exists = desc->cross != NULL;
    steps[MHA_BLOCK_FFN].exists = place != MHA_FFN_BEFORE;
    if ((int)place < MHA_FFN_AFTER || place > MHA_FFN_AROUND)
        return mha_log_fail(&block->context->log, MHA_INVALID_ARGUMENT,
                            "%s: feed_forward_place is no mha_ffn_place: %d", who, (int)place);
    mha_status status = make_self(block, desc, who);
    if (!status && steps[MHA_BLOCK_CROSS].exists)
        status = make_cross(block, desc, who);
    if (!status && steps[MHA_BLOCK_FFN_BEFORE].exists)
        status = make_ffn(block, desc, who, MHA_BLOCK_FFN_BEFORE);
    if (!status && steps[MHA_BLOCK_FFN].exists)
        status = make_ffn(block, desc, who, MHA_BLOCK_FFN);
    return status;
}

static mha_status resolve_norm(mha_block *block, const mha_block_desc *desc, const char *caller)
{
    const mha_log *log = &block->context->log;
    char who[MHA_BLOCK_WHO];
    snprintf(who, sizeof who, "%s: norm", caller);
    mha_norm_desc norm = *desc->norm;
    if (norm.uses & ~(MHA_NORM_WEIGHT | MHA_NORM_BIAS))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: uses may have MHA_NORM_WEIGHT and MHA_NORM_BIAS; the rest is the "
                            "block's",
                            who);
    if ((int)desc->norm_place < MHA_NORM_AFTER || desc->norm_place > MHA_NORM_BEFORE)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s_place is no mha_norm_place: %d", who,
                            (int)desc->norm_place);
    block->norm_type = norm.weight_type ? norm.weight_type : MHA_FLOAT32;
    norm.weight_type = MHA_FLOAT32;
    mha_status status = mha_shape_check_type(log, who, "weight_type", block->norm_type);
    if (!status)
        status = take_type(block, who, "type", &norm.type);
    if (!status)
        status = take_type(block, who, "output_type", &norm.output_type);
    if (!status)
        status = take_length(block, who, "rows", &norm.rows, block->batch * block->len);
    if (!status)
        status = take_length(block, who, "width", &norm.width, block->width);
    if (!status)
        status = mha_norm_resolve(block->context, who, &norm, &block->first_desc);
    block->norm_first = desc->norm_place == MHA_NORM_BEFORE;
    block->joined_desc = block->first_desc;
    block->joined_desc.uses |= MHA_NORM_RESIDUAL | (block->norm_first ? MHA_NORM_SUM : 0);
    block->last_desc = block->joined_desc;
    block->last_desc.output_type = block->output_type;
    return status;
}

static mha_status make_norm_weights(mha_block *block)
{
    if (!block->first_desc.uses)
        return MHA_OK;
    const size_t bytes = 2 * block->width * sizeof(float);
    cl_int error = CL_SUCCESS;
    for (int i = 0; !error && i < MHA_BLOCK_STEPS; i++)
        if (block->steps[i].exists)
            block->steps[i].norm =
                clCreateBuffer(block->context->cl, CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (error)
        return mha_log_fail(&block->context->log, error,
                            "clCreateBuffer of %zu bytes for weights of a norm failed", bytes);
    return MHA_OK;
}

static void lay_out(mha_block *block)
{
    size_t most = 0;
    for (int i = 0; i < MHA_BLOCK_STEPS; i++) {
        const mha_block_step *step = &block->steps[i];
        if (!step->exists)
            continue;
        const mha_needs needs = step->layer ? step->layer->needs : step->ffn->needs;
        if (block->needs.temp_bytes < needs.temp_bytes)
            block->needs.temp_bytes = needs.temp_bytes;
        if (most < needs.region_bytes)
            most = needs.region_bytes;
    }
    const size_t rows_bytes = block->batch * block->len * block->width * sizeof(float);
    mha_layout_add(&block->needs.region_bytes, most);
    block->branch_region = mha_layout_add(&block->needs.region_bytes, rows_bytes);
    block->stream_region = mha_layout_add(&block->needs.region_bytes, rows_bytes);
}

static mha_status set_up_stages(mha_block *block, mha_context *context)
{
    mha_status status = MHA_OK;
    if (block->type != MHA_FLOAT32)
        status = mha_convert_setup(&block->enter, context, block->type, MHA_FLOAT32);
    if (!status && block->norm_first)
        status = mha_norm_setup(&block->first, context, &block->first_desc);
    if (!status)
        status = mha_norm_setup(&block->joined, context, &block->joined_desc);
    if (!status && !block->norm_first)
        status = mha_norm_setup(&block->last, context, &block->last_desc);
    if (!status && block->norm_first)
        status = mha_add_setup(&block->add, context, block->first_desc.tiling, block->output_type);
    if (!status)
        status = mha_heads_setup(&block->copy, context, block->norm_type, MHA_FLOAT32);
    return status;
}

mha_status mha_block_setup(mha_block *block, mha_context *context, const mha_block_desc *desc,
                           const char *who)
{
    block->context = context;
    mha_status status = make_steps(block, desc, who);
    if (!status)
        status = resolve_norm(block, desc, who);
    if (!status)
        status = make_norm_weights(block);
    if (!status)
        status = set_up_stages(block, context);
    if (status)
        return mha_context_note(context, status);
    lay_out(block);
    return mha_shape_check_workspace(context, mha_block_workspace(block).bytes, who);
}

void mha_block_release(mha_block *block)
{
    for (int i = 0; i < MHA_BLOCK_STEPS; i++) {
        mha_layer_destroy(&block->steps[i].layer);
        mha_ffn_destroy(&block->steps[i].ffn);
        if (block->steps[i].norm)
            clReleaseMemObject(block->steps[i].norm);
    }
    mha_convert_release(&block->enter);
    mha_norm_release(&block->first);
    mha_norm_release(&block->joined);
    mha_norm_release(&block->last);
    mha_add_release(&block->add);
    mha_kernel_release(&block->copy);
    *block = (mha_block){ 0 };
}

mha_workspace mha_block_workspace(const mha_block *block)
{
    size_t end = 0;
    mha_layout_add(&end, block->needs.temp_bytes);
    mha_layout_add(&end, block->needs.region_bytes);
    return (mha_workspace){ .bytes = end, .alignment = block->context->alignment };
}

size_t mha_block_explain(const mha_block *block, char *text, size_t capacity)
{
    mha_text out = { .at = text, .capacity = text ? capacity : 0 };
    for (int i = 0; i < MHA_BLOCK_STEPS; i++) {
        const mha_block_step *step = &block->steps[i];
        if (!step->exists)
            continue;
        mha_text_add(&out, "%s:\n", step_names[i]);
        const size_t used = out.length < out.capacity ? out.length : out.capacity;
        char *at = out.capacity ? text + used : NULL;
        out.length += step->layer ? mha_layer_explain(step->layer, at, out.capacity - used)
                                  : mha_ffn_explain(step->ffn, at, out.capacity - used);
    }
    if (block->type != MHA_FLOAT32)
        mha_text_add(&out, "rows: float32 from kernel convert_rows on, as are all sums\n");
    mha_text_add(&out, "norms: kernel norm_rows, %s\n",
                 block->norm_first ? "before each step, with the sum of the step before; kernel "
                                     "add_rows at the end"
                                   : "behind each step, with the sum");
    return out.length;
}
