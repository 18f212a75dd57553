/* Operations that are one attention: the call that this project's own cases name, and those of
 * PyTorch, ONNX and ONNX Runtime. */
#include "ops.h"

#include "attend.h"

#include <stdlib.h>
#include <string.h>

static size_t read_heads(check *self, const char *key)
{
    const long heads = case_int(self->file, key, 0);
    if (heads < 1)
        check_fail(self, "%s is missing or below 1", key);
    return heads < 1 ? 1 : (size_t)heads;
}

/* BHSD: the heads have an axis of their own, also in the output. */
static bool read_heads_apart(check *self)
{
    const char *const layout = case_string(self->file, "layout", "BHSD");
    const bool apart = !strcmp(layout, "BHSD");
    if (!apart && strcmp(layout, "BSE"))
        check_fail(self, "the layout %s is neither BHSD nor BSE", layout);
    return apart;
}

/* Keys and values that join a past, or that the case wants back as the present. past_len -1 says
 * that it differs by batch, as total_lens has it. */
static void read_past(check *self, attend *call)
{
    static const char present_key[] = "present_key", present_value[] = "present_value";
    const long past = case_int(self->file, "past_len", 0);
    const long capacity = case_int(self->file, "cache_capacity", 0);
    const case_tensor *const past_key = case_input(self->file, "past_key");
    const case_tensor *const totals = case_input(self->file, "total_lens");
    if (check_stopped(self) ||
        (!past && !past_key && !totals && !case_output(self->file, present_key)))
        return;
    if (past < 0 ? !totals : totals != NULL)
        check_fail(self, "past_len %ld does not go with the inputs", past);
    const size_t past_len = past > 0 ? (size_t)past : 0;
    const case_tensor *const new_key = past_key ? past_key : call->key;
    const attend_cache cache = {
        .key_name = present_key,
        .value_name = present_value,
        .type = new_key ? check_output_type(self, present_key, new_key->type) : CASE_FLOAT32,
        .rows = capacity > 0 ? (size_t)capacity : past_len + call->desc.key_len,
        .past_key = past_key,
        .past_value = case_input(self->file, "past_value"),
        .past_len = past_len,
        .totals = totals,
    };
    attend_append(self, call, &cache);
}

static void skip_dropout(check *self)
{
    const double dropout = case_float(self->file, "dropout_p", 0);
    const bool training = case_flag(self->file, "training", true);
    case_int(self->file, "seed", 0);
    if (dropout > 0 && training)
        check_skip(self, "dropout is not in the interface yet");
}

/* causal, window_left and window_right as sdpa_fwd has them: windows without causal go along the
 * lower right diagonal. */
static void read_diagonal(check *self, attend *call)
{
    const char *const causal = case_string(self->file, "causal", "none");
    const long left = case_int(self->file, "window_left", -1);
    const long right = case_int(self->file, "window_right", -1);
    const bool top_left = !strcmp(causal, "top_left");
    const bool none = !strcmp(causal, "none");
    if ((!top_left && !none && strcmp(causal, "bottom_right")) || left < -1 || right < -1)
        check_fail(self, "causal %s with windows %ld and %ld", causal, left, right);
    if (!none)
        call->desc.uses |= MHA_USES_CAUSAL;
    if (left >= 0) {
        call->desc.uses |= MHA_USES_WINDOW_LEFT;
        call->desc.window_left = (size_t)left;
    }
    if (right >= 0) {
        call->desc.uses |= MHA_USES_WINDOW_RIGHT;
        call->desc.window_right = (size_t)right;
    }
    if (!none || left >= 0 || right >= 0)
        call->desc.diagonal = top_left ? MHA_TOP_LEFT : MHA_BOTTOM_RIGHT;
}

void ops_sdpa(check *self)
{
    attend call = { 0 };
    attend_bind(self, &call, check_need(self, "q"), read_heads(self, "q_heads"),
                check_need(self, "k"), check_need(self, "v"), read_heads(self, "kv_heads"));
    attend_read_scores(self, &call);
    skip_dropout(self);
    read_diagonal(self, &call);
    attend_see_lengths(self, &call, case_input(self->file, "kv_valid_len"));
    attend_see_mask(self, &call, case_input(self->file, "mask"), false);
    attend_see_mask(self, &call, case_input(self->file, "bias"), false);
    attend_give_output(self, &call, "o", read_heads_apart(self));
    attend_give_lse(self, &call, "lse");
    attend_run(self, &call);
}

/* Its forward half, o and lse; no call gives the gradients. */
void ops_sdpa_backward(check *self)
{
    case_input(self->file, "do");
    ops_sdpa(self);
}

void ops_torch_sdpa(check *self)
{
    attend call = { 0 };
    attend_bind(self, &call, check_need(self, "Q"), read_heads(self, "q_num_heads"),
                check_need(self, "K"), check_need(self, "V"), read_heads(self, "kv_num_heads"));
    attend_read_scores(self, &call);
    attend_read_onnx_diagonal(self, &call); /* PyTorch's is_causal has the same diagonal */
    attend_see_mask(self, &call, case_input(self->file, "attn_mask"), false);
    case_input(self->file, "dY"); /* of the gradients, which no call gives */
    attend_give_output(self, &call, "Y", read_heads_apart(self));
    attend_run(self, &call);
}

/* Mode 3 is the probs, the others are the scores at one stage each. */
static void give_qk_matmul(check *self, attend *call)
{
    static const mha_scores_stage stages[] = { MHA_SCORES_SCALED, MHA_SCORES_CAPPED,
                                               MHA_SCORES_BIASED };
    static const char name[] = "qk_matmul_output";
    const long mode = case_int(self->file, "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3)
        check_fail(self, "qk_matmul_output_mode %ld is none of 0 to 3", mode);
    else if (mode == 3)
        attend_give_probs(self, call, name, false);
    else
        attend_give_scores(self, call, name, stages[mode]);
}

void ops_onnx_attention(check *self)
{
    if (case_input(self->file, "weights")) {
        ops_packed_layer(self); /* com.microsoft's Attention, which projects */
        return;
    }
    attend call = { 0 };
    attend_bind(self, &call, check_need(self, "Q"), read_heads(self, "q_num_heads"),
                check_need(self, "K"), check_need(self, "V"), read_heads(self, "kv_num_heads"));
    read_past(self, &call);
    attend_read_scores(self, &call);
    attend_see_lengths(self, &call, case_input(self->file, "nonpad_kv_seqlen"));
    attend_read_onnx_diagonal(self, &call);
    attend_see_mask(self, &call, case_input(self->file, "attn_mask"), true);
    attend_give_output(self, &call, "Y", read_heads_apart(self));
    give_qk_matmul(self, &call);
    attend_run(self, &call);
}

/* Makes the input `name` out of its tensor [batch][len][width] plus the numbers of `bias` from
 * `first` on: what is bound later under that name is the sum. Returns the end of the numbers. */
static size_t add_bias(check *self, const char *name, const case_tensor *bias, size_t first)
{
    const case_tensor *const tensor = check_need(self, name);
    if (check_stopped(self))
        return 0;
    const size_t width = tensor->shape[tensor->rank - 1];
    float *const sums = calloc(tensor->count + 1, sizeof *sums);
    if (!sums)
        check_fail(self, "the host is out of memory");
    else if (tensor->rank != 3 || tensor->type != CASE_FLOAT32 || tensor->strided || bias->strided)
        check_skip(self, "this program adds a bias to packed float32 of three axes only");
    else if (first + width > bias->count)
        check_fail(self, "%s is too short for %s", bias->name, name);
    for (size_t i = 0; i < tensor->count && !check_stopped(self); i++)
        sums[i] = (float)(case_type_value(tensor->type, tensor->data, i) +
                          case_type_value(bias->type, bias->data, first + i % width));
    check_made_input(self, name, CASE_FLOAT32, sums, tensor->count);
    free(sums);
    return first + width;
}

/* ONNX Runtime's bias of projections that were done before, [of query | of key | of value]: no call
 * of the library adds it, so it is added here. */
static void add_biases(check *self)
{
    const case_tensor *const bias = case_input(self->file, "bias");
    if (!bias || check_stopped(self))
        return;
    const size_t keys = add_bias(self, "query", bias, 0);
    const size_t values = add_bias(self, "key", bias, keys);
    if (add_bias(self, "value", bias, values) != bias->count)
        check_fail(self, "%s does not end with that of value", bias->name);
}

/* do_rotary rotates queries and new keys, by the rows of their positions. */
static void read_rotary(check *self, attend *call)
{
    const bool interleaved = case_flag(self->file, "rotary_interleaved", false);
    if (case_flag(self->file, "do_rotary", false))
        attend_rotate(self, call, check_need(self, "cos_cache"), check_need(self, "sin_cache"),
                      interleaved);
}

void ops_multi_head_attention(check *self)
{
    add_biases(self);
    attend call = { 0 };
    const size_t heads = read_heads(self, "q_num_heads");
    const size_t kv_heads = read_heads(self, "kv_num_heads");
    attend_bind(self, &call, check_need(self, "query"), heads, check_need(self, "key"),
                check_need(self, "value"), kv_heads);
    read_past(self, &call);
    read_rotary(self, &call);
    attend_read_scores(self, &call);
    attend_read_onnx_diagonal(self, &call);
    attend_see_mask(self, &call, case_input(self->file, "attention_bias"), false);
    attend_see_keys(self, &call, case_input(self->file, "key_keep"), true);
    attend_see_pairs(self, &call, case_input(self->file, "query_key_keep"));
    attend_see_lengths(self, &call, case_input(self->file, "valid_lens"));
    attend_give_output(self, &call, "Y", read_heads_apart(self));
    attend_run(self, &call);
}

/* Reads a cache: key_cache and value_cache hold all there is, or past_key and past_value take one
 * more. */
void ops_decoder_attention(check *self)
{
    if (case_input(self->file, "past_key")) {
        ops_multi_head_attention(self);
        return;
    }
    attend call = { 0 };
    const size_t heads = read_heads(self, "q_num_heads");
    const size_t kv_heads = read_heads(self, "kv_num_heads");
    attend_bind(self, &call, check_need(self, "query"), heads, check_need(self, "key_cache"),
                check_need(self, "value_cache"), kv_heads);
    case_int(self->file, "past_len", 0);
    attend_read_scores(self, &call);
    attend_read_onnx_diagonal(self, &call);
    attend_see_keys(self, &call, case_input(self->file, "key_keep"), true);
    attend_give_output(self, &call, "Y", read_heads_apart(self));
    attend_run(self, &call);
}

/* New keys join the caches in place, at positions of each batch. */
void ops_sdpa_decode(check *self)
{
    attend call = { 0 };
    const case_tensor *const key_cache = check_need(self, "k_cache");
    const case_tensor *const value_cache = check_need(self, "v_cache");
    const case_tensor *const past = check_need(self, "kv_past_len");
    attend_bind(self, &call, check_need(self, "q"), read_heads(self, "q_heads"),
                check_need(self, "k_new"), check_need(self, "v_new"), read_heads(self, "kv_heads"));
    if (check_stopped(self))
        return;
    mha_attention_desc *const desc = &call.desc;
    desc->uses |= MHA_USES_APPEND;
    desc->new_len = desc->key_len;
    desc->new_type = desc->key_value_type;
    desc->key_len = key_cache->rank == 4 ? key_cache->shape[2] : 0;
    desc->key_value_type = check_type(self, key_cache->type);
    call.args.new_key = call.args.key;
    call.args.new_value = call.args.value;
    call.args.key = check_input(self, key_cache);
    call.args.value = check_input(self, value_cache);
    check_output(self, key_cache->name, key_cache->type, key_cache->count, 1);
    check_output(self, value_cache->name, value_cache->type, value_cache->count, 1);
    call.args.append_positions = check_lengths(self, past, 0, past->count);
    attend_read_scores(self, &call);
    skip_dropout(self);
    read_diagonal(self, &call);
    attend_give_output(self, &call, "o", read_heads_apart(self));
    attend_give_lse(self, &call, "lse");
    attend_run(self, &call);
}
