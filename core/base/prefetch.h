/* Asks for memory before it is needed. The addresses need not be valid. */
#ifndef KVR_PREFETCH_H
#define KVR_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

#define KVR_CACHE_LINE ((uintptr_t)64)

/* The line at an address. The assembler line is no instruction. Without it GCC takes a function
 * that does nothing but prefetch for one without effect, and drops the calls of it with the loops
 * around them. */
static inline void kvr_prefetch(const void *address)
{
    __builtin_prefetch(address);
    __asm__ volatile("");
}

/* All lines of `bytes` at an address. */
static inline void kvr_prefetch_all(const void *address, size_t bytes)
{
    uintptr_t line = (uintptr_t)address & ~(KVR_CACHE_LINE - 1);
    for (; line < (uintptr_t)address + bytes; line += KVR_CACHE_LINE)
        kvr_prefetch((const void *)line);
}

#endif
