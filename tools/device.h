/* How the tools open, list and describe devices. */
#ifndef MHA_TOOLS_DEVICE_H
#define MHA_TOOLS_DEVICE_H

#include <mha.h>
#include <stdio.h>

/* Opens a context on the device that `word` (of --device) means: NULL is the library's default,
 * "cpu", "gpu" and "accelerator" are types, anything else is mha_context_options.device_name.
 * `cache_dir` (of --cache) is that of the same options. NULL: the log has been told why. */
mha_context *device_open(const char *word, const char *cache_dir, const mha_log *log);

/* "device: NAME (PLATFORM, DEVICE_VERSION, driver DRIVER)" and a line end. */
void device_print_line(FILE *out, const mha_context *context);

/* What a bug report needs to know of library, platform, driver and device, one fact a line. */
void device_print_report(FILE *out, const mha_context *context);

/* Prints every device, one a line, "*" before the default one. Returns the tool's exit code. */
int device_list(const char *tool, FILE *out);

#endif
