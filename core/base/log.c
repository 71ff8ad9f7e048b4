#include "log.h"

#include <stdarg.h>
#include <stdio.h>

static enum kvr_log_level log_level = KVR_LOG_INFO;

void kvr_log_set_level(enum kvr_log_level level)
{
    log_level = level;
}

void kvr_log(enum kvr_log_level level, const char *format, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (level > log_level)
        return;
    char line[1024];
    int at = snprintf(line, sizeof line, "%s ", names[level]);
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + at, sizeof line - (size_t)at - 1, format, arguments);
    va_end(arguments);
    size_t len = (size_t)at + (more > 0 ? (size_t)more : 0);
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    line[len] = '\n';
    fwrite(line, 1, len + 1, stderr); /* one write: lines of several processes do not mix */
}
