/* Allocation that cannot fail: out of memory aborts, because a router that has lost part of its
 * accounts must not go on. Every caller bounds what it asks for. */
#ifndef KVR_MEMORY_H
#define KVR_MEMORY_H

#include <stddef.h>

void *kvr_alloc(size_t size);                    /* uninitialised; freed with kvr_free */
void *kvr_alloc_zero(size_t count, size_t size); /* zeroed; checks the multiplication */
void *kvr_realloc(void *memory, size_t size);    /* NULL memory allocates */
char *kvr_strndup(const char *text, size_t len); /* terminated copy */
void kvr_free(void *memory);                     /* NULL is allowed */

#endif
