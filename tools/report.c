/* The results of mha-bench as a table for people, as CSV or as JSON. */
#include "report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct report {
    FILE *out;
    report_format format;
    char *device;
    char *platform;
    int problem_width;
    json_t *results; /* of REPORT_JSON, which is printed as a whole at the end */
};

bool report_is_wrong(const report_result *result)
{
    return result->is_verified && !(result->max_error <= result->error_limit);
}

bool report_is_invalid(const report_result *result)
{
    return result->is_timed && result->has_peak && !result->may_skip &&
           result->gflops > result->peak_gflops;
}

enum {
    STAGE_NAME = 48
};

static const char *name_of(const report_stage *stage, char name[STAGE_NAME])
{
    snprintf(name, STAGE_NAME, "%s%s", stage->is_cross ? "cross " : "", stage->stage);
    return name;
}

/* Whether a stage's rate means anything: some drivers' events tell of no time at all. */
static bool has_rate(const report_result *result, const report_stage *stage)
{
    const bool is_possible = !result->has_peak || stage->gflops <= result->peak_gflops;
    return isfinite(stage->gflops) && stage->gflops > 0 && is_possible;
}

static bool has_sentences(const report_result *result)
{
    return result->is_timed && result->sentences_per_s > 0;
}

/* One word for how it went. */
static const char *outcome(const report_result *result)
{
    return result->is_skipped          ? "skipped"
           : result->failure           ? result->failure
           : report_is_wrong(result)   ? "WRONG"
           : report_is_invalid(result) ? "INVALID"
           : result->is_verified       ? "ok"
                                       : "unverified";
}

static char *copy(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *made = malloc(bytes);
    return made ? memcpy(made, text, bytes) : NULL;
}

static void print_head(const report *self)
{
    if (self->format == REPORT_TABLE)
        fprintf(self->out, "%-*s  %-9s %10s %10s %9s %6s %8s %6s %10s %10s\n", self->problem_width,
                "problem", "path", "min ms", "median ms", "GFLOP/s", "share", "GB/s", "share",
                "max error", "limit");
    if (self->format == REPORT_CSV)
        fprintf(self->out,
                "problem,device,platform,type,key_value_type,path,tiling,min_ms,"
                "median_ms,gflops,peak_gflops,peak_share,gbytes_per_s,"
                "peak_gbytes_per_s,bandwidth_share,sentences_per_s,max_error,error_limit,"
                "outcome\n");
}

report *report_open(FILE *out, report_format format, const char *device, const char *platform,
                    size_t problem_width)
{
    report *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->out = out;
    self->format = format;
    self->device = copy(device);
    self->platform = copy(platform);
    self->problem_width = problem_width > strlen("problem") ? (int)problem_width : 7;
    if (format == REPORT_JSON)
        self->results = json_array();
    if (!self->device || !self->platform || (format == REPORT_JSON && !self->results)) {
        report_close(&self);
        return NULL;
    }
    print_head(self);
    return self;
}

/* A number right-aligned, or a dash where there is none. */
static void print_cell(FILE *out, int width, bool is_there, const char *format, double value)
{
    char text[32] = "-";
    if (is_there)
        snprintf(text, sizeof text, format, value);
    fprintf(out, " %*s", width, text);
}

static void print_share_cell(FILE *out, bool is_there, double part, double whole)
{
    print_cell(out, 6, is_there && whole > 0, "%.1f%%", 100 * part / whole);
}

static void print_stage(FILE *out, const report_result *result, const report_stage *stage)
{
    char name[STAGE_NAME];
    fprintf(out, "    %-20s  %-28s %10.4f ms", name_of(stage, name), stage->what, stage->ms);
    if (has_rate(result, stage)) {
        print_cell(out, 9, true, "%.2f", stage->gflops);
        print_share_cell(out, result->has_peak, stage->gflops, result->peak_gflops);
    }
    fputc('\n', out);
}

/* Each line of text, indented. */
static void print_lines(FILE *out, const char *text)
{
    while (*text) {
        const int length = (int)strcspn(text, "\n");
        fprintf(out, "    %.*s\n", length, text);
        text += length;
        text += *text == '\n';
    }
}

static void print_row(const report *self, const report_result *result)
{
    FILE *out = self->out;
    fprintf(out, "%-*s  %-9s", self->problem_width, result->problem, result->path);
    print_cell(out, 10, result->is_timed, "%.4f", result->min_ms);
    print_cell(out, 10, result->is_timed, "%.4f", result->median_ms);
    print_cell(out, 9, result->is_timed, "%.2f", result->gflops);
    print_share_cell(out, result->has_peak, result->gflops, result->peak_gflops);
    print_cell(out, 8, result->is_timed, "%.2f", result->gbytes_per_s);
    print_share_cell(out, result->has_peak, result->gbytes_per_s, result->peak_gbytes_per_s);
    print_cell(out, 10, result->is_verified, "%.1e", result->max_error);
    print_cell(out, 10, result->is_verified, "%.1e", result->error_limit);
    fprintf(out, "  %s\n", outcome(result));
    if (has_sentences(result))
        fprintf(out, "    %.1f sentences/s\n", result->sentences_per_s);
    for (size_t i = 0; i < result->num_stages; i++)
        print_stage(out, result, &result->stages[i]);
    if (result->explain)
        print_lines(out, result->explain);
    fflush(out);
}

/* A field of CSV as RFC 4180 has it: quoted, inner quotes doubled. */
static void print_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fprintf(out, "\",");
}

static void print_field(FILE *out, bool is_there, double value)
{
    if (is_there)
        fprintf(out, "%.9g", value);
    fputc(',', out);
}

static void print_csv(const report *self, const report_result *result)
{
    FILE *out = self->out;
    fprintf(out, "%s,", result->problem);
    print_quoted(out, self->device);
    print_quoted(out, self->platform);
    fprintf(out, "%s,%s,%s,%s,", result->type, result->key_value_type, result->path,
            result->tiling);
    print_field(out, result->is_timed, result->min_ms);
    print_field(out, result->is_timed, result->median_ms);
    print_field(out, result->is_timed, result->gflops);
    print_field(out, result->has_peak, result->peak_gflops);
    print_field(out, result->has_peak, result->gflops / result->peak_gflops);
    print_field(out, result->is_timed, result->gbytes_per_s);
    print_field(out, result->has_peak, result->peak_gbytes_per_s);
    print_field(out, result->has_peak, result->gbytes_per_s / result->peak_gbytes_per_s);
    print_field(out, has_sentences(result), result->sentences_per_s);
    print_field(out, result->is_verified, result->max_error);
    print_field(out, result->is_verified, result->error_limit);
    fprintf(out, "%s\n", outcome(result));
    fflush(out);
}

/* JSON has no infinity: what is not a finite number is null. */
static json_t *json_number(bool is_there, double value)
{
    return is_there && isfinite(value) ? json_real(value) : json_null();
}

static json_t *json_stages(const report_result *result)
{
    json_t *stages = json_array();
    for (size_t i = 0; i < result->num_stages; i++) {
        const report_stage *stage = &result->stages[i];
        const bool is_known = has_rate(result, stage), has_share = is_known && result->has_peak;
        char name[STAGE_NAME];
        json_array_append_new(
            stages,
            json_pack("{s:s, s:s, s:f, s:o, s:o}", "stage", name_of(stage, name), "what",
                      stage->what, "ms", stage->ms, "gflops", json_number(is_known, stage->gflops),
                      "peak_share", json_number(has_share, stage->gflops / result->peak_gflops)));
    }
    return stages;
}

static bool add_json(const report *self, const report_result *result)
{
    const struct {
        const char *name;
        json_t *value;
    } fields[] = {
        { "problem", json_string(result->problem) },
        { "device", json_string(self->device) },
        { "platform", json_string(self->platform) },
        { "type", json_string(result->type) },
        { "key_value_type", json_string(result->key_value_type) },
        { "path", json_string(result->path) },
        { "tiling", json_string(result->tiling) },
        { "outcome", json_string(outcome(result)) },
        { "min_ms", json_number(result->is_timed, result->min_ms) },
        { "median_ms", json_number(result->is_timed, result->median_ms) },
        { "gflops", json_number(result->is_timed, result->gflops) },
        { "peak_gflops", json_number(result->has_peak, result->peak_gflops) },
        { "peak_share", json_number(result->has_peak, result->gflops / result->peak_gflops) },
        { "gbytes_per_s", json_number(result->is_timed, result->gbytes_per_s) },
        { "peak_gbytes_per_s", json_number(result->has_peak, result->peak_gbytes_per_s) },
        { "bandwidth_share",
          json_number(result->has_peak, result->gbytes_per_s / result->peak_gbytes_per_s) },
        { "sentences_per_s", json_number(has_sentences(result), result->sentences_per_s) },
        { "max_error", json_number(result->is_verified, result->max_error) },
        { "error_limit", json_number(result->is_verified, result->error_limit) },
        { "stages", json_stages(result) },
        { "explain", json_string(result->explain ? result->explain : "") },
    };
    json_t *object = json_object();
    bool added = true;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        added = !json_object_set_new(object, fields[i].name, fields[i].value) && added;
    return !json_array_append_new(self->results, object) && added;
}

bool report_add(report *self, const report_result *result)
{
    switch (self->format) {
    case REPORT_JSON:
        return add_json(self, result);
    case REPORT_CSV:
        print_csv(self, result);
        return true;
    case REPORT_TABLE:
    default:
        print_row(self, result);
        return true;
    }
}

bool report_close(report **self)
{
    report *closed = *self;
    bool written = true;
    *self = NULL;
    if (closed->results) {
        written =
            !json_dumpf(closed->results, closed->out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        written = fputc('\n', closed->out) != EOF && written;
    }
    written = !fflush(closed->out) && !ferror(closed->out) && written;
    json_decref(closed->results);
    free(closed->device);
    free(closed->platform);
    free(closed);
    return written;
}
