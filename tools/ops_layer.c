/* Operations that are a multi-head attention with its projections. */
#include "ops.h"

#include "attend.h"

#include <string.h>

/* A layer as a case tells it: what attends, what projects. The attention's desc is moved into the
 * layer's when it runs. */
typedef struct layer {
    attend call;
    mha_layer_desc desc;
    mha_layer_weights weights;
} layer;

/* [batch][len][width] as [batch][1][len][width]. */
static mha_tensor bind_tokens(check *self, const case_tensor *tokens)
{
    mha_tensor result = check_input(self, tokens);
    if (tokens && tokens->rank != 3)
        check_fail(self, "%s is not [batch][len][width]", tokens->name);
    else if (tokens && tokens->strided)
        result.strides[0] = tokens->strides[0]; /* aligned at the right it was the heads' */
    return result;
}

static void bind_inputs(check *self, layer *made, const case_tensor *query, const case_tensor *key,
                        const case_tensor *value)
{
    const char *const layout = case_string(self->file, "layout", "BSE");
    if (strcmp(layout, "BSE"))
        check_fail(self, "the layout of a layer is BSE, not %s", layout);
    mha_attention_args *const args = &made->call.args;
    args->query = bind_tokens(self, query);
    args->key = bind_tokens(self, key);
    args->value = bind_tokens(self, value);
    if (check_stopped(self))
        return;
    if (key->shape[0] != query->shape[0] || value->shape[0] != query->shape[0] ||
        value->shape[1] != key->shape[1])
        check_fail(self, "the shapes of %s, %s and %s do not fit each other", query->name,
                   key->name, value->name);
    made->call.desc.batch = query->shape[0];
    made->call.desc.query_len = query->shape[1];
    made->call.desc.key_len = key->shape[1];
    made->call.desc.type = check_type(self, query->type);
    made->call.desc.key_value_type = check_type(self, key->type);
    if (value->type != key->type)
        check_skip(self, "the interface takes one type for keys and values");
    made->desc.query_width = query->shape[2];
    made->desc.key_width = key->shape[2];
    made->desc.value_width = value->shape[2];
}

/* Heads of equal widths out of projections `keys` and `values` wide. */
static void set_heads(check *self, layer *made, const char *key, size_t keys, size_t values)
{
    const long heads = case_int(self->file, key, 0);
    if (check_stopped(self))
        return;
    if (heads < 1 || keys % (size_t)heads || values % (size_t)heads) {
        check_fail(self, "%s = %ld does not divide the projections", key, heads);
        return;
    }
    made->call.desc.heads = made->call.desc.kv_heads = (size_t)heads;
    made->call.desc.head_dim = keys / (size_t)heads;
    made->call.desc.value_dim = values / (size_t)heads;
}

/* [rows][columns]; where it is missing or of another rank the check fails and 0 comes back. */
static size_t weight_length(check *self, const char *name, unsigned axis)
{
    const case_tensor *const weight = check_need(self, name);
    if (weight && weight->rank != 2)
        check_fail(self, "%s is not a matrix", name);
    return weight && weight->rank == 2 ? weight->shape[axis] : 0;
}

/* A weight or bias, or NULL; its type is that of all of them. */
static mha_tensor bind_typed(check *self, layer *made, const case_tensor *weight)
{
    if (!weight || check_stopped(self))
        return (mha_tensor){ 0 };
    const mha_type type = check_type(self, weight->type);
    if (made->desc.weight_type && made->desc.weight_type != type)
        check_skip(self, "the interface takes one type for weights and biases");
    made->desc.weight_type = type;
    return check_input(self, weight);
}

static mha_tensor bind_weight(check *self, layer *made, const char *name)
{
    return bind_typed(self, made, check_need(self, name));
}

static mha_tensor bind_bias(check *self, layer *made, const char *name, unsigned flag)
{
    const case_tensor *const bias = case_input(self->file, name);
    if (bias)
        made->desc.flags |= flag;
    return bind_typed(self, made, bias);
}

/* Four matrices and four biases of one name each; a bias may be missing. */
static void bind_weights(check *self, layer *made, const char *const matrices[4],
                         const char *const biases[4])
{
    made->weights = (mha_layer_weights){
        .query = bind_weight(self, made, matrices[0]),
        .key = bind_weight(self, made, matrices[1]),
        .value = bind_weight(self, made, matrices[2]),
        .output = bind_weight(self, made, matrices[3]),
        .bias_query = bind_bias(self, made, biases[0], MHA_LAYER_BIAS_QUERY),
        .bias_key = bind_bias(self, made, biases[1], MHA_LAYER_BIAS_KEY),
        .bias_value = bind_bias(self, made, biases[2], MHA_LAYER_BIAS_VALUE),
        .bias_output = bind_bias(self, made, biases[3], MHA_LAYER_BIAS_OUTPUT),
    };
}

/* The part of a packed matrix that starts at a row and a column. */
static mha_tensor part(mha_tensor whole, size_t row_stride, size_t row, size_t column)
{
    whole.offset += row * row_stride + column;
    whole.strides[2] = row_stride;
    whole.strides[3] = 1;
    return whole;
}

static void give_output(check *self, layer *made, const char *name, size_t width)
{
    mha_attention_desc *const desc = &made->call.desc;
    const case_type type = check_output_type(self, name, CASE_FLOAT32);
    desc->output_type = check_type(self, type);
    made->call.args.output =
        check_output(self, name, type, desc->batch * desc->query_len * width, 1);
    made->desc.output_width = width;
}

/* Makes the layer, loads it, enqueues it once and destroys it. */
static void run(check *self, layer *made)
{
    if (!check_ready(self))
        return;
    made->desc.attention = made->call.desc;
    made->desc.attention.path = self->setup->path;
    made->desc.attention.tiling = self->setup->tiling;
    made->desc.attention.gemm = made->desc.projection = self->setup->gemm;
    mha_layer *object = NULL;
    check_status(self, mha_layer_create(&object, self->setup->context, &made->desc),
                 "mha_layer_create");
    if (object) {
        mha_layer_explain(object, self->explain, sizeof self->explain);
        const mha_call load = { .queue = self->setup->queue };
        check_status(self, mha_layer_load(object, &made->weights, &load), "mha_layer_load");
        const mha_call enqueue = check_call(self, mha_layer_workspace(object));
        if (!check_stopped(self))
            check_status(self, mha_layer_enqueue(object, &made->call.args, &enqueue),
                         "mha_layer_enqueue");
    }
    mha_layer_destroy(&object);
}

/* The article's class. Its merged heads come out of a second layer, which has no W_o. */
void ops_seed_layer(check *self)
{
    layer made = { 0 };
    bind_inputs(self, &made, check_need(self, "queries"), check_need(self, "keys"),
                check_need(self, "values"));
    set_heads(self, &made, "num_heads", weight_length(self, "W_q", 1),
              weight_length(self, "W_v", 1));
    attend_read_scores(self, &made.call);
    attend_see_lengths(self, &made.call, case_input(self->file, "valid_lens"));
    attend_read_onnx_diagonal(self, &made.call);
    bind_weights(self, &made, (const char *const[]){ "W_q", "W_k", "W_v", "W_o" },
                 (const char *const[]){ "b_q", "b_k", "b_v", "b_o" });
    give_output(self, &made, "Y", weight_length(self, "W_o", 1));
    attend_give_probs(self, &made.call, "attention_weights", false);
    run(self, &made);

    if (!case_output(self->file, "concat") || check_stopped(self))
        return;
    made.desc.flags |= MHA_LAYER_MERGED_OUTPUT;
    made.desc.flags &= ~MHA_LAYER_BIAS_OUTPUT;
    made.weights.output = made.weights.bias_output = (mha_tensor){ 0 };
    made.call.desc.uses &= ~MHA_USES_PROBS;
    made.call.args.probs = (mha_tensor){ 0 };
    give_output(self, &made, "concat", made.call.desc.heads * made.call.desc.value_dim);
    run(self, &made);
}

void ops_plain_layer(check *self)
{
    layer made = { .desc.flags = MHA_LAYER_OUT_IN };
    const case_tensor *const x = check_need(self, "x");
    bind_inputs(self, &made, x, x, x);
    set_heads(self, &made, "heads", weight_length(self, "wq", 0), weight_length(self, "wv", 0));
    attend_read_scores(self, &made.call);
    if (strcmp(case_string(self->file, "causal", "none"), "none"))
        check_skip(self, "this program knows no causal mha_fwd");
    bind_weights(self, &made, (const char *const[]){ "wq", "wk", "wv", "wo" },
                 (const char *const[]){ "bq", "bk", "bv", "bo" });
    give_output(self, &made, "y", weight_length(self, "wo", 0));
    run(self, &made);
}

/* PyTorch's weights: one matrix of rows [q; k; v], or three where keys or values are of another
 * width than queries. */
static void bind_torch_weights(check *self, layer *made, size_t width)
{
    mha_layer_weights *const weights = &made->weights;
    if (case_input(self->file, "in_proj_weight")) {
        const mha_tensor all = bind_weight(self, made, "in_proj_weight");
        if (weight_length(self, "in_proj_weight", 0) != 3 * width)
            check_fail(self, "in_proj_weight has not 3 * %zu rows", width);
        weights->query = part(all, width, 0, 0);
        weights->key = part(all, width, width, 0);
        weights->value = part(all, width, 2 * width, 0);
    } else {
        weights->query = bind_weight(self, made, "q_proj_weight");
        weights->key = bind_weight(self, made, "k_proj_weight");
        weights->value = bind_weight(self, made, "v_proj_weight");
    }
    weights->output = bind_weight(self, made, "out_proj_weight");
    const unsigned all_three = MHA_LAYER_BIAS_QUERY | MHA_LAYER_BIAS_KEY | MHA_LAYER_BIAS_VALUE;
    const mha_tensor bias = bind_bias(self, made, "in_proj_bias", all_three);
    if (bias.buffer) {
        weights->bias_query = weights->bias_key = weights->bias_value = bias;
        weights->bias_key.offset += width;
        weights->bias_value.offset += 2 * width;
    }
    weights->bias_output = bind_bias(self, made, "out_proj_bias", MHA_LAYER_BIAS_OUTPUT);
}

void ops_torch_layer(check *self)
{
    layer made = { .desc.flags = MHA_LAYER_OUT_IN };
    const case_tensor *const x = case_input(self->file, "X");
    bind_inputs(self, &made, x ? x : check_need(self, "query"), x ? x : check_need(self, "key"),
                x ? x : check_need(self, "value"));
    const size_t width = weight_length(self, "out_proj_weight", 0);
    set_heads(self, &made, "num_heads", width, width);
    bind_torch_weights(self, &made, width);
    attend_read_scores(self, &made.call);
    attend_read_onnx_diagonal(self, &made.call);
    attend_see_mask(self, &made.call, case_input(self->file, "attn_mask"), false);
    attend_see_keys(self, &made.call, case_input(self->file, "key_padding_mask"), false);
    case_input(self->file, "dY"); /* of the gradients, which no call gives */
    give_output(self, &made, "Y", width);
    attend_give_probs(self, &made.call, "weights", false);
    if (!case_output(self->file, "weights"))
        attend_give_probs(self, &made.call, "weights_mean", true);
    run(self, &made);
}

/* ONNX Runtime's Attention: columns [q | k | v] of one matrix, and no projection of the output. */
void ops_packed_layer(check *self)
{
    layer made = { .desc.flags = MHA_LAYER_MERGED_OUTPUT };
    const case_tensor *const input = check_need(self, "input");
    bind_inputs(self, &made, input, input, input);
    const long heads = case_int(self->file, "q_num_heads", 0);
    const size_t keys = (size_t)heads * (size_t)case_int(self->file, "head_size", 0);
    const size_t values = (size_t)heads * (size_t)case_int(self->file, "v_head_size", 0);
    const size_t columns = 2 * keys + values;
    set_heads(self, &made, "q_num_heads", keys, values);
    if (case_int(self->file, "kv_num_heads", heads) != heads ||
        weight_length(self, "weights", 1) != columns)
        check_fail(self, "the heads do not make the columns of weights");
    const mha_tensor all = bind_weight(self, &made, "weights");
    made.weights.query = part(all, columns, 0, 0);
    made.weights.key = part(all, columns, 0, keys);
    made.weights.value = part(all, columns, 0, 2 * keys);
    const mha_tensor bias =
        bind_bias(self, &made, "bias", MHA_LAYER_BIAS_ALL & ~MHA_LAYER_BIAS_OUTPUT);
    if (bias.buffer) {
        made.weights.bias_query = made.weights.bias_key = made.weights.bias_value = bias;
        made.weights.bias_key.offset += keys;
        made.weights.bias_value.offset += 2 * keys;
    }
    if (case_int(self->file, "past_len", 0))
        check_skip(self, "the interface appends to no cache yet");
    attend_read_scores(self, &made.call);
    attend_read_onnx_diagonal(self, &made.call);
    attend_see_keys(self, &made.call, case_input(self->file, "key_keep"), true);
    attend_see_pairs(self, &made.call, case_input(self->file, "query_key_keep"));
    attend_see_ranges(self, &made.call, case_input(self->file, "end_start"));
    give_output(self, &made, "Y", values);
    run(self, &made);
}
