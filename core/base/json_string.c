#include "json_string.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#define HAS_WIDE
#define WIDE_FROM 96 /* bytes left from which the wider steps are worth their start */
#endif

#define NOT_HEX 0x10000u /* stays above 16 bits however far it is shifted */

/* What a one-letter escape stands for; 0 where there is none. */
static const unsigned char simple_escapes[256] = {
    ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
    ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
};

static const uint32_t hex_values[256] = {
    [0 ... '0' - 1] = NOT_HEX,
    ['0'] = 0,
    ['1'] = 1,
    ['2'] = 2,
    ['3'] = 3,
    ['4'] = 4,
    ['5'] = 5,
    ['6'] = 6,
    ['7'] = 7,
    ['8'] = 8,
    ['9'] = 9,
    ['9' + 1 ... 'A' - 1] = NOT_HEX,
    ['A'] = 10,
    ['B'] = 11,
    ['C'] = 12,
    ['D'] = 13,
    ['E'] = 14,
    ['F'] = 15,
    ['F' + 1 ... 'a' - 1] = NOT_HEX,
    ['a'] = 10,
    ['b'] = 11,
    ['c'] = 12,
    ['d'] = 13,
    ['e'] = 14,
    ['f'] = 15,
    ['f' + 1 ... 255] = NOT_HEX,
};

static inline bool plain(unsigned char c)
{
    return c >= 0x20 && c != '"' && c != '\\';
}

/* Non-zero when one of the eight bytes is a quote, a backslash or a control character. */
static inline uint64_t special8(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
    uint64_t control = (word - ones * 0x20) & ~word;
    return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | control) & high;
}

#ifdef HAS_WIDE
/* The same in the middle of a long text, 64 bytes a step from at[n] on, while all of them are
 * plain. Returns how far it came. */
__attribute__((target("avx2"))) static size_t wide_run(const unsigned char *at, size_t n,
                                                       size_t len, unsigned char **out)
{
    unsigned char *to = out ? *out : NULL;
    /* By the lower half of a byte: the one with that half which is neither plain nor a control. */
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, '"', 0, 0, 0, 0, 0, 0, 0, 0, 0, '\\', 0, 0, 0));
    const __m256i controls = _mm256_set1_epi8(0x1f);
    for (; len - n >= 64; n += 64) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(at + n));
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(at + n + 32));
        if (out) {
            _mm256_storeu_si256((__m256i *)(void *)(to + n), a);
            _mm256_storeu_si256((__m256i *)(void *)(to + n + 32), b);
        }
        __m256i low = _mm256_min_epu8(a, b);
        __m256i hits = _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_shuffle_epi8(odd, a), a),
                                       _mm256_cmpeq_epi8(_mm256_shuffle_epi8(odd, b), b));
        hits = _mm256_or_si256(hits, _mm256_cmpeq_epi8(_mm256_min_epu8(low, controls), low));
        if (!_mm256_testz_si256(hits, hits))
            break;
    }
    return n;
}
#endif

/* Copies (or, without `out`, passes over) plain bytes; stops at the first that is not, or at `end`.
 * Bytes are stored before they are tested: what lies past the stop is overwritten later. */
static inline const unsigned char *plain_run(const unsigned char *at, const unsigned char *end,
                                             unsigned char **out)
{
    unsigned char *to = out ? *out : NULL;
    size_t n = 0, len = (size_t)(end - at);
#ifdef __SSE2__
    while (len - n >= 16) {
        unsigned mask = kvr_json_special16(at + n);
        if (out)
            memcpy(to + n, at + n, 16);
        if (mask) {
            n += (unsigned)__builtin_ctz(mask);
            if (out)
                *out = to + n;
            return at + n;
        }
        n += 16;
#ifdef HAS_WIDE
        if (n == 16 && len >= WIDE_FROM && __builtin_cpu_supports("avx2"))
            n = wide_run(at, n, len, out);
#endif
    }
#endif
    while (len - n >= 8) {
        uint64_t word;
        memcpy(&word, at + n, 8);
        if (special8(word))
            break;
        if (out)
            memcpy(to + n, &word, 8);
        n += 8;
    }
    for (; n < len && plain(at[n]); n++)
        if (out)
            to[n] = at[n];
    if (out)
        *out = to + n;
    return at + n;
}

/* Four hexadecimal digits; above 0xffff when one of them is none. */
static inline uint32_t hex4(const unsigned char *at)
{
    return hex_values[at[0]] << 12 | hex_values[at[1]] << 8 | hex_values[at[2]] << 4 |
           hex_values[at[3]];
}

static inline unsigned char *put_utf8(unsigned char *out, uint32_t c)
{
    if (c >= 0x10000) {
        *out++ = (unsigned char)(0xf0 | c >> 18);
        *out++ = (unsigned char)(0x80 | (c >> 12 & 0x3f));
        *out++ = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    } else if (c >= 0x800) {
        *out++ = (unsigned char)(0xe0 | c >> 12);
        *out++ = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    } else if (c >= 0x80) {
        *out++ = (unsigned char)(0xc0 | c >> 6);
    } else {
        *out++ = (unsigned char)c;
        return out;
    }
    *out++ = (unsigned char)(0x80 | (c & 0x3f));
    return out;
}

/* A run of \uXXXX at *at, which starts with one: text outside ASCII comes in such runs. Leaves *at
 * behind the run, or at the escape that is at fault. */
static inline enum kvr_json_fault unicode_run(const unsigned char **at, const unsigned char *end,
                                              unsigned char **out)
{
    const unsigned char *in = *at;
    unsigned char *to = out ? *out : NULL;
    enum kvr_json_fault fault = end - in < 6 ? KVR_JSON_FAULT_END : KVR_JSON_FAULT_NONE;
    while (end - in >= 6 && in[0] == '\\' && in[1] == 'u') {
        uint32_t c = hex4(in + 2);
        if (c > 0xffff) {
            fault = KVR_JSON_FAULT_ESCAPE;
            break;
        }
        in += 6;
        if (!out)
            continue;
        if ((c & 0xf800) == 0xd800) { /* half of a pair */
            uint32_t low = 0;
            if (c < 0xdc00 && end - in >= 6 && in[0] == '\\' && in[1] == 'u')
                low = hex4(in + 2);
            if ((low & ~0x3ffu) == 0xdc00) { /* all bits: one that is no digit is far above 16 */
                c = 0x10000 + ((c & 0x3ff) << 10) + (low & 0x3ff);
                in += 6;
            } else {
                c = 0xfffd;
            }
        }
        to = put_utf8(to, c);
    }
    *at = in;
    if (out)
        *out = to;
    return fault;
}

/* One walk for scanning and for decoding: inlined into both with `out` known to be there or not. */
static inline __attribute__((always_inline)) struct kvr_json_string_end
walk(const char *start, const char *limit, unsigned char **out)
{
    const unsigned char *at = (const unsigned char *)start;
    const unsigned char *end = (const unsigned char *)limit;
    struct kvr_json_string_end result = {.fault = KVR_JSON_FAULT_NONE};
    for (;;) {
        at = plain_run(at, end, out);
        if (at == end) {
            result.fault = KVR_JSON_FAULT_END;
            break;
        }
        if (*at != '\\') {
            if (*at != '"')
                result.fault = KVR_JSON_FAULT_CONTROL;
            break;
        }
        result.escaped = true;
        if (end - at < 2) {
            result.fault = KVR_JSON_FAULT_END;
            break;
        }
        unsigned char simple = simple_escapes[at[1]];
        if (simple) {
            if (out)
                *(*out)++ = simple;
            at += 2;
            continue;
        }
        enum kvr_json_fault fault = KVR_JSON_FAULT_ESCAPE;
        if (at[1] == 'u')
            fault = unicode_run(&at, end, out);
        if (fault != KVR_JSON_FAULT_NONE) {
            result.fault = fault;
            break;
        }
    }
    result.at = (const char *)at;
    return result;
}

struct kvr_json_string_end kvr_json_string_scan(const char *at, const char *end)
{
    return walk(at, end, NULL);
}

struct kvr_json_string_end kvr_json_string_decode(const char *at, const char *end, char **out)
{
    unsigned char *to = (unsigned char *)*out;
    struct kvr_json_string_end result = walk(at, end, &to);
    *out = (char *)to;
    return result;
}

size_t kvr_json_string_unescape(struct kvr_slice raw, char *out)
{
    char *to = out;
    if (raw.len)
        kvr_json_string_decode(raw.data, raw.data + raw.len, &to);
    return (size_t)(to - out);
}
