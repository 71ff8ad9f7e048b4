#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

void *kvr_alloc(size_t size)
{
    void *memory = malloc(size ? size : 1);
    KVR_CHECK(memory);
    return memory;
}

void *kvr_alloc_zero(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    KVR_CHECK(memory);
    return memory;
}

void *kvr_realloc(void *memory, size_t size)
{
    memory = realloc(memory, size ? size : 1);
    KVR_CHECK(memory);
    return memory;
}

char *kvr_strndup(const char *text, size_t len)
{
    char *copy = kvr_alloc(len + 1);
    if (len)
        memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

void kvr_free(void *memory)
{
    free(memory);
}
