/* The server's side of one client connection: requests come in whole, answers go out in order. Used
 * by the ingress, the admin interface and the emulated replica alike.
 *
 * Happy path: bytes -> head found, checked and parsed -> body complete (counted, or unchunked) ->
 * on_request. The handler answers now or later, by one of two ways:
 *
 *   kvr_client_reply                            a small answer at once
 *   kvr_client_start, _send ..., _finish        an answer in pieces, framed for this client
 *   kvr_client_relay ..., kvr_client_relayed    bytes that are HTTP already
 *
 * Then the next pipelined request is taken, or the connection idles, or closes.
 *
 * Failure modes: a malformed head or body is answered here (400, 408, 413, 431, 501) and the
 * connection closes after the answer has gone out; a client that closes or breaks while its request
 * is being answered is reported once by on_gone, and the handler must forget it (one that closes
 * only its sending half counts as gone: from here the two look alike); a client too slow with its
 * request is refused, one idle too long or taking nothing is closed, by the listener's sweep. While
 * a request is being answered, further bytes are kept up to the limits of a request and then
 * reading pauses.
 *
 * Memory: about 400 bytes idle. A buffer exists only while a request is incomplete or waits. */
#ifndef KVR_CLIENT_H
#define KVR_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "chunked.h"
#include "http.h"
#include "list.h"
#include "refusal.h"
#include "stream.h"

struct kvr_client;
struct kvr_listener;

/* Valid only during on_request, except what the handler takes from it. */
struct kvr_request {
    const struct kvr_http_head *head;
    struct kvr_slice head_bytes;
    struct kvr_slice body;    /* unchunked */
    struct kvr_buffer *owned; /* when head_bytes and body lie in it, the handler may move it out */
};

struct kvr_handler {
    void *context;
    void (*on_request)(void *context, struct kvr_client *client, const struct kvr_request *request);
    /* The client is gone before its answer was complete. Not called after kvr_client_abort. */
    void (*on_gone)(void *context, struct kvr_client *client);
    /* What was written has left: room for more. Optional. */
    void (*on_drained)(void *context, struct kvr_client *client);
    /* The head of a request whose body is still to come: false after an answer that refuses it.
     * Optional; a request that came whole is asked about by on_request only. */
    bool (*on_head)(void *context, struct kvr_client *client, const struct kvr_http_head *head);
    /* A request was refused before it reached on_request. Optional. `head` NULL: it could not be
     * read. */
    void (*on_refused)(void *context, struct kvr_client *client, const struct kvr_http_head *head,
                       enum kvr_refusal refusal);
};

enum kvr_client_state {
    KVR_CLIENT_HEAD,      /* waiting for a request, or in its head */
    KVR_CLIENT_BODY,      /* in a body */
    KVR_CLIENT_ANSWERING, /* the handler has it */
    KVR_CLIENT_LEAVING,   /* the last answer is going out, then it closes */
};

struct kvr_client {
    struct kvr_stream stream;
    struct kvr_list link; /* in one of the listener's lists, by state */
    struct kvr_listener *listener;
    void *user;                 /* the handler's, NULL at each on_request */
    struct kvr_buffer in;       /* bytes of the request, or of pipelined ones */
    size_t scanned;             /* of the head */
    size_t head_size;           /* in BODY: bytes of head at the start of `in` */
    uint64_t body_left;         /* in BODY, sized: bytes still to come */
    uint64_t since_ns;          /* when it entered its list */
    struct kvr_chunked chunked; /* in BODY, chunked: payload is moved together behind the head */
    size_t body_size;           /* payload so far */
    size_t held;                /* of `in`, as counted in listener->held_bytes */
    size_t stalled;             /* unsent bytes at the last sweep that saw progress */
    enum kvr_client_state state;
    bool
        receiving; /* a request's first byte is there and its last is not: since_ns is then of it */
    bool body_is_chunked;
    bool keep_alive;      /* of the request being answered */
    bool head_only;       /* it was HEAD */
    bool http10;          /* it was HTTP/1.0 */
    bool framing_chunked; /* the answer being sent in pieces is chunked */
    bool in_handler;
    char peer[46]; /* its address in text, without the port */
};

/* ---- answers ---- */

/* A whole answer. `headers` is "Name: value\r\n" lines or empty. */
void kvr_client_reply(struct kvr_client *client, uint16_t status, struct kvr_slice headers,
                      struct kvr_slice content_type, struct kvr_slice body);
/* An error in the API's own JSON shape: {"error":{"message","type","param","code"}}. */
struct kvr_api_error {
    uint16_t status;
    const char *type;  /* "invalid_request_error", "server_error", ... */
    const char *code;  /* what went wrong, for programs */
    const char *param; /* the field it is about; NULL: none */
    int retry_after_s; /* > 0: adds Retry-After */
};
void kvr_client_error(struct kvr_client *client, const struct kvr_api_error *error,
                      struct kvr_slice headers, const char *message);
/* An answer in pieces, chunked, or by closing for HTTP/1.0. */
void kvr_client_start(struct kvr_client *client, uint16_t status, struct kvr_slice headers,
                      struct kvr_slice content_type);
void kvr_client_send(struct kvr_client *client, struct kvr_slice piece);
void kvr_client_finish(struct kvr_client *client);

/* Bytes that are HTTP already: sent as they are. */
void kvr_client_relay(struct kvr_client *client, const uv_buf_t *bufs, unsigned count);
/* The relayed answer is complete; the connection stays only if `keep` and the client wants it. */
void kvr_client_relayed(struct kvr_client *client, bool keep);

/* Cuts the connection so that the client cannot take what it has for a whole answer. */
void kvr_client_abort(struct kvr_client *client);

/* Bytes written and not yet taken by the kernel. */
static inline size_t kvr_client_unsent(const struct kvr_client *client)
{
    return kvr_stream_unsent(&client->stream);
}

/* For the listener: of the connection that libuv has for it, or of the accepted `fd`. */
void kvr_client_accept(struct kvr_listener *listener, int fd);
void kvr_client_close(struct kvr_client *client);
/* Closes an idle one, once its last answer has gone out. */
void kvr_client_dismiss(struct kvr_client *client);

#endif
