#include "forward.h"

#include <string.h>

#include "digits.h"

static void put(struct kvr_buffer *out, const char *data, size_t len)
{
    memcpy(out->data + out->len, data, len);
    out->len += len;
}

#define PUT(out, literal) put(out, literal, sizeof(literal) - 1)

static void put_slice(struct kvr_buffer *out, struct kvr_slice slice)
{
    if (slice.len)
        put(out, slice.data, slice.len);
}

static void put_uint(struct kvr_buffer *out, uint64_t value)
{
    out->len = (size_t)(kvr_put_uint(out->data + out->len, value) - out->data);
}

static void put_line(struct kvr_buffer *out, struct kvr_slice name, struct kvr_slice value)
{
    put_slice(out, name);
    PUT(out, ": ");
    put_slice(out, value);
    PUT(out, "\r\n");
}

/* Lengths of the names below: a header of another length passes without a comparison. */
static bool is_special_length(size_t len)
{
    return len < 32 && (1u << len & (1u << 2 | 1u << 4 | 1u << 6 | 1u << 7 | 1u << 9 | 1u << 10 |
                                     1u << 12 | 1u << 13 | 1u << 14 | 1u << 15 | 1u << 16 |
                                     1u << 17 | 1u << 18 | 1u << 19 | 1u << 20));
}

/* x-kvroute-*: between a client and us. Nearly every name is sorted out by its third byte. */
static bool is_between_us(struct kvr_slice name)
{
    static const char prefix[] = "x-kvroute-";
    return name.len >= sizeof prefix && (name.data[2] | 0x20) == 'k' &&
           strncasecmp(name.data, prefix, sizeof prefix - 1) == 0;
}

/* What the proxy writes itself, or keeps from the replica. */
static bool is_ours(struct kvr_slice name, const struct kvr_forward_request *how)
{
    for (uint32_t i = 0; i < how->strip_count; i++)
        if (how->strip[i].len == name.len &&
            strncasecmp(how->strip[i].data, name.data, name.len) == 0)
            return true;
    switch (name.len) {
    case 4:
        return kvr_slice_is_nocase(name, "host");
    case 6:
        return kvr_slice_is_nocase(name, "expect"); /* answered here */
    case 9:
        return how->keeps_credentials && kvr_slice_is_nocase(name, "x-api-key");
    case 12:
        return kvr_slice_is_nocase(name, "x-request-id");
    case 13:
        return (how->key.len || how->keeps_credentials) &&
               kvr_slice_is_nocase(name, "authorization");
    case 15:
        return kvr_slice_is_nocase(name, "x-forwarded-for");
    case 16:
        return kvr_slice_is_nocase(name, "x-forwarded-host");
    case 17:
        return kvr_slice_is_nocase(name, "x-forwarded-proto") ||
               (how->keeps_conversation && kvr_slice_is_nocase(name, "x-conversation-id"));
    case 20:
        return kvr_slice_is_nocase(name, "x-data-parallel-rank");
    default:
        return false;
    }
}

static void put_forwarded(struct kvr_buffer *out, const struct kvr_http_head *head,
                          const struct kvr_forward_request *how)
{
    PUT(out, "X-Forwarded-For: ");
    for (uint32_t i = 0; i < head->count; i++) {
        if (!kvr_slice_is_nocase(head->headers[i].name, "x-forwarded-for"))
            continue;
        put_slice(out, head->headers[i].value);
        PUT(out, ", ");
    }
    put_slice(out, how->peer);
    PUT(out, "\r\n");
    if (head->host.len) {
        PUT(out, "X-Forwarded-Host: ");
        put_slice(out, head->host);
        PUT(out, "\r\n");
    }
    PUT(out, "X-Forwarded-Proto: http\r\n");
}

void kvr_forward_request(struct kvr_buffer *out, const struct kvr_http_head *head,
                         const struct kvr_forward_request *how)
{
    /* Nothing grows but by what is ours: one reservation for all puts. A client's X-Forwarded-For
     * lines are written at most twice. */
    kvr_buffer_reserve(out, 2 * head->size + how->authority.len + how->key.len +
                                how->request_id.len + how->peer.len + 512);
    put_slice(out, head->method);
    PUT(out, " ");
    put_slice(out, head->target);
    PUT(out, " HTTP/1.1\r\nHost: ");
    put_slice(out, how->authority);
    PUT(out, "\r\n");
    for (uint32_t i = 0; i < head->count; i++) {
        struct kvr_slice name = head->headers[i].name;
        if (is_between_us(name) ||
            ((is_special_length(name.len) || head->connection.len || how->strip_count) &&
             (is_ours(name, how) || kvr_http_is_hop_by_hop(head, name))))
            continue;
        put_line(out, name, head->headers[i].value);
    }
    put_forwarded(out, head, how);
    PUT(out, "X-Request-Id: ");
    put_slice(out, how->request_id);
    PUT(out, "\r\n");
    if (how->key.len) {
        PUT(out, "Authorization: Bearer ");
        put_slice(out, how->key);
        PUT(out, "\r\n");
    }
    if (how->rank >= 0) {
        PUT(out, "X-Data-Parallel-Rank: ");
        put_uint(out, (uint64_t)how->rank);
        PUT(out, "\r\n");
    }
    if (how->has_body) {
        PUT(out, "Content-Length: ");
        put_uint(out, how->body_len);
        PUT(out, "\r\n");
    }
    PUT(out, "\r\n");
}

void kvr_forward_answer(struct kvr_buffer *out, const struct kvr_http_head *head,
                        const struct kvr_forward_answer *how)
{
    kvr_buffer_reserve(out, head->size + (size_t)head->count * 4 + how->extra.len + 128);
    PUT(out, "HTTP/1.1 ");
    put_uint(out, head->status);
    PUT(out, " ");
    put_slice(out, head->phrase);
    PUT(out, "\r\n");
    for (uint32_t i = 0; i < head->count; i++) {
        struct kvr_slice name = head->headers[i].name;
        if ((is_special_length(name.len) || head->connection.len) &&
            kvr_http_is_hop_by_hop(head, name))
            continue;
        if (how->extra.len && is_between_us(name))
            continue; /* another router's behind us: ours says the same of this hop */
        put_line(out, name, head->headers[i].value);
    }
    put_slice(out, how->extra);
    if (how->chunked)
        PUT(out, "Transfer-Encoding: chunked\r\n");
    if (how->sized) {
        PUT(out, "Content-Length: ");
        put_uint(out, how->length);
        PUT(out, "\r\n");
    }
    if (how->close)
        PUT(out, "Connection: close\r\n");
    else if (how->keep_alive_10)
        PUT(out, "Connection: keep-alive\r\n");
    PUT(out, "\r\n");
}
