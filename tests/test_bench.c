/* What mha-bench prints: its results as JSON, as CSV and as a drawing. The tests here make no
 * OpenCL call of their own, so that starting a child is safe. */
#define _GNU_SOURCE
#include "report.h"
#include "tool_run.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(bench, .init = tool_make_folder, .fini = tool_remove_folder, .timeout = 300);

static const json_t *field(const json_t *object, const char *name, json_type type)
{
    const json_t *value = json_object_get(object, name);
    cr_expect(value && json_typeof(value) == type, "%s: \"%s\" is missing or of another type: %s",
              tool_shown, name, tool_out);
    return value;
}

static void expect_problem(const json_t *problem, const char *word, bool timed)
{
    const json_type number = timed ? JSON_REAL : JSON_NULL;
    cr_expect_str_eq(json_string_value(field(problem, "problem", JSON_STRING)), word);
    cr_expect_str_eq(json_string_value(field(problem, "outcome", JSON_STRING)), "ok");
    field(problem, "device", JSON_STRING);
    field(problem, "platform", JSON_STRING);
    cr_expect_str_eq(json_string_value(field(problem, "type", JSON_STRING)), "float32");
    cr_expect_str_eq(json_string_value(field(problem, "key_value_type", JSON_STRING)), "float32");
    field(problem, "path", JSON_STRING);
    field(problem, "tiling", JSON_STRING);
    field(problem, "explain", JSON_STRING);
    field(problem, "min_ms", number);
    field(problem, "median_ms", number);
    field(problem, "gflops", number);
    field(problem, "peak_gflops", number);
    field(problem, "peak_share", number);
    field(problem, "gbytes_per_s", number);
    field(problem, "peak_gbytes_per_s", number);
    field(problem, "bandwidth_share", number);
    field(problem, "sentences_per_s", JSON_NULL);
    field(problem, "max_error", JSON_REAL);
    field(problem, "error_limit", JSON_REAL);
    const json_t *stages = field(problem, "stages", JSON_ARRAY);
    cr_expect(!timed == !json_array_size(stages), "%s: stages: %s", tool_shown, tool_out);
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *stage = json_array_get(stages, i);
        field(stage, "stage", JSON_STRING);
        field(stage, "what", JSON_STRING);
        cr_expect_geq(json_real_value(field(stage, "ms", JSON_REAL)), 0);
        cr_expect(json_object_get(stage, "gflops") && json_object_get(stage, "peak_share"),
                  "%s: a stage without its rate: %s", tool_shown, tool_out);
    }
}

static double number(const json_t *object, const char *name)
{
    return json_real_value(field(object, name, JSON_REAL));
}

static void expect_close(const char *what, double got, double want)
{
    cr_expect(fabs(got - want) <= 1e-6 * want, "%s: %s is %g, not %g", tool_shown, what, got, want);
}

/* Shares are quotients of what stands beside them, and what the stages do is what the problem does,
 * of which a word says how many operations it is. */
static void expect_counted(const json_t *problem, double flops)
{
    expect_close("operations", number(problem, "gflops") * number(problem, "min_ms") * 1e6, flops);
    const json_t *stages = field(problem, "stages", JSON_ARRAY);
    double done = 0;
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *stage = json_array_get(stages, i);
        if (json_is_null(json_object_get(stage, "gflops")))
            continue;
        done += number(stage, "gflops") * number(stage, "ms") * 1e6;
    }
    expect_close("operations of the stages", done, flops);
}

static void expect_shares(const json_t *problem)
{
    const double peak = number(problem, "peak_gflops");
    expect_close("peak_share", number(problem, "peak_share"), number(problem, "gflops") / peak);
    expect_close("bandwidth_share", number(problem, "bandwidth_share"),
                 number(problem, "gbytes_per_s") / number(problem, "peak_gbytes_per_s"));
    const json_t *stages = field(problem, "stages", JSON_ARRAY);
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *stage = json_array_get(stages, i);
        if (!json_is_null(json_object_get(stage, "gflops")))
            expect_close("peak_share", number(stage, "peak_share"), number(stage, "gflops") / peak);
    }
}

/* mha-bench's only result, for the caller to release. */
static json_t *time_one(const char *const *words)
{
    tool_expect_code(tool_run("mha-bench", words), 0);
    json_t *root = json_loads(tool_out, 0, NULL);
    cr_assert_eq(json_array_size(root), 1, "%s: %s", tool_shown, tool_out);
    return root;
}

/* Without the peak: a machine that was busy when it was measured is faster in a stage than that,
 * and no rate of such a stage is told. */
Test(bench, stages_do_the_work_of_a_problem)
{
    static const struct {
        const char *word, *path;
        double flops;
    } rows[] = {
        { "b2h3q16k16d8", "streaming", 2.0 * 2 * 3 * 16 * 16 * 16 },
        { "b2h3q16k16d8v4", "composed", 2.0 * 2 * 3 * 16 * 16 * 12 },
        { "b1h2q1k128d8", "decode", 2.0 * 2 * 128 * 16 },
        { "b2h3q16k16d8cm0.5", "streaming", 2.0 * 2 * 3 * 136 * 16 },
        { "layer-b1h2q16k16e32", "composed", 2.0 * (2 * 16 * 16 * 32 + 4 * 16 * 32 * 32) },
        { "encoder-b1h2q16e32f48BT", "streaming",
          2.0 * (2 * 16 * 16 * 32 + 4 * 16 * 32 * 32 + 2 * 16 * 32 * 48) },
        { "encoder-b2h2q16e32f48GNQFs", "composed",
          2.0 * 2 * (2 * 16 * 16 * 32 + 4 * 16 * 32 * 32 + 3 * 16 * 32 * 48) },
        { "decoder-b1h2q16k40e32f48BTc", "streaming",
          2.0 * (2 * 136 * 32 + 2 * 16 * 40 * 32 + 6 * 16 * 32 * 32 + 2 * 40 * 32 * 32 +
                 2 * 16 * 32 * 48) },
        { "decoder-b2h2q16k40e32f48GNK25", "composed",
          2.0 * 2 *
              (2 * 16 * 16 * 32 + 2 * 16 * 25 * 32 + 6 * 16 * 32 * 32 + 2 * 40 * 32 * 32 +
               3 * 16 * 32 * 48) },
        { "gemm-m16n24k32", "composed", 2.0 * 16 * 24 * 32 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *root =
            time_one((const char *const[]){ "--json", "--speed", "--no-peak", "--min-time", "0",
                                            "--path", rows[i].path, rows[i].word, NULL });
        expect_counted(json_array_get(root, 0), rows[i].flops);
        json_decref(root);
    }
}

Test(bench, shares_are_of_the_peak)
{
    json_t *root = time_one(
        (const char *const[]){ "--json", "--speed", "--min-time", "0", "b2h3q16k16d8", NULL });
    expect_shares(json_array_get(root, 0));
    json_decref(root);
}

/* A large product comes near to what only multiplying and adding gives. Twice as fast as that, or a
 * twentieth, would be a wrong count; what lies between is left to a machine that others use too. */
Test(bench, the_peak_is_near_a_product)
{
    json_t *root =
        time_one((const char *const[]){ "--json", "--speed", "gemm-m256n256k256", NULL });
    const double share = number(json_array_get(root, 0), "peak_share");
    cr_expect(share > 0.05 && share < 2, "%s: %s", tool_shown, tool_out);
    json_decref(root);
}

/* What one result becomes, in a buffer of its own. */
static const char *report_text(report_format format, const report_result *result)
{
    static char text[TOOL_TEXT_SIZE];
    FILE *const file = tmpfile();
    report *printed = file ? report_open(file, format, "device", "platform", 1) : NULL;
    cr_assert(printed && report_add(printed, result) && report_close(&printed));
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* Faster than the device can be is said in each format, and of a stage is no rate at all. */
Test(bench, faster_than_the_peak)
{
    const report_stage stage = { .stage = "attend", .what = "kernel", .ms = 1, .gflops = 101 };
    report_result result = {
        .problem = "w",
        .type = "t",
        .key_value_type = "t",
        .path = "-",
        .tiling = "-",
        .is_timed = true,
        .min_ms = 1,
        .median_ms = 1,
        .gflops = 100,
        .gbytes_per_s = 300,
        .has_peak = true,
        .peak_gflops = 100,
        .peak_gbytes_per_s = 200,
        .stages = &stage,
        .num_stages = 1,
    };
    for (int above = 0; above < 2; above++) {
        const char *const outcome = above ? "INVALID" : "unverified";
        result.gflops = 100 + above * 0.5;
        cr_expect_eq(report_is_invalid(&result), above);
        for (int format = REPORT_TABLE; format <= REPORT_JSON; format++) {
            const char *const text = report_text((report_format)format, &result);
            cr_expect(strstr(text, outcome), "format %d, above %d: %s", format, above, text);
            cr_expect(!strstr(text, "101"), "the stage's rate is printed: %s", text);
        }
    }
    result.has_peak = false;
    cr_expect(!report_is_invalid(&result));
    cr_expect(strstr(report_text(REPORT_TABLE, &result), "101"));
}

Test(bench, json_parses)
{
    for (int timed = 0; timed < 2; timed++) {
        tool_expect_code(
            timed ? RUN("mha-bench", "--json", "--min-time", "0", "b1h1q2k2d4", "layer-b1h2q2k2e8")
                  : RUN("mha-bench", "--json", "--verify", "b1h1q2k2d4", "layer-b1h2q2k2e8"),
            0);
        json_error_t error;
        json_t *root = json_loads(tool_out, 0, &error);
        cr_assert(json_is_array(root), "%s: line %d: %s: %s", tool_shown, error.line, error.text,
                  tool_out);
        cr_assert_eq(json_array_size(root), 2);
        expect_problem(json_array_get(root, 0), "b1h1q2k2d4", timed);
        expect_problem(json_array_get(root, 1), "layer-b1h2q2k2e8", timed);
        json_decref(root);
    }
}

/* Columns of a line of RFC 4180. */
static size_t count_columns(const char *line, size_t length)
{
    size_t columns = 1;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        quoted = quoted != (line[i] == '"');
        columns += line[i] == ',' && !quoted;
    }
    cr_expect(!quoted, "%s: an open quote: %.*s", tool_shown, (int)length, line);
    return columns;
}

Test(bench, csv_rows_fit_the_header)
{
    static const char *const modes[] = { "--verify", "--speed" };
    for (size_t mode = 0; mode < 2; mode++) {
        tool_expect_code(RUN("mha-bench", "--csv", modes[mode], "--min-time", "0", "b1h1q2k2d4",
                             "layer-b1h2q2k2e8"),
                         0);
        tool_expect_in(
            "stdout", tool_out,
            "problem,device,platform,type,key_value_type,path,tiling,"
            "min_ms,median_ms,gflops,peak_gflops,peak_share,gbytes_per_s,"
            "peak_gbytes_per_s,bandwidth_share,sentences_per_s,max_error,error_limit,outcome\n");
        size_t lines = 0, columns = 0;
        for (const char *line = tool_out; *line; lines++) {
            const size_t length = strcspn(line, "\n");
            const size_t found = count_columns(line, length);
            columns = columns ? columns : found;
            cr_expect_eq(found, columns, "%s: %zu columns, not %zu: %.*s", tool_shown, found,
                         columns, (int)length, line);
            line += length + (line[length] == '\n');
        }
        cr_expect_eq(lines, 3, "%s: %zu lines", tool_shown, lines);
        cr_expect_gt(columns, 5);
    }
}

Test(bench, no_peak_leaves_shares_out)
{
    tool_expect_code(RUN("mha-bench", "--json", "--no-peak", "--min-time", "0", "b1h1q2k2d4"), 0);
    json_t *root = json_loads(tool_out, 0, NULL);
    const json_t *problem = json_array_get(root, 0);
    cr_expect_gt(number(problem, "gflops"), 0);
    field(problem, "peak_gflops", JSON_NULL);
    field(problem, "peak_share", JSON_NULL);
    field(problem, "peak_gbytes_per_s", JSON_NULL);
    field(problem, "bandwidth_share", JSON_NULL);
    json_decref(root);
    tool_expect_code(RUN("mha-bench", "--no-peak", "--speed", "--min-time", "0", "b1h1q2k2d4"), 0);
    cr_expect(!strchr(tool_out, '%') && !strstr(tool_out, "at best"), "%s: %s", tool_shown,
              tool_out);
}

/* One problem that cannot be set up does not take the others with it, and is told apart. */
Test(bench, a_failing_problem_is_named)
{
    tool_expect_code(
        RUN("mha-bench", "--csv", "--verify", "b4h64q1000000k1000000d64", "b1h1q2k2d4"), 1);
    tool_expect_in("stdout", tool_out, "b4h64q1000000k1000000d64,");
    tool_expect_in("stdout", tool_out, "MHA_TOO_LARGE\n");
    tool_expect_in("stdout", tool_out, "ok\n");
    tool_expect_in("stderr", tool_err, "b4h64q1000000k1000000d64");
}

/* Caches, sequences end to end, dropout and scores go through the whole tool: verified by each path
 * that can, and timed. */
Test(bench, new_kinds_are_verified)
{
    static const char *const words[] = { "b2h4q1k9d4g2cb+1@r", "b1h2q2k9d4cbwl5+2R",
                                         "b2h2q5k7d4cbV", "b2h2q3k4d4D0.5", "b1h1q2k3d4z0" };
    tool_expect_code(RUN("mha-bench", "--csv", "--min-time", "0", words[0], words[1], words[2],
                         words[3], words[4]),
                     0);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        tool_expect_in("stdout", tool_out, words[i]);
    cr_expect(!strstr(tool_out, "WRONG"), "%s: %s", tool_shown, tool_out);
    cr_expect(!strstr(tool_err, "mha-bench: "), "%s: %s", tool_shown, tool_err);
    tool_expect_code(
        RUN("mha-bench", "--csv", "--verify", "--path", "composed", words[0], words[2], words[3]),
        0);
    tool_expect_in("stdout", tool_out, ",composed,-,");
    tool_expect_in("stdout", tool_out, ",skipped\n");
    tool_expect_in("stderr", tool_err, "it takes no offsets");
}

/* Each is verified, and one that is wrong would be told: the limit is far below what its activation
 * changes. */
static void expect_verified(const char *const words[4])
{
    tool_expect_code(RUN("mha-bench", "--json", "--verify", words[0], words[1], words[2], words[3]),
                     0);
    json_t *root = json_loads(tool_out, 0, NULL);
    cr_assert_eq(json_array_size(root), 4, "%s: %s", tool_shown, tool_out);
    for (size_t i = 0; i < 4; i++) {
        const json_t *problem = json_array_get(root, i);
        cr_expect_str_eq(json_string_value(field(problem, "outcome", JSON_STRING)), "ok", "%s",
                         words[i]);
        cr_expect_lt(number(problem, "error_limit"), 1e-4, "%s", words[i]);
    }
    json_decref(root);
}

Test(bench, encoder_layers_are_verified)
{
    expect_verified((const char *const[4]){ "encoder-b2h2q5e8f12BTl", "encoder-b2h2q5e8f12FrNc",
                                            "encoder-b1h4q5e8f12g2FtQGBe",
                                            "encoder-b1h2q5e8f12FsNQGp" });
}

Test(bench, decoder_layers_are_verified)
{
    expect_verified(
        (const char *const[4]){ "decoder-b2h2q5k7e8f12BTc", "decoder-b2h2q5k3e8f12FrNlcK",
                                "decoder-b1h4q5k9e8f12g2FtQGBe", "decoder-b2h2q1k70e8f12FsNQGB" });
}

/* The two attentions have stages of their own, whose names tell them apart. */
Test(bench, stages_of_a_decoder_layer)
{
    static const char *const names[] = {
        "project query, key, value",
        "attend",
        "project output",
        "norm",
        "cross project query",
        "cross project key",
        "cross project value",
        "cross attend",
        "cross project output",
        "norm",
        "feed-forward hidden",
        "feed-forward output",
        "norm",
    };
    const size_t count = sizeof names / sizeof names[0];
    tool_expect_code(RUN("mha-bench", "--json", "--no-peak", "--speed", "--min-time", "0", "--path",
                         "streaming", "decoder-b1h2q16k40e64f48BT"),
                     0);
    json_t *root = json_loads(tool_out, 0, NULL);
    const json_t *stages = field(json_array_get(root, 0), "stages", JSON_ARRAY);
    cr_assert_eq(json_array_size(stages), count, "%s", tool_out);
    for (size_t i = 0; i < count; i++)
        cr_expect_str_eq(json_string_value(json_object_get(json_array_get(stages, i), "stage")),
                         names[i]);
    json_decref(root);
}

/* What makes no sense together ends in a sentence, from the grammar or from the library. */
Test(bench, words_that_make_no_sense)
{
    static const struct {
        const char *word;
        int code;
        const char *said;
    } rows[] = {
        { "b1h1q1k8d4R", 2, "no \"+\" says that new keys join it" },
        { "layer-b1h1q1k8e4+1", 2, "for attentions only" },
        { "b1h1q1k8d4+1V", 1, "takes no offsets" },
        { "b1h1q1k8d4+9", 1, "do not fit the cache" },
        { "b1h1q1k8d4+1R", 1, "a ring needs" },
        { "b1h1q2k8d4cbwl7+2R", 1, "window_left + query_len" },
        { "b1h1q1k8d4cbwl3+1Rl", 1, "a ring takes no" },
        { "b1h1q2k8d4+1r", 1, "new_len" },
        { "b1h1q1k8d4+1r6", 1, "at most head_dim" },
        { "b1h1q1k8d4Vp", 1, "takes no offsets" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tool_expect_code(RUN("mha-bench", "--csv", "--verify", rows[i].word), rows[i].code);
        tool_expect_in("stderr", tool_err, rows[i].said);
    }
}

/* A gnuplot of the test's own, first on PATH. */
static void make_gnuplot(const char *script)
{
    char file[TOOL_PATH_SIZE], path[2 * TOOL_PATH_SIZE];
    tool_write(tool_path(file, "gnuplot"), script);
    cr_assert(!chmod(file, 0700));
    snprintf(path, sizeof path, "%s:%s", tool_folder, getenv("PATH"));
    setenv("PATH", path, 1);
}

/* What gnuplot is told: one curve of what differs in the length only, in each panel, both roofs. */
Test(bench, a_plot)
{
    char file[TOOL_PATH_SIZE], script[TOOL_TEXT_SIZE];
    make_gnuplot("#!/bin/sh\ncat >\"${0%/*}/script\"\n");
    tool_expect_code(RUN("mha-bench", "--plot", tool_path(file, "it's \"a\" plot.svg"),
                         "--min-time", "0", "--path", "streaming", "b1h2q16k16d4", "b1h2q8k8d4",
                         "b1h2q3k8d4c", "gemm-m4n5k6", "encoder-b1h2q8e4f6",
                         "decoder-b1h2q8k5e4f6"),
                     0);
    tool_read(tool_path(file, "script"), script);
    tool_expect_in("the script", script, "set terminal svg ");
    tool_expect_in("the script", script, "/it''s \"a\" plot.svg'\n");
    tool_expect_in("the script", script, "$curve0 << END\n8 ");
    tool_expect_in("the script", script, "\n16 ");
    for (const char *const *title =
             (const char *const[]){ "'b1h2d4 streaming'", "'b1h2q3d4c streaming'", "'gemm-n5k6'",
                                    "'encoder-b1h2e4f6 streaming'",
                                    "'decoder-b1h2k5e4f6 streaming'", NULL };
         *title; title++) {
        const char *const first = strstr(script, *title);
        cr_expect(first && strstr(first + 1, *title), "%s: %s is not in two panels: %s", tool_shown,
                  *title, script);
    }
    tool_expect_in("the script", script, "title 'memory: ");
    tool_expect_in("stdout", tool_out, "unverified");
}

/* Before anything is measured. */
Test(bench, a_plot_that_cannot_be)
{
    char file[TOOL_PATH_SIZE];
    make_gnuplot("#!/bin/sh\nexit 7\n");
    tool_expect_code(RUN("mha-bench", "--plot", tool_path(file, "none/a.svg"), "b1h1q2k2d4"), 1);
    tool_expect_in("stderr", tool_err, "No such file");
    tool_expect_nothing("stdout", tool_out);
    tool_expect_code(RUN("mha-bench", "--plot", "two\nlines.svg", "b1h1q2k2d4"), 1);
    tool_expect_in("stderr", tool_err, "a line end in the name");
    tool_expect_nothing("stdout", tool_out);
    setenv("PATH", tool_path(file, "nowhere"), 1);
    tool_expect_code(RUN("mha-bench", "--plot", tool_path(file, "a.svg"), "b1h1q2k2d4"), 1);
    tool_expect_in("stderr", tool_err, "gnuplot is not on PATH");
    tool_expect_in("stderr", tool_err, "tools/setup plot");
    tool_expect_nothing("stdout", tool_out);
}

/* One that ends early, with or without having read all. */
Test(bench, a_gnuplot_that_fails)
{
    char file[TOOL_PATH_SIZE];
    make_gnuplot("#!/bin/sh\nexit 7\n");
    tool_expect_code(
        RUN("mha-bench", "--plot", tool_path(file, "a.svg"), "--min-time", "0", "b1h1q2k2d4"), 1);
    tool_expect_in("stdout", tool_out, "b1h1q2k2d4");
    tool_expect_in("stderr", tool_err, "gnuplot ended with exit code 7");
}
