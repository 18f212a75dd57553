/* Reads the command line. */
#define _POSIX_C_SOURCE 200809L
#include "options.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char options_program[] = "sentence-embedding";

/* clang-format off */
static const char usage[] = "usage: sentence-embedding [options] MODEL_DIR <SENTENCES\n";
static const char help[] =
    "Reads sentences, one a line, and writes a vector for each: near in direction where the\n"
    "sentences are near in meaning. MODEL_DIR is what fetch-model prints, or the folder of another\n"
    "BERT: config.json, vocab.txt and model.safetensors.\n"
    "\n"
    "  --format tsv|json|ids    a line of numbers with tabs, one JSON array of arrays, or the\n"
    "                           tokens' ids without any vectors (tsv)\n"
    "  --pairs                  a line is two sentences with a tab between them: writes their\n"
    "                           cosine, from -1 to 1\n"
    "  --batch N                at most so many sentences go to the device at once, 1 to 1024\n"
    "                           (32)\n"
    "  --device WORD            cpu, gpu, accelerator, or PLATFORM:DEVICE or a part of a name as\n"
    "                           mha-bench --list-devices prints them\n"
    "  --attention LAYER,HEAD FILE.png\n"
    "                           draws who attends to whom in the first sentence, by gnuplot;\n"
    "                           layers and heads are counted from 0\n"
    "  --help\n";
/* clang-format on */

/* Prints the sentence and the usage; always false. */
static bool refuse(int *exit_code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "%s: ", options_program);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n%s", usage);
    *exit_code = 2;
    return false;
}

/* Returns the program's exit code. */
static int print_help(void)
{
    if (printf("%s%s", usage, help) >= 0 && !fflush(stdout))
        return 0;
    fprintf(stderr, "%s: the help cannot be written\n", options_program);
    return 1;
}

/* Digits only, up to `most`; *end is what follows them. */
static bool read_number(const char *text, size_t most, size_t *number, const char **end)
{
    char *behind = NULL;
    if (*text < '0' || *text > '9')
        return false;
    const unsigned long long value = strtoull(text, &behind, 10);
    *number = (size_t)value;
    *end = behind;
    return value <= most;
}

static bool read_batch(options *out, const char *word, int *exit_code)
{
    const char *end = word;
    if (read_number(word, 1024, &out->batch, &end) && !*end && out->batch)
        return true;
    return refuse(exit_code, "--batch %s: not a number from 1 to 1024", word);
}

static bool read_format(options *out, const char *word, int *exit_code)
{
    static const char *const words[] = {
        [OUTPUT_TSV] = "tsv", [OUTPUT_JSON] = "json", [OUTPUT_IDS] = "ids"
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!strcmp(word, words[i])) {
            out->format = (output_format)i;
            return true;
        }
    }
    return refuse(exit_code, "--format %s: none of tsv, json and ids", word);
}

/* The option has two arguments; getopt knows of the first, and the second comes next. */
static bool read_attention(options *out, const char *word, int argc, char **argv, int *exit_code)
{
    const char *end = word;
    const size_t most = 1000000;
    const bool good = read_number(word, most, &out->layer, &end) && *end == ',' &&
                      read_number(end + 1, most, &out->head, &end) && !*end;
    if (!good)
        return refuse(exit_code, "--attention %s: not a layer, a comma and a head", word);
    if (optind >= argc)
        return refuse(exit_code, "--attention %s needs the picture's name, too", word);
    out->picture = argv[optind++];
    return true;
}

static bool check(const options *out, int *exit_code)
{
    if (out->format == OUTPUT_IDS && (out->are_pairs || out->picture))
        return refuse(exit_code, "--format ids goes with neither --pairs nor --attention");
    if (out->are_pairs && out->picture)
        return refuse(exit_code, "--pairs and --attention: one of them only");
    return true;
}

bool options_read(options *out, int argc, char **argv, int *exit_code)
{
    static const struct option known[] = {
        { "format", required_argument, NULL, 'f' },
        { "pairs", no_argument, NULL, 'p' },
        { "batch", required_argument, NULL, 'b' },
        { "device", required_argument, NULL, 'd' },
        { "attention", required_argument, NULL, 'a' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    bool good = true;
    *out = (options){ .batch = 32 };
    for (int c; good && (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == 'f')
            good = read_format(out, optarg, exit_code);
        else if (c == 'p')
            out->are_pairs = true;
        else if (c == 'b')
            good = read_batch(out, optarg, exit_code);
        else if (c == 'd')
            out->device = optarg;
        else if (c == 'a')
            good = read_attention(out, optarg, argc, argv, exit_code);
        else if (c == 'h') {
            *exit_code = print_help();
            return false;
        } else {
            fputs(usage, stderr); /* getopt has said what is wrong */
            *exit_code = 2;
            return false;
        }
    }
    if (good && optind + 1 != argc)
        good = refuse(exit_code, optind == argc ? "the model's folder is missing"
                                                : "there is more than one folder");
    if (!good)
        return false;
    out->folder = argv[optind];
    return check(out, exit_code);
}
