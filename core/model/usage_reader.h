/* Watches an answer go by and notes what a row wants to know: when its first content came, how far
 * apart its events are, how many tokens the engine counted, whether it ended well. Bytes are only
 * read, at any cut, and nothing is kept but an unfinished line.
 *
 *   kvr_usage_reader_init(&reader, KVR_USAGE_STREAM);
 *   kvr_usage_reader_feed(&reader, data, len, now_ns);   for every read
 *   kvr_usage_reader_finish(&reader);                    when the answer has ended, or was cut
 *   ... reader.first_content_ns, reader.usage, kvr_usage_reader_gaps() ...
 *   kvr_usage_reader_deinit(&reader);
 *
 * Streams are server-sent events, with or without a blank after `data:`, with LF or CRLF, comments
 * and other fields passed over; bare JSON lines are taken as events too. Only the first events are
 * read as JSON: the place where content stands in one is remembered, and an event that has content
 * in the same place is counted after a glance. Content is any output (text, reasoning, tool calls),
 * not a role and not a finish.
 *
 * Of an answer that is one JSON text, the end is kept and read when it is over. */
#ifndef KVR_USAGE_READER_H
#define KVR_USAGE_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "median.h"
#include "usage_event.h"

#define KVR_USAGE_KEPT_MAX 16384 /* most bytes of an unfinished line or a body kept at once */
#define KVR_USAGE_TAIL     8192  /* what stays of a longer one: its end */
#define KVR_USAGE_KEY_MAX  24

enum kvr_usage_format {
    KVR_USAGE_STREAM, /* text/event-stream or application/x-ndjson */
    KVR_USAGE_BODY,   /* application/json */
};

struct kvr_usage_reader {
    struct kvr_buffer kept;    /* unfinished line, or the body; freed when empty */
    uint64_t first_content_ns; /* when the first event with content was complete; 0: none yet */
    uint64_t last_content_ns;
    uint64_t max_gap_ns; /* between two events with content */
    struct kvr_median gaps_ns;
    uint32_t content_events;
    struct kvr_token_usage usage;
    uint32_t malformed; /* events that were no JSON object */

    /* The assistant's text, if the caller wants it as the next turn's prefix: decoded and appended
     * to its own buffer, which it sets up after init. Worth something only when `reply_spoiled` is
     * false at the end. Not for requests with n > 1, nor for /generate, whose text is cumulative.
     */
    struct kvr_buffer *reply; /* NULL: not wanted */
    uint32_t reply_max;       /* bytes of it, give or take the last event */

    uint32_t key_at;             /* where content stood: offset of its key in the event's JSON */
    char key[KVR_USAGE_KEY_MAX]; /* the key, from its quote to the quote that opens the content */
    uint8_t key_len;             /* 0: not learnt */
    uint8_t key_output;          /* enum kvr_output of what stands there */
    uint8_t format;
    bool cut;           /* kept holds only the end of the line or body */
    bool cut_content;   /* the line whose start is gone had content */
    bool done_seen;     /* [DONE], message_stop, response.completed */
    bool error_seen;    /* the engine reported a failure inside the answer */
    bool aborted;       /* a finish reason was `abort` */
    bool reasoned;      /* there was reasoning */
    bool reply_spoiled; /* reply is not all that the assistant said: tool calls, choices, a bound */
};

void kvr_usage_reader_init(struct kvr_usage_reader *reader, enum kvr_usage_format format);
void kvr_usage_reader_deinit(struct kvr_usage_reader *reader);

/* Bytes of the answer's payload, in order (chunk framing taken off). */
void kvr_usage_reader_feed(struct kvr_usage_reader *reader, const char *data, size_t len,
                           uint64_t now_ns);
/* The same for the last of them: an answer that is whole in one piece is read where it lies. */
void kvr_usage_reader_feed_last(struct kvr_usage_reader *reader, const char *data, size_t len,
                                uint64_t now_ns);
/* No more will come. May be left out when nobody wants the result. */
void kvr_usage_reader_finish(struct kvr_usage_reader *reader, uint64_t now_ns);

/* Gaps between events with content; all 0 while there are fewer than two. */
struct kvr_usage_gaps {
    uint64_t mean_ns;
    uint64_t median_ns; /* an estimate, see median.h */
    uint64_t max_ns;
};
struct kvr_usage_gaps kvr_usage_reader_gaps(const struct kvr_usage_reader *reader);

#endif
