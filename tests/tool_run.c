/* The built tools as child processes, for the tests of them. */
#define _GNU_SOURCE
#include "tool_run.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    MOST_ARGS = 12
};

char tool_folder[TOOL_PATH_SIZE];
char tool_out[TOOL_TEXT_SIZE];
char tool_err[TOOL_TEXT_SIZE];
char tool_shown[TOOL_TEXT_SIZE];

void tool_make_folder(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(tool_folder, sizeof tool_folder, "%s/mha-tools-XXXXXX", parent ? parent : "/tmp");
    cr_assert(mkdtemp(tool_folder), "%s cannot be made", tool_folder);
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *place)
{
    (void)facts;
    (void)kind;
    (void)place;
    return remove(path);
}

void tool_remove_folder(void)
{
    nftw(tool_folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *tool_path(char path[TOOL_PATH_SIZE], const char *name)
{
    cr_assert_lt(snprintf(path, TOOL_PATH_SIZE, "%s/%s", tool_folder, name), TOOL_PATH_SIZE);
    return path;
}

void tool_read(const char *path, char text[TOOL_TEXT_SIZE])
{
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s cannot be read", path);
    text[fread(text, 1, TOOL_TEXT_SIZE - 1, file)] = '\0';
    fclose(file);
}

void tool_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    cr_assert(file && fputs(text, file) >= 0 && !fclose(file), "%s cannot be written", path);
}

int tool_run(const char *tool, const char *const *words)
{
    char program[TOOL_PATH_SIZE], out[TOOL_PATH_SIZE], err[TOOL_PATH_SIZE];
    snprintf(program, sizeof program, "%s%s", *tool == '/' ? "" : BUILD_DIR "/tools/", tool);
    char *argv[MOST_ARGS + 2] = { program };
    int used = snprintf(tool_shown, sizeof tool_shown, "%s", tool);
    for (int i = 0; words[i]; i++) {
        cr_assert_lt(i, MOST_ARGS);
        argv[i + 1] = (char *)(uintptr_t)words[i];
        used += snprintf(tool_shown + used, sizeof tool_shown - (size_t)used, " %s", words[i]);
    }
    /* tools/sanitize looks for leaks of the tools by themselves; here, a leak check that a driver's
     * threads bring down would read as a failure of the tool. */
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, tool_path(out, "stdout"),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, tool_path(err, "stderr"),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = 0;
    cr_assert(!posix_spawn(&child, program, &files, NULL, argv, environ), "%s: cannot be started",
              program);
    posix_spawn_file_actions_destroy(&files);
    int ended = 0;
    cr_assert_eq(waitpid(child, &ended, 0), child);
    tool_read(out, tool_out);
    tool_read(err, tool_err);
    cr_assert(WIFEXITED(ended), "%s: ended by signal %d, saying: %s", tool_shown, WTERMSIG(ended),
              tool_err);
    return WEXITSTATUS(ended);
}

void tool_expect_code(int got, int want)
{
    cr_expect_eq(got, want, "%s: exit code %d, not %d; stderr: %s", tool_shown, got, want,
                 tool_err);
}

void tool_expect_in(const char *stream, const char *text, const char *part)
{
    cr_expect(strstr(text, part), "%s: %s does not say \"%s\" but: %s", tool_shown, stream, part,
              text);
}

void tool_expect_nothing(const char *stream, const char *text)
{
    cr_expect(!text[0], "%s: %s says: %s", tool_shown, stream, text);
}

void tool_expect_last_line(const char *want)
{
    size_t end = strlen(tool_out);
    cr_expect(end && tool_out[end - 1] == '\n', "%s: stdout has no last line: %s", tool_shown,
              tool_out);
    end -= end > 0;
    size_t start = end;
    while (start && tool_out[start - 1] != '\n')
        start--;
    cr_expect(end - start == strlen(want) && !strncmp(tool_out + start, want, end - start),
              "%s: the last line is \"%.*s\", not \"%s\"", tool_shown, (int)(end - start),
              tool_out + start, want);
}
