/* Big zeroed memory straight from the system: reserved at once, backed page by page when first
 * touched, so a large table costs an idle process nothing. From 2 MiB on it is aligned for and
 * advised to use huge pages: random access over 64 MiB is then limited by the memory and not by
 * address translation. Like memory.h, it does not fail: refusal aborts. */
#ifndef KVR_PAGES_H
#define KVR_PAGES_H

#include <stddef.h>

#define KVR_PAGES_HUGE ((size_t)2 << 20)

struct kvr_pages {
    void *memory; /* `bytes` of it, at least page aligned; NULL when bytes is 0 */
    size_t bytes;
    void *mapping; /* what the system gave */
    size_t mapped;
};

void kvr_pages_init(struct kvr_pages *pages, size_t bytes);
void kvr_pages_deinit(struct kvr_pages *pages);

#endif
