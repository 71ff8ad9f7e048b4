/* One TCP connection with bounded buffering in both directions.
 *
 * Reading: bytes arrive in the loop's shared memory, at once or with those of others in a busy turn
 * (inbox.h), and live only during on_data, unless the owner offers its own memory by on_space (a
 * body whose length is known). Reading goes on all the time, so that a peer's close is noticed at
 * once; kvr_stream_pause is for back-pressure only, because stopping and starting costs two system
 * calls each. What had been read by then still comes: at most KVR_INBOX_ROOM bytes.
 *
 * Writing: to the socket, at once or with the others of a busy turn (outbox.h); what the kernel
 * does not take is copied and sent when it can, and on_drained tells when all of it has gone. The
 * owner stops feeding a stream whose kvr_stream_unsent exceeds its mark.
 *
 * Closing: kvr_stream_close may be called at any time, also inside callbacks; on_closed comes once,
 * from the loop, and only then may the memory of the stream go. After the call no other callback
 * comes. When the peer closes or the connection breaks, on_end is called once and the owner closes.
 *
 * Failure modes: EOF, reset, write error: all end in on_end with a uv error code. Nothing here
 * retries. Memory: the struct, plus one buffer while bytes wait to be sent. */
#ifndef KVR_STREAM_H
#define KVR_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"
#include "loop.h"

struct kvr_stream;

struct kvr_stream_events {
    /* Optional: where to put the next bytes; return 0 for the shared buffer. */
    size_t (*on_space)(struct kvr_stream *stream, char **memory);
    void (*on_data)(struct kvr_stream *stream, char *data, size_t len);
    void (*on_end)(struct kvr_stream *stream, int uv_code); /* UV_EOF, UV_ECONNRESET, ... */
    /* Optional: what was written last has been given to the kernel, as far as it took it. */
    void (*on_sent)(struct kvr_stream *stream);
    void (*on_drained)(struct kvr_stream *stream);
    void (*on_closed)(struct kvr_stream *stream);
};

struct kvr_stream_unsent; /* bytes the kernel has not taken, and the request that waits for it */

struct kvr_stream {
    uv_tcp_t tcp;
    struct kvr_loop *loop;
    const struct kvr_stream_events *events; /* static */
    struct kvr_stream_unsent *unsent;       /* NULL: all sent */
    int fd;                                 /* once started */
    uint64_t bytes_in;
    uint64_t bytes_out; /* accepted for sending */
    bool reading;
    bool paused;
    bool read;  /* bytes of this turn are still in the inbox */
    bool boxed; /* a write of this turn is still in the outbox */
    bool ended; /* on_end was called */
    bool closing;
};

/* Prepares the handle; the caller then accepts or connects on `tcp`. */
void kvr_stream_init(struct kvr_stream *stream, struct kvr_loop *loop,
                     const struct kvr_stream_events *events);
/* Once connected: turns off Nagle's algorithm and starts to read. */
void kvr_stream_start(struct kvr_stream *stream);
/* Reads what has come by now, before the loop does, and gives its owner what is in the inbox; while
 * it is paused only that. */
void kvr_stream_read(struct kvr_stream *stream);
/* For inbox.c: gives its owner what was read. */
void kvr_stream_serve(struct kvr_stream *stream, char *data, size_t len);
void kvr_stream_pause(struct kvr_stream *stream);
void kvr_stream_resume(struct kvr_stream *stream);
/* Has the peer closed or broken the connection? For a paused stream, which hears of neither. */
bool kvr_stream_peer_left(const struct kvr_stream *stream);

/* Sends all of the buffers, in order, copying what cannot go now. A broken connection is reported
 * by on_end from the loop, not here. At most KVR_STREAM_BUFS buffers. */
#define KVR_STREAM_BUFS 32
void kvr_stream_write(struct kvr_stream *stream, const uv_buf_t *bufs, unsigned count);
/* Sends now what is still in the outbox: before a FIN, say. */
void kvr_stream_flush(struct kvr_stream *stream);
/* For outbox.c: the write itself. */
void kvr_stream_send(struct kvr_stream *stream, const uv_buf_t *bufs, unsigned count);
/* Bytes accepted and not yet taken by the kernel. */
size_t kvr_stream_unsent(const struct kvr_stream *stream);

void kvr_stream_close(struct kvr_stream *stream);
/* Closes with a reset: the peer must not take what it has for a whole answer. */
void kvr_stream_reset(struct kvr_stream *stream);

#endif
