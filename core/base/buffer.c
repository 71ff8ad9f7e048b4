#include "buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"

void kvr_buffer_deinit(struct kvr_buffer *buffer)
{
    kvr_free(buffer->data);
    *buffer = (struct kvr_buffer){0};
}

char *kvr_buffer_reserve(struct kvr_buffer *buffer, size_t more)
{
    KVR_CHECK(buffer->len <= buffer->capacity);
    KVR_CHECK(more <= (size_t)1 << 40);
    if (buffer->capacity - buffer->len < more) {
        size_t capacity = buffer->capacity ? buffer->capacity : 64;
        while (capacity - buffer->len < more)
            capacity *= 2;
        buffer->data = kvr_realloc(buffer->data, capacity);
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->len;
}

void kvr_buffer_append(struct kvr_buffer *buffer, const void *data, size_t len)
{
    if (len == 0)
        return;
    memcpy(kvr_buffer_reserve(buffer, len), data, len);
    buffer->len += len;
}

void kvr_buffer_append_slice(struct kvr_buffer *buffer, struct kvr_slice slice)
{
    kvr_buffer_append(buffer, slice.data, slice.len);
}

void kvr_buffer_append_text(struct kvr_buffer *buffer, const char *text)
{
    kvr_buffer_append(buffer, text, strlen(text));
}

void kvr_buffer_printf(struct kvr_buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    KVR_CHECK(len >= 0);
    char *at = kvr_buffer_reserve(buffer, (size_t)len + 1);
    va_start(arguments, format);
    vsnprintf(at, (size_t)len + 1, format, arguments);
    va_end(arguments);
    buffer->len += (size_t)len;
}

void kvr_buffer_consume(struct kvr_buffer *buffer, size_t len)
{
    KVR_CHECK(len <= buffer->len);
    if (len && len < buffer->len)
        memmove(buffer->data, buffer->data + len, buffer->len - len);
    buffer->len -= len;
}
