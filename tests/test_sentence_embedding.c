/* sentence-embedding as a user meets it: its command line, odd texts, outputs that cannot be
 * written and models that are no good. The tests make no OpenCL call of their own, so that starting
 * a child is safe. */
#define _POSIX_C_SOURCE 200809L
#include "network.h"
#include "tool_run.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char program[] = BUILD_DIR "/examples/sentence-embedding/sentence-embedding";

static const char vocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\n##b\n";

/* Writes the folder's model, as it should be. */
static void make_model(void)
{
    char path[TOOL_PATH_SIZE];
    network *const weights = network_make();
    tool_write(tool_path(path, "config.json"), network_config_json);
    tool_write(tool_path(path, "vocab.txt"), vocabulary);
    network_write(weights, tool_path(path, "model.safetensors"), &(network_file){ .prefix = "" });
    free(weights);
}

static void begin(void)
{
    tool_make_folder();
    make_model();
}

TestSuite(sentence_embedding, .init = begin, .fini = tool_remove_folder, .timeout = 300);

/* Runs a shell's script in which $0 is the program and $1 the model's folder. */
static int run_script(const char *script)
{
    return RUN("/bin/sh", "-c", script, program, tool_folder);
}

static void expect_script(const char *script, const char *out)
{
    tool_expect_code(run_script(script), 0);
    cr_expect_str_eq(tool_out, out, "%s: %s, not %s", tool_shown, tool_out, out);
}

static void expect_refusal(const char *script, int code, const char *said)
{
    tool_expect_code(run_script(script), code);
    tool_expect_in("stderr", tool_err, said);
    tool_expect_in("stderr", tool_err, "sentence-embedding: ");
}

Test(sentence_embedding, bad_options_show_the_usage)
{
    static const struct {
        const char *words[5];
        const char *said;
    } rows[] = {
        { { NULL }, "the model's folder is missing" },
        { { "a", "b" }, "there is more than one folder" },
        { { "--nonsense", "a" }, "nonsense" },
        { { "-x", "a" }, "x" },
        { { "--format" }, "format" },
        { { "--format", "xml", "a" }, "--format xml: none of tsv, json and ids" },
        { { "--format", "", "a" }, "--format : none of" },
        { { "--batch", "0", "a" }, "--batch 0: not a number from 1 to 1024" },
        { { "--batch", "1025", "a" }, "--batch 1025: " },
        { { "--batch", "-1", "a" }, "--batch -1: " },
        { { "--batch", "8x", "a" }, "--batch 8x: " },
        { { "--batch", "", "a" }, "--batch : " },
        { { "--batch", "99999999999999999999", "a" }, "--batch 99999999999999999999: " },
        { { "--device" }, "device" },
        { { "--pairs=1", "a" }, "pairs" },
        { { "--attention", "1", "a.png", "a" }, "--attention 1: not a layer, a comma and a head" },
        { { "--attention", "1,", "a.png", "a" }, "--attention 1,: " },
        { { "--attention", "1,2x", "a.png", "a" }, "--attention 1,2x: " },
        { { "--attention", "1,2" }, "needs the picture's name" },
        { { "--pairs", "--format", "ids", "a" }, "neither --pairs nor --attention" },
        { { "--pairs", "--attention", "1,2", "a.png" }, "the model's folder is missing" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tool_expect_code(tool_run(program, rows[i].words), 2);
        tool_expect_in("stderr", tool_err, rows[i].said);
        tool_expect_in("stderr", tool_err, "usage: sentence-embedding");
        tool_expect_nothing("stdout", tool_out);
    }
    tool_expect_code(RUN(program, "--pairs", "--attention", "1,2", "a.png", "a"), 2);
    tool_expect_in("stderr", tool_err, "--pairs and --attention: one of them only");
}

Test(sentence_embedding, help)
{
    tool_expect_code(RUN(program, "--help"), 0);
    tool_expect_nothing("stderr", tool_err);
    for (const char *const *name =
             (const char *const[]){ "usage: ", "--format", "--pairs", "--batch", "--device",
                                    "--attention", NULL };
         *name; name++)
        tool_expect_in("stdout", tool_out, *name);
    expect_refusal("\"$0\" --help >/dev/full", 1, "the help cannot be written");
}

/* `count` numbers that JSON's reader found in a vector. */
static void expect_vector(const json_t *vector, double *values)
{
    cr_assert_eq(json_array_size(vector), NETWORK_WIDTH, "%s: %s", tool_shown, tool_out);
    for (size_t i = 0; i < NETWORK_WIDTH; i++)
        values[i] = json_number_value(json_array_get(vector, i));
}

Test(sentence_embedding, formats)
{
    double values[NETWORK_WIDTH];
    expect_script("printf 'a ab\\nd' | \"$0\" --format ids \"$1\"", "2 4 4 8 3\n2 7 3\n");
    tool_expect_code(run_script("printf 'a ab\\nd' | \"$0\" --format json \"$1\""), 0);
    json_t *const all = json_loads(tool_out, 0, NULL);
    cr_assert_eq(json_array_size(all), 2, "%s: %s", tool_shown, tool_out);
    tool_expect_code(run_script("printf 'a ab\\nd' | \"$0\" \"$1\""), 0);
    const char *at = tool_out;
    for (size_t i = 0; i < 2; i++) {
        double squares = 0;
        expect_vector(json_array_get(all, i), values);
        for (size_t j = 0; j < NETWORK_WIDTH; j++) {
            char *end = NULL;
            cr_expect_eq(strtod(at, &end), values[j], "%s: [%zu][%zu]: %s", tool_shown, i, j, at);
            cr_assert_eq(*end, j + 1 < NETWORK_WIDTH ? '\t' : '\n', "%s", tool_out);
            at = end + 1;
            squares += values[j] * values[j];
        }
        cr_expect_float_eq(squares, 1, 1e-5);
    }
    cr_assert_eq(*at, '\0');
    json_decref(all);
}

/* Sizes of batches change no vector but by rounding; pairs are of the same vectors. */
Test(sentence_embedding, batches_and_pairs)
{
    static const char *const sizes[] = { "1", "2", "1024" };
    double first = 0;
    for (size_t i = 0; i < 3; i++) {
        tool_expect_code(RUN("/bin/sh", "-c",
                             "printf 'a\\ta\\na b\\td\\nd\\ta b\\n' | \"$0\" --pairs --batch $2 "
                             "\"$1\"",
                             program, tool_folder, sizes[i]),
                         0);
        char *end = tool_out;
        const double same = strtod(end, &end), pair = strtod(end, &end), turned = strtod(end, &end);
        cr_expect_float_eq(same, 1, 1e-6, "%s: %s", tool_shown, tool_out);
        cr_expect_float_eq(pair, turned, 1e-6, "%s: %s", tool_shown, tool_out);
        cr_expect(pair < 0.99999, "%s: %s", tool_shown, tool_out);
        cr_expect_float_eq(pair, i ? first : pair, 1e-6, "%s: %s", tool_shown, tool_out);
        cr_expect_str_eq(end, "\n");
        first = pair;
    }
}

Test(sentence_embedding, devices)
{
    tool_expect_code(run_script("echo a | \"$0\" --device 0:0 \"$1\""), 0);
    expect_refusal("echo a | \"$0\" --device 'no such device' \"$1\"", 1, "no such device");
    tool_expect_nothing("stdout", tool_out);
}

/* The case of mha-check that runs this network: skipped, by name, where no model was fetched; not
 * so where the model that is given is none, or another. */
Test(sentence_embedding, the_case_without_its_model)
{
    static const char folder[] = TESTS_DIR "/cases/real/minilm_sentence_embeddings";
    char cache[TOOL_PATH_SIZE];
    setenv("XDG_CACHE_HOME", tool_path(cache, "cache"), 1);
    tool_expect_code(RUN("mha-check", folder), 0);
    tool_expect_in("stdout", tool_out, "skip  minilm_sentence_embeddings: ");
    tool_expect_in("stdout", tool_out, "fetch-model, or say --model DIR");
    tool_expect_last_line("0 passed, 0 failed, 1 skipped");
    tool_expect_code(RUN("mha-check", "--model", cache, folder), 1);
    tool_expect_in("stdout", tool_out, "cache: config.json: No such file or directory");
    tool_expect_code(RUN("mha-check", "--model", tool_folder, folder), 1);
    tool_expect_in("stdout", tool_out, "the model takes at most 6 tokens");
    tool_expect_last_line("0 passed, 1 failed, 0 skipped");
}

Test(sentence_embedding, odd_lines)
{
    expect_script("\"$0\" --format ids \"$1\" </dev/null", "");
    expect_script("\"$0\" \"$1\" </dev/null", "");
    expect_script("printf '\\n\\r\\na\\r\\n\\377\\376a\\300\\n\\000b\\n \\t \\nc' | \"$0\" "
                  "--format ids \"$1\"",
                  "2 3\n2 3\n2 4 3\n2 4 3\n2 5 3\n2 3\n2 6 3\n");
    tool_expect_code(run_script("printf '\\n\\n\\377\\n' | \"$0\" \"$1\""), 0);
    tool_expect_nothing("stderr", tool_err);
    /* 10000 lines keep their order; three of 1 MB, of one word, of many, and of bytes that are no
     * text. */
    expect_script("seq 10000 | sed 's/.*[05]$/a/; s/[0-9].*/b b/' | \"$0\" --format ids \"$1\" |"
                  " uniq -c | sort | uniq -c | tr -s ' '",
                  " 2000 1 2 4 3\n 2000 4 2 5 5 3\n");
    expect_script("seq 10000 | sed 's/.*[05]$/a\\ta/; s/[0-9].*/a\\tb b/' | \"$0\" --pairs \"$1\" |"
                  " awk '{ print ($1 > 0.999999 ? \"same\" : \"other\") }' |"
                  " uniq -c | sort | uniq -c | tr -s ' '",
                  " 2000 1 same\n 2000 4 other\n");
    expect_script(
        "for byte in a ' a' '\\377'; do head -c 1000000 /dev/zero | sed \"s/\\x00/$byte/g\""
        "; echo; done | LC_ALL=C tr -d '\\000' | \"$0\" --format ids \"$1\"",
        "2 1 3\n2 4 4 4 4 3\n2 3\n");
    tool_expect_in("stderr", tool_err, "line 2 has more than 6 tokens; the rest is left out");
}

Test(sentence_embedding, lines_that_are_no_pairs)
{
    static const char *const lines[] = { "", "a", "a\\tb\\tc", "\\t\\t" };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char script[200];
        snprintf(script, sizeof script, "printf 'a\\tb\\n%s\\n' | \"$0\" --pairs \"$1\"", lines[i]);
        expect_refusal(script, 1, "line 2 is no pair: two sentences with one tab between them");
    }
    tool_expect_code(run_script("printf '\\t\\na\\t\\n' | \"$0\" --pairs \"$1\""), 0);
    tool_expect_nothing("stderr", tool_err);
}

/* Full, closed, and with a reader that has gone: a sentence, and neither a signal nor silence. */
Test(sentence_embedding, outputs_that_cannot_be_written)
{
    static const char *const formats[] = { "tsv", "json", "ids" };
    static const char *const ways[] = {
        "seq 9 | \"$0\" --format %s \"$1\" >/dev/full",
        "seq 9 | \"$0\" --format %s \"$1\" >&-",
        ("{ seq 100000 | \"$0\" --format %s \"$1\"; echo $? >\"$1/code\"; } | :;"
         " exit $(cat \"$1/code\")"),
    };
    for (size_t i = 0; i < 3; i++) {
        for (size_t way = 0; way < 3; way++) {
            char script[200];
            snprintf(script, sizeof script, ways[way], formats[i]);
            expect_refusal(script, 1, "the output cannot be written");
        }
    }
    expect_refusal("printf 'a\\tb\\n' | \"$0\" --pairs \"$1\" >/dev/full", 1,
                   "the output cannot be written");
}

/* Nothing more is read once the reader has gone: an endless text ends. */
Test(sentence_embedding, an_endless_text)
{
    expect_refusal("{ yes a | \"$0\" \"$1\"; echo $? >\"$1/code\"; } | head -n 1;"
                   " exit $(cat \"$1/code\")",
                   1, "the output cannot be written");
}

Test(sentence_embedding, inputs_that_cannot_be_read)
{
    expect_refusal("\"$0\" \"$1\" <&-", 1, "the input cannot be read: ");
    expect_refusal("\"$0\" \"$1\" <\"$1\"", 1, "the input cannot be read: ");
    expect_refusal("\"$0\" --attention 0,0 \"$1/a.png\" \"$1\" <&-", 1, "there is no sentence");
}

/* Each file of the folder missing, a folder, and one that nobody can read: links that go round. */
Test(sentence_embedding, files_that_cannot_be_read)
{
    static const char *const names[] = { "config.json", "vocab.txt", "model.safetensors" };
    char path[TOOL_PATH_SIZE], said[40];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tool_path(path, names[i]);
        snprintf(said, sizeof said, "%s: ", names[i]);
        cr_assert(!remove(path));
        expect_refusal("echo a | \"$0\" \"$1\"", 1, said);
        cr_assert(!mkdir(path, 0700));
        expect_refusal("echo a | \"$0\" \"$1\"", 1, said);
        cr_assert(!remove(path) && !symlink(path, path));
        expect_refusal("echo a | \"$0\" \"$1\"", 1, said);
        tool_expect_nothing("stdout", tool_out);
        cr_assert(!remove(path));
        tool_write(path, "");
        expect_refusal("echo a | \"$0\" \"$1\"", 1, said);
        cr_assert(!remove(path));
        make_model();
    }
    expect_refusal("echo a | \"$0\" \"$1/none\"", 1, "config.json: No such file or directory");
}

Test(sentence_embedding, weights_that_are_not_all_there)
{
    char path[TOOL_PATH_SIZE];
    struct stat facts;
    network *const weights = network_make();
    tool_path(path, "model.safetensors");
    cr_assert(!stat(path, &facts));
    const off_t cuts[] = { facts.st_size - 1, facts.st_size / 2, 4000, 100, 8, 7, 1 };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        cr_assert(!truncate(path, cuts[i]));
        expect_refusal("echo a | \"$0\" \"$1\"", 1, "model.safetensors: it");
        tool_expect_nothing("stdout", tool_out);
        make_model();
    }
    network_write(weights, path, &(network_file){ .missing = "encoder.layer.1.output.dense.bias" });
    expect_refusal("echo a | \"$0\" \"$1\"", 1,
                   "model.safetensors: it has no tensor encoder.layer.1.output.dense.bias");
    free(weights);
}

static double number(const json_t *object, const char *name)
{
    const json_t *const value = json_object_get(object, name);
    cr_expect(json_is_real(value), "%s: no number \"%s\": %s", tool_shown, name, tool_out);
    return json_real_value(value);
}

static void expect_close(const char *what, double got, double want)
{
    cr_expect(got > 0.999 * want && got < 1.001 * want, "%s: %s is %g, not %g", tool_shown, what,
              got, want);
}

/* mha-bench's model words: verified by a reference that reads the file itself; all layers' steps of
 * a name are one stage, and together they are the problem's work. */
Test(sentence_embedding, mha_bench_measures_a_model)
{
    enum {
        ROWS = 6,
        WIDTH = NETWORK_WIDTH
    };
    const double flops = 2.0 * NETWORK_LAYERS * ROWS *
                         (4 * WIDTH * WIDTH + 2 * WIDTH * NETWORK_WIDE + 2 * ROWS * WIDTH);
    double done = 0;
    tool_expect_code(RUN("mha-bench", "--json", "--min-time", "0", "--model", tool_folder,
                         "model-b1q6", "model-b3q5l", "model-b2q4l3"),
                     0);
    json_t *const root = json_loads(tool_out, 0, NULL);
    cr_assert_eq(json_array_size(root), 3, "%s: %s", tool_shown, tool_out);
    for (size_t i = 0; i < 3; i++) {
        const json_t *const problem = json_array_get(root, i);
        const double sentences = (double[]){ 1, 3, 2 }[i];
        cr_expect_str_eq(json_string_value(json_object_get(problem, "outcome")), "ok");
        expect_close("sentences", number(problem, "sentences_per_s") * number(problem, "min_ms"),
                     1e3 * sentences);
    }
    const json_t *const stages = json_object_get(json_array_get(root, 0), "stages");
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *const stage = json_array_get(stages, i);
        for (size_t k = 0; k < i; k++)
            cr_expect(!json_equal(json_object_get(stage, "stage"),
                                  json_object_get(json_array_get(stages, k), "stage")));
        if (!json_is_null(json_object_get(stage, "gflops")))
            done += number(stage, "gflops") * number(stage, "ms") * 1e6;
    }
    expect_close("operations of the stages", done, flops);
    json_decref(root);
}

Test(sentence_embedding, models_that_mha_bench_cannot_measure)
{
    char path[TOOL_PATH_SIZE];
    tool_expect_code(RUN("mha-bench", "--csv", "--verify", "--model", tool_folder, "model-b1q7"),
                     1);
    tool_expect_in("stderr", tool_err, "at least 1 sentence of 1 to 6 tokens");
    tool_expect_code(RUN("mha-bench", "--csv", "--verify", "--model", tool_folder, "model-b0q3"),
                     1);
    tool_expect_in("stderr", tool_err, "at least 1 sentence of 1 to 6 tokens");
    tool_expect_code(
        RUN("mha-bench", "--csv", "--verify", "--model", tool_path(path, "none"), "model-b1q3"), 1);
    tool_expect_in("stderr", tool_err, "config.json");
    tool_expect_code(RUN("mha-bench", "--csv", "--verify", "--path", "decode", "--model",
                         tool_folder, "model-b1q3"),
                     0);
    tool_expect_in("stdout", tool_out, "ok");
}
