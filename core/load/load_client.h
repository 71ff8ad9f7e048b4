/* Sends requests to one endpoint over kept connections and reads the answers: server-sent events,
 * or one JSON text. Nothing is queued: a call finds an idle connection or opens one.
 *
 * Happy path: kvr_load_client_start -> the request's bytes are asked for (on_write) and go out, at
 * once on a kept connection -> head -> body, of which content events and counts are noted -> the
 * connection goes back -> on_done, in which the next call may start: it leaves by the same
 * connection, in the same turn of the loop.
 *
 * Failure modes: see load_call.h; each ends in one on_done. A kept connection that the peer closed
 * as it was being used again is no failure: the request is sent once more on a fresh one, for which
 * on_write is asked again and must give the same bytes. Nothing else is retried.
 *
 * Memory: the call, some KB of unsent or unfinished bytes while there are any, and the gaps. */
#ifndef KVR_LOAD_CLIENT_H
#define KVR_LOAD_CLIENT_H

#include "http.h"
#include "load_call.h"
#include "load_target.h"

struct kvr_load_client_options {
    const struct kvr_load_target *target; /* copied */
    const char *path;                     /* below the target's base, such as "/v1/completions" */
    const char *key;                      /* bearer token; NULL: none. Copied, never shown */
    struct kvr_slice headers;             /* more lines, each "Name: value\r\n"; copied */
    uint64_t timeout_ns;                  /* of one call */
};

struct kvr_load_message {
    struct kvr_buffer *body;  /* empty, to be filled */
    struct kvr_slice session; /* for X-Session-Id; empty: none. Valid until the next on_write */
};

struct kvr_load_client_events {
    void (*on_write)(void *context, struct kvr_load_call *call, struct kvr_load_message *message);
    void (*on_done)(void *context, struct kvr_load_call *call);
};

struct kvr_load_client {
    struct kvr_loop *loop;
    struct kvr_upstream_pool pool;
    struct kvr_buffer start; /* of every request head, up to and with "Content-Length: " */
    uint64_t timeout_ns;
    const struct kvr_load_client_events *events; /* static */
    void *context;
    struct kvr_list calls; /* in flight, oldest first */
    uint32_t in_flight;
    uint64_t resent;                   /* counter: on stale connections */
    struct kvr_buffer head, body;      /* scratch: one request is written at a time */
    struct kvr_http_head *answer_head; /* scratch */
    uv_timer_t sweep;
    void *closed_context;
    void (*on_closed)(void *context);
};

/* KVR_E_INVALID: a key or header that no head may hold. */
int kvr_load_client_open(struct kvr_load_client *client, struct kvr_loop *loop,
                         const struct kvr_load_client_options *options,
                         const struct kvr_load_client_events *events, void *context,
                         struct kvr_error *error) KVR_MUST_USE;
/* No call may be in flight. on_closed comes from the loop once every connection is gone. */
void kvr_load_client_close(struct kvr_load_client *client, void *context,
                           void (*on_closed)(void *context));

/* False: it failed at once (`call->failure`), and on_done does not come. */
bool kvr_load_client_start(struct kvr_load_client *client, struct kvr_load_call *call);
/* Makes a call that is not sent, of `dropped`. */
void kvr_load_client_drop(struct kvr_load_client *client, struct kvr_load_call *call);
/* Cuts all calls in flight: on_done comes for each, now, with `cancelled`. */
void kvr_load_client_cancel(struct kvr_load_client *client);

#endif
