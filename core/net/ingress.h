/* The ingress: one router, its listener, the pools to its replicas, and everything in the
 * background that keeps the router informed. One thread, one loop.
 *
 *   client.h ──request──> ingress.c ──submission──> router.h ──DISPATCH──> exchange.c ──>
 * upstream.h
 *                                                     ^
 *        prober, scraper, model list, reloader ───────┘
 *
 * Clients may connect from the start, and are accepted once there is somewhere to go: a replica is
 * up, or every one has been probed, at the latest KVR_DOORS_NS later.
 *
 * Ends in three steps: kvr_ingress_leave tells those who choose routers to choose another
 * (/readyz); kvr_ingress_drain stops accepting and lets streams end; kvr_ingress_close cuts what is
 * left, flushes the rows and reports by on_closed. */
#ifndef KVR_INGRESS_H
#define KVR_INGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "api_request.h"
#include "client_keys.h"
#include "error.h"
#include "exchange.h"
#include "gate_file.h"
#include "listener.h"
#include "loop.h"
#include "model_list.h"
#include "planner.h"
#include "prober.h"
#include "reloader.h"
#include "resolver.h"
#include "router.h"
#include "routing_key.h"
#include "row_log.h"
#include "scraper.h"
#include "script_store.h"
#include "session.h"
#include "spares.h"
#include "time_limits.h"
#include "upstream.h"
#include "watchdog.h"

#define KVR_LISTENERS_MAX 8
#define KVR_DOORS_NS      1000000000u

struct kvr_ingress_options {
    const char *listen[KVR_LISTENERS_MAX]; /* "127.0.0.1:8080", ... */
    uint32_t listen_count;
    struct kvr_listener_options listener;
    struct kvr_router_options router;
    struct kvr_session_options session;
    struct kvr_routing_options routing;
    struct kvr_api_options api;
    struct kvr_prompt_options prompt;
    struct kvr_prober_options prober;
    struct kvr_scraper_options scraper;
    bool scrape; /* read the engines' metrics pages */
    struct kvr_model_list_options models;
    struct kvr_resolver_options resolver;
    struct kvr_planner_options planner;
    struct kvr_row_log_options rows;       /* path NULL: no rows */
    const char *policies_dir;              /* where NAME.lua and spill/NAME.lua are */
    const char *client_keys;               /* file of them; NULL: every client is served */
    const struct kvr_slice *strip_headers; /* names that no replica sees; the caller's */
    uint32_t strip_headers_count;
    bool preserve_host;         /* replicas see the client's Host, not their own */
    bool headers;               /* send x-kvroute-* response headers */
    bool replies;               /* believe that a replica holds the replies it made */
    size_t stream_buffer_bytes; /* unsent to one client before its replica is paused */
    struct kvr_time_limits_options limits;
    uint32_t
        gather_us; /* streams' events are gathered over this while the loop is busy; 0: never */
    uint64_t pool_idle_ns;
    uint32_t script_budget_ms;
    struct kvr_gate_options gate;
};

/* What the ingress has beside the router's replica of the same slot. */
struct kvr_ingress_replica {
    struct kvr_upstream_pool *pool; /* NULL: no member at this slot */
    char *key;                      /* bearer token towards it; NULL none; never shown */
    bool tells_cached;              /* it has told cached tokens: absence then means 0 */
    bool keeps_conversations;       /* llama.cpp: see X-Conversation-Id in forward.h */
    bool told;                      /* its state was logged: the first has none before it */
};

struct kvr_ingress_counters {
    uint64_t bad_bodies; /* 400 for what is no JSON */
    uint64_t stale_resends;
    uint64_t timeouts[KVR_TIME_LIMITS]; /* of exchanges, by the limit that passed */
    uint64_t pauses; /* times a replica had to wait for a client that reads slowly */
    uint64_t lost_mid_stream;
    uint64_t malformed_answers;
};

struct kvr_ingress {
    struct kvr_ingress_options options;
    struct kvr_loop *loop;
    struct kvr_router router;
    struct kvr_listener listeners[KVR_LISTENERS_MAX];
    uint32_t listeners_count; /* that listen */
    struct kvr_prober prober;
    struct kvr_scraper scraper;
    struct kvr_model_list model_list;
    struct kvr_resolver resolver;
    struct kvr_planner planner;
    struct kvr_gate gate;
    struct kvr_row_log row_log;
    struct kvr_script_store scripts;
    struct kvr_client_keys client_keys;
    struct kvr_watchdog watchdog;
    struct kvr_ingress_replica *replicas; /* by slot */
    struct kvr_list exchanges;            /* open ones */
    struct kvr_list *cursor; /* the next one of a walk over them; one that ends meanwhile
                                is stepped over */
    uint32_t exchanges_count;
    uint32_t pools_closing;
    struct kvr_spares spares; /* of exchanges, and of what they keep of requests */
    uint64_t held_bytes;      /* of requests: in clients' buffers, and kept for another try */
    bool acting;              /* kvr_ingress_act is under way */
    struct kvr_prompt prompt; /* scratch of the scan */
    struct kvr_api_request api_request; /* of the body scanned last */
    struct kvr_http_head retry_head;    /* scratch: a kept request, parsed again */
    struct kvr_http_head answer_head;   /* scratch: the response head at hand */
    struct kvr_buffer extra_out;        /* scratch: our own lines in it */
    struct kvr_buffer head_out;         /* scratch: a head being written */
    uv_timer_t tick;
    struct kvr_ingress_counters counters;
    uint64_t nonce; /* of this process, in request ids */
    uint64_t ids;   /* request ids made */
    uint64_t started_ns;
    bool accepting;
    bool leaving;
    bool draining;
    bool closing;
    uint32_t closing_parts;
    void *closed_context;
    void (*on_closed)(void *context);
};

/* Makes the router and the script store; nothing runs yet. Choose scripts, then start. */
void kvr_ingress_init(struct kvr_ingress *ingress, struct kvr_loop *loop,
                      const struct kvr_ingress_options *options);
/* Listens and starts everything in the background. */
int kvr_ingress_start(struct kvr_ingress *ingress, struct kvr_error *error);
/* To be called when all replicas of the start have been added: accepts, if it can. */
void kvr_ingress_may_accept(struct kvr_ingress *ingress);
/* After on_closed. */
void kvr_ingress_deinit(struct kvr_ingress *ingress);

struct kvr_ingress_replica_spec {
    struct kvr_slice url; /* http://host:port, or host:port; the host may be a name */
    struct kvr_slice key; /* empty: none */
    double weight;        /* 0: 1 */
    uint32_t capacity;    /* 0: unlimited */
    int32_t rank;         /* -1: none */
    bool any_model;
    bool running;                   /* the loop runs: a name is looked up in the background */
    const struct kvr_slice *models; /* fixed names; count 0: asked for */
    uint32_t models_count;
};
/* Returns the slot or a negative code. Other replicas' streams and counts are not touched. */
int kvr_ingress_add_replica(struct kvr_ingress *ingress,
                            const struct kvr_ingress_replica_spec *spec, struct kvr_error *error);
/* No new picks; what is open on it ends by itself. */
void kvr_ingress_remove_replica(struct kvr_ingress *ingress, uint32_t slot);

void kvr_ingress_leave(struct kvr_ingress *ingress);
void kvr_ingress_drain(struct kvr_ingress *ingress);
/* Once draining: no request is open, and none is awaited (kvr_listener_parting). */
bool kvr_ingress_drained(const struct kvr_ingress *ingress);
/* Requests still open: on their way in, being served, or their answers on the way out. */
uint32_t kvr_ingress_open(const struct kvr_ingress *ingress);
void kvr_ingress_close(struct kvr_ingress *ingress, void *context,
                       void (*on_closed)(void *context));

/* ---- for exchange.c ---- */

/* Performs what the router has decided, after an event. */
void kvr_ingress_act(struct kvr_ingress *ingress);
/* Counts and writes the row of a request that was never routed. */
void kvr_ingress_refused(struct kvr_ingress *ingress, const struct kvr_submission *submission,
                         uint16_t status, const char *code);
/* Moves finished rows from the router to the log. */
void kvr_ingress_take_rows(struct kvr_ingress *ingress);
/* Fills a submission from a parsed request. Its chain lies in ingress->prompt. Negative, with the
 * reason, for a body that should be JSON and is not. */
int kvr_ingress_read(struct kvr_ingress *ingress, const struct kvr_http_head *head,
                     struct kvr_slice body, struct kvr_submission *submission,
                     struct kvr_error *error);
/* The same in two steps: what the head says, and what the body adds. */
void kvr_ingress_describe(const struct kvr_http_head *head, struct kvr_submission *submission);
int kvr_ingress_read_body(struct kvr_ingress *ingress, const struct kvr_http_head *head,
                          struct kvr_slice body, struct kvr_submission *submission,
                          struct kvr_error *error);

#endif
