/* Writes of one turn of the loop, sent together at its end.
 *
 * A proxy under load serves dozens of sockets a turn. Writing to each as it is served wakes a
 * client and a replica process for every single one, and each falls asleep again before its next;
 * written back to back, they are woken once and stay awake. (2 KB requests, one core: 18 % more of
 * them.)
 *
 * A loop that is not busy writes at once, so that an idle router adds no delay (loop.h). Large
 * writes always go at once.
 *
 * The bytes are copied here; what the kernel does not take of them waits in the stream as ever. */
#ifndef KVR_OUTBOX_H
#define KVR_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct kvr_stream;

#define KVR_OUTBOX_BYTES     (256u << 10)
#define KVR_OUTBOX_WRITE_MAX (16u << 10) /* larger ones go at once */
#define KVR_OUTBOX_WRITES    512

struct kvr_outbox_write {
    struct kvr_stream *stream;
    uint32_t at; /* in `bytes` */
    uint32_t len;
};

struct kvr_outbox {
    char *bytes; /* KVR_OUTBOX_BYTES; NULL until first needed */
    size_t len;
    uint32_t count;
    bool flushing;
    struct kvr_outbox_write *writes; /* KVR_OUTBOX_WRITES */
};

void kvr_outbox_deinit(struct kvr_outbox *outbox);

/* True: it will be sent at the end of the turn. False: the caller sends it now. */
bool kvr_outbox_take(struct kvr_outbox *outbox, struct kvr_stream *stream, const uv_buf_t *bufs,
                     unsigned count, size_t total);
/* Sends all there is. */
void kvr_outbox_flush(struct kvr_outbox *outbox);

#endif
