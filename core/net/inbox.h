/* Reads of one turn of the loop, made together before the first of them is served.
 *
 * Reading a socket, serving a request and writing to a socket run through more code than a core's
 * first cache holds. Done in turns for each socket, each evicts the others' code every time; done
 * for many sockets at a stretch, it is fetched once. (2 KB requests, one core: 5 % less CPU.)
 *
 *     poll | read read read ... | serve serve serve ... | write write write ... (outbox.h)
 *
 * Only a busy loop does so (loop.h). What an owner wants in memory of its own is read apart.
 * Memory: KVR_INBOX_BYTES from the first busy turn on. */
#ifndef KVR_INBOX_H
#define KVR_INBOX_H

#include <stddef.h>
#include <stdint.h>

struct kvr_stream;

#define KVR_INBOX_READS 32
#define KVR_INBOX_BYTES (128u << 10)
#define KVR_INBOX_ROOM  (16u << 10) /* for one read */

struct kvr_inbox_read {
    struct kvr_stream *stream; /* NULL: served already */
    uint32_t at;               /* in `bytes` */
    uint32_t len;
};

struct kvr_inbox {
    char *bytes; /* KVR_INBOX_BYTES; NULL until first needed */
    uint32_t len;
    uint32_t count;
    uint32_t next; /* of `reads` to be served */
    struct kvr_inbox_read reads[KVR_INBOX_READS];
};

void kvr_inbox_deinit(struct kvr_inbox *inbox);

/* Where to read to, KVR_INBOX_ROOM bytes. Serves what there is if no more goes in. */
char *kvr_inbox_space(struct kvr_inbox *inbox);
/* What was read there, for a stream of which there is nothing in it. */
void kvr_inbox_put(struct kvr_inbox *inbox, struct kvr_stream *stream, size_t len);
/* Gives each stream what was read of it, in order. */
void kvr_inbox_serve(struct kvr_inbox *inbox);
/* Only that one, before its turn, also while another is being served: whoever looks at one stream
 * does not expect all the others to move. */
void kvr_inbox_serve_one(struct kvr_inbox *inbox, const struct kvr_stream *stream);

#endif
