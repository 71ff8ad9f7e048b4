/* What RFC 9112 makes of the bytes that a server sends behind one request. Heads are read by
 * http.c, which has targets of its own; bodies by the strict reader. */
#ifndef EXPECTED_ANSWER_H
#define EXPECTED_ANSWER_H

#include "http.h"
#include "strict_http.h"

struct expected_answer {
    bool whole; /* there is a final answer, complete and well formed */
    bool until_close;
    uint16_t status;
    struct kvr_buffer body; /* the caller's to deinit */
};

/* `closes`: the server ends its side behind the bytes. */
static inline struct expected_answer expect_answer(struct kvr_slice bytes, bool head_only,
                                                   bool closes)
{
    static struct kvr_http_head head;
    struct expected_answer expected = {.whole = false};
    for (;;) {
        size_t scanned = 0;
        int64_t size = kvr_http_find_head(bytes.data, bytes.len, &scanned, NULL);
        if (size <= 0 || kvr_http_parse_response(bytes.data, (size_t)size, &head, NULL) != 0 ||
            head.status == 101)
            return expected;
        bytes.data += size;
        bytes.len -= (size_t)size;
        if (head.status >= 200)
            break;
    }
    expected.status = head.status;
    bool empty = head_only || head.status == 204 || head.status == 304;
    struct strict_message message = {.chunked = head.chunked && !empty,
                                     .sized = head.has_length && !empty,
                                     .length = head.content_length};
    expected.until_close = !empty && !head.chunked && !head.has_length;
    expected.whole = strict_body(&message, bytes, expected.until_close) == STRICT_OK;
    if (expected.until_close && !closes)
        expected.whole = false; /* no end of file, no end */
    expected.body = message.body;
    return expected;
}

#endif
