/* Numbers as text, written to memory that is known to have room; each returns the byte after. For
 * places where printf would be the most of the work: heads, rows, JSON. */
#ifndef KVR_DIGITS_H
#define KVR_DIGITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KVR_DIGITS_MAX 20 /* of a uint64_t in decimal */

/* "00" to "99" in a row: a division, which is what a number costs, then yields two digits. */
extern const char kvr_digit_pairs[200];

static inline size_t kvr_digits_of(uint64_t value)
{
    size_t count = 1;
    for (; value >= 10000; value /= 10000)
        count += 4;
    return count + (value >= 10) + (value >= 100) + (value >= 1000);
}

static inline char *kvr_put_uint(char *at, uint64_t value)
{
    if (value < 10) {
        *at = (char)('0' + value);
        return at + 1;
    }
    if (value < 100) {
        memcpy(at, kvr_digit_pairs + value * 2, 2);
        return at + 2;
    }
    size_t count = kvr_digits_of(value), left = count;
    for (; value >= 100; value /= 100)
        memcpy(at + (left -= 2), kvr_digit_pairs + value % 100 * 2, 2);
    if (value >= 10)
        memcpy(at, kvr_digit_pairs + value * 2, 2);
    else
        *at = (char)('0' + value);
    return at + count;
}

/* Exactly three digits, of a value below 1000. */
static inline char *kvr_put_three(char *at, uint32_t value)
{
    *at = (char)('0' + value / 100);
    memcpy(at + 1, kvr_digit_pairs + (size_t)(value % 100) * 2, 2);
    return at + 3;
}

/* Eight hexadecimal digits: each nibble to a byte of its own, and all of them to text at once. */
static inline char *kvr_put_hex32(char *at, uint32_t value)
{
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first digit is the lowest byte");
    uint64_t nibbles = __builtin_bswap32(value);
    nibbles = (nibbles | nibbles << 16) & 0x0000ffff0000ffff;
    nibbles = (nibbles | nibbles << 8) & 0x00ff00ff00ff00ff;
    nibbles = (nibbles >> 4 & 0x000f000f000f000f) | (nibbles & 0x000f000f000f000f) << 8;
    uint64_t letters = (nibbles + 0x0606060606060606) >> 4 & 0x0101010101010101;
    uint64_t text = nibbles + 0x3030303030303030 + letters * ('a' - '0' - 10);
    memcpy(at, &text, sizeof text);
    return at + sizeof text;
}

/* Sixteen hexadecimal digits. */
static inline char *kvr_put_hex64(char *at, uint64_t value)
{
    return kvr_put_hex32(kvr_put_hex32(at, (uint32_t)(value >> 32)), (uint32_t)value);
}

#endif
