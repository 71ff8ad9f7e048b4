#include "load_answer.h"

#include <string.h>

#include "error.h"
#include "memory.h"

#define HEAD_MAX 65536

static void keep_gap(struct kvr_load_call *call, float gap_ns)
{
    if (call->gaps_len == KVR_LOAD_GAPS_MAX)
        return;
    if (call->gaps_len == call->gaps_capacity) {
        call->gaps_capacity = call->gaps_capacity ? 2 * call->gaps_capacity : 64;
        call->gaps_ns = kvr_realloc(call->gaps_ns, call->gaps_capacity * sizeof *call->gaps_ns);
    }
    call->gaps_ns[call->gaps_len++] = gap_ns;
}

static void take_payload(struct kvr_load_call *call, struct kvr_slice payload, uint64_t now_ns)
{
    if (payload.len == 0)
        return;
    if (call->body_bytes == 0)
        call->first_byte_ns = now_ns;
    call->body_bytes += payload.len;
    if (!call->reading)
        return;
    uint32_t before = call->usage.content_events;
    uint64_t last_ns = call->usage.last_content_ns;
    kvr_usage_reader_feed(&call->usage, payload.data, payload.len, now_ns);
    for (uint32_t i = before; i < call->usage.content_events; i++) {
        if (i > 0)
            keep_gap(call, (float)(now_ns - last_ns));
        last_ns = now_ns; /* events that came in one read came at one time */
    }
}

static bool is_whole(const struct kvr_load_call *call)
{
    return call->framing == KVR_LOAD_CHUNKED ? kvr_chunked_done(&call->chunked)
                                             : call->framing == KVR_LOAD_SIZED && call->left == 0;
}

static int take_body(struct kvr_load_call *call, const char *data, size_t len, uint64_t now_ns)
{
    size_t used = 0;
    while (used < len && !is_whole(call)) {
        struct kvr_slice piece = {data + used, len - used};
        int64_t n = (int64_t)piece.len;
        if (call->framing == KVR_LOAD_CHUNKED) {
            n = kvr_chunked_next(&call->chunked, data + used, len - used, &piece);
        } else if (call->framing == KVR_LOAD_SIZED) {
            if (piece.len > call->left)
                piece.len = (size_t)call->left;
            call->left -= piece.len;
            n = (int64_t)piece.len;
        }
        if (n < 0)
            return (int)n;
        used += (size_t)n;
        take_payload(call, piece, now_ns);
    }
    call->keep &= used == len; /* bytes behind the answer: nobody asked for them */
    return is_whole(call);
}

static void copy_label(char *to, const struct kvr_http_head *head, const char *name)
{
    struct kvr_slice value = kvr_http_header(head, name);
    size_t len = value.len < KVR_LOAD_LABEL_MAX ? value.len : KVR_LOAD_LABEL_MAX - 1;
    memcpy(to, len ? value.data : "", len);
    to[len] = '\0';
}

static void take_labels(struct kvr_load_labels *labels, const struct kvr_http_head *head)
{
    copy_label(labels->request_id, head, "x-kvroute-request-id");
    copy_label(labels->replica, head, "x-kvroute-replica");
    copy_label(labels->reason, head, "x-kvroute-reason");
    struct kvr_slice match = kvr_http_header(head, "x-kvroute-match");
    labels->match_bytes = match.len ? 0 : -1;
    for (size_t i = 0; i < match.len && i < 15 && match.data[i] >= '0' && match.data[i] <= '9'; i++)
        labels->match_bytes = labels->match_bytes * 10 + (match.data[i] - '0');
}

static void choose_framing(struct kvr_load_call *call, const struct kvr_http_head *head)
{
    call->framing = KVR_LOAD_TO_THE_END;
    call->left = 0;
    call->chunked = (struct kvr_chunked){0};
    if (!kvr_http_response_has_body(head->status, kvr_slice_of("POST"))) {
        call->framing = KVR_LOAD_SIZED;
    } else if (head->chunked) {
        call->framing = KVR_LOAD_CHUNKED;
    } else if (head->has_length) {
        call->framing = KVR_LOAD_SIZED;
        call->left = head->content_length;
    }
    call->keep = head->keep_alive && call->framing != KVR_LOAD_TO_THE_END;
}

static bool is_type(struct kvr_slice type, const char *wanted)
{
    size_t len = strlen(wanted);
    return type.len >= len && strncasecmp(type.data, wanted, len) == 0;
}

static void take_head(struct kvr_load_call *call, const struct kvr_http_head *head)
{
    struct kvr_slice type = kvr_http_header(head, "content-type");
    call->status = head->status;
    call->streamed = is_type(type, "text/event-stream") || is_type(type, "application/x-ndjson");
    take_labels(&call->labels, head);
    choose_framing(call, head);
    if (head->status > 299)
        return; /* an error's body is counted, not read */
    kvr_usage_reader_init(&call->usage, call->streamed ? KVR_USAGE_STREAM : KVR_USAGE_BODY);
    call->reading = true;
}

/* Looks for the head at the start of data. Its size; 0: not whole; negative: it is none. Interim
 * ones (1xx) are passed over. */
static int64_t find_head(struct kvr_load_call *call, const char *data, size_t len,
                         struct kvr_http_head *head)
{
    size_t passed = 0;
    for (;;) {
        int64_t size = kvr_http_find_head(data + passed, len - passed, &call->scanned, NULL);
        if (size < 0 || (size == 0 && len - passed > HEAD_MAX))
            return KVR_E_INVALID;
        if (size == 0) {
            if (passed)
                call->scanned = 0; /* what was passed over is looked at again: it is rare */
            return 0;
        }
        if (kvr_http_parse_response(data + passed, (size_t)size, head, NULL) ||
            head->status == 101) /* nobody asked to switch */
            return KVR_E_INVALID;
        passed += (size_t)size;
        call->scanned = 0;
        if (head->status >= 200)
            return (int64_t)passed;
    }
}

int kvr_load_answer_take(struct kvr_load_call *call, const char *data, size_t len, uint64_t now_ns,
                         struct kvr_http_head *head)
{
    if (call->framing != KVR_LOAD_HEAD)
        return take_body(call, data, len, now_ns);
    bool in_pieces = call->head.len > 0;
    if (in_pieces) {
        kvr_buffer_append(&call->head, data, len);
        data = call->head.data;
        len = call->head.len;
    }
    int64_t size = find_head(call, data, len, head);
    if (size < 0)
        return (int)size;
    if (size == 0) {
        if (!in_pieces)
            kvr_buffer_append(&call->head, data, len);
        return 0;
    }
    take_head(call, head);
    return take_body(call, data + size, len - (size_t)size, now_ns);
}

enum kvr_load_failure kvr_load_answer_judge(struct kvr_load_call *call, uint64_t now_ns)
{
    const struct kvr_usage_reader *usage = &call->usage;
    if (call->reading)
        kvr_usage_reader_finish(&call->usage, now_ns);
    if (call->status < 200 || call->status > 299)
        return KVR_LOAD_STATUS;
    if (usage->error_seen)
        return KVR_LOAD_ERROR_EVENT;
    if (usage->aborted)
        return KVR_LOAD_ABORTED;
    if (usage->malformed || (!call->streamed && call->body_bytes == 0))
        return KVR_LOAD_MALFORMED;
    if (call->streamed && !usage->done_seen)
        return KVR_LOAD_NO_DONE;
    if (call->streamed && usage->content_events == 0)
        return KVR_LOAD_EMPTY;
    return KVR_LOAD_OK;
}
