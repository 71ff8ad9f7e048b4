/* Which bytes are UTF-8 (RFC 3629: no surrogates, no overlong forms, up to U+10FFFF). */
#ifndef KVR_UTF8_H
#define KVR_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

/* Length of the valid sequence at the start of `text`, 1 to 4; 0 when there is none. */
static inline size_t kvr_utf8_length(struct kvr_slice text)
{
    const unsigned char *at = (const unsigned char *)text.data;
    if (text.len == 0)
        return 0;
    if (at[0] < 0x80)
        return 1;
    size_t len = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : at[0] >= 0xc2 ? 2 : 0;
    if (len == 0 || len > text.len || at[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    bool surrogate = at[0] == 0xed && at[1] > 0x9f;
    bool beyond = at[0] == 0xf4 && at[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : len;
}

#endif
