/* The inside of JSON strings: where one ends, and what its escapes stand for. Sixteen bytes a step
 * where the machine has SSE2 (64 inside a long text where it has AVX2), eight elsewhere, and never
 * a byte read at or past `end`: the input needs no slack behind it.
 *
 * Decoding turns escapes into UTF-8; a surrogate pair becomes one character of four bytes, half a
 * pair becomes U+FFFD. Raw bytes >= 0x20 pass as they are: whether they are valid UTF-8 is not
 * looked at, so equal input always gives equal output. */
#ifndef KVR_JSON_STRING_H
#define KVR_JSON_STRING_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Bytes behind the decoded text that decoding may overwrite: the output needs as much room. */
#define KVR_JSON_SLACK 32

enum kvr_json_fault {
    KVR_JSON_FAULT_NONE,
    KVR_JSON_FAULT_END,     /* the input ends inside the string */
    KVR_JSON_FAULT_CONTROL, /* a control character that should have been escaped */
    KVR_JSON_FAULT_ESCAPE,  /* a backslash before something that is no escape */
};

struct kvr_json_string_end {
    const char *at; /* the closing quote; with a fault, the byte at fault */
    enum kvr_json_fault fault : 8;
    bool escaped; /* there was at least one escape */
};

/* `at` is the byte after the opening quote. Every escape is checked. */
struct kvr_json_string_end kvr_json_string_scan(const char *at, const char *end);

/* The same walk, writing the decoded text to *out and moving *out past it. The text is never longer
 * than its escaped form; up to KVR_JSON_SLACK bytes more are overwritten. */
struct kvr_json_string_end kvr_json_string_decode(const char *at, const char *end, char **out);

/* Decodes the raw inside of a string that has been scanned before; returns the decoded length.
 * `out` has room for raw.len + KVR_JSON_SLACK. Of text that is no valid inside, what stands before
 * the fault. */
size_t kvr_json_string_unescape(struct kvr_slice raw, char *out);

#ifdef __SSE2__
/* A bit for each of sixteen bytes that is no plain text: a quote, a backslash, a control character.
 */
static inline unsigned kvr_json_special16(const unsigned char *at)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)at);
    __m128i hits =
        _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
    hits = _mm_or_si128(hits, _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1f)), v));
    return (unsigned)_mm_movemask_epi8(hits);
}
#endif

/* The closing quote of a short string of plain bytes, as nearly all keys are; NULL for any other,
 * which says nothing of it. */
static inline const char *kvr_json_string_short_end(const char *at, const char *end)
{
#ifdef __SSE2__
    unsigned mask = end - at >= 16 ? kvr_json_special16((const unsigned char *)at) : 0;
    if (mask && at[__builtin_ctz(mask)] == '"')
        return at + __builtin_ctz(mask);
#else
    (void)at;
    (void)end;
#endif
    return NULL;
}

#endif
