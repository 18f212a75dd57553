/* Messages for people: every sentence the library says goes through here. */
#ifndef MHA_LOG_H
#define MHA_LOG_H

#include "mha.h"

#if defined(__GNUC__)
#define MHA_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define MHA_PRINTF(text, first)
#endif

/* Says one sentence at a level. `log` may be NULL. */
void mha_log_say(const mha_log *log, mha_log_level level, const char *format, ...) MHA_PRINTF(3, 4);

/* Says an error and returns its status: `return mha_log_fail(log, MHA_OVERLAP, "...")`. A negative
 * status is named at the end: "clCreateBuffer of scores failed: CL_OUT_OF_RESOURCES (-5)". */
mha_status mha_log_fail(const mha_log *log, mha_status status, const char *format, ...)
    MHA_PRINTF(3, 4);

/* Says a text that is already whole, whatever its length: a build log. */
void mha_log_text(const mha_log *log, mha_log_level level, const char *text);

#endif
