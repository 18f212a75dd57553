/* Draws by a gnuplot that reads commands and numbers from a pipe. */
#define _POSIX_C_SOURCE 200809L
#include "heatmap.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* Exit code 127 and no word of the shell's where there is no gnuplot. */
static const char command[] =
    "command -v gnuplot >/dev/null || exit 127; exec gnuplot - >/dev/null";

/* In single quotes gnuplot expands nothing, and two of them are one; a line end, which would end
 * the command, becomes a space as other control characters do. */
static void write_quoted(FILE *out, const char *text)
{
    putc('\'', out);
    for (; *text; text++) {
        if (*text == '\'')
            putc('\'', out);
        putc(iscntrl((unsigned char)*text) ? ' ' : *text, out);
    }
    putc('\'', out);
}

static void write_labels(FILE *out, char axis, const heatmap *self)
{
    fprintf(out, "set %ctics %s(", axis, axis == 'x' ? "rotate by 90 right " : "");
    for (size_t i = 0; i < self->size; i++) {
        if (i)
            putc(',', out);
        write_quoted(out, self->labels[i]);
        fprintf(out, " %zu", i);
    }
    fputs(") noenhanced\n", out);
}

/* In pixels: a cell holds a line of text; a label of 20 letters, the title, and the scale of the
 * colours have room around the cells. */
enum {
    CELL = 18,
    LABELS = 170,
    TITLE = 40,
    SCALE = 90
};

/* Where the cells lie in the picture, by fractions of it. */
static void write_place(FILE *out, double side)
{
    const double width = LABELS + side + SCALE, height = LABELS + side + TITLE;
    fprintf(out, "set lmargin at screen %.6f\nset rmargin at screen %.6f\n", LABELS / width,
            (LABELS + side) / width);
    fprintf(out, "set bmargin at screen %.6f\nset tmargin at screen %.6f\n", LABELS / height,
            (LABELS + side) / height);
}

static void write_commands(FILE *out, const heatmap *self, const char *path)
{
    const size_t side = CELL * self->size < 360 ? 360 : CELL * self->size;
    fprintf(out, "set terminal pngcairo noenhanced size %zu,%zu\nset output ",
            side + LABELS + SCALE, side + LABELS + TITLE);
    fputs(path[0] == '|' ? "'./'." : "", out); /* else a command of the shell's */
    write_quoted(out, path);
    fputs("\nset title ", out);
    write_quoted(out, self->title);
    fputs(" noenhanced\nset tics scale 0\nunset key\n", out);
    write_place(out, (double)side);
    write_labels(out, 'x', self);
    write_labels(out, 'y', self);
    fprintf(out, "set xrange [-0.5:%zu.5]\nset yrange [%zu.5:-0.5]\nset cbrange [0:*]\n",
            self->size - 1, self->size - 1);
    fputs("set palette defined (0 'white', 1 'dark-blue')\nplot '-' matrix with image\n", out);
    for (size_t row = 0; row < self->size; row++)
        for (size_t column = 0; column < self->size; column++)
            fprintf(out, column + 1 < self->size ? "%.6g " : "%.6g\n",
                    (double)self->weights[row * self->size + column]);
    fputs("e\n", out);
}

/* A gnuplot that ends early must not end the program by a signal. */
static int draw_by(const heatmap *self, const char *path)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
    sigemptyset(&ignore.sa_mask);
    sigaction(SIGPIPE, &ignore, &before);
    FILE *const gnuplot = popen(command, "w");
    if (gnuplot)
        write_commands(gnuplot, self, path);
    const int status = gnuplot ? pclose(gnuplot) : -1;
    sigaction(SIGPIPE, &before, NULL);
    return status;
}

bool heatmap_draw(const heatmap *self, const char *path, char *error, size_t error_size)
{
    for (const char *c = path; *c; c++) {
        if (iscntrl((unsigned char)*c)) {
            snprintf(error, error_size, "the picture's name has a control character");
            return false;
        }
    }
    const int status = draw_by(self, path);
    const int code = status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 127)
        snprintf(error, error_size,
                 "gnuplot is not installed, and it draws the picture (Debian: gnuplot-nox)");
    else if (code)
        snprintf(error, error_size,
                 "gnuplot could not draw the picture; what it says stands above");
    return !code;
}
