/* Draws the results of mha-bench by gnuplot: speed over length, and a roofline. */
#include "plot.h"

#include "os.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct curve {
    char title[256];
} curve;

typedef struct point {
    size_t curve;
    double length, gflops;
    double intensity; /* operations for a byte */
} point;

struct plot {
    const char *file;
    curve *curves;
    point *points;
    size_t num_curves, num_points, most;
};

static const struct {
    const char *suffix, *terminal;
} formats[] = {
    { ".png", "pngcairo size 1400,600 noenhanced" },
    { ".svg", "svg size 1400,600 noenhanced background rgb 'white'" },
    { ".pdf", "pdfcairo size 14in,6in noenhanced" },
};

static const char *find_terminal(const char *file)
{
    const size_t length = strlen(file);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const size_t suffix = strlen(formats[i].suffix);
        if (length > suffix && !strcmp(file + length - suffix, formats[i].suffix))
            return formats[i].terminal;
    }
    return NULL;
}

bool plot_knows(const char *file)
{
    return find_terminal(file);
}

/* What stands in the way of drawing, or NULL. A string of gnuplot's ends with its line. */
static const char *find_trouble(const char *file)
{
    if (strpbrk(file, "\r\n"))
        return "a line end in the name is more than gnuplot takes";
    if (!os_has_program("gnuplot"))
        return "gnuplot is not on PATH; `tools/setup plot` installs it (Debian: gnuplot-nox)";
    FILE *const made = fopen(file, "ab");
    return made && !fclose(made) ? NULL : strerror(errno);
}

plot *plot_open(const char *file, size_t most, char *error, size_t error_size)
{
    const char *const trouble = find_trouble(file);
    plot *self = trouble ? NULL : calloc(1, sizeof *self);
    snprintf(error, error_size, "%s", trouble ? trouble : "the host is out of memory");
    if (!self)
        return NULL;
    *self = (plot){
        .file = file,
        .most = most,
        .curves = calloc(most, sizeof *self->curves),
        .points = calloc(most, sizeof *self->points),
    };
    if (!self->curves || !self->points)
        plot_close(&self);
    return self;
}

void plot_close(plot **self)
{
    plot *const closed = *self;
    *self = NULL;
    if (!closed)
        return;
    free(closed->curves);
    free(closed->points);
    free(closed);
}

/* Takes the first `part` out of a text. */
static void take_out(char *text, const char *part)
{
    char *const found = strstr(text, part);
    if (found)
        memmove(found, found + strlen(part), strlen(found + strlen(part)) + 1);
}

/* The length that differs from point to point, as a word has it where it is 0. */
static const char *length_of(problem_kind kind, bool square)
{
    switch (kind) {
    case KIND_GEMM:
        return "m0";
    case KIND_ATTENTION:
    case KIND_LAYER:
        return square ? "q0k0" : "k0";
    default:
        return "q0"; /* the rows are the keys */
    }
}

/* The word without the length that differs from point to point, and the path. */
static curve curve_of(const problem *subject, const char *path)
{
    problem rest = *subject;
    mha_attention_desc *const d = &rest.desc.attention;
    const bool square = d->query_len == d->key_len;
    curve made = { "" };
    rest.gemm.m = d->key_len = 0;
    if (square)
        d->query_len = 0;
    word_print(&rest, made.title, sizeof made.title);
    take_out(made.title, length_of(rest.kind, square));
    const size_t length = strlen(made.title);
    if (strcmp(path, "-"))
        snprintf(made.title + length, sizeof made.title - length, " %s", path);
    return made;
}

/* The curve's place in the list, at the end of which it may be new. */
static size_t place_curve(plot *self, const curve *wanted)
{
    size_t i = 0;
    while (i < self->num_curves && strcmp(self->curves[i].title, wanted->title))
        i++;
    if (i == self->num_curves)
        self->curves[self->num_curves++] = *wanted;
    return i;
}

void plot_add(plot *self, const problem *subject, const char *path, double gflops,
              double gbytes_per_s)
{
    const bool is_rate = gflops > 0 && isfinite(gflops) && gbytes_per_s > 0;
    if (!is_rate || self->num_points == self->most)
        return;
    const curve wanted = curve_of(subject, path);
    self->points[self->num_points++] = (point){
        .curve = place_curve(self, &wanted),
        .length = (double)(subject->kind == KIND_GEMM ? subject->gemm.m
                                                      : subject->desc.attention.key_len),
        .gflops = gflops,
        .intensity = gflops / gbytes_per_s,
    };
}

/* A string of gnuplot's, no file's name, in which nothing but the quote itself means anything. */
static void print_string(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'')
            fputc('\'', out);
        fputc(*text, out);
    }
    fputc('\'', out);
}

static int compare_lengths(const void *a, const void *b)
{
    const double x = ((const point *)a)->length, y = ((const point *)b)->length;
    return (x > y) - (x < y);
}

/* Each curve as a block of lines: length, GFLOP/s, intensity. */
static void print_data(const plot *self, FILE *out)
{
    for (size_t c = 0; c < self->num_curves; c++) {
        fprintf(out, "$curve%zu << END\n", c);
        for (size_t i = 0; i < self->num_points; i++)
            if (self->points[i].curve == c)
                fprintf(out, "%.0f %.6g %.6g\n", self->points[i].length, self->points[i].gflops,
                        self->points[i].intensity);
        fprintf(out, "END\n");
    }
}

/* The curves by two of their columns, as the last of a plot command. */
static void print_curves(const plot *self, FILE *out, const char *columns, const char *style)
{
    for (size_t c = 0; c < self->num_curves; c++) {
        fprintf(out, "%s$curve%zu using %s with %s linetype %zu title ", c ? ", " : "", c, columns,
                style, c + 1);
        print_string(out, self->curves[c].title);
    }
    fputc('\n', out);
}

static void print_speed(const plot *self, FILE *out)
{
    fprintf(out, "set title 'speed over length'\n"
                 "set xlabel 'length (keys, or rows of a gemm)'\n"
                 "set ylabel 'GFLOP/s'\n"
                 "set logscale x 2\n"
                 "set yrange [0:*]\n"
                 "plot ");
    print_curves(self, out, "1:2", "linespoints pointtype 7");
}

/* As far as the points and both ends of the roofs go, twice as far each way. */
static void print_range(const plot *self, FILE *out, const roofline_peaks *peaks)
{
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < self->num_points; i++) {
        low = fmin(low, self->points[i].intensity);
        high = fmax(high, self->points[i].intensity);
    }
    if (peaks->gflops > 0 && peaks->gbytes_per_s > 0)
        high = fmax(high, peaks->gflops / peaks->gbytes_per_s);
    fprintf(out, "set xrange [%.6g:%.6g]\n", low / 2, high * 2);
}

static void print_roof(FILE *out, const char *what, double gflops, double gbytes_per_s)
{
    if (gflops > 0 && gbytes_per_s > 0)
        fprintf(out,
                "roof(%.6g, %.6g * x) with lines linewidth 2 linecolor 'black' dashtype %d title "
                "'%s: %.1f GB/s, %.1f GFLOP/s', ",
                gflops, gbytes_per_s, *what == 'm' ? 1 : 2, what, gbytes_per_s, gflops);
}

static void print_roofline(const plot *self, FILE *out, const roofline_peaks *peaks)
{
    fprintf(out, "set title 'roofline'\n"
                 "set xlabel 'operations for a byte'\n"
                 "set logscale xy 10\n"
                 "set yrange [*:*]\n"
                 "set samples 500\n"
                 "roof(a, b) = a < b ? a : b\n");
    print_range(self, out, peaks);
    fprintf(out, "plot ");
    print_roof(out, "memory", peaks->gflops, peaks->gbytes_per_s);
    print_roof(out, "caches", peaks->gflops, peaks->cached_gbytes_per_s);
    print_curves(self, out, "3:2", "points pointtype 7");
}

static void print_script(const plot *self, FILE *out, const char *device,
                         const roofline_peaks *peaks)
{
    fprintf(out, "set terminal %s\nset output ", find_terminal(self->file));
    fputs(self->file[0] == '|' ? "'./'." : "", out); /* else a command of the shell's */
    print_string(out, self->file);
    fputc('\n', out);
    print_data(self, out);
    fprintf(out, "set multiplot layout 1,2 title ");
    print_string(out, device);
    fprintf(out, "\nset grid\nset key below\nset rmargin 4\n");
    print_speed(self, out);
    print_roofline(self, out, peaks);
    fprintf(out, "unset multiplot\nset output\n");
}

bool plot_draw(plot *self, const char *device, const roofline_peaks *peaks, char *error,
               size_t error_size)
{
    snprintf(error, error_size, "no problem was timed");
    if (!self->num_points)
        return false;
    qsort(self->points, self->num_points, sizeof self->points[0], compare_lengths);
    FILE *const gnuplot = os_start_program("gnuplot");
    if (!gnuplot) {
        snprintf(error, error_size, "gnuplot was not started: %s", strerror(errno));
        return false;
    }
    print_script(self, gnuplot, device, peaks);
    const int code = os_end_program(gnuplot);
    snprintf(error, error_size, "gnuplot ended with exit code %d", code);
    return !code;
}
