/* A second opinion on HTTP/1 messages: a reader written from RFC 9112 alone, strict wherever the
 * RFC leaves a choice, plain rather than fast. Tests read with it what clients send and what the
 * proxy writes, and compare. It shares no code with core/net/http.c, and must not.
 *
 * Bytes above 0x7f in a target are let pass, as every server does; everything else of a message is
 * by the letter. Trailers are checked for line ends only. */
#ifndef STRICT_HTTP_H
#define STRICT_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "buffer.h"
#include "slice.h"

#define STRICT_FIELDS_MAX 256

enum strict_verdict {
    STRICT_OK,
    STRICT_MORE, /* the message is not complete */
    STRICT_BAD,
};

struct strict_field {
    struct kvr_slice name;
    struct kvr_slice value;
};

/* Slices point into the bytes that were read. */
struct strict_message {
    struct kvr_slice method; /* request */
    struct kvr_slice target; /* request */
    unsigned status;         /* response */
    struct kvr_slice reason; /* response */
    unsigned minor;
    struct strict_field fields[STRICT_FIELDS_MAX];
    unsigned count;
    bool chunked;
    bool sized;
    uint64_t length;
    size_t head_size;
    size_t size;            /* of the whole message, body included */
    struct kvr_buffer body; /* without chunk framing; the caller's to deinit */
    const char *fault;      /* why it is bad */
};

static inline enum strict_verdict strict_bad(struct strict_message *message, const char *fault)
{
    message->fault = fault;
    return STRICT_BAD;
}

static inline bool strict_is_token(struct kvr_slice text)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool digit = c >= '0' && c <= '9';
        if (!letter && !digit && (c == '\0' || !strchr(others, c)))
            return false;
    }
    return text.len > 0;
}

static inline bool strict_is_host(struct kvr_slice text)
{
    static const char others[] = "-._~%!$&'()*+,;=:[]";
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool digit = c >= '0' && c <= '9';
        if (!letter && !digit && (c == '\0' || !strchr(others, c)))
            return false;
    }
    return text.len > 0;
}

static inline bool strict_is_target(struct kvr_slice method, struct kvr_slice target)
{
    for (size_t i = 0; i < target.len; i++) {
        unsigned char c = (unsigned char)target.data[i];
        if (c <= ' ' || c == 0x7f || c == '#')
            return false;
    }
    if (kvr_slice_is(target, "*"))
        return kvr_slice_is(method, "OPTIONS");
    return target.len > 0 && (target.data[0] == '/' ||
                              (target.len > 7 && strncasecmp(target.data, "http://", 7) == 0));
}

/* The line at `at`, which must end with CR LF and hold neither elsewhere, nor a control. */
static inline enum strict_verdict strict_line(struct strict_message *message, struct kvr_slice data,
                                              size_t at, struct kvr_slice *line)
{
    for (size_t i = at; i < data.len; i++) {
        unsigned char c = (unsigned char)data.data[i];
        if (c == '\n')
            return strict_bad(message, "LF without CR");
        if (c == '\r') {
            if (i + 1 == data.len)
                return STRICT_MORE;
            if (data.data[i + 1] != '\n')
                return strict_bad(message, "CR without LF");
            *line = kvr_slice_make(data.data + at, i - at);
            return STRICT_OK;
        }
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return strict_bad(message, "a control character");
    }
    return STRICT_MORE;
}

/* A field by name, case ignored: how many there are, and the last one's value. */
static inline unsigned strict_find(const struct strict_message *message, const char *name,
                                   struct kvr_slice *value)
{
    unsigned found = 0;
    for (unsigned i = 0; i < message->count; i++) {
        if (!kvr_slice_is_nocase(message->fields[i].name, name))
            continue;
        *value = message->fields[i].value;
        found++;
    }
    return found;
}

static inline enum strict_verdict strict_field_line(struct strict_message *message,
                                                    struct kvr_slice line)
{
    const char *colon = memchr(line.data, ':', line.len);
    if (!colon)
        return strict_bad(message, "a field without a colon");
    struct kvr_slice name = kvr_slice_make(line.data, (size_t)(colon - line.data));
    struct kvr_slice value = kvr_slice_make(colon + 1, line.len - name.len - 1);
    if (!strict_is_token(name))
        return strict_bad(message, "a field name that is no token");
    if (message->count == STRICT_FIELDS_MAX)
        return strict_bad(message, "too many fields");
    while (value.len && (value.data[0] == ' ' || value.data[0] == '\t')) {
        value.data++;
        value.len--;
    }
    while (value.len && (value.data[value.len - 1] == ' ' || value.data[value.len - 1] == '\t'))
        value.len--;
    message->fields[message->count++] = (struct strict_field){name, value};
    return STRICT_OK;
}

static inline enum strict_verdict strict_framing(struct strict_message *message)
{
    struct kvr_slice value = {NULL, 0};
    unsigned lengths = strict_find(message, "content-length", &value);
    if (lengths > 1)
        return strict_bad(message, "more than one Content-Length");
    message->sized = lengths == 1;
    if (message->sized && (value.len == 0 || value.len > 18))
        return strict_bad(message, "Content-Length is no number");
    for (size_t i = 0; message->sized && i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return strict_bad(message, "Content-Length is no number");
        message->length = message->length * 10 + (uint64_t)(value.data[i] - '0');
    }
    unsigned codings = strict_find(message, "transfer-encoding", &value);
    if (codings > 1 || (codings && !kvr_slice_is_nocase(value, "chunked")))
        return strict_bad(message, "a transfer coding that is not chunked");
    message->chunked = codings == 1;
    if (message->chunked && message->sized)
        return strict_bad(message, "both framings");
    if (message->chunked && message->minor == 0)
        return strict_bad(message, "chunks in HTTP/1.0");
    return STRICT_OK;
}

/* From the line behind the first one to the empty line. */
static inline enum strict_verdict strict_fields(struct strict_message *message,
                                                struct kvr_slice data, size_t at)
{
    for (;;) {
        struct kvr_slice line;
        enum strict_verdict verdict = strict_line(message, data, at, &line);
        if (verdict != STRICT_OK)
            return verdict;
        at += line.len + 2;
        if (line.len == 0)
            break;
        verdict = strict_field_line(message, line); /* a folded line has no token */
        if (verdict != STRICT_OK)
            return verdict;
    }
    message->head_size = at;
    return strict_framing(message);
}

static inline bool strict_version(struct strict_message *message, struct kvr_slice text)
{
    if (text.len != 8 || memcmp(text.data, "HTTP/1.", 7) != 0 || text.data[7] < '0' ||
        text.data[7] > '1')
        return false;
    message->minor = (unsigned)(text.data[7] - '0');
    return true;
}

static inline enum strict_verdict strict_request_line(struct strict_message *message,
                                                      struct kvr_slice line)
{
    const char *first = memchr(line.data, ' ', line.len);
    if (!first)
        return strict_bad(message, "no target");
    message->method = kvr_slice_make(line.data, (size_t)(first - line.data));
    struct kvr_slice rest = kvr_slice_make(first + 1, line.len - message->method.len - 1);
    const char *second = memchr(rest.data, ' ', rest.len);
    if (!second)
        return strict_bad(message, "no version");
    message->target = kvr_slice_make(rest.data, (size_t)(second - rest.data));
    struct kvr_slice version = kvr_slice_make(second + 1, rest.len - message->target.len - 1);
    if (!strict_is_token(message->method) || !strict_is_target(message->method, message->target))
        return strict_bad(message, "a bad request line");
    return strict_version(message, version) ? STRICT_OK : strict_bad(message, "a bad version");
}

static inline enum strict_verdict strict_status_line(struct strict_message *message,
                                                     struct kvr_slice line)
{
    if (line.len < 13 || !strict_version(message, kvr_slice_make(line.data, 8)) ||
        line.data[8] != ' ' || line.data[12] != ' ')
        return strict_bad(message, "a bad status line");
    for (size_t i = 9; i < 12; i++) {
        if (line.data[i] < '0' || line.data[i] > '9')
            return strict_bad(message, "a bad status code");
        message->status = message->status * 10 + (unsigned)(line.data[i] - '0');
    }
    message->reason = kvr_slice_make(line.data + 13, line.len - 13);
    return STRICT_OK;
}

/* Chunked data at `at`: appends the payload, moves *at behind the last CR LF. */
static inline enum strict_verdict strict_chunks(struct strict_message *message,
                                                struct kvr_slice data, size_t *at)
{
    for (;;) {
        struct kvr_slice line;
        enum strict_verdict verdict = strict_line(message, data, *at, &line);
        if (verdict != STRICT_OK)
            return verdict;
        size_t digits = 0;
        uint64_t size = 0;
        for (; digits < line.len && line.data[digits] != '\0'; digits++) {
            static const char hex[] = "0123456789abcdef";
            char c = line.data[digits];
            const char *found = strchr(hex, c >= 'A' && c <= 'F' ? c + 32 : c);
            if (!found)
                break;
            if (digits == 15)
                return strict_bad(message, "a chunk size too long");
            size = size * 16 + (uint64_t)(found - hex);
        }
        if (digits == 0 || (digits < line.len && line.data[digits] != ';'))
            return strict_bad(message, "a bad chunk size");
        *at += line.len + 2;
        if (size == 0)
            break;
        if (data.len - *at < size)
            return STRICT_MORE;
        kvr_buffer_append(&message->body, data.data + *at, (size_t)size);
        *at += (size_t)size;
        verdict = strict_line(message, data, *at, &line);
        if (verdict != STRICT_OK)
            return verdict;
        if (line.len)
            return strict_bad(message, "a chunk longer than its size");
        *at += 2;
    }
    for (;;) {
        struct kvr_slice line;
        enum strict_verdict verdict = strict_line(message, data, *at, &line);
        if (verdict != STRICT_OK)
            return verdict;
        *at += line.len + 2;
        if (line.len == 0)
            return STRICT_OK;
        if (line.data[0] == ' ' || line.data[0] == '\t')
            return strict_bad(message, "a folded trailer");
    }
}

/* The body behind the head. `until_close`: a message without a length goes on to the end of data.
 */
static inline enum strict_verdict strict_body(struct strict_message *message, struct kvr_slice data,
                                              bool until_close)
{
    size_t at = message->head_size;
    size_t have = data.len - at;
    if (message->chunked) {
        enum strict_verdict verdict = strict_chunks(message, data, &at);
        if (verdict != STRICT_OK)
            return verdict;
    } else if (message->sized || until_close) {
        size_t take = message->sized ? (size_t)message->length : have;
        if (take > have)
            return STRICT_MORE;
        if (take)
            kvr_buffer_append(&message->body, data.data + at, take);
        at += take;
    }
    message->size = at;
    return STRICT_OK;
}

/* One request at the start of data. */
static inline enum strict_verdict strict_request(struct strict_message *message,
                                                 struct kvr_slice data)
{
    struct kvr_slice line, host = {NULL, 0};
    *message = (struct strict_message){.minor = 0};
    enum strict_verdict verdict = strict_line(message, data, 0, &line);
    if (verdict == STRICT_OK)
        verdict = strict_request_line(message, line);
    if (verdict == STRICT_OK)
        verdict = strict_fields(message, data, line.len + 2);
    if (verdict != STRICT_OK)
        return verdict;
    unsigned hosts = strict_find(message, "host", &host);
    if (hosts > 1 || (hosts == 0 && message->minor == 1) || (host.len && !strict_is_host(host)))
        return strict_bad(message, "not one good Host");
    return strict_body(message, data, false);
}

/* One response at the start of data, to a request that was (`head_only`) or was not HEAD. `ended`:
 * the connection ends behind data. */
static inline enum strict_verdict strict_response(struct strict_message *message,
                                                  struct kvr_slice data, bool head_only, bool ended)
{
    struct kvr_slice line;
    *message = (struct strict_message){.minor = 0};
    enum strict_verdict verdict = strict_line(message, data, 0, &line);
    if (verdict == STRICT_OK)
        verdict = strict_status_line(message, line);
    if (verdict == STRICT_OK)
        verdict = strict_fields(message, data, line.len + 2);
    if (verdict != STRICT_OK)
        return verdict;
    bool empty =
        head_only || message->status < 200 || message->status == 204 || message->status == 304;
    if (empty) {
        message->size = message->head_size;
        return STRICT_OK;
    }
    if (!message->chunked && !message->sized && !ended)
        return STRICT_MORE;
    return strict_body(message, data, true);
}

#endif
