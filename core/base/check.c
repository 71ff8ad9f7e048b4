#include "check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void kvr_check_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "kvroute: bug: %s:%d: check failed: %s\n", file, line, condition);
    abort();
}
