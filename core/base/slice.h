/* A run of bytes that somebody else owns. Not terminated. */
#ifndef KVR_SLICE_H
#define KVR_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

struct kvr_slice {
    const char *data; /* may be NULL when len is 0 */
    size_t len;
};

/* For string literals and terminated strings. */
static inline struct kvr_slice kvr_slice_of(const char *text)
{
    return (struct kvr_slice){text, text ? strlen(text) : 0};
}

static inline struct kvr_slice kvr_slice_make(const char *data, size_t len)
{
    return (struct kvr_slice){data, len};
}

static inline bool kvr_slice_equal(struct kvr_slice a, struct kvr_slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool kvr_slice_is(struct kvr_slice a, const char *text)
{
    return kvr_slice_equal(a, kvr_slice_of(text));
}

/* ASCII case is ignored: header names. */
static inline bool kvr_slice_is_nocase(struct kvr_slice a, const char *text)
{
    return a.len == strlen(text) && strncasecmp(a.data, text, a.len) == 0;
}

/* Without spaces and tabs at either end. */
static inline struct kvr_slice kvr_slice_trim(struct kvr_slice a)
{
    while (a.len && (a.data[0] == ' ' || a.data[0] == '\t')) {
        a.data++;
        a.len--;
    }
    while (a.len && (a.data[a.len - 1] == ' ' || a.data[a.len - 1] == '\t'))
        a.len--;
    return a;
}

#endif
