/* How the tools open, list and describe devices. */
#ifndef MHA_TOOLS_DEVICE_H
#define MHA_TOOLS_DEVICE_H

#include <mha.h>
#include <stdio.h>

/* Opens a context on the device that `word` (of --device) means: NULL is the library's default,
 * "cpu", "gpu" and "accelerator" are types, anything else is mha_context_options.device_name. The
 * library's messages go to stderr behind the tool's name: warnings, with `verbose` 1 also infos,
 * with 2 all. NULL: the reason has been printed. `tool` outlives the context. */
mha_context *device_open(const char *tool, const char *word, int verbose);

/* The same with a log of the caller's own. */
mha_context *device_open_with(const char *word, const mha_log *log);

/* "device: NAME (PLATFORM, DEVICE_VERSION, driver DRIVER)" and a line end. */
void device_print_line(FILE *out, const mha_context *context);

/* What a bug report needs to know of library, platform, driver and device, one fact a line. */
void device_print_report(FILE *out, const mha_context *context);

/* Prints every device, one a line, "*" before the default one. Returns the tool's exit code. */
int device_list(const char *tool, FILE *out);

#endif
