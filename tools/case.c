/* Reads case.txt: lines of "key = value" into entries, and the look-ups among them. */
#include "case.h"

#include "case_tensors.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The format's own limits: a line is under 1000 characters, a file under 128 lines. */
#define MAX_LINE 999
#define MAX_LINES 127
#define MAX_TEXT (MAX_LINES * (MAX_LINE + 1))

/* Keys that describe a case: where it comes from, what its tensors' shapes and the other keys say
 * already, how its values were checked. Running it right takes none of them; of softmax_precision,
 * as the softmax is always float32, which the format allows. Words between spaces. */
static const char descriptions[] =
    " atol batch bias cache_capacity check_forward_numpy_max_abs"
    " check_gradient_central_difference_rel cols convention data_salt domain dtype"
    " embed_dim error expect features format formula fully_masked_rows fully_masked_rule"
    " golden_vs_float64_max_abs gradient_of head_dim head_size input_hidden inputs kdim"
    " kind kv_len mask_kind mask_len mask_rank max_abs_output max_abs_score"
    " min_top2_score_gap name note num_hiddens onnx_atol onnx_rtol op opset"
    " ort_local_window_size outputs q_len rows rtol scale_given softmax_precision"
    " softmax_precision_given source total_len v_head_dim v_head_size valid_lens_kind vdim"
    " why ";

/* The only keys that carry a number. */
static const char *const indexed[] = { "input", "output",   "output_tol", "output_skip",
                                       "step",  "property", "sentence" };

bool case_fail(case_file *file, unsigned line, const char *format, ...)
{
    if (file->error[0])
        return false;
    int used = snprintf(file->error, sizeof file->error, "%s:", file->path ? file->path : "?");
    if (line && used >= 0 && (size_t)used < sizeof file->error)
        used += snprintf(file->error + used, sizeof file->error - (size_t)used, "%u:", line);
    if (used < 0 || (size_t)used + 1 >= sizeof file->error)
        return false;
    file->error[used++] = ' ';
    va_list list;
    va_start(list, format);
    vsnprintf(file->error + used, sizeof file->error - (size_t)used, format, list);
    va_end(list);
    return false;
}

bool case_is_name(const char *text)
{
    if (!isalpha((unsigned char)*text) && *text != '_')
        return false;
    while (isalnum((unsigned char)*text) || *text == '_')
        text++;
    return !*text;
}

/* NAME, or one of the indexed names with a number behind it: "input.0". */
static bool is_key(char *text)
{
    char *const dot = strchr(text, '.');
    if (!dot)
        return case_is_name(text);
    const size_t digits = strspn(dot + 1, "0123456789");
    if (!digits || digits > 3 || dot[1 + digits] || (dot[1] == '0' && digits > 1))
        return false;
    for (size_t i = 0; i < sizeof indexed / sizeof indexed[0]; i++)
        if (strlen(indexed[i]) == (size_t)(dot - text) &&
            !strncmp(text, indexed[i], strlen(indexed[i])))
            return true;
    return false;
}

static case_entry *find_entry(const case_file *file, const char *key)
{
    for (size_t i = 0; i < file->num_entries; i++)
        if (!strcmp(file->entries[i].key, key))
            return &file->entries[i];
    return NULL;
}

/* One line, without its end, into the next entry. */
static bool read_line(case_file *file, char *line, unsigned number)
{
    if (strlen(line) > MAX_LINE)
        return case_fail(file, number, "the line has 1000 characters or more");
    for (const char *c = line; *c; c++)
        if (*c < ' ' || *c > '~')
            return case_fail(file, number, "the line holds byte 0x%02x, which is not plain ASCII",
                             (unsigned char)*c);
    char *const middle = strstr(line, " = ");
    if (!middle)
        return case_fail(file, number, "the line is not `key = value`");
    *middle = '\0';
    if (!is_key(line))
        return case_fail(file, number, "\"%s\" is not a key", line);
    const case_entry *const first = find_entry(file, line);
    if (first)
        return case_fail(file, number, "duplicate key \"%s\", first in line %u", line, first->line);
    if (!middle[3])
        return case_fail(file, number, "\"%s\" has no value", line);
    file->entries[file->num_entries++] =
        (case_entry){ .key = line, .value = middle + 3, .line = number };
    return true;
}

static bool read_lines(case_file *file, size_t length)
{
    char *line = file->text;
    char *const end = file->text + length;
    if (memchr(line, '\0', length))
        return case_fail(file, 0, "the file is not text");
    if (!length || end[-1] != '\n')
        return case_fail(file, 0, "the last line has no end");
    for (unsigned number = 1; line < end; number++) {
        char *const stop = strchr(line, '\n');
        *stop = '\0';
        if (number > MAX_LINES)
            return case_fail(file, 0, "the file has 128 lines or more");
        if (!read_line(file, line, number))
            return false;
        line = stop + 1;
    }
    return true;
}

static bool read_text(case_file *file, size_t *length)
{
    FILE *const stream = fopen(file->path, "rb");
    if (!stream)
        return case_fail(file, 0, "%s", strerror(errno));
    *length = fread(file->text, 1, MAX_TEXT + 1, stream);
    const bool broken = ferror(stream);
    fclose(stream);
    if (broken)
        return case_fail(file, 0, "the file cannot be read");
    if (*length > MAX_TEXT)
        return case_fail(file, 0, "the file is longer than 127 lines of 999 characters");
    file->text[*length] = '\0';
    return true;
}

static bool allocate(case_file *file, const char *folder)
{
    const size_t path_bytes = strlen(folder) + sizeof "/case.txt";
    file->path = malloc(path_bytes);
    if (file->path)
        snprintf(file->path, path_bytes, "%s/case.txt", folder);
    file->text = malloc(MAX_TEXT + 2);
    file->entries = calloc(MAX_LINES, sizeof *file->entries);
    if (!file->path || !file->text || !file->entries)
        return case_fail(file, 0, "the host is out of memory");
    return true;
}

bool case_read(const char *folder, case_file *file)
{
    memset(file, 0, sizeof *file);
    size_t length = 0;
    if (!allocate(file, folder) || !read_text(file, &length) || !read_lines(file, length))
        return false;
    const char *const format = case_string(file, "format", "");
    if (strcmp(format, "attncase/1"))
        return case_fail(file, 0, "format = attncase/1 is missing: this is another format");
    file->name = case_string(file, "name", NULL);
    file->op = case_string(file, "op", NULL);
    if (!file->name || !file->op)
        return case_fail(file, 0, "\"%s\" is missing", file->name ? "op" : "name");
    return case_read_tensors(file, folder);
}

void case_free(case_file *file)
{
    case_free_tensors(file);
    free(file->entries);
    free(file->text);
    free(file->path);
    memset(file, 0, sizeof *file);
}

/* Finds an entry that somebody asks for. */
static const case_entry *use_entry(case_file *file, const char *key)
{
    case_entry *const entry = find_entry(file, key);
    if (entry)
        entry->used = true;
    return entry;
}

const char *case_string(case_file *file, const char *key, const char *fallback)
{
    const case_entry *const entry = use_entry(file, key);
    return entry ? entry->value : fallback;
}

long case_int(case_file *file, const char *key, long fallback)
{
    const case_entry *const entry = use_entry(file, key);
    if (!entry)
        return fallback;
    char *end;
    errno = 0;
    const long value = strtol(entry->value, &end, 10);
    if (errno || end == entry->value || *end || entry->value[0] == ' ') {
        case_fail(file, entry->line, "\"%s\" is not a whole number: \"%s\"", key, entry->value);
        return fallback;
    }
    return value;
}

double case_float(case_file *file, const char *key, double fallback)
{
    const case_entry *const entry = use_entry(file, key);
    if (!entry)
        return fallback;
    char *end;
    const double value = strtod(entry->value, &end);
    if (end == entry->value || *end || entry->value[0] == ' ' || !isfinite(value)) {
        case_fail(file, entry->line, "\"%s\" is not a finite number: \"%s\"", key, entry->value);
        return fallback;
    }
    return value;
}

bool case_flag(case_file *file, const char *key, bool fallback)
{
    const case_entry *const entry = use_entry(file, key);
    if (!entry)
        return fallback;
    if (!strcmp(entry->value, "0") || !strcmp(entry->value, "1"))
        return entry->value[0] == '1';
    case_fail(file, entry->line, "\"%s\" is neither 0 nor 1: \"%s\"", key, entry->value);
    return fallback;
}

bool case_has(const case_file *file, const char *key)
{
    return find_entry(file, key) != NULL;
}

static bool describes(const char *key)
{
    char word[MAX_LINE + 3];
    snprintf(word, sizeof word, " %s ", key);
    return strchr(key, '.') || strstr(descriptions, word);
}

const char *case_unused_key(const case_file *file)
{
    for (size_t i = 0; i < file->num_entries; i++)
        if (!file->entries[i].used && !describes(file->entries[i].key))
            return file->entries[i].key;
    return NULL;
}
