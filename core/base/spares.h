/* Memory that was let go and waits to be used again, for what is needed for a moment again and
 * again: the allocator takes some hundred instructions for a piece that is larger than it keeps at
 * hand itself. Pieces are powers of two; few are kept of each size, and the last one given is taken
 * first, because it is still in the cache.
 *
 *   char *memory = kvr_spares_take(&spares, size);    of kvr_spares_size(size) bytes
 *   kvr_spares_give(&spares, memory, kvr_spares_size(size));
 *
 * Under AddressSanitizer nothing is kept, so that a use after the end is still found. */
#ifndef KVR_SPARES_H
#define KVR_SPARES_H

#include <stddef.h>
#include <stdint.h>

#define KVR_SPARES_LEAST 6u /* pieces of 64 bytes ... */
#define KVR_SPARES_SIZES 9u /* ... to 16 KiB */
#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define KVR_SPARES_KEEPS 0
#else
#define KVR_SPARES_KEEPS 1
#endif
#define KVR_SPARES_EACH 64u

struct kvr_spares {
    void *pieces[KVR_SPARES_SIZES][KVR_SPARES_EACH];
    uint32_t counts[KVR_SPARES_SIZES];
};

void kvr_spares_deinit(struct kvr_spares *spares);
/* The least power of two that holds so many bytes. */
size_t kvr_spares_size(size_t size);
/* Not zeroed. */
void *kvr_spares_take(struct kvr_spares *spares, size_t size);
/* `size` is all that was allocated. Memory that was allocated elsewhere may be given, too. */
void kvr_spares_give(struct kvr_spares *spares, void *memory, size_t size);

#endif
