/* The table of the parts of problem words. */
#include "word_table.h"

#define ATTENTION(member) .field = offsetof(problem, desc.attention.member)
#define TYPE(member, letters_type) .kind = PART_TYPE, ATTENTION(member), .type = (letters_type)
#define WEIGHT_TYPE(letters_type)                                                         \
    IN_LAYER | IN_BLOCK, .kind = PART_TYPE, .field = offsetof(problem, desc.weight_type), \
                         .type = (letters_type)
#define GEMM_TYPE(member, letters_type) .kind = PART_TYPE, GEMM(member), .type = (letters_type)
#define GEMM(member) .place = IN_GEMM, .field = offsetof(problem, gemm.member)
#define LAYER(member) .place = IN_LAYER, .field = offsetof(problem, desc.member)
#define FFN(member) .place = IN_BLOCK, .field = offsetof(problem, ffn.member)
#define FLAG(bits, ffn_bits) \
    .kind = PART_LETTER, .place = IN_LAYER | IN_BLOCK, .flags = (bits), .ffn_flags = (ffn_bits)
#define FFN_BIAS_ALL (MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_GATE | MHA_FFN_BIAS_OUTPUT)
#define USES(bits) .kind = PART_LETTER, .uses = (bits)
#define CACHE(bits) IN_ATTENTION, .needs_cache = true, .uses = (bits)

const word_part word_parts[] = {
    { "b", "the batch", IN_MOST | IN_MODEL, .required = true, ATTENTION(batch) },
    { "h", "the heads", .required = true, ATTENTION(heads), .least = 1 },
    { "q", "the query length", IN_MOST | IN_MODEL, .required = true, ATTENTION(query_len) },
    { "k", "the key length", IN_ATTENTION | IN_LAYER, .required = true, ATTENTION(key_len) },
    { "k", "the memory length", IN_DECODER, .required = true,
      .field = offsetof(problem, memory_len) },
    { "d", "the head dim", IN_ATTENTION, .required = true, ATTENTION(head_dim), .least = 1 },
    { "e", "the model width", IN_LAYER | IN_BLOCK, .required = true,
      .field = offsetof(problem, desc.model_width), .least = 1 },
    { "f", "the width between", .required = true, FFN(hidden_width), .least = 1 },

    { "m", "the rows", .required = true, GEMM(m), .least = 1 },
    { "n", "the columns", .required = true, GEMM(n), .least = 1 },
    { "k", "the inner length", .required = true, GEMM(k), .least = 1 },

    { "W", "a loaded second factor", IN_GEMM, .kind = PART_LETTER,
      .gemm_flags = MHA_GEMM_LOADED_B },

    { "g", "the key and value heads", ATTENTION(kv_heads), .least = 1 },
    { "v", "the value dim", ATTENTION(value_dim), .least = 1 },
    { "iq", "the query width", LAYER(query_width), .least = 1 },
    { "ik", "the key width", LAYER(key_width), .least = 1 },
    { "iv", "the value width", LAYER(value_width), .least = 1 },
    { "o", "the output width", LAYER(output_width), .least = 1 },
    { "c", "causal", .kind = PART_CAUSAL, .uses = MHA_USES_CAUSAL },
    { "wl", "the left window", ATTENTION(window_left), .uses = MHA_USES_WINDOW_LEFT },
    { "wr", "the right window", ATTENTION(window_right), .uses = MHA_USES_WINDOW_RIGHT },
    { "wb", "the window's diagonal", .kind = PART_DIAGONAL },
    { "l", "the length of keys", IN_MOST | IN_MODEL, .kind = PART_LENGTHS,
      .field = offsetof(problem, key_length), .least = 1, .uses = MHA_USES_KEY_LENGTHS },
    { "K", "the length in the memory", IN_DECODER, .kind = PART_LENGTHS,
      .field = offsetof(problem, memory_length), .least = 1, .cross_uses = MHA_USES_KEY_LENGTHS },
    { "L", "key lengths of each query", USES(MHA_USES_KEY_LENGTHS_PER_QUERY) },
    { "P", "key starts", USES(MHA_USES_KEY_STARTS) },
    { "m", "a mask", .kind = PART_MASK, ATTENTION(mask_broadcast), .uses = MHA_USES_MASK },
    { "a", "a bias", .kind = PART_AXES, ATTENTION(bias_broadcast), .uses = MHA_USES_BIAS },
    { "s", "the softcap", .kind = PART_SOFTCAP, .least = 1 },
    { "A", "ALiBi", USES(MHA_USES_ALIBI) },
    { "S", "sinks", USES(MHA_USES_SINKS) },
    { "D", "dropout", .kind = PART_SHARE, ATTENTION(dropout_p), .uses = MHA_USES_DROPOUT },
    { "B", "biases of projections", FLAG(MHA_LAYER_BIAS_ALL, FFN_BIAS_ALL) },
    { "T", "weights out x in", FLAG(MHA_LAYER_OUT_IN, MHA_FFN_OUT_IN) },
    { "M", "merged heads as output", IN_LAYER, .kind = PART_LETTER,
      .flags = MHA_LAYER_MERGED_OUTPUT },
    { "x", "cross-attention", IN_LAYER, .kind = PART_FLAG, .field = offsetof(problem, is_cross) },
    { "G", "a gate", IN_BLOCK, .kind = PART_LETTER, .ffn_flags = MHA_FFN_GATE },
    { "F", "the activation", .kind = PART_FUNCTION, FFN(activation) },
    { "N", "norms before", IN_BLOCK, .kind = PART_FLAG, .field = offsetof(problem, norms_before) },
    { "Q", "RMS norms", IN_BLOCK, .kind = PART_FLAG, .field = offsetof(problem, is_rms) },
    { "+", "the number of new keys", IN_ATTENTION, ATTENTION(new_len), .least = 1,
      .uses = MHA_USES_APPEND },
    { "@", "random positions", CACHE(0), .kind = PART_FLAG,
      .field = offsetof(problem, is_scattered) },
    { "R", "a ring", CACHE(MHA_USES_RING), .kind = PART_LETTER },
    { "r", "the rotary dim", CACHE(MHA_USES_ROTARY), .kind = PART_ROTARY, ATTENTION(rotary_dim),
      .least = 2 },
    { "V", "sequences end to end", IN_ATTENTION, .kind = PART_PACKED },
    { "z", "the scores", .kind = PART_STAGE, ATTENTION(scores_stage), .uses = MHA_USES_SCORES },
    { "p", "probs", USES(MHA_USES_PROBS) },
    { "e", "lse", USES(MHA_USES_LSE) },
    { "n", "merged heads", IN_ATTENTION, .kind = PART_FLAG, .field = offsetof(problem, is_merged) },
    { "tf16", "the type", IN_MOST, TYPE(type, MHA_FLOAT16) },
    { "tbf16", "the type", IN_MOST, TYPE(type, MHA_BFLOAT16) },
    { "tkf16", "the type of keys", IN_ATTENTION, TYPE(key_value_type, MHA_FLOAT16) },
    { "tkbf16", "the type of keys", IN_ATTENTION, TYPE(key_value_type, MHA_BFLOAT16) },
    { "tkf32", "the type of keys", IN_ATTENTION, TYPE(key_value_type, MHA_FLOAT32) },
    { "twf16", "the type of weights", WEIGHT_TYPE(MHA_FLOAT16) },
    { "twbf16", "the type of weights", WEIGHT_TYPE(MHA_BFLOAT16) },
    { "tf16", "the type", GEMM_TYPE(type, MHA_FLOAT16) },
    { "tbf16", "the type", GEMM_TYPE(type, MHA_BFLOAT16) },
    { "twf16", "the type of the second factor", GEMM_TYPE(b_type, MHA_FLOAT16) },
    { "twbf16", "the type of the second factor", GEMM_TYPE(b_type, MHA_BFLOAT16) },
    { "twf32", "the type of the second factor", GEMM_TYPE(b_type, MHA_FLOAT32) },
};

_Static_assert(sizeof word_parts / sizeof word_parts[0] == WORD_PARTS, "word_table.h counts them");

const word_axis word_axes[] = {
    { 'b', MHA_AXIS_BATCH },
    { 'h', MHA_AXIS_HEADS },
    { 'q', MHA_AXIS_QUERY },
    { 'k', MHA_AXIS_KEY },
};

_Static_assert(sizeof word_axes / sizeof word_axes[0] == WORD_AXES, "word_table.h counts them");

const word_function word_functions[] = {
    { 'r', MHA_ACTIVATION_RELU },
    { 'g', MHA_ACTIVATION_GELU },
    { 't', MHA_ACTIVATION_GELU_TANH },
    { 's', MHA_ACTIVATION_SILU },
};

_Static_assert(sizeof word_functions / sizeof word_functions[0] == WORD_FUNCTIONS,
               "word_table.h counts them");

const char *const word_prefixes[] = {
    [KIND_ATTENTION] = "",       [KIND_LAYER] = "layer-", [KIND_ENCODER] = "encoder-",
    [KIND_DECODER] = "decoder-", [KIND_GEMM] = "gemm-",   [KIND_MODEL] = "model-",
};

static unsigned places_of(const word_part *part)
{
    return part->place ? part->place : IN_MOST;
}

bool word_fits(const word_part *part, const problem *subject)
{
    return places_of(part) >> subject->kind & 1;
}

const char *word_place_name(const word_part *part)
{
    switch (places_of(part)) {
    case IN_ATTENTION:
        return "attentions";
    case IN_LAYER:
        return "layers";
    case IN_BLOCK:
        return "encoder and decoder layers";
    case IN_DECODER:
        return "decoder layers";
    case IN_LAYER | IN_BLOCK:
        return "layers of all kinds";
    case IN_GEMM:
        return "matrix products";
    case IN_MOST | IN_MODEL:
        return "attentions, layers and models";
    default:
        return "attentions and layers";
    }
}
