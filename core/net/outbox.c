#include "outbox.h"

#include <string.h>

#include "check.h"
#include "memory.h"
#include "stream.h"

void kvr_outbox_deinit(struct kvr_outbox *outbox)
{
    kvr_free(outbox->bytes);
    kvr_free(outbox->writes);
    *outbox = (struct kvr_outbox){0};
}

static void make_room(struct kvr_outbox *outbox, size_t total)
{
    if (!outbox->bytes) {
        outbox->bytes = kvr_alloc(KVR_OUTBOX_BYTES);
        outbox->writes = kvr_alloc(KVR_OUTBOX_WRITES * sizeof *outbox->writes);
    }
    if (outbox->count == KVR_OUTBOX_WRITES || outbox->len + total > KVR_OUTBOX_BYTES)
        kvr_outbox_flush(outbox);
}

bool kvr_outbox_take(struct kvr_outbox *outbox, struct kvr_stream *stream, const uv_buf_t *bufs,
                     unsigned count, size_t total)
{
    if (total > KVR_OUTBOX_WRITE_MAX || stream->unsent)
        return false;
    make_room(outbox, total);
    outbox->writes[outbox->count++] =
        (struct kvr_outbox_write){stream, (uint32_t)outbox->len, (uint32_t)total};
    for (unsigned i = 0; i < count; i++) {
        memcpy(outbox->bytes + outbox->len, bufs[i].base, bufs[i].len);
        outbox->len += bufs[i].len;
    }
    stream->boxed = true;
    return true;
}

void kvr_outbox_flush(struct kvr_outbox *outbox)
{
    uint32_t count = outbox->count;
    KVR_CHECK(!outbox->flushing); /* what is told of a write being sent must not write */
    outbox->flushing = true;
    for (uint32_t i = 0; i < count; i++) {
        const struct kvr_outbox_write *write = &outbox->writes[i];
        uv_buf_t buf = uv_buf_init(outbox->bytes + write->at, write->len);
        write->stream->boxed = false;
        kvr_stream_send(write->stream, &buf, 1);
    }
    outbox->count = 0;
    outbox->len = 0;
    outbox->flushing = false;
}
