/* One request's transfer: from its dispatch to the last byte of its answer.
 *
 * Happy path:
 *   DISPATCH -> connection to the replica -> head and body written in one go -> its head read and
 *   held -> first body byte: our head and that byte go to the client -> body relayed as it comes,
 *   its framing watched for the end, its events read for usage -> row, connection back to the pool.
 *
 * Failure modes:
 *   reused connection was dead     sent again on a fresh one, same replica; once
 *   replica fails before a body byte (refused, reset, malformed)
 *                                  the router decides anew; the client sees nothing of it
 *   first-byte time-out            the same, once
 *   want of something of our own (descriptors, ports)   the same, but the replica is not to blame
 *   lost after the first body byte the client is cut without a clean end; never run twice
 *   client goes away               the connection to the replica closes at once; no retry
 *   client does not read           the replica's connection is not read either, past a bound
 *
 * Memory: the request's bytes are kept until the first body byte of an answer, then let go; an open
 * stream holds this struct and no buffer. */
#ifndef KVR_EXCHANGE_H
#define KVR_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "chunked.h"
#include "client.h"
#include "client_keys.h"
#include "list.h"
#include "router.h"
#include "time_limits.h"
#include "upstream.h"
#include "usage_reader.h"

struct kvr_ingress;

enum kvr_exchange_state {
    KVR_EXCHANGE_CONNECTING, /* or waiting for a decision */
    KVR_EXCHANGE_SENT,       /* waiting for the whole response head */
    KVR_EXCHANGE_HELD,       /* head is there and held, no body byte yet */
    KVR_EXCHANGE_RELAYING,
};

enum kvr_body_framing { KVR_BODY_NONE, KVR_BODY_SIZED, KVR_BODY_CHUNKED, KVR_BODY_UNTIL_CLOSE };

struct kvr_exchange {
    struct kvr_list link; /* ingress->exchanges */
    struct kvr_ingress *ingress;
    struct kvr_client *client;     /* NULL: gone */
    struct kvr_client_key *key;    /* it is open under; NULL: keys are off */
    struct kvr_upstream *upstream; /* NULL: none now */
    struct kvr_request_ref request;
    uint32_t replica; /* dispatched to */
    enum kvr_exchange_state state;
    struct kvr_buffer kept;   /* request head and body as they came; empty past the first byte */
    uint32_t kept_head;       /* bytes of head in it */
    struct kvr_buffer answer; /* response head so far, or held */
    enum kvr_body_framing framing;
    struct kvr_chunked chunked;
    uint64_t body_left;         /* SIZED */
    uint64_t body_bytes;        /* of the response, relayed */
    uint64_t request_bytes;     /* of the request's body */
    uint64_t sent_ns, bytes_ns; /* last sent, last byte from the replica */
    uint64_t started_ns;
    struct kvr_time_limits limits;
    uint64_t *chain;          /* block hashes, kept for a row that shows them; else NULL */
    const char *last_failure; /* why the last dispatch failed; constant */
    uint32_t chain_len;
    int connect_error;  /* why no connection could be opened */
    uint16_t status;    /* of the answer */
    bool keep_upstream; /* its head allows reuse */
    bool told_full;     /* a replica has said 503 */
    bool resent;        /* after a stale connection */
    bool was_late;      /* a replica did not begin to answer in time */
    bool unchunk;       /* the client cannot read chunks */
    bool head_only;
    bool fresh;                   /* its request is still in the client's buffer */
    bool ready;                   /* ... and the connection can be written to */
    bool reads_usage;             /* it is a routed request: its answer is read */
    struct kvr_prompt_tail *tail; /* where its prompt ended, to go on with the reply; else NULL */
    struct kvr_buffer reply;      /* the assistant's text so far, when it is wanted */
    bool reading;                 /* `usage` is set up */
    struct kvr_usage_reader usage;
};

/* What the ingress has settled about a request before it is routed. */
struct kvr_exchange_terms {
    struct kvr_time_limits limits;
    struct kvr_client_key *key; /* whose quota it was let in by; NULL: keys are off */
};

/* Takes the exchange's first action and all later ones. `request` is the client's, as it came. */
void kvr_exchange_begin(struct kvr_ingress *ingress, struct kvr_client *client,
                        const struct kvr_request *request, struct kvr_submission *submission,
                        const struct kvr_exchange_terms *terms);
void kvr_exchange_act(struct kvr_exchange *exchange, const struct kvr_action *action);
/* The client is gone: nothing is retried. */
void kvr_exchange_cancel(struct kvr_exchange *exchange);
void kvr_exchange_client_drained(struct kvr_exchange *exchange);
/* Applies the time-outs. */
void kvr_exchange_tick(struct kvr_exchange *exchange, uint64_t now_ns);
/* For a shutdown whose deadline has passed. */
void kvr_exchange_cut(struct kvr_exchange *exchange);

extern const struct kvr_upstream_events kvr_exchange_upstream_events;

#endif
