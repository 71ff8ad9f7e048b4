/* One request to the endpoint and what came of it: who sent what is the driver's, how it went is
 * here. Times are kvr_loop_now's nanoseconds, taken as each read returns.
 *
 *   started ──connect──> sent ──> head ──> first byte ──> first content ... content ──> ended
 *
 * A call is embedded in the driver's own request; it keeps its memory from one request to the next.
 *
 * How it fails (enum kvr_load_failure), by what is noticed first:
 *   connect, own_limit   no connection: the endpoint's fault, this host's
 *   lost                 the connection ended before the head of an answer was whole
 *   status               an answer with a status other than 2xx
 *   truncated            the answer ended inside its framing, or its length was not reached
 *   no_done              a stream ended well by its framing, but without [DONE]
 *   error_event          the engine reported an error inside its answer
 *   aborted              finished by abort: the engine gave up
 *   malformed            not HTTP, or events that are no JSON
 *   empty                a stream without any content
 *   timeout              not over in time
 *   dropped              never sent: too many were in flight (the open driver)
 *   cancelled            cut by us, at the end of an interrupted run: not counted as a failure */
#ifndef KVR_LOAD_CALL_H
#define KVR_LOAD_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "chunked.h"
#include "list.h"
#include "upstream.h"
#include "usage_reader.h"

enum kvr_load_failure {
    KVR_LOAD_OK,
    KVR_LOAD_CONNECT,
    KVR_LOAD_OWN_LIMIT,
    KVR_LOAD_LOST,
    KVR_LOAD_STATUS,
    KVR_LOAD_TRUNCATED,
    KVR_LOAD_NO_DONE,
    KVR_LOAD_ERROR_EVENT,
    KVR_LOAD_ABORTED,
    KVR_LOAD_MALFORMED,
    KVR_LOAD_EMPTY,
    KVR_LOAD_TIMEOUT,
    KVR_LOAD_DROPPED,
    KVR_LOAD_CANCELLED,
    KVR_LOAD_FAILURES,
};

/* Constant word for rows and tables, "ok" for none. */
const char *kvr_load_failure_name(enum kvr_load_failure failure);

#define KVR_LOAD_GAPS_MAX                                                                          \
    65536 /* gaps of one stream that are kept; later ones are counted only                         \
           */
#define KVR_LOAD_LABEL_MAX 80

/* What a router like ours says of its decision; empty where nothing is said. */
struct kvr_load_labels {
    char request_id[KVR_LOAD_LABEL_MAX];
    char replica[KVR_LOAD_LABEL_MAX];
    char reason[KVR_LOAD_LABEL_MAX];
    int64_t match_bytes; /* -1: not said */
};

enum kvr_load_framing { KVR_LOAD_HEAD, KVR_LOAD_SIZED, KVR_LOAD_CHUNKED, KVR_LOAD_TO_THE_END };

struct kvr_load_call {
    struct kvr_list link; /* in the client's list of those in flight, oldest first */
    struct kvr_load_client *client;
    struct kvr_upstream *upstream;

    /* What came of it. */
    enum kvr_load_failure failure;
    uint16_t status;        /* 0: no head came */
    bool streamed;          /* the answer was a stream of events */
    bool resent;            /* on a fresh connection, the pooled one being stale */
    uint64_t started_ns;    /* when the driver gave it away */
    uint64_t sent_ns;       /* when it was written to a connection; 0: never */
    uint64_t first_byte_ns; /* of the body; 0: none */
    uint64_t ended_ns;      /* its last byte, or its failure */
    uint64_t body_bytes;    /* payload */
    float *gaps_ns;         /* owned: between events with content, in order */
    uint32_t gaps_len;
    uint32_t gaps_capacity;
    struct kvr_load_labels labels;
    struct kvr_usage_reader usage; /* content events, token counts */

    /* On the way. */
    struct kvr_buffer head; /* of the answer, while it is in pieces */
    size_t scanned;
    enum kvr_load_framing framing;
    uint64_t left; /* SIZED: bytes to come */
    struct kvr_chunked chunked;
    bool keep;    /* the peer keeps the connection */
    bool reading; /* `usage` is set up */
};

/* Zeroed is ready. */
void kvr_load_call_deinit(struct kvr_load_call *call);

/* Tokens of the answer: as the engine counted, else its events with content. */
uint32_t kvr_load_call_output_tokens(const struct kvr_load_call *call);
/* The median gap, as numpy takes it: of an even number the mean of the two in the middle. Puts the
 * gaps in another order. 0 without any. */
double kvr_load_call_median_gap(struct kvr_load_call *call);

#endif
