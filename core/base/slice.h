/* A run of bytes that somebody else owns. Not terminated. */
#ifndef KVR_SLICE_H
#define KVR_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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

/* Up to sixteen bytes by words that overlap: for lengths that the compiler knows. */
static inline __attribute__((always_inline)) bool kvr_same_short(const char *a, const char *b,
                                                                 size_t len)
{
    size_t word = len >= 8 ? 8 : len >= 4 ? 4 : len >= 2 ? 2 : len;
    uint64_t first = 0, second = 0, left = 0, right = 0;
    memcpy(&first, a, word);
    memcpy(&second, b, word);
    memcpy(&left, a + len - word, word);
    memcpy(&right, b + len - word, word);
    return ((first ^ second) | (left ^ right)) == 0;
}

static inline __attribute__((always_inline)) bool kvr_slice_is(struct kvr_slice a, const char *text)
{
    size_t len = strlen(text);
    if (__builtin_constant_p(len) && len > 0 && len <= 16)
        return a.len == len && kvr_same_short(a.data, text, len);
    return kvr_slice_equal(a, kvr_slice_make(text, len));
}

/* Whether up to eight bytes, as many as `b` has, are the same letters and otherwise the same. */
static inline __attribute__((always_inline)) bool kvr_same_nocase8(const char *a, const char *b,
                                                                   size_t len)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t left = 0, right = 0;
    memcpy(&left, a, len);
    memcpy(&right, b, len);
    uint64_t small = (right | ones * 0x20) & (ones * 0x7f);
    uint64_t letters = (small + ones * (0x80 - 'a')) & ~(small + ones * (0x7f - 'z')) & ~right;
    uint64_t free = (letters & (ones * 0x80)) >> 2; /* the bit that is the case of a letter */
    return ((left ^ right) & ~free) == 0;
}

/* Whether both are the same but for the case of ASCII letters. Names of headers are compared dozens
 * of times a request: inlined, because against a literal nearly nothing is left of this. */
static inline __attribute__((always_inline)) bool kvr_same_nocase(const char *a, const char *b,
                                                                  size_t len)
{
    size_t i = 0;
    for (; i + 8 <= len; i += 8)
        if (!kvr_same_nocase8(a + i, b + i, 8))
            return false;
    if (i == len)
        return true;
    if (len >= 8)
        return kvr_same_nocase8(a + len - 8, b + len - 8, 8);
    if (len >= 4)
        return kvr_same_nocase8(a, b, 4) && kvr_same_nocase8(a + len - 4, b + len - 4, 4);
    for (; i < len; i++)
        if (!kvr_same_nocase8(a + i, b + i, 1))
            return false;
    return true;
}

/* ASCII case is ignored: header names. */
static inline __attribute__((always_inline)) bool kvr_slice_is_nocase(struct kvr_slice a,
                                                                      const char *text)
{
    size_t len = strlen(text);
    return a.len == len && kvr_same_nocase(a.data, text, len);
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
