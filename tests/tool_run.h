/* The built tools as child processes: how a test starts one, and what it expects of it. */
#ifndef MHA_TESTS_TOOL_RUN_H
#define MHA_TESTS_TOOL_RUN_H

enum {
    TOOL_PATH_SIZE = 512,
    TOOL_TEXT_SIZE = (1 << 16) + 1
};

extern char tool_folder[TOOL_PATH_SIZE]; /* a new one for each test */
extern char tool_out[TOOL_TEXT_SIZE];    /* what the last tool printed */
extern char tool_err[TOOL_TEXT_SIZE];
extern char tool_shown[TOOL_TEXT_SIZE]; /* the last tool and its words, for messages */

/* Before and after each test. */
void tool_make_folder(void);
void tool_remove_folder(void);

/* A path below the test's folder, in a buffer of the caller's. */
const char *tool_path(char path[TOOL_PATH_SIZE], const char *name);

void tool_read(const char *path, char text[TOOL_TEXT_SIZE]);
void tool_write(const char *path, const char *text);

/* Runs a tool, or the program of an absolute path, with the words up to NULL; its output is in
 * tool_out and tool_err. Returns its exit code; a signal fails the test. */
int tool_run(const char *tool, const char *const *words);

#define RUN(tool, ...) tool_run(tool, (const char *const[]){ __VA_ARGS__, NULL })

void tool_expect_code(int got, int want);
void tool_expect_in(const char *stream, const char *text, const char *part);
void tool_expect_nothing(const char *stream, const char *text);

/* The last line of stdout, without its end. */
void tool_expect_last_line(const char *want);

#endif
