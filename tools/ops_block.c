/* Operations that are a whole layer of a transformer, as PyTorch's encoder and decoder layers. */
#include "ops.h"

#include "attend.h"

#include <stdio.h>
#include <string.h>

/* One of the weights that share a desc's weight_type. */
static mha_tensor weight(check *self, const char *name, mha_type *type)
{
    const case_tensor *const tensor = check_need(self, name);
    if (!tensor || check_stopped(self))
        return (mha_tensor){ 0 };
    const mha_type own = check_type(self, tensor->type);
    if (*type && *type != own)
        check_skip(self, "the interface takes one type for the weights of a step");
    *type = own;
    return check_input(self, tensor);
}

/* The rows of an attention's tokens, and its heads; the block says the rest. */
static void describe(check *self, attend *call, const case_tensor *rows, const case_tensor *keys)
{
    const long heads = case_int(self->file, "num_heads", 0);
    if (strcmp(case_string(self->file, "layout", "BSE"), "BSE"))
        check_fail(self, "the layout of a block is BSE");
    if (case_float(self->file, "dropout", 0) != 0)
        check_skip(self, "the interface drops nothing between the steps of a block");
    if (!rows || !keys)
        return;
    if (rows->rank != 3 || keys->rank != 3 || heads < 1 || rows->shape[2] % (size_t)heads)
        check_fail(self, "%s is not [batch][len][width] of num_heads heads", rows->name);
    if (check_stopped(self))
        return;
    call->desc.batch = rows->shape[0];
    call->desc.heads = call->desc.kv_heads = (size_t)heads;
    call->desc.query_len = rows->shape[1];
    call->desc.key_len = keys->shape[1];
    call->desc.head_dim = call->desc.value_dim = rows->shape[2] / (size_t)heads;
    call->desc.type = check_type(self, rows->type);
    call->desc.key_value_type = check_type(self, keys->type);
}

static mha_layer_desc describe_layer(const check *self, const attend *call, size_t width)
{
    mha_layer_desc desc = { .attention = call->desc,
                            .query_width = width,
                            .flags = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN,
                            .projection = self->setup->gemm };
    desc.attention.path = self->setup->path;
    desc.attention.tiling = self->setup->tiling;
    desc.attention.gemm = self->setup->gemm;
    return desc;
}

/* One in_proj of rows [q; k; v]. */
static mha_layer_weights bind_layer(check *self, const char *prefix, size_t width, mha_type *type)
{
    char in[64], in_bias[64], out[64], out_bias[64];
    snprintf(in, sizeof in, "%s_in_proj_weight", prefix);
    snprintf(in_bias, sizeof in_bias, "%s_in_proj_bias", prefix);
    snprintf(out, sizeof out, "%s_out_proj_weight", prefix);
    snprintf(out_bias, sizeof out_bias, "%s_out_proj_bias", prefix);
    mha_layer_weights weights = { .query = weight(self, in, type),
                                  .output = weight(self, out, type),
                                  .bias_query = weight(self, in_bias, type),
                                  .bias_output = weight(self, out_bias, type) };
    weights.key = weights.value = weights.query;
    weights.key.offset += width * width;
    weights.value.offset += 2 * width * width;
    weights.bias_key = weights.bias_value = weights.bias_query;
    weights.bias_key.offset += width;
    weights.bias_value.offset += 2 * width;
    return weights;
}

static mha_ffn_desc describe_ffn(check *self)
{
    const char *const name = case_string(self->file, "activation", "relu");
    mha_ffn_desc desc = { .hidden_width = (size_t)case_int(self->file, "ffn_hidden", 0),
                          .flags = MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_OUTPUT | MHA_FFN_OUT_IN,
                          .projection = self->setup->gemm,
                          .tiling = self->setup->tiling };
    if (!strcmp(name, "relu"))
        desc.activation = MHA_ACTIVATION_RELU;
    else if (!strcmp(name, "gelu_erf"))
        desc.activation = MHA_ACTIVATION_GELU;
    else
        check_fail(self, "activation = %s is neither relu nor gelu_erf", name);
    return desc;
}

static mha_ffn_weights bind_ffn(check *self, mha_type *type)
{
    return (mha_ffn_weights){ .hidden = weight(self, "linear1_weight", type),
                              .bias_hidden = weight(self, "linear1_bias", type),
                              .output = weight(self, "linear2_weight", type),
                              .bias_output = weight(self, "linear2_bias", type) };
}

static mha_norm_desc describe_norm(check *self)
{
    return (mha_norm_desc){ .uses = MHA_NORM_WEIGHT | MHA_NORM_BIAS,
                            .epsilon = (float)case_float(self->file, "layer_norm_eps", 1e-5),
                            .tiling = self->setup->tiling };
}

static mha_norm_weights bind_norm(check *self, int number, mha_type *type)
{
    char name[32], bias[32];
    snprintf(name, sizeof name, "norm%d_weight", number);
    snprintf(bias, sizeof bias, "norm%d_bias", number);
    return (mha_norm_weights){ .weight = weight(self, name, type),
                               .bias = weight(self, bias, type) };
}

static mha_norm_place place_of_norms(check *self)
{
    return case_flag(self->file, "norm_first", false) ? MHA_NORM_BEFORE : MHA_NORM_AFTER;
}

static mha_type rows_type(check *self)
{
    return check_type(self, check_output_type(self, "Y", CASE_FLOAT32));
}

static mha_tensor give_rows(check *self, const case_tensor *input)
{
    case_input(self->file, "dY"); /* of the gradients, which no call gives */
    return check_output(self, "Y", check_output_type(self, "Y", CASE_FLOAT32),
                        input ? input->count : 0, 1);
}

/* What a block gives its attention itself. */
static mha_attention_args options_of(const attend *call)
{
    mha_attention_args args = call->args;
    args.query_len = args.key_len = 0;
    return args;
}

void ops_torch_encoder(check *self)
{
    const case_tensor *const x = check_need(self, "X");
    attend call = { 0 };
    describe(self, &call, x, x);
    attend_read_onnx_diagonal(self, &call);
    attend_see_mask(self, &call, case_input(self->file, "src_mask"), false);
    attend_see_keys(self, &call, case_input(self->file, "src_key_padding_mask"), false);
    const size_t width = x ? x->shape[2] : 0;
    mha_encoder_desc desc = { .self_attention = describe_layer(self, &call, width),
                              .feed_forward = describe_ffn(self),
                              .norm = describe_norm(self),
                              .norm_place = place_of_norms(self) };
    desc.self_attention.attention.output_type = rows_type(self);
    const mha_encoder_weights weights = {
        .self_attention = bind_layer(self, "self_attn", width, &desc.self_attention.weight_type),
        .feed_forward = bind_ffn(self, &desc.feed_forward.weight_type),
        .norm_self_attention = bind_norm(self, 1, &desc.norm.weight_type),
        .norm_feed_forward = bind_norm(self, 2, &desc.norm.weight_type)
    };
    const mha_encoder_args args = { .input = check_input(self, x),
                                    .output = give_rows(self, x),
                                    .self_attention = options_of(&call) };
    if (!check_ready(self))
        return;
    mha_encoder *object = NULL;
    check_status(self, mha_encoder_create(&object, self->setup->context, &desc),
                 "mha_encoder_create");
    if (object) {
        mha_encoder_explain(object, self->explain, sizeof self->explain);
        const mha_call load = { .queue = self->setup->queue };
        check_status(self, mha_encoder_load(object, &weights, &load), "mha_encoder_load");
        const mha_call enqueue = check_call(self, mha_encoder_workspace(object));
        if (!check_stopped(self))
            check_status(self, mha_encoder_enqueue(object, &args, &enqueue), "mha_encoder_enqueue");
    }
    mha_encoder_destroy(&object);
}

void ops_torch_decoder(check *self)
{
    const case_tensor *const x = check_need(self, "tgt"), *const memory =
                                                              check_need(self, "memory");
    attend own = { 0 }, cross = { 0 };
    describe(self, &own, x, x);
    attend_read_onnx_diagonal(self, &own); /* is_causal is of the attention to itself */
    describe(self, &cross, x, memory);
    attend_see_keys(self, &own, case_input(self->file, "tgt_key_padding_mask"), false);
    attend_see_keys(self, &cross, case_input(self->file, "memory_key_padding_mask"), false);
    const size_t width = x ? x->shape[2] : 0;
    mha_decoder_desc desc = { .self_attention = describe_layer(self, &own, width),
                              .cross_attention = describe_layer(self, &cross, width),
                              .feed_forward = describe_ffn(self),
                              .norm = describe_norm(self),
                              .norm_place = place_of_norms(self) };
    desc.self_attention.attention.output_type = rows_type(self);
    const mha_decoder_weights weights = {
        .self_attention = bind_layer(self, "self_attn", width, &desc.self_attention.weight_type),
        .cross_attention =
            bind_layer(self, "multihead_attn", width, &desc.cross_attention.weight_type),
        .feed_forward = bind_ffn(self, &desc.feed_forward.weight_type),
        .norm_self_attention = bind_norm(self, 1, &desc.norm.weight_type),
        .norm_cross_attention = bind_norm(self, 2, &desc.norm.weight_type),
        .norm_feed_forward = bind_norm(self, 3, &desc.norm.weight_type)
    };
    const mha_decoder_args args = { .input = check_input(self, x),
                                    .output = give_rows(self, x),
                                    .memory = check_input(self, memory),
                                    .self_attention = options_of(&own),
                                    .cross_attention = options_of(&cross) };
    if (!check_ready(self))
        return;
    mha_decoder *object = NULL;
    check_status(self, mha_decoder_create(&object, self->setup->context, &desc),
                 "mha_decoder_create");
    if (object) {
        mha_decoder_explain(object, self->explain, sizeof self->explain);
        const mha_call load = { .queue = self->setup->queue };
        check_status(self, mha_decoder_load(object, &weights, &load), "mha_decoder_load");
        const mha_call enqueue = check_call(self, mha_decoder_workspace(object));
        if (!check_stopped(self))
            check_status(self, mha_decoder_enqueue(object, &args, &enqueue), "mha_decoder_enqueue");
    }
    mha_decoder_destroy(&object);
}
