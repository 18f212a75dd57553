/* The built tools as a user meets them: child processes, their exit codes and what they print. The
 * tests here make no OpenCL call of their own, so that starting a child is safe. */
#define _GNU_SOURCE
#include "tool_run.h"

#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const tools[] = { "mha-bench", "mha-check" };

TestSuite(tools, .init = tool_make_folder, .fini = tool_remove_folder, .timeout = 300);

/* Procedure h47: the cause and where drivers are looked for, no table, no signal. The loader is
 * named in the log, since ocl-icd and Khronos's read OCL_ICD_VENDORS in different ways. */
Test(tools, no_platform)
{
    const bool is_ocl_icd = dlsym(RTLD_DEFAULT, "clGetICDLoaderInfoOCLICD");
    cr_log_info("the OpenCL loader is %s", is_ocl_icd ? "ocl-icd" : "not ocl-icd");
    static const char *const ends[] = { "", "/" };
    char vendors[TOOL_PATH_SIZE], value[TOOL_PATH_SIZE + 1];
    cr_assert(!mkdir(tool_path(vendors, "vendors"), 0700));
    for (size_t i = 0; i < 2; i++) {
        for (size_t end = 0; end < 2; end++) {
            snprintf(value, sizeof value, "%s%s", vendors, ends[end]);
            setenv("OCL_ICD_VENDORS", value, 1);
            const int code = i ? RUN(tools[i], TESTS_DIR "/cases/seed/seed_base")
                               : RUN(tools[i], "b1h1q2k2d4", "--csv");
            cr_expect(code != 0, "%s: exit code 0 with OCL_ICD_VENDORS=%s", tool_shown, value);
            tool_expect_in("stderr", tool_err, "no OpenCL platform found");
            tool_expect_in("stderr", tool_err, "/etc/OpenCL/vendors");
            tool_expect_in("stderr", tool_err, "OCL_ICD_VENDORS");
            tool_expect_nothing("stdout", tool_out);
            tool_expect_code(RUN(tools[i], "--list-devices"), 1);
            tool_expect_in("stderr", tool_err, "no OpenCL platform found");
            tool_expect_nothing("stdout", tool_out);
        }
    }
}

Test(tools, bad_options_show_the_usage)
{
    static const struct {
        const char *tool;
        const char *words[4];
        const char *said;
    } rows[] = {
        { "mha-bench", { "--nonsense" }, "nonsense" },
        { "mha-bench", { "-x" }, "x" },
        { "mha-bench", { "--device" }, "device" },
        { "mha-bench", { "--gemm", "nobody" }, "nobody" },
        { "mha-bench", { "--gemm", "" }, "--gemm" },
        { "mha-bench", { "--path", "secret" }, "secret" },
        { "mha-bench", { "--tiling", "fpga" }, "fpga" },
        { "mha-bench", { "--projection", "nobody" }, "nobody" },
        { "mha-bench", { "--min-time", "soon" }, "soon" },
        { "mha-bench", { "--min-time", "-1" }, "-1" },
        { "mha-bench", { "--min-time", "nan" }, "nan" },
        { "mha-bench", { "--min-time", "" }, "--min-time" },
        { "mha-bench", { "--runs", "0" }, "--runs 0" },
        { "mha-bench", { "--runs", "9x" }, "9x" },
        { "mha-bench", { "--runs", "99999999999999999999" }, "99999999999999999999" },
        { "mha-bench", { "--seed", "-1" }, "-1" },
        { "mha-bench", { "--seed", "1x" }, "1x" },
        { "mha-bench", { "--seed", "99999999999999999999" }, "99999999999999999999" },
        { "mha-bench", { "--json=yes", "b1h1q2k2d4" }, "json" },
        { "mha-bench", { "--plot" }, "plot" },
        { "mha-bench", { "--plot", "a.gif" }, ".png, .svg or .pdf" },
        { "mha-bench", { "--plot", ".svg" }, ".png, .svg or .pdf" },
        { "mha-bench", { "--plot", "a.svg", "--verify" }, "not with --verify alone" },
        { "mha-bench", { "--plot", "a.svg", "--no-peak" }, "not with --no-peak" },
        { "mha-check", { "--nonsense", "." }, "nonsense" },
        { "mha-check", { "--device" }, "device" },
        { "mha-check", { "--gemm", "nobody", "." }, "nobody" },
        { "mha-check", { "--path", "", "." }, "--path" },
        { "mha-check", { "--tiling", "", "." }, "--tiling" },
        { "mha-check", { "--model" }, "model" },
        { "mha-check", { NULL }, "no DIR is given" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tool_expect_code(tool_run(rows[i].tool, rows[i].words), 2);
        tool_expect_in("stderr", tool_err, rows[i].said);
        tool_expect_in("stderr", tool_err, "usage: ");
        tool_expect_in("stderr", tool_err, rows[i].tool);
        tool_expect_nothing("stdout", tool_out);
    }
}

/* Also when a good word comes first: nothing is measured before all words are read. */
Test(tools, bad_words_show_the_usage)
{
    static const char *const words[] = {
        "",           "hello",       "b1",
        "b1h1q2k2",   "b1h1q2k2d4?", "b1h1q2k2d4cc",
        "b1h0q2k2d4", "layer-b1h1",  "b99999999999999999999h1q1k1d1"
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        tool_expect_code(RUN("mha-bench", "b1h1q2k2d4", words[i]), 2);
        tool_expect_in("stderr", tool_err, "usage: mha-bench");
        tool_expect_in("stderr", tool_err, "mha-bench: ");
        tool_expect_nothing("stdout", tool_out);
    }
}

Test(tools, help_version_and_devices)
{
    for (size_t i = 0; i < 2; i++) {
        tool_expect_code(RUN(tools[i], "--help"), 0);
        tool_expect_nothing("stderr", tool_err);
        tool_expect_in("stdout", tool_out, "usage: ");
        for (const char *const *name =
                 (const char *const[]){ "--device", "--list-devices", "--cache", "--path",
                                        "--tiling", "--gemm", "--verbose", NULL };
             *name; name++)
            tool_expect_in("stdout", tool_out, *name);
        tool_expect_code(RUN(tools[i], "--version"), 0);
        tool_expect_nothing("stderr", tool_err);
        tool_expect_in("stdout", tool_out, tools[i]);
        tool_expect_in("stdout", tool_out, "libmha");
        tool_expect_code(RUN(tools[i], "--list-devices"), 0);
        tool_expect_nothing("stderr", tool_err);
        tool_expect_in("stdout", tool_out, "* ");
        tool_expect_in("stdout", tool_out, "0:0");
    }
}

static bool is_filled(const char *folder)
{
    return rmdir(folder) && errno == ENOTEMPTY;
}

/* Compiled kernels go nowhere, to the folder that is named, or to the user's. */
Test(tools, the_cache_folder_is_chosen)
{
    for (size_t i = 0; i < 2; i++) {
        const char *const what = i ? TESTS_DIR "/cases/seed/seed_base" : "b1h1q2k2d4";
        char users[TOOL_PATH_SIZE], kept[TOOL_PATH_SIZE], named[TOOL_PATH_SIZE];
        setenv("XDG_CACHE_HOME", tool_path(users, i ? "check" : "bench"), 1);
        tool_path(kept, i ? "check/libmha" : "bench/libmha");
        tool_path(named, i ? "named by check" : "named by bench");
        tool_expect_code(RUN(tools[i], "--cache", "", what), 0);
        tool_expect_code(RUN(tools[i], "--cache", named, what), 0);
        cr_expect(is_filled(named), "%s: nothing in %s", tool_shown, named);
        cr_expect(access(kept, F_OK), "%s: %s is made", tool_shown, kept);
        tool_expect_code(RUN(tools[i], what), 0);
        cr_expect(is_filled(kept), "%s: nothing in %s", tool_shown, kept);
    }
}

/* What the path that was asked for cannot do is skipped, and the reason printed. */
Test(tools, a_path_that_cannot)
{
    static const char why[] = "it never stores the scores";
    tool_expect_code(RUN("mha-bench", "--csv", "--verify", "--path", "streaming", "--tiling", "cpu",
                         "b1h1q2k2d4p", "b1h1q2k2d4ntbf16"),
                     0);
    tool_expect_in("stdout", tool_out, "b1h1q2k2d4p,");
    tool_expect_in("stdout", tool_out, ",skipped\n");
    tool_expect_in("stdout", tool_out, ",bfloat16,bfloat16,streaming,cpu,");
    tool_expect_in("stdout", tool_out, ",ok\n");
    tool_expect_in("stderr", tool_err, why);
    tool_expect_code(RUN("mha-check", "--path", "streaming", TESTS_DIR "/cases/seed/seed_base",
                         TESTS_DIR "/cases/regress/h36_head_dim_20_keys_65"),
                     0);
    tool_expect_in("stdout", tool_out, why);
    tool_expect_last_line("1 passed, 0 failed, 1 skipped");
    tool_expect_code(RUN("mha-check", "--path", "composed", TESTS_DIR "/cases/seed/seed_base"), 0);
    tool_expect_last_line("1 passed, 0 failed, 0 skipped");
}

Test(tools, an_unknown_device_is_named)
{
    for (size_t i = 0; i < 2; i++) {
        tool_expect_code(i ? RUN(tools[i], "--device", "no such device", TESTS_DIR "/cases/seed")
                           : RUN(tools[i], "--device", "no such device"),
                         1);
        tool_expect_in("stderr", tool_err, "no such device");
        tool_expect_in("stderr", tool_err, "--list-devices");
        tool_expect_nothing("stdout", tool_out);
    }
}

Test(tools, an_empty_folder_is_a_failure)
{
    tool_expect_code(RUN("mha-check", tool_folder), 1);
    tool_expect_in("stderr", tool_err, "no case was found");
    tool_expect_last_line("0 passed, 0 failed, 0 skipped");
    char missing[TOOL_PATH_SIZE];
    tool_expect_code(RUN("mha-check", tool_path(missing, "missing")), 1);
    tool_expect_in("stderr", tool_err, missing);
}

Test(tools, good_cases_pass)
{
    tool_expect_code(RUN("mha-check", TESTS_DIR "/cases/seed/seed_base",
                         TESTS_DIR "/cases/regress/h35_head_dim_33_keys_17"),
                     0);
    tool_expect_last_line("2 passed, 0 failed, 0 skipped");
    tool_expect_code(RUN("mha-check", "--only", "no_case_has_this_name", TESTS_DIR "/cases/seed"),
                     1);
    tool_expect_last_line("0 passed, 0 failed, 0 skipped");
    tool_expect_code(RUN("mha-check", "--report", "--verbose", TESTS_DIR "/cases/seed/seed_base"),
                     0);
    tool_expect_in("stdout", tool_out, "pass  seed_base");
    tool_expect_in("stdout", tool_out, "driver");
    tool_expect_last_line("1 passed, 0 failed, 0 skipped");
}

Test(tools, broken_cases_are_failures)
{
    static const struct {
        const char *text;
        const char *said;
    } rows[] = {
        { "", "case.txt" },
        { "format = attncase/2\n", "format" },
        { "hello\n", ":1:" },
        { "format = attncase/1\nname = x\nop = sdpa_fwd\nexpect = ok\ninputs = 1\n"
          "input.0 = q float32 2x2 missing.npy\noutputs = 0\n",
          "missing.npy" },
        { "format = attncase/1\nname = x\nop = sdpa_fwd\nexpect = ok\ninputs = 0\noutputs = 0\n",
          "x" },
    };
    char file[TOOL_PATH_SIZE];
    tool_path(file, "case.txt");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tool_write(file, rows[i].text);
        tool_expect_code(RUN("mha-check", tool_folder), 1);
        tool_expect_in("stdout", tool_out, "FAIL  ");
        tool_expect_in("stdout", tool_out, rows[i].said);
        tool_expect_last_line("0 passed, 1 failed, 0 skipped");
    }
}

/* Copies a file into the test's folder; `last` is written over its last four bytes if given. */
static void copy_file(const char *from, const char *name, const float *last)
{
    char source[TOOL_PATH_SIZE], target[TOOL_PATH_SIZE];
    snprintf(source, sizeof source, "%s/%s", from, name);
    FILE *in = fopen(source, "rb");
    FILE *out = fopen(tool_path(target, name), "wb");
    cr_assert(in && out, "%s to %s", source, target);
    for (int byte; (byte = fgetc(in)) != EOF;)
        fputc(byte, out);
    if (last)
        cr_assert(!fseek(out, -(long)sizeof *last, SEEK_END) &&
                  fwrite(last, sizeof *last, 1, out) == 1);
    fclose(in);
    cr_assert(!fclose(out));
}

/* A wanted value that is wrong must be found, whatever the rest says. */
Test(tools, a_wrong_value_is_reported)
{
    static const char from[] = TESTS_DIR "/cases/regress/h36_head_dim_20_keys_65";
    static const char *const names[] = { "case.txt", "q.npy", "k.npy", "v.npy", "want_lse.npy" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        copy_file(from, names[i], NULL);
    for (int wrong = 0; wrong < 2; wrong++) {
        copy_file(from, "want_o.npy", wrong ? &(const float){ 1000 } : NULL);
        tool_expect_code(RUN("mha-check", tool_folder), wrong);
        tool_expect_last_line(wrong ? "0 passed, 1 failed, 0 skipped"
                                    : "1 passed, 0 failed, 0 skipped");
    }
    tool_expect_in("stdout", tool_out, "FAIL  h36_head_dim_20_keys_65: sdpa_fwd: ");
    tool_expect_in("stdout", tool_out, "[0,2,8,19]");
    tool_expect_in("stdout", tool_out, "off by 1e+03");
    tool_expect_in("stdout", tool_out, "times the tolerance");
}
