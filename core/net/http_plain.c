/* The part of http.h that reads plain heads, in one pass: a common method, a target of common
 * characters or a status with its phrase, HTTP/1.1, and headers whose names are letters, digits,
 * `-` and `_`. Nearly all heads are, and llhttp takes ten instructions for each of their bytes.
 *
 * Whatever else comes up, nothing is said here: the head is then read from its start by the
 * functions for any head. What is accepted here they accept, with the same meaning. */
#include <string.h>

#include "http_parts.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { IN_NAME = 1, IN_TARGET = 2, IN_BOTH = IN_NAME | IN_TARGET };

static const uint8_t places[256] = {
    ['0' ... '9'] = IN_BOTH, ['A' ... 'Z'] = IN_BOTH, ['a' ... 'z'] = IN_BOTH, ['-'] = IN_BOTH,
    ['_'] = IN_BOTH,         ['/'] = IN_TARGET,       ['.'] = IN_TARGET,       ['~'] = IN_TARGET,
    ['?'] = IN_TARGET,       ['='] = IN_TARGET,       ['&'] = IN_TARGET,       ['%'] = IN_TARGET,
    ['+'] = IN_TARGET,       [','] = IN_TARGET,       [':'] = IN_TARGET,
};

static inline size_t skip(const char *data, size_t len, size_t at, uint8_t place)
{
    while (at < len && places[(unsigned char)data[at]] & place)
        at++;
    return at;
}

static inline bool starts_with(const char *data, size_t len, const char *text)
{
    size_t n = strlen(text);
    return len >= n && memcmp(data, text, n) == 0;
}

/* First byte at or after data[at] that belongs in no name. */
static inline size_t skip_name(const char *data, size_t len, size_t at)
{
#ifdef __SSE2__
    for (; len - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(data + at));
        __m128i small = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
        __m128i letter = _mm_sub_epi8(small, _mm_set1_epi8('a'));
        __m128i digit = _mm_sub_epi8(bytes, _mm_set1_epi8('0'));
        __m128i good = _mm_cmpeq_epi8(_mm_min_epu8(letter, _mm_set1_epi8(25)), letter);
        good = _mm_or_si128(good, _mm_cmpeq_epi8(_mm_min_epu8(digit, _mm_set1_epi8(9)), digit));
        good = _mm_or_si128(good, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('-')));
        good = _mm_or_si128(good, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('_')));
        unsigned bad = ~(unsigned)_mm_movemask_epi8(good) & 0xffff;
        if (bad)
            return at + (size_t)__builtin_ctz(bad);
    }
#endif
    return skip(data, len, at, IN_NAME);
}

/* The headers from data[at] on and the empty line behind them. Returns the size of the head. */
static size_t read_headers(const char *data, size_t len, size_t at, struct kvr_http_head *head)
{
    while (at < len && data[at] != '\r') {
        size_t name = at;
        size_t colon = skip_name(data, len, at);
        if (colon == name || colon == len || data[colon] != ':' ||
            head->count == KVR_HTTP_HEADERS_MAX)
            return 0;
        size_t end = kvr_http_skip_plain(data, len, colon + 1);
        if (!starts_with(data + end, len - end, "\r\n") || data[end - 1] == ' ' ||
            data[end - 1] == '\t') /* a length with blanks behind it is for llhttp to judge */
            return 0;
        head->headers[head->count++] = (struct kvr_header){
            kvr_slice_make(data + name, colon - name),
            kvr_slice_make(data + colon + 1, end - colon - 1),
        };
        at = end + 2;
    }
    return starts_with(data + at, len - at, "\r\n") ? at + 2 : 0;
}

/* The rest of a head whose first line ends before data[at]. */
static size_t read_rest(const char *data, size_t len, size_t at, struct kvr_http_head *head,
                        struct kvr_slice *host)
{
    head->minor = 1;
    head->keep_alive = true;
    head->size = read_headers(data, len, at, head);
    if (head->size == 0 || kvr_http_read_framing(head, host, NULL) != 0 || head->chunked ||
        head->upgrade)
        return 0;
    return head->size;
}

size_t kvr_http_plain_request(const char *data, size_t len, struct kvr_http_head *head)
{
    static const char version[] = " HTTP/1.1\r\n";
    size_t method = starts_with(data, len, "POST /") ? 4 : starts_with(data, len, "GET /") ? 3 : 0;
    if (method == 0)
        return 0;
    size_t end = skip(data, len, method + 1, IN_TARGET);
    if (!starts_with(data + end, len - end, version))
        return 0;
    kvr_http_clear(head, 0);
    head->method = kvr_slice_make(data, method);
    head->target = kvr_slice_make(data + method + 1, end - method - 1);
    struct kvr_slice host = {NULL, 0};
    size_t size = read_rest(data, len, end + sizeof version - 1, head, &host);
    return size && kvr_http_read_target(head, host, NULL) == 0 ? size : 0;
}

size_t kvr_http_plain_response(const char *data, size_t len, struct kvr_http_head *head)
{
    static const char version[] = "HTTP/1.1 ";
    const size_t code = sizeof version - 1, phrase = code + 4;
    uint32_t status = 0;
    if (len <= phrase || !starts_with(data, len, version) || data[code] == '0' ||
        data[code + 3] != ' ' || !(places[(unsigned char)data[phrase]] & IN_NAME))
        return 0;
    for (size_t i = code; i < code + 3; i++) {
        if (data[i] < '0' || data[i] > '9')
            return 0;
        status = status * 10 + (uint32_t)(data[i] - '0');
    }
    size_t end = kvr_http_skip_plain(data, len, phrase);
    if (!starts_with(data + end, len - end, "\r\n"))
        return 0;
    kvr_http_clear(head, 0);
    head->status = (uint16_t)status;
    head->phrase = kvr_slice_make(data + phrase, end - phrase);
    struct kvr_slice host;
    return read_rest(data, len, end + 2, head, &host);
}
