/* Problem words: what they mean, that they come back as they went in, and where they are refused.
 */
#include "word.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static problem parse(const char *word)
{
    problem parsed;
    char error[200] = "";
    cr_assert(word_parse(word, &parsed, error, sizeof error), "%s: %s", word, error);
    return parsed;
}

Test(word, sizes_of_an_attention)
{
    const problem parsed = parse("b2h5q4k6d20");
    const mha_attention_desc *desc = &parsed.desc.attention;
    cr_assert(parsed.kind != KIND_LAYER);
    cr_assert_eq(desc->batch, 2);
    cr_assert_eq(desc->heads, 5);
    cr_assert_eq(desc->query_len, 4);
    cr_assert_eq(desc->key_len, 6);
    cr_assert_eq(desc->head_dim, 20);
    cr_assert_eq(desc->kv_heads, 0);
    cr_assert_eq(desc->value_dim, 0);
    cr_assert_eq(desc->uses, 0);
    cr_assert_eq(desc->diagonal, MHA_DIAGONAL_NONE);
}

Test(word, options_of_an_attention)
{
    const problem parsed = parse("b1h8q7k9d64g2v80cbwl16wr0lLmbkahqks30pe");
    const mha_attention_desc *desc = &parsed.desc.attention;
    cr_assert_eq(desc->kv_heads, 2);
    cr_assert_eq(desc->value_dim, 80);
    cr_assert_eq(desc->diagonal, MHA_BOTTOM_RIGHT);
    cr_assert_eq(desc->window_left, 16);
    cr_assert_eq(desc->window_right, 0);
    cr_assert_eq(desc->mask_broadcast, MHA_AXIS_HEADS | MHA_AXIS_QUERY);
    cr_assert_eq(parsed.mask_share, 0.75f);
    cr_assert_eq(desc->bias_broadcast, MHA_AXIS_BATCH);
    cr_assert_eq(desc->softcap, 30);
    cr_assert_eq(desc->uses, MHA_USES_KEY_LENGTHS | MHA_USES_KEY_LENGTHS_PER_QUERY | MHA_USES_BIAS |
                                 MHA_USES_MASK | MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT |
                                 MHA_USES_WINDOW_RIGHT | MHA_USES_PROBS | MHA_USES_LSE);
}

Test(word, more_options_of_an_attention)
{
    const problem parsed = parse("b1h8q7k9d64PASntbf16tkf16");
    const mha_attention_desc *desc = &parsed.desc.attention;
    cr_assert_eq(desc->uses, MHA_USES_KEY_STARTS | MHA_USES_ALIBI | MHA_USES_SINKS);
    cr_assert_eq(desc->diagonal, MHA_TOP_LEFT);
    cr_assert_eq(desc->type, MHA_BFLOAT16);
    cr_assert_eq(desc->key_value_type, MHA_FLOAT16);
    cr_assert_eq(desc->output_type, MHA_TYPE_DEFAULT);
    cr_assert(parsed.is_merged);
    const problem plain = parse("b1h8q7k9d64tf16");
    cr_assert_eq(plain.desc.attention.type, MHA_FLOAT16);
    cr_assert_eq(plain.desc.attention.key_value_type, MHA_TYPE_DEFAULT);
    cr_assert(!plain.is_merged);
    cr_assert_eq(parse("b1h8q7k9d64tf16tkf32").desc.attention.key_value_type, MHA_FLOAT32);
    cr_assert_eq(parse("b1h8q7k9d64mbktbf16").desc.attention.type, MHA_BFLOAT16);
}

Test(word, a_cache)
{
    const problem parsed = parse("b1h8q2k96d64+2@Rr16icbwl40tkf16");
    const mha_attention_desc *desc = &parsed.desc.attention;
    cr_assert_eq(desc->uses, MHA_USES_APPEND | MHA_USES_RING | MHA_USES_ROTARY | MHA_USES_CAUSAL |
                                 MHA_USES_WINDOW_LEFT);
    cr_assert_eq(desc->new_len, 2);
    cr_assert_eq(desc->new_type, MHA_TYPE_DEFAULT);
    cr_assert_eq(desc->rotary_dim, 16);
    cr_assert_eq(desc->rotary_pairs, MHA_ROTARY_INTERLEAVED);
    cr_assert(parsed.is_scattered);
    const problem plain = parse("b1h8q2k96d64+17r");
    cr_assert_eq(plain.desc.attention.uses, MHA_USES_APPEND | MHA_USES_ROTARY);
    cr_assert_eq(plain.desc.attention.new_len, 17);
    cr_assert_eq(plain.desc.attention.rotary_dim, 0);
    cr_assert_eq(plain.desc.attention.rotary_pairs, MHA_ROTARY_HALVES);
    cr_assert(!plain.is_scattered);
}

Test(word, sequences_dropout_and_scores)
{
    const uint64_t both = MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS;
    cr_assert_eq(parse("b3h8q20k96d64V").desc.attention.uses, both);
    cr_assert_eq(parse("b3h8q20k96d64Vq").desc.attention.uses, MHA_USES_QUERY_OFFSETS);
    cr_assert_eq(parse("b3h8q20k96d64Vk").desc.attention.uses, MHA_USES_KEY_OFFSETS);
    cr_assert_eq(parse("b3h8q20k96d64VD0").desc.attention.uses, both | MHA_USES_DROPOUT);
    cr_assert_eq(parse("b3h8q20k96d64D0").desc.attention.dropout_p, 0);
    cr_assert_eq(parse("b3h8q20k96d64D0.1e").desc.attention.dropout_p, 0.1f);
    cr_assert_eq(parse("layer-b2h5q4k6e100D0.25").desc.attention.dropout_p, 0.25f);
    cr_assert_eq(parse("b3h8q20k96d64z0").desc.attention.uses, MHA_USES_SCORES);
    for (int stage = 0; stage < 3; stage++) {
        char word[] = "b3h8q20k96d64z0c";
        word[14] = (char)('0' + stage);
        cr_assert_eq((int)parse(word).desc.attention.scores_stage, stage);
    }
}

Test(word, masks)
{
    static const struct {
        const char *word;
        unsigned broadcast;
        float share;
    } cases[] = {
        { "b1h8q7k9d64m", 0, 0.75f },
        { "b1h8q7k9d64m0.5", 0, 0.5f },
        { "b1h8q7k9d64mbk0.5c", MHA_AXIS_HEADS | MHA_AXIS_QUERY, 0.5f },
        { "b1h8q7k9d64m0", 0, 0 },
        { "layer-b1h8q7k9e64m0.25B", 0, 0.25f },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const problem parsed = parse(cases[i].word);
        cr_expect_eq(parsed.desc.attention.uses & MHA_USES_MASK, MHA_USES_MASK);
        cr_expect_eq(parsed.desc.attention.mask_broadcast, cases[i].broadcast, "%s", cases[i].word);
        cr_expect_eq(parsed.mask_share, cases[i].share, "%s", cases[i].word);
    }
    cr_expect_eq(parse("b1h8q7k9d64a").mask_share, 0);
}

Test(word, a_layer)
{
    const problem parsed = parse("layer-b8h8q3k5e512v24iq96ik80iv72o64BTMxe");
    const mha_layer_desc *desc = &parsed.desc;
    cr_assert(parsed.kind == KIND_LAYER);
    cr_assert(parsed.is_cross);
    cr_assert_eq(desc->attention.head_dim, 0);
    cr_assert_eq(desc->attention.value_dim, 24);
    cr_assert_eq(desc->attention.uses, MHA_USES_LSE);
    cr_assert_eq(desc->model_width, 512);
    cr_assert_eq(desc->query_width, 96);
    cr_assert_eq(desc->key_width, 80);
    cr_assert_eq(desc->value_width, 72);
    cr_assert_eq(desc->output_width, 64);
    cr_assert_eq(desc->flags, MHA_LAYER_BIAS_QUERY | MHA_LAYER_BIAS_KEY | MHA_LAYER_BIAS_VALUE |
                                  MHA_LAYER_OUT_IN | MHA_LAYER_MERGED_OUTPUT);
    cr_assert_eq(parse("layer-b8h8q3k5e512B").desc.flags, MHA_LAYER_BIAS_ALL);
}

Test(word, an_encoder_layer)
{
    const problem parsed = parse("encoder-b8h12q3e384f1536BTNQGFsl2cp");
    const mha_attention_desc *a = &parsed.desc.attention;
    cr_assert(parsed.kind == KIND_ENCODER);
    cr_assert_eq(a->batch, 8);
    cr_assert_eq(a->heads, 12);
    cr_assert_eq(a->query_len, 3);
    cr_assert_eq(a->key_len, 3);
    cr_assert_eq(a->uses, MHA_USES_KEY_LENGTHS | MHA_USES_CAUSAL | MHA_USES_PROBS);
    cr_assert_eq(parsed.desc.model_width, 384);
    cr_assert_eq(parsed.desc.flags, MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN);
    cr_assert_eq(parsed.ffn.hidden_width, 1536);
    cr_assert_eq(parsed.ffn.activation, MHA_ACTIVATION_SILU);
    cr_assert_eq(parsed.ffn.flags, MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_GATE | MHA_FFN_BIAS_OUTPUT |
                                       MHA_FFN_GATE | MHA_FFN_OUT_IN);
    cr_assert(parsed.norms_before);
    cr_assert(parsed.is_rms);
    const problem plain = parse("encoder-b8h12q3e384f1536B");
    cr_assert_eq(plain.ffn.activation, MHA_ACTIVATION_GELU);
    cr_assert_eq(plain.ffn.flags, MHA_FFN_BIAS_HIDDEN | MHA_FFN_BIAS_OUTPUT);
    cr_assert(!plain.norms_before);
    cr_assert(!plain.is_rms);
    cr_assert_eq(parse("encoder-b8h12q3e384f1536Fr").ffn.activation, MHA_ACTIVATION_RELU);
    cr_assert_eq(parse("encoder-b8h12q3e384f1536Ft").ffn.activation, MHA_ACTIVATION_GELU_TANH);
    cr_assert_eq(parse("layer-b8h8q3k5e512BT").ffn.flags, 0);
}

Test(word, a_decoder_layer)
{
    const problem parsed = parse("decoder-b8h12q3k50e384f1536BTNGcl2");
    const mha_attention_desc *a = &parsed.desc.attention;
    cr_assert(parsed.kind == KIND_DECODER);
    cr_assert_eq(a->batch, 8);
    cr_assert_eq(a->query_len, 3);
    cr_assert_eq(a->key_len, 3);
    cr_assert_eq(parsed.memory_len, 50);
    cr_assert_eq(a->uses, MHA_USES_KEY_LENGTHS | MHA_USES_CAUSAL);
    cr_assert_eq(parsed.desc.model_width, 384);
    cr_assert_eq(parsed.desc.flags, MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN);
    cr_assert_eq(parsed.ffn.hidden_width, 1536);
    cr_assert_eq(parsed.ffn.activation, MHA_ACTIVATION_GELU);
    cr_assert(parsed.norms_before);
    cr_assert(!parsed.is_rms);
    cr_assert_eq(parsed.cross_uses, 0);
    const problem padded = parse("decoder-b8h12q3k50e384f1536K40");
    cr_assert_eq(padded.cross_uses, MHA_USES_KEY_LENGTHS);
    cr_assert_eq(padded.memory_length, 40);
    cr_assert_eq(padded.desc.attention.uses, 0);
    cr_assert_eq(parse("encoder-b8h12q3e384f1536").memory_len, 0);
}

Test(word, a_model)
{
    const problem parsed = parse("model-b16q128l");
    cr_assert(parsed.kind == KIND_MODEL);
    cr_assert_eq(parsed.desc.attention.batch, 16);
    cr_assert_eq(parsed.desc.attention.query_len, 128);
    cr_assert_eq(parsed.desc.attention.key_len, 128);
    cr_assert_eq(parsed.desc.attention.uses, MHA_USES_KEY_LENGTHS);
    cr_assert_eq(parsed.key_length, 0);
    cr_assert_eq(parse("model-b1q8l5").key_length, 5);
    cr_assert_eq(parse("model-b1q8").desc.attention.uses, 0);
}

Test(word, a_gemm)
{
    const problem parsed = parse("gemm-m5n6k7");
    cr_assert(parsed.kind == KIND_GEMM);
    cr_assert(parsed.kind != KIND_LAYER);
    cr_assert_eq(parsed.gemm.m, 5);
    cr_assert_eq(parsed.gemm.n, 6);
    cr_assert_eq(parsed.gemm.k, 7);
    cr_assert_eq(parsed.desc.attention.key_len, 0);
    cr_assert_eq(parse("gemm-m5n6k7tbf16").gemm.type, MHA_BFLOAT16);
    const mha_gemm_desc mixed = parse("gemm-m5n6k7tf16twf32").gemm;
    cr_assert_eq(mixed.type, MHA_FLOAT16);
    cr_assert_eq(mixed.b_type, MHA_FLOAT32);
    cr_assert_eq(parse("gemm-m5n6k7W").gemm.flags, MHA_GEMM_LOADED_B);
    cr_assert_eq(parsed.gemm.flags, 0);
}

Test(word, lengths)
{
    const problem random = parse("b2h5q4k6d20l");
    cr_assert_eq(random.desc.attention.uses, MHA_USES_KEY_LENGTHS);
    cr_assert_eq(random.key_length, 0);
    const problem given = parse("layer-b2h5q4k6e100l6Lc");
    cr_assert_eq(given.desc.attention.uses,
                 MHA_USES_KEY_LENGTHS | MHA_USES_KEY_LENGTHS_PER_QUERY | MHA_USES_CAUSAL);
    cr_assert_eq(given.key_length, 6);
}

Test(word, diagonal)
{
    static const struct {
        const char *word;
        mha_diagonal diagonal;
    } cases[] = {
        { "b1h1q1k1d1c", MHA_TOP_LEFT },         { "b1h1q1k1d1cb", MHA_BOTTOM_RIGHT },
        { "b1h1q1k1d1wl0", MHA_TOP_LEFT },       { "b1h1q1k1d1wr3", MHA_TOP_LEFT },
        { "b1h1q1k1d1wbwl0", MHA_BOTTOM_RIGHT }, { "b1h1q1k1d1cwl3", MHA_TOP_LEFT },
        { "b1h1q1k1d1A", MHA_TOP_LEFT },         { "b1h1q1k1d1wbA", MHA_BOTTOM_RIGHT },
        { "b1h1q1k1d1Acb", MHA_BOTTOM_RIGHT },   { "b1h1q1k1d1Scb", MHA_BOTTOM_RIGHT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_assert_eq(parse(cases[i].word).desc.attention.diagonal, cases[i].diagonal, "%s",
                     cases[i].word);
}

Test(word, canonical)
{
    static const struct {
        const char *word, *canonical;
    } cases[] = {
        { "b2h5q4k6d20", "b2h5q4k6d20" },
        { "b0h1q0k0d1", "b0h1q0k0d1" },
        { "b02h5q4k6d20pcg5", "b2h5q4k6d20g5cp" },
        { "b1h8q7k9d64peahqks30mbkLlwr0wl16cbv80g2", "b1h8q7k9d64g2v80cbwl16wr0lLmbkahqks30pe" },
        { "b1h1q1k1d1wr2wb", "b1h1q1k1d1wr2wb" },
        { "b1h1q1k1d1mbhqka", "b1h1q1k1d1ma" },
        { "b1h1q1k1d1mqwl0", "b1h1q1k1d1wl0mq" },
        { "b1h1q1k1d1mq0.50a", "b1h1q1k1d1mq0.5a" },
        { "b1h1q1k1d1m0.75", "b1h1q1k1d1m" },
        { "b1h1q1k1d1m0p", "b1h1q1k1d1m0p" },
        { "b1h1q1k1d1s16777216", "b1h1q1k1d1s16777216" },
        { "b1h1q1k1d1tkf16tbf16nSAPwb", "b1h1q1k1d1wbPASntbf16tkf16" },
        { "b1h1q1k1d1tkf32tf16cb", "b1h1q1k1d1cbtf16tkf32" },
        { "b1h1q1k1d1tkbf16pLP", "b1h1q1k1d1LPptkbf16" },
        { "b1h1q1k9d2tkf16e+1Rwl3ri@cb", "b1h1q1k9d2cbwl3+1@Rrietkf16" },
        { "b1h1q1k9d2r2icb+01", "b1h1q1k9d2cb+1r2i" },
        { "b1h1q1k9d2V", "b1h1q1k9d2V" },
        { "b1h1q1k9d2eVqD0.10c", "b1h1q1k9d2cD0.1Vqe" },
        { "b1h1q1k9d2VkD0.0", "b1h1q1k9d2D0Vk" },
        { "b1h1q1k9d2D0.999999", "b1h1q1k9d2D0.999999" },
        { "b1h1q1k9d2D0.000001", "b1h1q1k9d2D0.000001" },
        { "b1h1q1k9d2pz2D0", "b1h1q1k9d2D0z2p" },
        { "layer-b2h5q4k6e100z0BD0.5", "layer-b2h5q4k6e100D0.5Bz0" },
        { "layer-b2h5q4k6e100SAPcb", "layer-b2h5q4k6e100cbPAS" },
        { "b2h5q4k6d20l05P", "b2h5q4k6d20l5P" },
        { "b2h5q4k6d20Ll5wl3", "b2h5q4k6d20wl3l5L" },
        { "gemm-m05n6k7", "gemm-m5n6k7" },
        { "model-b16q0128l09", "model-b16q128l9" },
        { "encoder-b2h5q4e100f400", "encoder-b2h5q4e100f400" },
        { "encoder-b2h5q4e100f400Fg", "encoder-b2h5q4e100f400" },
        { "encoder-b2h5q4e100f400Frs30QNGTBl4e", "encoder-b2h5q4e100f400l4s30BTGFrNQe" },
        { "encoder-b2h5q4e100f400twbf16tf16B", "encoder-b2h5q4e100f400Btf16twbf16" },
        { "encoder-b2h5q4e100f400Bg1", "encoder-b2h5q4e100f400g1B" },
        { "decoder-b2h5q4k07e100f400", "decoder-b2h5q4k7e100f400" },
        { "decoder-b2h5q4k0e100f400NQFrcl4tf16BT", "decoder-b2h5q4k0e100f400cl4BTFrNQtf16" },
        { "decoder-b2h5q4k9e100f400BK7l", "decoder-b2h5q4k9e100f400lK7B" },
        { "decoder-b2h5q4k9e100f400Kc", "decoder-b2h5q4k9e100f400cK" },
        { "gemm-m5n6k7twbf16tf16", "gemm-m5n6k7tf16twbf16" },
        { "gemm-m5n6k7tf16W", "gemm-m5n6k7Wtf16" },
        { "layer-b2h5q4k6e100twf16tbf16B", "layer-b2h5q4k6e100Btbf16twf16" },
        { "layer-b2h5q4k6e100", "layer-b2h5q4k6e100" },
        { "layer-b2h5q4k6e100exMTBo1iv2ik3iq4", "layer-b2h5q4k6e100iq4ik3iv2o1BTMxe" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const problem first = parse(cases[i].word);
        char word[200];
        cr_assert_eq(word_print(&first, word, sizeof word), strlen(word), "%s", cases[i].word);
        cr_assert_str_eq(word, cases[i].canonical, "%s printed as %s", cases[i].word, word);
        const problem second = parse(word);
        cr_assert_eq(memcmp(&first, &second, sizeof first), 0, "%s", cases[i].word);
    }
}

Test(word, print_into_little_room)
{
    const problem parsed = parse("b2h5q4k6d20");
    char word[] = "........";
    cr_assert_eq(word_print(&parsed, NULL, 0), 11);
    cr_assert_eq(word_print(&parsed, word, 5), 11);
    cr_assert_str_eq(word, "b2h5");
    cr_assert_eq(word[5], '.');
}

/* Each refusal names the character, counted from 1. */
Test(word, refusals)
{
    static const struct {
        const char *word;
        int character;
        const char *says;
    } cases[] = {
        { "", 1, "the batch" },
        { "banana", 2, "needs a number" },
        { "2h8", 1, "the batch" },
        { "b2", 3, "the heads" },
        { "b2q4h5k6d20", 3, "the heads" },
        { "b2h5q4k6", 9, "the head dim" },
        { "b2h5q4k6d", 10, "needs a number" },
        { "b2h5q4k6e100", 9, "the head dim" },
        { "b-2h5q4k6d20", 2, "needs a number" },
        { "b2h0q4k6d20", 4, "at least 1" },
        { "b2h5q4k6d0", 10, "at least 1" },
        { "b2h5q4k16777217d20", 8, "above 16777216" },
        { "b2h5q4k6d99999999999999999999999999", 10, "above" },
        { "b2h5q4k6d20y", 12, "no option" },
        { "b2h5q4k6d20 ", 12, "no option" },
        { "b2h5q4k6d20b2", 12, "no option" },
        { "b2h5q4k6d20g", 13, "needs a number" },
        { "b2h5q4k6d20g0", 13, "at least 1" },
        { "b2h5q4k6d20g5g5", 14, "already at character 12" },
        { "b2h5q4k6d20ccb", 13, "already at character 12" },
        { "b2h5q4k6d20w3", 12, "no option" },
        { "b2h5q4k6d20wl", 14, "needs a number" },
        { "b2h5q4k6d20mkb", 14, "no option" },
        { "b2h5q4k6d20m1", 13, "below 1" },
        { "b2h5q4k6d20mk0.", 16, "decimal" },
        { "b2h5q4k6d20ahqk0.5", 16, "no option" },
        { "b2h5q4k6d20wb", 12, "neither" },
        { "b2h5q4k6d20wl3wbc", 15, "cb" },
        { "b2h5q4k6d20Swb", 13, "neither" },
        { "b2h5q4k6d20B", 12, "for layers of all kinds only" },
        { "b2h5q4k6d20t", 12, "no option" },
        { "b2h5q4k6d20tf32", 12, "no option" },
        { "b2h5q4k6d20f16", 12, "no option" },
        { "b2h5q4k6d20tf16tbf16", 16, "already at character 12" },
        { "b2h5q4k6d20tf16tkf16tkf32", 21, "already at character 16" },
        { "b2h5q4k6d20nn", 13, "already at character 12" },
        { "layer-b2h5q4k6e100n", 19, "for attentions only" },
        { "layer-b2h5q4k6e100tkf16", 19, "for attentions only" },
        { "b2h5q4k6d20s1.5", 14, "no option" },
        { "b2h5q4k6d20+", 13, "needs a number" },
        { "b2h5q4k6d20+0", 13, "at least 1" },
        { "b2h5q4k6d20+1+1", 14, "already at character 12" },
        { "b2h5q4k6d20@", 12, "no \"+\"" },
        { "b2h5q4k6d20cR", 13, "no \"+\"" },
        { "b2h5q4k6d20r", 12, "no \"+\"" },
        { "b2h5q4k6d20+1r1", 15, "at least 2" },
        { "b2h5q4k6d20+1rir", 16, "already at character 14" },
        { "b2h5q4k6d20VVk", 13, "already at character 12" },
        { "b2h5q4k6d20D", 13, "below 1" },
        { "b2h5q4k6d20D1", 13, "below 1" },
        { "b2h5q4k6d20D.5", 13, "below 1" },
        { "b2h5q4k6d20D0.", 15, "decimal" },
        { "b2h5q4k6d20D0.1234567", 21, "six" },
        { "b2h5q4k6d20D00.1", 14, "no option" },
        { "b2h5q4k6d20z", 13, "0, 1 or 2" },
        { "b2h5q4k6d20z3", 13, "0, 1 or 2" },
        { "layer-b2h5q4k6e100+1", 19, "for attentions only" },
        { "layer-b2h5q4k6e100V", 19, "for attentions only" },
        { "layer-b2h5q4k6d20", 15, "the model width" },
        { "layer-b2h5q4k6e100e512", 20, "no option" },
        { "Layer-b2h5q4k6e100", 1, "the batch" },
        { "b2h5q4k6d20l0", 13, "at least 1" },
        { "b2h5q4k6d20l7", 12, "above the key length, 6" },
        { "b2h5q4k6d20l5l", 14, "already at character 12" },
        { "encoder-b2h5q4k4e100f400", 15, "the model width" },
        { "encoder-b2h5q4e100", 19, "the width between" },
        { "encoder-b2h5q4e100f0", 20, "at least 1" },
        { "encoder-b2h5q4e100f400F", 24, "r, g, t or s" },
        { "encoder-b2h5q4e100f400FrFs", 25, "already at character 23" },
        { "encoder-b2h5q4e100f400l5", 23, "above the key length, 4" },
        { "encoder-b2h5q4e100f400M", 23, "for layers only" },
        { "encoder-b2h5q4e100f400n", 23, "for attentions only" },
        { "encoder-b2h5q4e100f400+1", 23, "for attentions only" },
        { "decoder-b2h5q4e100f400", 15, "the memory length" },
        { "decoder-b2h5q4k6e100", 21, "the width between" },
        { "decoder-b2h5q4k6e100f400l5", 25, "above the key length, 4" },
        { "decoder-b2h5q4k6e100f400K7", 25, "above the memory length, 6" },
        { "decoder-b2h5q4k6e100f400K0", 26, "at least 1" },
        { "encoder-b2h5q4e100f400K", 23, "for decoder layers only" },
        { "decoder-b2h5q4k6e100f400x", 25, "for layers only" },
        { "decoder-b2h5q4k6e100f400+1", 25, "for attentions only" },
        { "layer-b2h5q4k6e100G", 19, "for encoder and decoder layers only" },
        { "b2h5q4k6d20N", 12, "for encoder and decoder layers only" },
        { "gemm-", 6, "the rows" },
        { "model-b1h2q3", 9, "the query length" },
        { "model-b1q3k3", 11, "no option" },
        { "model-b1q3l4", 11, "above the key length, 3" },
        { "model-b1q3c", 11, "for attentions and layers only" },
        { "model-b1q3B", 11, "for layers of all kinds only" },
        { "gemm-m5n6", 10, "the inner length" },
        { "gemm-m0n6k7", 7, "at least 1" },
        { "gemm-m5n6k7l", 12, "for attentions, layers and models only" },
        { "gemm-m5n6k7n", 12, "for attentions only" },
        { "gemm-m5n6k7T", 12, "for layers of all kinds only" },
        { "layer-b2h5q4k6e100W", 19, "for matrix products only" },
        { "gemm-m5n6k7tkf16", 12, "for attentions only" },
        { "gemm-m5n6k7tf16tbf16", 16, "already at character 12" },
        { "b2h5q4k6d20twf16", 12, "for layers of all kinds only" },
        { "gemm-m5n6k7m", 12, "for attentions and layers only" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        problem parsed = { .kind = KIND_LAYER };
        problem none;
        memset(&none, 0, sizeof none);
        char error[200] = "";
        char where[32];
        snprintf(where, sizeof where, "character %d: ", cases[i].character);
        cr_expect(!word_parse(cases[i].word, &parsed, error, sizeof error), "%s", cases[i].word);
        cr_expect(strstr(error, where) && strstr(error, cases[i].says), "%s: got '%s'",
                  cases[i].word, error);
        cr_expect_eq(memcmp(&parsed, &none, sizeof none), 0, "%s", cases[i].word);
    }
}

Test(word, a_short_error_buffer_is_closed)
{
    problem parsed;
    char error[] = "........";
    cr_assert(!word_parse("banana", &parsed, error, 5));
    cr_assert_eq(strlen(error), 4);
    cr_assert_eq(error[5], '.');
}
