/* The heads a proxy writes: a client's request towards a replica, a replica's answer towards the
 * client. Hop-by-hop headers are dropped, what the proxy owns is replaced, everything else is
 * passed on byte for byte in its order. Framing is always written anew. */
#ifndef KVR_FORWARD_H
#define KVR_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "http.h"

struct kvr_forward_request {
    struct kvr_slice authority;    /* its Host: the replica's, or the client's own */
    int32_t rank;                  /* X-Data-Parallel-Rank; -1 none. One from outside is dropped */
    struct kvr_slice key;          /* bearer that replaces the client's; empty: none of ours */
    bool keeps_credentials;        /* the client's are for us: they go no further */
    bool keeps_conversation;       /* so does X-Conversation-Id: by it llama.cpp generates on for a
                                      client that has left */
    const struct kvr_slice *strip; /* names of further headers that stay here */
    uint32_t strip_count;
    struct kvr_slice request_id; /* X-Request-Id */
    struct kvr_slice peer;       /* client address, appended to X-Forwarded-For */
    size_t body_len;
    bool has_body; /* write Content-Length even when 0 */
};

/* Appends the request head, empty line included. */
void kvr_forward_request(struct kvr_buffer *out, const struct kvr_http_head *head,
                         const struct kvr_forward_request *how);

struct kvr_forward_answer {
    struct kvr_slice extra; /* "Name: value\r\n" lines of our own */
    bool chunked;           /* the body that follows is chunked */
    bool sized;             /* Content-Length: `length` */
    uint64_t length;
    bool close;         /* Connection: close */
    bool keep_alive_10; /* an HTTP/1.0 client that keeps its connection */
};

void kvr_forward_answer(struct kvr_buffer *out, const struct kvr_http_head *head,
                        const struct kvr_forward_answer *how);

#endif
