/* The process's own log: one line an event to stderr, `TIME LEVEL message key=value`; the time is
 * UTC to the millisecond, 2026-01-31T09:05:00.123Z. Control characters, which files and clients may
 * have, become `?`. Secrets never come here. */
#ifndef KVR_LOG_H
#define KVR_LOG_H

#include "check.h"

enum kvr_log_level { KVR_LOG_ERROR, KVR_LOG_WARN, KVR_LOG_INFO, KVR_LOG_DEBUG };

void kvr_log_set_level(enum kvr_log_level level); /* default KVR_LOG_INFO */
void kvr_log(enum kvr_log_level level, const char *format, ...) KVR_PRINTF(2, 3);

#endif
