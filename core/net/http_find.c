/* The part of http.h that finds where a head ends, and refuses bytes that no head may hold. */
#include "http_parts.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* What a head may hold: 0 fine, 1 look closer, 2 never. */
static const uint8_t head_bytes[256] = {
    [0] = 2,  [1] = 2,  [2] = 2,  [3] = 2,  [4] = 2,  [5] = 2,  [6] = 2,  [7] = 2,
    [8] = 2,  [10] = 1, [11] = 2, [12] = 2, [13] = 1, [14] = 2, [15] = 2, [16] = 2,
    [17] = 2, [18] = 2, [19] = 2, [20] = 2, [21] = 2, [22] = 2, [23] = 2, [24] = 2,
    [25] = 2, [26] = 2, [27] = 2, [28] = 2, [29] = 2, [30] = 2, [31] = 2, [127] = 2,
};

size_t kvr_http_skip_plain(const char *data, size_t len, size_t i)
{
#ifdef __SSE2__
    /* Signed: 0x80..0xff are below every bound, so they are put aside first. */
    const __m128i low = _mm_set1_epi8(0x20), del = _mm_set1_epi8(0x7f), tab = _mm_set1_epi8('\t');
    const __m128i zero = _mm_setzero_si128();
    for (; i + 16 <= len; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(data + i));
        __m128i control = _mm_andnot_si128(_mm_cmplt_epi8(bytes, zero), _mm_cmplt_epi8(bytes, low));
        control = _mm_andnot_si128(_mm_cmpeq_epi8(bytes, tab), control);
        int hits = _mm_movemask_epi8(_mm_or_si128(control, _mm_cmpeq_epi8(bytes, del)));
        if (hits)
            return i + (size_t)__builtin_ctz((unsigned)hits);
    }
#endif
    while (i < len && head_bytes[(unsigned char)data[i]] == 0)
        i++;
    return i;
}

int64_t kvr_http_find_head(const char *data, size_t len, size_t *scanned, struct kvr_error *error)
{
    size_t i = *scanned;
    for (; (i = kvr_http_skip_plain(data, len, i)) < len; i++) {
        unsigned char c = (unsigned char)data[i];
        if (head_bytes[c] == 2)
            return kvr_error_set(error, KVR_E_INVALID, "control character 0x%02x in the head", c);
        if (c == '\n')
            return kvr_error_set(error, KVR_E_INVALID, "line feed without carriage return");
        if (i + 1 == len)
            break; /* CR at the end: wait for what follows */
        if (data[i + 1] != '\n')
            return kvr_error_set(error, KVR_E_INVALID, "carriage return without line feed");
        if (i >= 2 && data[i - 1] == '\n') {
            *scanned = i;
            return (int64_t)(i + 2);
        }
        i++;
        if (i + 1 < len && (data[i + 1] == ' ' || data[i + 1] == '\t'))
            return kvr_error_set(error, KVR_E_INVALID, "folded or blank-led header line");
    }
    /* A pair at the very end is looked at again with what follows it. */
    if (i >= 2 && i == len && data[i - 1] == '\n')
        i -= 2;
    *scanned = i;
    return 0;
}
