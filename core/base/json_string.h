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

#endif
