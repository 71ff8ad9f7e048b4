/* One small HTTP/1.1 request and its whole answer, over a connection of its own: probes, scrapes,
 * model lists, and the commands that talk to the admin interface.
 *
 * Happy path: connect -> the request goes out -> head -> body, by length, chunked or until the end
 * of the connection -> on_done with status 200 and the body -> the connection is closed.
 *
 * Failure modes, all of them by one on_done with status 0 and a uv code:
 *   nobody listens, or no route                connect_failed, the connect's code
 *   no descriptor or port left on this host    own_fault, UV_EMFILE and the like: says nothing
 *                                              about the peer
 *   timeout_ns over, in any phase              timed_out, UV_ETIMEDOUT
 *   the peer closes before its answer is whole UV_EOF, UV_ECONNRESET
 *   what comes is not HTTP                     UV_EPROTO
 *   head over 64 KiB, body over max_bytes      UV_EMSGSIZE
 *   the request cannot be written as HTTP      UV_EINVAL: a line end or a blank where none may be
 *
 * Redirects are not followed, nothing is retried. on_done comes from the loop, never from inside
 * kvr_fetch_start. Memory: about 4 KB and the answer, until the connection has closed. */
#ifndef KVR_FETCH_H
#define KVR_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "http.h"
#include "loop.h"
#include "slice.h"

struct kvr_fetch; /* its own owner; the handle is void once on_done was called or it was cancelled
                   */

/* All of it is copied. */
struct kvr_fetch_options {
    const struct sockaddr *address;
    struct kvr_slice host;    /* value of Host */
    struct kvr_slice method;  /* empty: GET */
    struct kvr_slice path;    /* with its query; empty: "/" */
    struct kvr_slice bearer;  /* Authorization: Bearer ...; empty: none */
    struct kvr_slice headers; /* more lines, each "Name: value\r\n" */
    struct kvr_slice body;    /* sent with its length unless empty and the method is GET or HEAD */
    uint64_t timeout_ns;      /* from now to the end of the answer; default 5 s */
    size_t max_bytes;         /* of the answer's body; default 4 MiB */
};

/* What came of it. Valid only during on_done. */
struct kvr_fetch_result {
    int uv_code;         /* 0: a whole answer came */
    bool timed_out;      /* uv_code is UV_ETIMEDOUT by our own clock */
    bool connect_failed; /* the connection was never made, by the peer or the network */
    bool own_fault;      /* ... or by want of something on this host */
    uint16_t status;     /* 0 without an answer */
    const struct kvr_http_head *head; /* of the answer; NULL without one */
    struct kvr_slice body;            /* unchunked */
    uint64_t duration_ns;             /* since kvr_fetch_start */
};

struct kvr_fetch *
kvr_fetch_start(struct kvr_loop *loop, const struct kvr_fetch_options *options, void *context,
                void (*on_done)(void *context, const struct kvr_fetch_result *result));
/* No on_done comes any more. The loop must run once more to give the memory back. */
void kvr_fetch_cancel(struct kvr_fetch *fetch);

#endif
