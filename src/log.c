/* Messages for people: every sentence the library says goes through here. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int wants(const mha_log *log, mha_log_level level)
{
    if (!log || !log->fn)
        return 0;
    return level <= (log->level == MHA_LOG_DEFAULT ? MHA_LOG_WARNING : log->level);
}

void mha_log_text(const mha_log *log, mha_log_level level, const char *text)
{
    if (wants(log, level))
        log->fn(log->data, level, text);
}

void mha_log_say(const mha_log *log, mha_log_level level, const char *format, ...)
{
    if (!wants(log, level))
        return;
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    log->fn(log->data, level, text);
}

mha_status mha_log_fail(const mha_log *log, mha_status status, const char *format, ...)
{
    if (!wants(log, MHA_LOG_ERROR))
        return status;
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    const size_t used = strlen(text);
    if (status < 0)
        snprintf(text + used, sizeof text - used, ": %s (%d)", mha_status_name(status), status);
    log->fn(log->data, MHA_LOG_ERROR, text);
    return status;
}
