/* Failures of the world: every fallible function returns 0 or one of these negative values.
 * The text beside it, where there is one, goes into a struct kvr_error of the caller. */
#ifndef KVR_ERROR_H
#define KVR_ERROR_H

#include <stdarg.h>
#include <stddef.h>

#include "check.h"

enum kvr_error_code {
    KVR_OK = 0,
    KVR_E_INVALID = -1,   /* malformed input */
    KVR_E_TRUNCATED = -2, /* input ends too early */
    KVR_E_LIMIT = -3,     /* a named limit was reached */
    KVR_E_NOT_FOUND = -4,
    KVR_E_EXISTS = -5,
    KVR_E_SCRIPT = -6,  /* a Lua script raised an error or broke its contract */
    KVR_E_RUNAWAY = -7, /* a Lua script did not return in time and was left behind */
    KVR_E_IO = -8,      /* the operating system refused */
    KVR_E_STATE = -9,   /* not possible now */
    KVR_E_DENIED = -10,
};

/* Constant name, such as "invalid". */
const char *kvr_error_name(int code);

#define KVR_ERROR_TEXT_MAX 512

/* A failure with its reason in words. `text` is always terminated; empty when code is KVR_OK. */
struct kvr_error {
    int code;
    char text[KVR_ERROR_TEXT_MAX];
};

/* Sets both and returns `code`, so that a caller can `return kvr_error_set(...)`. A NULL error is
 * allowed: the code alone is then returned. */
int kvr_error_set(struct kvr_error *error, int code, const char *format, ...) KVR_PRINTF(3, 4);

#endif
