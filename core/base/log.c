#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static enum kvr_log_level log_level = KVR_LOG_INFO;

void kvr_log_set_level(enum kvr_log_level level)
{
    log_level = level;
}

/* Returns its length. */
static int put_time(char *out, size_t room)
{
    struct timespec now;
    struct tm utc;
    KVR_CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0 && gmtime_r(&now.tv_sec, &utc));
    size_t len = strftime(out, room, "%Y-%m-%dT%H:%M:%S", &utc);
    return (int)len + snprintf(out + len, room - len, ".%03dZ ", (int)(now.tv_nsec / 1000000));
}

void kvr_log(enum kvr_log_level level, const char *format, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (level > log_level)
        return;
    char line[1024];
    int at = put_time(line, sizeof line);
    at += snprintf(line + at, sizeof line - (size_t)at, "%s ", names[level]);
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + at, sizeof line - (size_t)at - 1, format, arguments);
    va_end(arguments);
    size_t len = (size_t)at + (more > 0 ? (size_t)more : 0);
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    for (size_t i = (size_t)at; i < len; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[len] = '\n';
    fwrite(line, 1, len + 1, stderr); /* one write: lines of several processes do not mix */
}
