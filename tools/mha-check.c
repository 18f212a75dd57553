/* mha-check: runs folders of conformance cases on a device and says which fail. */
#include "device.h"
#include "folders.h"
#include "ops.h"
#include "os.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tool[] = "mha-check";

static const char usage[] = "usage: mha-check [options] DIR...\n";

static const char help[] =
    "Runs every folder with a case.txt at or below each DIR on an OpenCL device and compares the\n"
    "results with what the case wants. Prints a line for each case that fails or is skipped, and\n"
    "their numbers last. The exit code is 1 if any fails, or if there is no case at all.\n"
    "\n"
    "  --device WORD     cpu, gpu, accelerator, PLATFORM:DEVICE as listed, or a part of a name\n"
    "  --list-devices    list the devices, the default one marked *, and end\n"
    "  --cache DIR       where the library keeps compiled kernels, instead of the user's cache\n"
    "                    folder; \"\": nowhere. PoCL, which keeps them itself, then compiles each\n"
    "                    but once instead of twice\n"
    "  --report          also print what a bug report needs: library, driver, device and limits,\n"
    "                    and the library's choice of kernels below each case that fails\n"
    "  --path NAME       of every attention: composed, which stores the scores, streaming or\n"
    "                    decode\n"
    "  --tiling WHO      how the library's kernels work: cpu or gpu\n"
    "  --gemm WHO        who multiplies matrices: clblast or kernel (the library's own)\n"
    "  --model DIR       the folder of all-MiniLM-L6-v2, for the case that needs it; without this,\n"
    "                    the one that examples/sentence-embedding/fetch-model makes, if there\n"
    "  --only SUBSTRING  run the cases whose name holds SUBSTRING\n"
    "  --verbose         also print the cases that pass, and the library's messages; twice: all\n"
    "  --help, --version\n";

typedef struct options {
    const char *device;
    const char *cache;
    const char *only;
    const char *model;
    mha_path path;
    mha_tiling tiling;
    mha_gemm_by gemm;
    int verbose;
    bool report;
    bool list_devices;
} options;

/* The run's state: what was asked for, the numbers so far. */
typedef struct run {
    const options *options;
    check_setup setup;
    size_t passed, failed, skipped;
    bool shows_progress;
    /* The worst of the errors that passed, and a good call to try after one that was refused. */
    double worst;
    char worst_name[256];
    const char *good_folder;
} run;

/* Keeps the error messages for the verdict of their case, prints the others. */
static void receive_message(void *data, mha_log_level level, const char *text)
{
    run *const self = data;
    if (level == MHA_LOG_ERROR)
        snprintf(self->setup.sentence, sizeof self->setup.sentence, "%s", text);
    if (level != MHA_LOG_ERROR || self->options->verbose)
        fprintf(stderr, "%s: %s\n", tool, text);
}

/* The place of a word among words[1] and after, which is the value of an enum of mha.h. 0: none. */
static int choose(const char *option, const char *word, const char *const words[])
{
    for (int i = 1; words[i]; i++)
        if (!strcmp(word, words[i]))
            return i;
    fprintf(stderr, "%s: --%s %s: not known\n", tool, option, word);
    return 0;
}

static void print_version(void)
{
    const unsigned version = mha_version();
    printf("%s %d.%d.%d (libmha %u.%u.%u)\n", tool, MHA_VERSION_MAJOR, MHA_VERSION_MINOR,
           MHA_VERSION_PATCH, version >> 16, version >> 8 & 255, version & 255);
}

enum {
    DEVICE = 1,
    CACHE,
    LIST,
    REPORT,
    PATH,
    TILING,
    GEMM,
    MODEL,
    VERBOSE,
    ONLY,
    HELP,
    VERSION
};

/* Takes one option and its word. False: it is not known, or its word is not. */
static bool take_option(options *out, int option, const char *word)
{
    static const char *const paths[] = {
        "", [MHA_PATH_COMPOSED] = "composed", [MHA_PATH_STREAMING] = "streaming",
        [MHA_PATH_DECODE] = "decode", NULL
    };
    static const char *const tilings[] = { "", [MHA_TILING_CPU] = "cpu", [MHA_TILING_GPU] = "gpu",
                                           NULL };
    static const char *const gemms[] = {
        "", [MHA_GEMM_CLBLAST] = "clblast", [MHA_GEMM_KERNEL] = "kernel", NULL
    };
    switch (option) {
    case DEVICE:
        out->device = word;
        return true;
    case CACHE:
        out->cache = word;
        return true;
    case LIST:
        out->list_devices = true;
        return true;
    case REPORT:
        out->report = true;
        return true;
    case PATH:
        out->path = (mha_path)choose("path", word, paths);
        return out->path != MHA_PATH_DEFAULT;
    case TILING:
        out->tiling = (mha_tiling)choose("tiling", word, tilings);
        return out->tiling != MHA_TILING_DEFAULT;
    case GEMM:
        out->gemm = (mha_gemm_by)choose("gemm", word, gemms);
        return out->gemm != MHA_GEMM_DEFAULT;
    case MODEL:
        out->model = word;
        return true;
    case VERBOSE:
        out->verbose++;
        return true;
    case ONLY:
        out->only = word;
        return true;
    default:
        return false;
    }
}

/* True: go on. Else *exit_code is what the program ends with. */
static bool read_options(int argc, char **argv, options *out, int *exit_code)
{
    static const struct option known[] = {
        { "device", required_argument, NULL, DEVICE },
        { "list-devices", no_argument, NULL, LIST },
        { "cache", required_argument, NULL, CACHE },
        { "report", no_argument, NULL, REPORT },
        { "path", required_argument, NULL, PATH },
        { "gemm", required_argument, NULL, GEMM },
        { "tiling", required_argument, NULL, TILING },
        { "model", required_argument, NULL, MODEL },
        { "verbose", no_argument, NULL, VERBOSE },
        { "only", required_argument, NULL, ONLY },
        { "help", no_argument, NULL, HELP },
        { "version", no_argument, NULL, VERSION },
        { NULL, 0, NULL, 0 },
    };
    *exit_code = 0;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (option == HELP) {
            printf("%s\n%s", usage, help);
            return false;
        }
        if (option == VERSION) {
            print_version();
            return false;
        }
        if (!take_option(out, option, optarg)) {
            fputs(usage, stderr);
            *exit_code = 2;
            return false;
        }
    }
    if (optind < argc || out->list_devices)
        return true;
    fprintf(stderr, "%s: no DIR is given\n%s", tool, usage);
    *exit_code = 2;
    return false;
}

static void show_progress(const run *self, const char *folder, size_t index, size_t count)
{
    if (self->shows_progress)
        fprintf(stderr, "\r\033[K%zu/%zu %.60s", index + 1, count, folder);
}

static void hide_progress(const run *self)
{
    if (self->shows_progress)
        fputs("\r\033[K", stderr);
}

/* Every line of the library's explanation, moved in. */
static void print_explain(const char *text)
{
    while (*text) {
        const size_t length = strcspn(text, "\n");
        printf("      %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void count_case(run *self, const case_file *file, const ops_result *result)
{
    hide_progress(self);
    switch (result->verdict) {
    case CHECK_PASSED:
        self->passed++;
        if (self->options->verbose)
            printf("pass  %s: %s: worst error %.3g of the tolerance\n", file->name, file->op,
                   result->worst);
        break;
    case CHECK_SKIPPED:
        self->skipped++;
        printf("skip  %s: %s: %s\n", file->name, file->op, result->text);
        break;
    default:
        self->failed++;
        printf("FAIL  %s: %s: %s\n", file->name, file->op, result->text);
        if (self->options->report)
            print_explain(result->explain);
        break;
    }
    if (result->verdict != CHECK_FAILED && result->worst > self->worst) {
        self->worst = result->worst;
        snprintf(self->worst_name, sizeof self->worst_name, "%s", file->name);
    }
}

/* A refused call must not spoil the next good one: the last case that passed, once more. */
static void try_good_call(run *self, ops_result *result)
{
    if (!self->good_folder)
        return;
    case_file file;
    ops_result again = { 0 };
    if (case_read(self->good_folder, &file))
        again = ops_run(&self->setup, &file);
    if (again.verdict != CHECK_PASSED) {
        result->verdict = CHECK_FAILED;
        snprintf(result->text, sizeof result->text, "%s, which passed before, now fails: %.600s",
                 self->good_folder, again.text);
    }
    case_free(&file);
}

static void run_folder(run *self, const char *folder)
{
    case_file file;
    if (!case_read(folder, &file)) {
        hide_progress(self);
        self->failed++;
        printf("FAIL  %s: %s\n", folder, file.error);
        case_free(&file);
        return;
    }
    if (self->options->only && !strstr(file.name, self->options->only)) {
        case_free(&file);
        return;
    }
    ops_result result = ops_run(&self->setup, &file);
    if (result.verdict == CHECK_PASSED) {
        if (!strcmp(case_string(&file, "expect", "ok"), "error"))
            try_good_call(self, &result);
        else
            self->good_folder = folder;
    }
    count_case(self, &file, &result);
    case_free(&file);
}

/* All folders of the arguments. False: some argument could not be searched. */
static bool find_cases(folders *list, char **roots)
{
    bool ok = true;
    for (; *roots; roots++) {
        char error[1024];
        if (!folders_find(list, *roots, error, sizeof error)) {
            fprintf(stderr, "%s: %s\n", tool, error);
            ok = false;
        }
    }
    return ok;
}

static bool open_queue(run *self)
{
    cl_int error;
    self->setup.queue = clCreateCommandQueue(mha_context_cl(self->setup.context),
                                             mha_context_device(self->setup.context), 0, &error);
    if (error)
        fprintf(stderr, "%s: clCreateCommandQueue: %s (%d)\n", tool, mha_status_name(error), error);
    return !error;
}

static void run_all(run *self, const folders *list)
{
    device_print_line(stdout, self->setup.context);
    if (self->options->report)
        device_print_report(stdout, self->setup.context);
    for (size_t i = 0; i < list->count; i++) {
        show_progress(self, list->paths[i], i, list->count);
        run_folder(self, list->paths[i]);
    }
    hide_progress(self);
    if (self->worst_name[0] && (self->options->report || self->options->verbose))
        printf("worst error that passed: %.3g of its tolerance, in %s\n", self->worst,
               self->worst_name);
}

static int check_cases(const options *chosen, char **roots)
{
    run self = {
        .options = chosen,
        .setup = { .path = chosen->path,
                   .tiling = chosen->tiling,
                   .gemm = chosen->gemm,
                   .device = chosen->device,
                   .model = chosen->model },
        .shows_progress = os_is_terminal(stderr),
    };
    folders list = { 0 };
    const bool searched = find_cases(&list, roots);
    const mha_log log = {
        .fn = receive_message,
        .data = &self,
        .level = chosen->verbose > 1 ? MHA_LOG_DEBUG
                 : chosen->verbose   ? MHA_LOG_INFO
                                     : MHA_LOG_WARNING,
    };
    self.setup.context = device_open(chosen->device, chosen->cache, &log);
    if (!self.setup.context && !chosen->verbose)
        fprintf(stderr, "%s: %s\n", tool, self.setup.sentence);
    const bool opened = self.setup.context && open_queue(&self);
    if (opened)
        run_all(&self, &list);
    if (self.setup.queue)
        clReleaseCommandQueue(self.setup.queue);
    mha_context_destroy(&self.setup.context);
    folders_free(&list);
    const size_t total = self.passed + self.failed + self.skipped;
    if (opened && !total)
        fprintf(stderr, "%s: no case was found\n", tool);
    if (opened)
        printf("%zu passed, %zu failed, %zu skipped\n", self.passed, self.failed, self.skipped);
    return opened && searched && total && !self.failed ? 0 : 1;
}

int main(int argc, char **argv)
{
    options chosen = { 0 };
    int exit_code = 0;
    if (!read_options(argc, argv, &chosen, &exit_code))
        return exit_code;
    exit_code =
        chosen.list_devices ? device_list(tool, stdout) : check_cases(&chosen, argv + optind);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "%s: the results cannot be written\n", tool);
        return 1;
    }
    return exit_code;
}
