#include "error.h"

#include <stdio.h>

const char *kvr_error_name(int code)
{
    switch (code) {
    case KVR_OK:
        return "ok";
    case KVR_E_INVALID:
        return "invalid";
    case KVR_E_TRUNCATED:
        return "truncated";
    case KVR_E_LIMIT:
        return "limit";
    case KVR_E_NOT_FOUND:
        return "not_found";
    case KVR_E_EXISTS:
        return "exists";
    case KVR_E_SCRIPT:
        return "script_error";
    case KVR_E_RUNAWAY:
        return "runaway";
    case KVR_E_IO:
        return "io";
    case KVR_E_STATE:
        return "state";
    case KVR_E_DENIED:
        return "denied";
    default:
        return "unknown";
    }
}

int kvr_error_set(struct kvr_error *error, int code, const char *format, ...)
{
    if (!error)
        return code;
    va_list arguments;
    va_start(arguments, format);
    error->code = code;
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return code;
}
