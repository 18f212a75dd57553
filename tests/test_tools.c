/* The built tools as a user meets them: child processes, their exit codes and what they print. The
 * tests here make no OpenCL call of their own, so that starting a child is safe. */
#define _GNU_SOURCE

#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    MOST_ARGS = 8,
    MOST_TEXT = 1 << 16,
    PATH_SIZE = 512
};

static const char *const tools[] = { "mha-bench", "mha-check" };

static char folder[PATH_SIZE];       /* a new one for each test */
static char out_text[MOST_TEXT + 1]; /* what the last tool printed */
static char err_text[MOST_TEXT + 1];
static char shown[MOST_TEXT]; /* the last tool and its words, for messages */

static void make_folder(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/mha-tools-XXXXXX", parent ? parent : "/tmp");
    cr_assert(mkdtemp(folder), "%s cannot be made", folder);
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *place)
{
    (void)facts;
    (void)kind;
    (void)place;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(tools, .init = make_folder, .fini = remove_folder, .timeout = 120);

/* A path below the test's folder, in a buffer of the caller's. */
static const char *below(char path[PATH_SIZE], const char *name)
{
    cr_assert_lt(snprintf(path, PATH_SIZE, "%s/%s", folder, name), PATH_SIZE);
    return path;
}

static void read_text(const char *path, char text[MOST_TEXT + 1])
{
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s cannot be read", path);
    text[fread(text, 1, MOST_TEXT, file)] = '\0';
    fclose(file);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    cr_assert(file && fputs(text, file) >= 0 && !fclose(file), "%s cannot be written", path);
}

/* Runs a tool with the words up to NULL; its output is in out_text and err_text. Returns its exit
 * code; a signal fails the test. */
static int run(const char *tool, const char *const *words)
{
    char program[PATH_SIZE], out[PATH_SIZE], err[PATH_SIZE];
    snprintf(program, sizeof program, "%s/tools/%s", BUILD_DIR, tool);
    char *argv[MOST_ARGS + 2] = { program };
    int used = snprintf(shown, sizeof shown, "%s", tool);
    for (int i = 0; words[i]; i++) {
        cr_assert_lt(i, MOST_ARGS);
        argv[i + 1] = (char *)(uintptr_t)words[i];
        used += snprintf(shown + used, sizeof shown - (size_t)used, " %s", words[i]);
    }
    /* tools/sanitize looks for leaks of the tools by themselves; here, a leak check that a driver's
     * threads bring down would read as a failure of the tool. */
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, below(out, "stdout"),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, below(err, "stderr"),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = 0;
    cr_assert(!posix_spawn(&child, program, &files, NULL, argv, environ), "%s: cannot be started",
              program);
    posix_spawn_file_actions_destroy(&files);
    int ended = 0;
    cr_assert_eq(waitpid(child, &ended, 0), child);
    read_text(out, out_text);
    read_text(err, err_text);
    cr_assert(WIFEXITED(ended), "%s: ended by signal %d, saying: %s", shown, WTERMSIG(ended),
              err_text);
    return WEXITSTATUS(ended);
}

#define RUN(tool, ...) run(tool, (const char *const[]){ __VA_ARGS__, NULL })

static void expect_code(int got, int want)
{
    cr_expect_eq(got, want, "%s: exit code %d, not %d; stderr: %s", shown, got, want, err_text);
}

static void expect_in(const char *stream, const char *text, const char *part)
{
    cr_expect(strstr(text, part), "%s: %s does not say \"%s\" but: %s", shown, stream, part, text);
}

static void expect_nothing(const char *stream, const char *text)
{
    cr_expect(!text[0], "%s: %s says: %s", shown, stream, text);
}

/* The last line of stdout, without its end. */
static void expect_last_line(const char *want)
{
    size_t end = strlen(out_text);
    cr_expect(end && out_text[end - 1] == '\n', "%s: stdout has no last line: %s", shown, out_text);
    end -= end > 0;
    size_t start = end;
    while (start && out_text[start - 1] != '\n')
        start--;
    cr_expect(end - start == strlen(want) && !strncmp(out_text + start, want, end - start),
              "%s: the last line is \"%.*s\", not \"%s\"", shown, (int)(end - start),
              out_text + start, want);
}

/* Procedure h47: the cause and where drivers are looked for, no table, no signal. The loader is
 * named in the log, since ocl-icd and Khronos's read OCL_ICD_VENDORS in different ways. */
Test(tools, no_platform)
{
    const bool is_ocl_icd = dlsym(RTLD_DEFAULT, "clGetICDLoaderInfoOCLICD");
    cr_log_info("the OpenCL loader is %s", is_ocl_icd ? "ocl-icd" : "not ocl-icd");
    static const char *const ends[] = { "", "/" };
    char vendors[PATH_SIZE], value[PATH_SIZE + 1];
    cr_assert(!mkdir(below(vendors, "vendors"), 0700));
    for (size_t i = 0; i < 2; i++) {
        for (size_t end = 0; end < 2; end++) {
            snprintf(value, sizeof value, "%s%s", vendors, ends[end]);
            setenv("OCL_ICD_VENDORS", value, 1);
            const int code = i ? RUN(tools[i], TESTS_DIR "/cases/seed/seed_base")
                               : RUN(tools[i], "b1h1q2k2d4", "--csv");
            cr_expect(code != 0, "%s: exit code 0 with OCL_ICD_VENDORS=%s", shown, value);
            expect_in("stderr", err_text, "no OpenCL platform found");
            expect_in("stderr", err_text, "/etc/OpenCL/vendors");
            expect_in("stderr", err_text, "OCL_ICD_VENDORS");
            expect_nothing("stdout", out_text);
            expect_code(RUN(tools[i], "--list-devices"), 1);
            expect_in("stderr", err_text, "no OpenCL platform found");
            expect_nothing("stdout", out_text);
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
        { "mha-check", { "--nonsense", "." }, "nonsense" },
        { "mha-check", { "--device" }, "device" },
        { "mha-check", { "--gemm", "nobody", "." }, "nobody" },
        { "mha-check", { "--path", "", "." }, "--path" },
        { "mha-check", { "--tiling", "", "." }, "--tiling" },
        { "mha-check", { NULL }, "no DIR is given" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_code(run(rows[i].tool, rows[i].words), 2);
        expect_in("stderr", err_text, rows[i].said);
        expect_in("stderr", err_text, "usage: ");
        expect_in("stderr", err_text, rows[i].tool);
        expect_nothing("stdout", out_text);
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
        expect_code(RUN("mha-bench", "b1h1q2k2d4", words[i]), 2);
        expect_in("stderr", err_text, "usage: mha-bench");
        expect_in("stderr", err_text, "mha-bench: ");
        expect_nothing("stdout", out_text);
    }
}

Test(tools, help_version_and_devices)
{
    for (size_t i = 0; i < 2; i++) {
        expect_code(RUN(tools[i], "--help"), 0);
        expect_nothing("stderr", err_text);
        expect_in("stdout", out_text, "usage: ");
        for (const char *const *name =
                 (const char *const[]){ "--device", "--list-devices", "--path", "--tiling",
                                        "--gemm", "--verbose", NULL };
             *name; name++)
            expect_in("stdout", out_text, *name);
        expect_code(RUN(tools[i], "--version"), 0);
        expect_nothing("stderr", err_text);
        expect_in("stdout", out_text, tools[i]);
        expect_in("stdout", out_text, "libmha");
        expect_code(RUN(tools[i], "--list-devices"), 0);
        expect_nothing("stderr", err_text);
        expect_in("stdout", out_text, "* ");
        expect_in("stdout", out_text, "0:0");
    }
}

static const json_t *field(const json_t *object, const char *name, json_type type)
{
    const json_t *value = json_object_get(object, name);
    cr_expect(value && json_typeof(value) == type, "%s: \"%s\" is missing or of another type: %s",
              shown, name, out_text);
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
    field(problem, "gbytes_per_s", number);
    field(problem, "max_error", JSON_REAL);
    field(problem, "error_limit", JSON_REAL);
    const json_t *stages = field(problem, "stages", JSON_ARRAY);
    cr_expect(!timed == !json_array_size(stages), "%s: stages: %s", shown, out_text);
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *stage = json_array_get(stages, i);
        field(stage, "stage", JSON_STRING);
        field(stage, "what", JSON_STRING);
        cr_expect_geq(json_real_value(field(stage, "ms", JSON_REAL)), 0);
    }
}

Test(tools, json_parses)
{
    for (int timed = 0; timed < 2; timed++) {
        expect_code(
            timed ? RUN("mha-bench", "--json", "--min-time", "0", "b1h1q2k2d4", "layer-b1h2q2k2e8")
                  : RUN("mha-bench", "--json", "--verify", "b1h1q2k2d4", "layer-b1h2q2k2e8"),
            0);
        json_error_t error;
        json_t *root = json_loads(out_text, 0, &error);
        cr_assert(json_is_array(root), "%s: line %d: %s: %s", shown, error.line, error.text,
                  out_text);
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
    cr_expect(!quoted, "%s: an open quote: %.*s", shown, (int)length, line);
    return columns;
}

Test(tools, csv_rows_fit_the_header)
{
    static const char *const modes[] = { "--verify", "--speed" };
    for (size_t mode = 0; mode < 2; mode++) {
        expect_code(RUN("mha-bench", "--csv", modes[mode], "--min-time", "0", "b1h1q2k2d4",
                        "layer-b1h2q2k2e8"),
                    0);
        expect_in("stdout", out_text, "problem,device,platform,type,key_value_type,path,tiling,");
        size_t lines = 0, columns = 0;
        for (const char *line = out_text; *line; lines++) {
            const size_t length = strcspn(line, "\n");
            const size_t found = count_columns(line, length);
            columns = columns ? columns : found;
            cr_expect_eq(found, columns, "%s: %zu columns, not %zu: %.*s", shown, found, columns,
                         (int)length, line);
            line += length + (line[length] == '\n');
        }
        cr_expect_eq(lines, 3, "%s: %zu lines", shown, lines);
        cr_expect_gt(columns, 5);
    }
}

/* One problem that cannot be set up does not take the others with it, and is told apart. */
Test(tools, a_failing_problem_is_named)
{
    expect_code(RUN("mha-bench", "--csv", "--verify", "b4h64q1000000k1000000d64", "b1h1q2k2d4"), 1);
    expect_in("stdout", out_text, "b4h64q1000000k1000000d64,");
    expect_in("stdout", out_text, "MHA_TOO_LARGE\n");
    expect_in("stdout", out_text, "ok\n");
    expect_in("stderr", err_text, "b4h64q1000000k1000000d64");
}

/* Caches, sequences end to end, dropout and scores go through the whole tool: verified by each path
 * that can, and timed. */
Test(tools, new_kinds_are_verified)
{
    static const char *const words[] = { "b2h4q1k9d4g2cb+1@r", "b1h2q2k9d4cbwl5+2R",
                                         "b2h2q5k7d4cbV", "b2h2q3k4d4D0.5", "b1h1q2k3d4z0" };
    expect_code(RUN("mha-bench", "--csv", "--min-time", "0", words[0], words[1], words[2], words[3],
                    words[4]),
                0);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        expect_in("stdout", out_text, words[i]);
    cr_expect(!strstr(out_text, "WRONG"), "%s: %s", shown, out_text);
    cr_expect(!strstr(err_text, "mha-bench: "), "%s: %s", shown, err_text);
    expect_code(
        RUN("mha-bench", "--csv", "--verify", "--path", "composed", words[0], words[2], words[3]),
        0);
    expect_in("stdout", out_text, ",composed,-,");
    expect_in("stdout", out_text, ",skipped\n");
    expect_in("stderr", err_text, "it takes no offsets");
}

/* What makes no sense together ends in a sentence, from the grammar or from the library. */
Test(tools, words_that_make_no_sense)
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
        expect_code(RUN("mha-bench", "--csv", "--verify", rows[i].word), rows[i].code);
        expect_in("stderr", err_text, rows[i].said);
    }
}

/* What the path that was asked for cannot do is skipped, and the reason printed. */
Test(tools, a_path_that_cannot)
{
    static const char why[] = "it never stores the scores";
    expect_code(RUN("mha-bench", "--csv", "--verify", "--path", "streaming", "--tiling", "cpu",
                    "b1h1q2k2d4p", "b1h1q2k2d4ntbf16"),
                0);
    expect_in("stdout", out_text, "b1h1q2k2d4p,");
    expect_in("stdout", out_text, ",skipped\n");
    expect_in("stdout", out_text, ",bfloat16,bfloat16,streaming,cpu,");
    expect_in("stdout", out_text, ",ok\n");
    expect_in("stderr", err_text, why);
    expect_code(RUN("mha-check", "--path", "streaming", TESTS_DIR "/cases/seed/seed_base",
                    TESTS_DIR "/cases/regress/h36_head_dim_20_keys_65"),
                0);
    expect_in("stdout", out_text, why);
    expect_last_line("1 passed, 0 failed, 1 skipped");
    expect_code(RUN("mha-check", "--path", "composed", TESTS_DIR "/cases/seed/seed_base"), 0);
    expect_last_line("1 passed, 0 failed, 0 skipped");
}

Test(tools, an_unknown_device_is_named)
{
    for (size_t i = 0; i < 2; i++) {
        expect_code(i ? RUN(tools[i], "--device", "no such device", TESTS_DIR "/cases/seed")
                      : RUN(tools[i], "--device", "no such device"),
                    1);
        expect_in("stderr", err_text, "no such device");
        expect_in("stderr", err_text, "--list-devices");
        expect_nothing("stdout", out_text);
    }
}

Test(tools, an_empty_folder_is_a_failure)
{
    expect_code(RUN("mha-check", folder), 1);
    expect_in("stderr", err_text, "no case was found");
    expect_last_line("0 passed, 0 failed, 0 skipped");
    char missing[PATH_SIZE];
    expect_code(RUN("mha-check", below(missing, "missing")), 1);
    expect_in("stderr", err_text, missing);
}

Test(tools, good_cases_pass)
{
    expect_code(RUN("mha-check", TESTS_DIR "/cases/seed/seed_base",
                    TESTS_DIR "/cases/regress/h35_head_dim_33_keys_17"),
                0);
    expect_last_line("2 passed, 0 failed, 0 skipped");
    expect_code(RUN("mha-check", "--only", "no_case_has_this_name", TESTS_DIR "/cases/seed"), 1);
    expect_last_line("0 passed, 0 failed, 0 skipped");
    expect_code(RUN("mha-check", "--report", "--verbose", TESTS_DIR "/cases/seed/seed_base"), 0);
    expect_in("stdout", out_text, "pass  seed_base");
    expect_in("stdout", out_text, "driver");
    expect_last_line("1 passed, 0 failed, 0 skipped");
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
    char file[PATH_SIZE];
    below(file, "case.txt");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_text(file, rows[i].text);
        expect_code(RUN("mha-check", folder), 1);
        expect_in("stdout", out_text, "FAIL  ");
        expect_in("stdout", out_text, rows[i].said);
        expect_last_line("0 passed, 1 failed, 0 skipped");
    }
}

/* Copies a file into the test's folder; `last` is written over its last four bytes if given. */
static void copy_file(const char *from, const char *name, const float *last)
{
    char source[PATH_SIZE], target[PATH_SIZE];
    snprintf(source, sizeof source, "%s/%s", from, name);
    FILE *in = fopen(source, "rb");
    FILE *out = fopen(below(target, name), "wb");
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
        expect_code(RUN("mha-check", folder), wrong);
        expect_last_line(wrong ? "0 passed, 1 failed, 0 skipped" : "1 passed, 0 failed, 0 skipped");
    }
    expect_in("stdout", out_text, "FAIL  h36_head_dim_20_keys_65: sdpa_fwd: ");
    expect_in("stdout", out_text, "[0,2,8,19]");
    expect_in("stdout", out_text, "off by 1e+03");
    expect_in("stdout", out_text, "times the tolerance");
}
