/* A listening socket, its clients and their limits. */
#ifndef KVR_LISTENER_H
#define KVR_LISTENER_H

#include <stdint.h>

#include "address.h"
#include "client.h"
#include "error.h"
#include "list.h"
#include "loop.h"

struct kvr_listener_options {
    uint32_t connections_max; /* default 16384; over it the one idle longest makes room, or the new
                                 one is closed */
    uint32_t descriptors_max; /* of the process; 0: do not care. Close to it, new ones are closed */
    size_t header_bytes_max;  /* default 64 KiB; over it 431 */
    uint32_t header_count_max; /* default and most KVR_HTTP_HEADERS_MAX; over it 431 */
    size_t body_bytes_max;     /* default 32 MiB; over it 413 */
    uint64_t bodies_total_max; /* default 1 GiB of request bytes held; over it 503 */
    uint64_t *held_total;      /* the count of those, shared by listeners; NULL: its own */
    uint64_t idle_ns;          /* between requests; default 75 s */
    uint64_t request_ns;       /* from the first byte of a request to its last; default 30 s, and a
                                  second more for each KVR_SLOWEST_BYTES of it */
    uint64_t write_stall_ns;   /* unsent bytes without progress; default 30 s */
    uint64_t parting_ns;       /* once stopped: an idle client may ask once more until it has been
                                  idle for so long; 0: it goes at once */
    bool waits;                /* connections wait in the backlog until kvr_listener_open */
    bool limits_are_settings;  /* a refusal names the setting to turn, else the limit itself */
    const char *headers;       /* lines of every answer made here, each with its CRLF; NULL none */
};

#define KVR_SLOWEST_BYTES 32768 /* a second: a body that comes faster is never too slow */

struct kvr_listener_counters {
    uint64_t accepted;
    uint64_t refused_connections; /* over connections_max, or close to descriptors_max */
    uint64_t out_of_connections;  /* times connections_max was reached */
    uint64_t out_of_descriptors;  /* times descriptors_max was all but reached, or was */
    uint64_t made_room;           /* idle ones closed for a new one */
    uint64_t refused_requests;    /* malformed or over a limit */
    uint64_t refused[KVR_REFUSALS];
    uint64_t timed_out;     /* all of these three */
    uint64_t idle;          /* closed for being idle too long */
    uint64_t slow, stalled; /* with a request; in taking an answer */
};

struct kvr_listener {
    uv_tcp_t tcp;
    uv_timer_t sweep;
    struct kvr_loop *loop;
    struct kvr_handler handler;
    struct kvr_listener_options options; /* defaults filled in */
    struct kvr_listener_counters counters;
    struct kvr_list idle;      /* clients between requests, longest first */
    struct kvr_list receiving; /* clients in a request, longest first */
    struct kvr_list answering;
    struct kvr_list leaving;
    uint32_t connections;
    uint64_t held_bytes;  /* in clients' buffers */
    uint64_t *held_total; /* of all that share the bound, and of what was taken out of them */
    uint64_t own_total;
    uint64_t complained_ns; /* when a failed accept was last logged */
    bool listening;
    bool handed;                    /* the socket is another's, too, or will be */
    bool stopping;                  /* no keep-alive any more */
    char address[KVR_ADDRESS_TEXT]; /* as bound: host:port */
    struct kvr_http_head head;      /* of the request being parsed: one a loop is enough */
};

/* Binds `address` ("host:port", "[v6]:port", port 0 for any free one) and listens; or listens on a
 * socket that is bound already, for "fd:N", descriptor N, which becomes the listener's. The bound
 * address stands in listener->address. */
int kvr_listener_start(struct kvr_listener *listener, struct kvr_loop *loop, const char *address,
                       const struct kvr_handler *handler,
                       const struct kvr_listener_options *options, struct kvr_error *error);
/* Accepts, where it was to wait with that. Once. */
void kvr_listener_open(struct kvr_listener *listener);
/* Stops accepting. Whoever waits in the backlog is accepted before, for the kernel resets those
 * when the socket goes; but not if the socket was handed to us: then it does not go, and they are
 * for whoever has it next. Idle clients are closed (parting_ns), the others close after their
 * answer, also of a request that has just come. */
void kvr_listener_stop(struct kvr_listener *listener);
/* Idle clients that may still ask once more, after kvr_listener_stop. */
bool kvr_listener_parting(const struct kvr_listener *listener);
/* Clients whose request is still coming, or whose last answer is still going out, those with the
 * handler not counted. */
uint32_t kvr_listener_unfinished(const struct kvr_listener *listener);
/* Closes everything now. The loop must run until kvr_listener_closed. */
void kvr_listener_close(struct kvr_listener *listener);
bool kvr_listener_closed(const struct kvr_listener *listener);

/* For client.c. May this one, just accepted, stay? */
bool kvr_listener_has_room(struct kvr_listener *listener, int fd);

#endif
