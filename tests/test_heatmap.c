/* The picture of an attention: that gnuplot draws it whatever the labels hold, and that troubles
 * become sentences. */
#define _POSIX_C_SOURCE 200809L
#include "heatmap.h"
#include "scratch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(heatmap, .init = scratch_make, .fini = scratch_remove);

/* Stands in for gnuplot: keeps what it reads, and ends as it is told. */
static void put_gnuplot(int code)
{
    char script[1200];
    const int length = snprintf(script, sizeof script, "#!/bin/sh\ncat >'%s'\nexit %d\n",
                                scratch_path("commands"), code);
    scratch_write("gnuplot", script, (size_t)length);
    char command[600], path[1200];
    snprintf(command, sizeof command, "chmod +x '%s'", scratch_path("gnuplot"));
    cr_assert_eq(system(command), 0);
    snprintf(path, sizeof path, "%s:%s", scratch_folder(), getenv("PATH"));
    setenv("PATH", path, 1);
}

static const char *const labels[] = { "it's", "`touch x`\n!touch y", "##\"\\n" };
static const float weights[] = { 1, 0, 0, 0.5f, 0.5f, 0, 0.25f, 0.25f, 0.5f };
static const heatmap map = { "who attends", 3, labels, weights };

Test(heatmap, commands)
{
    char error[200] = "", commands[4096];
    put_gnuplot(0);
    cr_assert(heatmap_draw(&map, "it's.png", error, sizeof error), "%s", error);
    FILE *const file = fopen(scratch_path("commands"), "rb");
    cr_assert(file);
    commands[fread(commands, 1, sizeof commands - 1, file)] = '\0';
    fclose(file);
    /* In single quotes, which are doubled inside; a line end is a space. */
    cr_assert(strstr(commands, "\nset output 'it''s.png'\n"), "%s", commands);
    cr_assert(strstr(commands, "('it''s' 0,'`touch x` !touch y' 1,'##\"\\n' 2)"), "%s", commands);
    cr_assert(strstr(commands, "\n1 0 0\n0.5 0.5 0\n0.25 0.25 0.5\ne\n"), "%s", commands);
}

Test(heatmap, troubles)
{
    char error[200] = "";
    put_gnuplot(1);
    cr_assert(!heatmap_draw(&map, "a.png", error, sizeof error));
    cr_assert(strstr(error, "gnuplot could not draw"), "%s", error);
    cr_assert(!heatmap_draw(&map, "a\n!ls.png", error, sizeof error));
    cr_assert(strstr(error, "control character"), "%s", error);
    setenv("PATH", "/nowhere", 1);
    cr_assert(!heatmap_draw(&map, "a.png", error, sizeof error));
    cr_assert(strstr(error, "gnuplot is not installed"), "%s", error);
}

/* More than a pipe holds, to a gnuplot that does not read it. */
Test(heatmap, a_gnuplot_that_ends_early)
{
    enum {
        SIZE = 256
    };
    static const char *many[SIZE];
    static float zeros[SIZE * SIZE];
    char error[200] = "";
    for (int i = 0; i < SIZE; i++)
        many[i] = "token";
    put_gnuplot(0);
    scratch_write("gnuplot", "#!/bin/sh\nexit 3\n", 17);
    cr_assert(!heatmap_draw(&(heatmap){ "", SIZE, many, zeros }, "a.png", error, sizeof error));
    cr_assert(strstr(error, "gnuplot could not draw"), "%s", error);
}
