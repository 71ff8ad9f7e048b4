/* Connections to one replica: a pool of idle ones, and one connection a request in flight.
 *
 * Happy path: acquire hands out the idle connection used last, or a new one that is still
 * connecting; the exchange writes its request, reads the answer, and gives the connection back.
 *
 * Failure modes:
 *   connect refused, unreachable, timed out   on_failed; the caller judges whose fault it is
 *   an idle connection closed by the engine   noticed at once (idle ones are read) and dropped
 *   closed just as it is being reused         on_failed with `stale`: not one byte came back on a
 *                                             reused connection, so a resend on a fresh one is safe
 *   anything after the first byte             on_failed, not stale
 *   bytes on an idle connection               it is closed: what they answer nobody knows
 *
 * Engines close idle connections after about 5 s; the pool lets go of them before. */
#ifndef KVR_UPSTREAM_H
#define KVR_UPSTREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "list.h"
#include "stream.h"

struct kvr_upstream;

struct kvr_upstream_events {
    void (*on_ready)(void *user); /* connected: write now */
    void (*on_sent)(void *user);  /* the last write has been given to the kernel */
    void (*on_bytes)(void *user, char *data, size_t len);
    /* The connection is gone and must not be used again. UV_EOF: the peer closed it. */
    void (*on_failed)(void *user, int uv_code, bool stale);
};

struct kvr_upstream_pool {
    struct kvr_loop *loop;
    const struct kvr_upstream_events *events; /* static */
    struct sockaddr_storage address;          /* family AF_UNSPEC: not known yet */
    uint32_t epoch;                           /* moves of it, ever */
    uint64_t idle_ns;                         /* longest an idle connection is kept; default 4 s */
    uint64_t connect_ns;                      /* connect time-out; default 5 s */
    uint32_t idle_max;                        /* idle connections kept; default 256 */
    struct kvr_list idle;                     /* most recently used first */
    struct kvr_list connecting;               /* longest first */
    uint32_t idle_count;
    uint32_t count; /* all of them, closing ones too */
    uint64_t opened, reused, stale;
    bool closing;
    void (*on_closed)(struct kvr_upstream_pool *pool); /* after kvr_upstream_pool_close */
    void *owner;                                       /* the caller's */
};

enum kvr_upstream_state { KVR_UPSTREAM_CONNECTING, KVR_UPSTREAM_BUSY, KVR_UPSTREAM_IDLE };

struct kvr_upstream {
    struct kvr_stream stream;
    struct kvr_list link;
    struct kvr_upstream_pool *pool;
    void *user;            /* NULL while idle */
    uv_connect_t *connect; /* while connecting */
    uint64_t since_ns;     /* idle since, or connecting since */
    uint64_t bytes_before; /* stream.bytes_in when it was handed out */
    enum kvr_upstream_state state;
    uint32_t epoch; /* of the address it is connected to */
    bool reused;
};

void kvr_upstream_pool_init(struct kvr_upstream_pool *pool, struct kvr_loop *loop,
                            const struct kvr_upstream_events *events,
                            const struct sockaddr *address); /* NULL: not known yet */
/* Closes idle connections; busy ones stay with their users. on_closed once all have gone. */
void kvr_upstream_pool_close(struct kvr_upstream_pool *pool);
/* The peer is at another address now: idle connections to the old one are closed, busy ones end
 * with what they carry. */
void kvr_upstream_pool_move(struct kvr_upstream_pool *pool, const struct sockaddr *address);
/* Closes what has been idle or connecting for too long; to be called about four times a second. */
void kvr_upstream_pool_sweep(struct kvr_upstream_pool *pool, uint64_t now_ns);

/* A connection for `user`. `*ready`: it is connected, and on_ready will not come. `fresh`: not an
 * idle one. NULL and a uv code in `*uv_code` when none can be opened (our own limits). */
struct kvr_upstream *kvr_upstream_acquire(struct kvr_upstream_pool *pool, void *user, bool fresh,
                                          bool *ready, int *uv_code);
void kvr_upstream_write(struct kvr_upstream *upstream, const uv_buf_t *bufs, unsigned count);
/* The answer is complete and the peer keeps the connection. */
void kvr_upstream_release(struct kvr_upstream *upstream);
/* No more events for its user; the connection is closed at once. */
void kvr_upstream_drop(struct kvr_upstream *upstream);

#endif
