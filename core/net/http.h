/* Heads of HTTP/1 messages: finding their end, parsing them strictly, and the framing they
 * announce.
 *
 * llhttp reads the head; what it would let through is refused here: bare CR or LF, NUL and other
 * controls, folded lines, white space around a name or too much of it in the request line, a tab or
 * a fragment in the target, protocols that are not HTTP, a Host that is no host, Content-Length
 * together with Transfer-Encoding, more than one length, any transfer coding but chunked. So a head
 * that is accepted has no second reading anywhere behind us. Heads as plain as nearly all are take
 * a shorter way (http_plain.c), which leaves all others to that reading.
 *
 * A parsed head is slices into the caller's bytes and is valid as long as they are. It is large
 * (its header array); there is one a loop, not one a connection. */
#ifndef KVR_HTTP_H
#define KVR_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"
#include "error.h"
#include "header.h"
#include "slice.h"

#define KVR_HTTP_HEADERS_MAX 100

struct kvr_http_head {
    struct kvr_slice method; /* request */
    struct kvr_slice target; /* request: as sent */
    struct kvr_slice path; /* request: the target without its query and, if absolute, its origin */
    struct kvr_slice host; /* request: Host, or the origin of an absolute target */
    uint16_t status;       /* response */
    struct kvr_slice phrase; /* response: after the status code */
    uint8_t minor;           /* HTTP/1.minor: 0 or 1 */
    bool keep_alive;
    bool chunked;
    bool has_length;
    bool expect_continue;
    bool expect_other; /* something that nobody here can do */
    bool upgrade;
    uint64_t content_length;     /* when has_length */
    struct kvr_slice connection; /* the last Connection that says something; else empty */
    size_t size;                 /* bytes of the head, with the empty line */
    uint32_t name_lengths;       /* kvr_http_length_bit of every name */
    uint32_t count;
    struct kvr_header headers[KVR_HTTP_HEADERS_MAX];
};

/* Looks for the empty line. Returns the size of the head, 0 when it is not complete yet, or
 * KVR_E_INVALID with the reason for bytes no head may have. `*scanned` starts at 0 and carries over
 * between calls on the same growing bytes. */
int64_t kvr_http_find_head(const char *data, size_t len, size_t *scanned, struct kvr_error *error);

/* Parse a head of exactly `size` bytes, as found above. KVR_E_INVALID with the reason; KVR_E_LIMIT
 * for more than KVR_HTTP_HEADERS_MAX headers. */
int kvr_http_parse_request(const char *data, size_t size, struct kvr_http_head *head,
                           struct kvr_error *error);
int kvr_http_parse_response(const char *data, size_t size, struct kvr_http_head *head,
                            struct kvr_error *error);

/* Find and parse a head at the start of data, for those as plain as nearly all are, at a fraction
 * of the cost. Return its size; 0 for any other and for one that is not whole yet, which says
 * nothing of it: the functions above are to be asked. */
size_t kvr_http_plain_request(const char *data, size_t len, struct kvr_http_head *head);
size_t kvr_http_plain_response(const char *data, size_t len, struct kvr_http_head *head);

struct kvr_slice kvr_http_find_header(const struct kvr_http_head *head, struct kvr_slice name);

static inline uint32_t kvr_http_length_bit(size_t len)
{
    return UINT32_C(1) << len % 32;
}

/* First header of that name (ASCII case ignored), or an empty slice. Most that are asked for are
 * not there, which the lengths of the names tell. */
static inline struct kvr_slice kvr_http_header(const struct kvr_http_head *head, const char *name)
{
    struct kvr_slice wanted = kvr_slice_of(name);
    if (head->name_lengths & kvr_http_length_bit(wanted.len))
        return kvr_http_find_header(head, wanted);
    return kvr_slice_make(NULL, 0);
}

/* Is it for one hop only: the fixed list, or named by Connection? Framing headers are. */
bool kvr_http_is_hop_by_hop(const struct kvr_http_head *head, struct kvr_slice name);
/* Whether a response with this status to this method has a body. */
bool kvr_http_response_has_body(uint16_t status, struct kvr_slice method);
/* The standard phrase of a status code, "" when unknown. */
const char *kvr_http_phrase(uint16_t status);

#endif
