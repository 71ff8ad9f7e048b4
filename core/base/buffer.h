/* A growable run of bytes that its holder owns. Zeroed is empty; growth doubles and never fails
 * (memory.h). Callers that take bytes from outside compare with their own limit before appending.
 */
#ifndef KVR_BUFFER_H
#define KVR_BUFFER_H

#include <stddef.h>

#include "check.h"
#include "slice.h"

struct kvr_buffer {
    char *data;
    size_t len;      /* bytes in use */
    size_t capacity; /* bytes allocated */
};

void kvr_buffer_deinit(struct kvr_buffer *buffer);
/* Makes room for `more` bytes past len and returns the first of them. */
char *kvr_buffer_reserve(struct kvr_buffer *buffer, size_t more);
void kvr_buffer_append(struct kvr_buffer *buffer, const void *data, size_t len);
void kvr_buffer_append_slice(struct kvr_buffer *buffer, struct kvr_slice slice);
void kvr_buffer_append_text(struct kvr_buffer *buffer, const char *text);
void kvr_buffer_printf(struct kvr_buffer *buffer, const char *format, ...) KVR_PRINTF(2, 3);
/* Drops the first `len` bytes, moving the rest to the front. */
void kvr_buffer_consume(struct kvr_buffer *buffer, size_t len);

static inline struct kvr_slice kvr_buffer_slice(const struct kvr_buffer *buffer)
{
    return (struct kvr_slice){buffer->data, buffer->len};
}

#endif
