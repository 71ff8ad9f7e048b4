/* Numbers as text, written to memory that is known to have room; each returns the byte after. For
 * places where printf would be the most of the work: heads, rows, JSON. */
#ifndef KVR_DIGITS_H
#define KVR_DIGITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KVR_DIGITS_MAX 20 /* of a uint64_t in decimal */

static inline char *kvr_put_uint(char *at, uint64_t value)
{
    char digits[KVR_DIGITS_MAX];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    memcpy(at, digits + first, sizeof digits - first);
    return at + (sizeof digits - first);
}

/* Sixteen hexadecimal digits. */
static inline char *kvr_put_hex64(char *at, uint64_t value)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        *at++ = "0123456789abcdef"[value >> shift & 15];
    return at;
}

#endif
