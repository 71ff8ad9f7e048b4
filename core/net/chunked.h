/* The chunked transfer coding, read strictly (RFC 9112, 7.1): sizes of at most 15 hexadecimal
 * digits, CRLF line ends, extensions and trailers bounded and dropped. Cut anywhere.
 *
 *   size_t used = 0;
 *   while (used < len && !kvr_chunked_done(&chunked)) {
 *       struct kvr_slice piece;
 *       int64_t n = kvr_chunked_next(&chunked, data + used, len - used, &piece);
 *       if (n < 0) -> malformed
 *       ... piece is payload, may be empty ...
 *       used += n;
 *   } */
#ifndef KVR_CHUNKED_H
#define KVR_CHUNKED_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

#define KVR_CHUNK_EXTENSION_MAX 1024 /* bytes of extensions a chunk */
#define KVR_CHUNK_TRAILER_MAX   8192 /* bytes of trailers */

struct kvr_chunked {
    uint64_t left;  /* payload bytes of this chunk still to come */
    uint32_t extra; /* bytes of extension or trailer seen */
    uint8_t state;
    uint8_t digits;
};

/* Zeroed is the start of a body. */
/* Consumes some bytes (at least one) and returns how many; `piece` is the payload among them.
 * KVR_E_INVALID: malformed. */
int64_t kvr_chunked_next(struct kvr_chunked *chunked, const char *data, size_t len,
                         struct kvr_slice *piece);
/* The last chunk and its trailers are over. */
bool kvr_chunked_done(const struct kvr_chunked *chunked);

#endif
