/* What a model's folder says: what is taken, the defaults, and that all else is refused. */
#include "config.h"
#include "scratch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(config, .init = scratch_make, .fini = scratch_remove);

/* All that a config.json needs; more keys can follow. */
#define SIZES                                                               \
    "\"hidden_size\":12,\"num_attention_heads\":3,\"num_hidden_layers\":2," \
    "\"intermediate_size\":40,\"vocab_size\":50,\"max_position_embeddings\":64"
#define MODEL "\"model_type\":\"bert\","

static bool read_folder(const char *text, config *out, char *error, size_t error_size)
{
    scratch_write("config.json", text, strlen(text));
    return config_read(scratch_folder(), out, error, error_size);
}

Test(config, defaults)
{
    config out;
    char error[300] = "";
    cr_assert(read_folder("{" MODEL SIZES "}", &out, error, sizeof error), "%s", error);
    cr_assert_eq(out.hidden_size, 12);
    cr_assert_eq(out.heads, 3);
    cr_assert_eq(out.layers, 2);
    cr_assert_eq(out.intermediate_size, 40);
    cr_assert_eq(out.vocabulary_size, 50);
    cr_assert_eq(out.max_positions, 64);
    cr_assert_eq(out.token_types, 2);
    cr_assert_eq(out.layer_norm_eps, 1e-12f);
    cr_assert_eq(out.activation, MHA_ACTIVATION_GELU);
    cr_assert_eq(out.pad_token, 0);
    cr_assert(out.words.lower_case && out.words.strip_accents && out.words.separate_chinese);
    cr_assert_eq(out.max_tokens, 64);
}

Test(config, all_that_is_said)
{
    config out;
    char error[300] = "";
    const char text[] =
        "{" MODEL SIZES ",\"type_vocab_size\":1,\"layer_norm_eps\":1e-5,\"hidden_act\":\"silu\","
        "\"pad_token_id\":49,\"position_embedding_type\":\"absolute\",\"is_decoder\":false}";
    const char tokenizer[] = "{\"do_lower_case\":false,\"tokenize_chinese_chars\":false}";
    const char sentences[] = "{\"max_seq_length\":32,\"do_lower_case\":false}";
    scratch_write("tokenizer_config.json", tokenizer, sizeof tokenizer - 1);
    scratch_write("sentence_bert_config.json", sentences, sizeof sentences - 1);
    cr_assert(read_folder(text, &out, error, sizeof error), "%s", error);
    cr_assert_eq(out.token_types, 1);
    cr_assert_eq(out.layer_norm_eps, 1e-5f);
    cr_assert_eq(out.activation, MHA_ACTIVATION_SILU);
    cr_assert_eq(out.pad_token, 49);
    cr_assert(!out.words.lower_case && !out.words.strip_accents && !out.words.separate_chinese);
    cr_assert_eq(out.max_tokens, 32);
}

Test(config, accents_by_themselves)
{
    config out;
    char error[300] = "";
    const char said[] = "{\"do_lower_case\":true,\"strip_accents\":false}";
    const char unsaid[] = "{\"do_lower_case\":true,\"strip_accents\":null}";
    scratch_write("tokenizer_config.json", said, sizeof said - 1);
    cr_assert(read_folder("{" MODEL SIZES "}", &out, error, sizeof error), "%s", error);
    cr_assert(out.words.lower_case && !out.words.strip_accents);
    scratch_write("tokenizer_config.json", unsaid, sizeof unsaid - 1);
    cr_assert(read_folder("{" MODEL SIZES "}", &out, error, sizeof error), "%s", error);
    cr_assert(out.words.strip_accents);
}

Test(config, activations)
{
    static const struct {
        const char *name;
        mha_activation_kind activation;
    } names[] = {
        { "gelu", MHA_ACTIVATION_GELU },
        { "gelu_new", MHA_ACTIVATION_GELU_TANH },
        { "gelu_pytorch_tanh", MHA_ACTIVATION_GELU_TANH },
        { "relu", MHA_ACTIVATION_RELU },
        { "swish", MHA_ACTIVATION_SILU },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        config out;
        char text[500], error[300] = "";
        snprintf(text, sizeof text, "{" MODEL SIZES ",\"hidden_act\":\"%s\"}", names[i].name);
        cr_assert(read_folder(text, &out, error, sizeof error), "%s", error);
        cr_assert_eq(out.activation, names[i].activation, "%s", names[i].name);
    }
}

Test(config, refusals)
{
    static const struct {
        const char *text, *says;
    } files[] = {
        { "", "config.json: it is no good JSON" },
        { "[]", "config.json: it is no JSON object" },
        { "{" SIZES "}", "config.json: it has no model_type" },
        { "{\"model_type\":\"roberta\"," SIZES "}", "\"roberta\", and only \"bert\" is known" },
        { "{\"model_type\":1," SIZES "}", "model_type is no string" },
        { "{" MODEL SIZES ",\"hidden_size\":12}", "no good JSON" },
        { "{" MODEL "\"hidden_size\":12}", "it has no num_attention_heads" },
        { "{" MODEL SIZES ",\"position_embedding_type\":\"relative_key\"}",
          "its position_embedding_type is \"relative_key\"" },
        { "{" MODEL SIZES ",\"is_decoder\":true}", "only encoders" },
        { "{" MODEL SIZES ",\"is_decoder\":1}", "neither true nor false" },
        { "{" MODEL SIZES ",\"hidden_act\":\"mish\"}", "its hidden_act is \"mish\"" },
        { "{" MODEL SIZES ",\"layer_norm_eps\":0}", "its layer_norm_eps" },
        { "{" MODEL SIZES ",\"layer_norm_eps\":\"1e-5\"}", "its layer_norm_eps" },
        { "{" MODEL SIZES ",\"type_vocab_size\":0}", "its type_vocab_size is no whole number" },
        { "{" MODEL SIZES ",\"type_vocab_size\":16777217}", "from 1 to 16777216" },
        { "{" MODEL SIZES ",\"type_vocab_size\":1.5}", "its type_vocab_size is no whole number" },
        { "{" MODEL SIZES ",\"pad_token_id\":50}", "its pad_token_id is not below" },
        { "{" MODEL SIZES ",\"pad_token_id\":-1}", "its pad_token_id is no whole number" },
        { "{" MODEL "\"hidden_size\":12,\"num_attention_heads\":5,\"num_hidden_layers\":2,"
          "\"intermediate_size\":40,\"vocab_size\":50,\"max_position_embeddings\":64}",
          "its hidden_size, 12, is no multiple of its num_attention_heads, 5" },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        config out;
        char error[300] = "";
        cr_expect(!read_folder(files[i].text, &out, error, sizeof error), "file %zu", i);
        cr_expect(strstr(error, files[i].says), "file %zu: %s", i, error);
    }
}

/* The mean over the tokens, said in as many words or not at all, and no other pooling. */
Test(config, pooling)
{
    static const struct {
        const char *text;
        bool good;
    } files[] = {
        { "{}", true },
        { "{\"word_embedding_dimension\":12,\"pooling_mode_cls_token\":false,"
          "\"pooling_mode_mean_tokens\":true,\"pooling_mode_max_tokens\":false,"
          "\"pooling_mode_mean_sqrt_len_tokens\":false}",
          true },
        { "{\"pooling_mode_mean_tokens\":false}", false },
        { "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":false}", false },
        { "{\"pooling_mode_cls_token\":true}", false },
        { "{\"pooling_mode_max_tokens\":true}", false },
        { "{\"pooling_mode_mean_sqrt_len_tokens\":true}", false },
    };
    cr_assert(!mkdir(scratch_path("1_Pooling"), 0700));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        config out;
        char error[300] = "";
        scratch_write("1_Pooling/config.json", files[i].text, strlen(files[i].text));
        cr_expect_eq(read_folder("{" MODEL SIZES "}", &out, error, sizeof error), files[i].good,
                     "file %zu: %s", i, error);
        cr_expect_str_eq(error, files[i].good ? ""
                                              : "1_Pooling/config.json: it asks for another "
                                                "pooling than the mean over the tokens");
    }
    scratch_write("1_Pooling/config.json", "{", 1);
    config out;
    char error[300] = "";
    cr_assert(!read_folder("{" MODEL SIZES "}", &out, error, sizeof error));
    cr_assert(strstr(error, "1_Pooling/config.json: it is no good JSON"), "%s", error);
}

Test(config, refusals_of_the_other_files)
{
    config out;
    char error[300] = "";
    cr_assert(!config_read(scratch_folder(), &out, error, sizeof error));
    cr_assert_str_eq(error, "config.json: No such file or directory");
    scratch_write("tokenizer_config.json", "{\"do_lower_case\":0}", 19);
    cr_assert(!read_folder("{" MODEL SIZES "}", &out, error, sizeof error));
    cr_assert(strstr(error, "tokenizer_config.json: its do_lower_case is neither"), "%s", error);
    scratch_write("tokenizer_config.json", "{}", 2);
    scratch_write("sentence_bert_config.json", "{\"max_seq_length\":2}", 20);
    cr_assert(!read_folder("{" MODEL SIZES "}", &out, error, sizeof error));
    cr_assert(strstr(error, "sentence_bert_config.json: its max_seq_length"), "%s", error);
}
