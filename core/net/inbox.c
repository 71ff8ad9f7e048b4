#include "inbox.h"

#include "check.h"
#include "memory.h"
#include "stream.h"

void kvr_inbox_deinit(struct kvr_inbox *inbox)
{
    kvr_free(inbox->bytes);
    *inbox = (struct kvr_inbox){0};
}

char *kvr_inbox_space(struct kvr_inbox *inbox)
{
    if (!inbox->bytes)
        inbox->bytes = kvr_alloc(KVR_INBOX_BYTES);
    if (inbox->count == KVR_INBOX_READS || inbox->len + KVR_INBOX_ROOM > KVR_INBOX_BYTES)
        kvr_inbox_serve(inbox);
    return inbox->bytes + inbox->len;
}

void kvr_inbox_put(struct kvr_inbox *inbox, struct kvr_stream *stream, size_t len)
{
    KVR_CHECK(inbox->next == 0 && len <= KVR_INBOX_ROOM); /* nothing comes in while it is served */
    inbox->reads[inbox->count++] = (struct kvr_inbox_read){stream, inbox->len, (uint32_t)len};
    inbox->len += (uint32_t)len;
}

static void serve(struct kvr_inbox *inbox, struct kvr_inbox_read *entry)
{
    struct kvr_inbox_read read = *entry;
    entry->stream = NULL;
    if (read.stream)
        kvr_stream_serve(read.stream, inbox->bytes + read.at, read.len);
}

void kvr_inbox_serve(struct kvr_inbox *inbox)
{
    KVR_CHECK(inbox->next == 0);
    while (inbox->next < inbox->count)
        serve(inbox, &inbox->reads[inbox->next++]);
    inbox->next = inbox->count = inbox->len = 0;
}

void kvr_inbox_serve_one(struct kvr_inbox *inbox, const struct kvr_stream *stream)
{
    for (uint32_t i = inbox->next; i < inbox->count; i++) {
        if (inbox->reads[i].stream == stream) {
            serve(inbox, &inbox->reads[i]);
            return;
        }
    }
}
