/* Requests as core/net reads and forwards them: heads, chunks, and the head written towards a
 * replica. Input: one byte of choices, a plan of cuts, bytes of a connection.
 *
 * What is accepted must mean the same however it was cut, must be accepted with the same meaning by
 * the strict reader of strict_http.h, and must reach the replica as exactly one strict request with
 * the same method, target, body and end-to-end fields. */
#include "fuzz.h"

#include "chunked.h"
#include "forward.h"
#include "http.h"
#include "strict_http.h"

enum choices {
    WITH_KEY = 1,
    WITH_RANK = 2,
    KEEPS_CREDENTIALS = 4,
    KEEPS_CONVERSATION = 8,
    STRIPS = 16,
    CHOICES_MAX = 32
};

static const char stripped[] = "X-Secret-Team";

struct connection {
    struct kvr_buffer in; /* bytes not yet understood */
    size_t scanned;
    struct kvr_http_head head;
    bool in_body;
    struct kvr_chunked chunked;
    size_t body_at; /* raw bytes of the body that are understood */
    struct kvr_buffer body;
    struct kvr_buffer log;
    bool refused;
    unsigned choices;
};

/* ---- what a replica gets ---- */

/* Fields that end at a proxy or are written by it, as RFC 9110 7.6.1 and forward.h say. */
static bool ends_here(const struct strict_message *message, struct kvr_slice name, unsigned choices)
{
    static const struct {
        const char *name;
        unsigned when; /* with one of these choices; 0: always */
    } fields[] = {
        {"connection", 0},
        {"keep-alive", 0},
        {"proxy-connection", 0},
        {"te", 0},
        {"trailer", 0},
        {"upgrade", 0},
        {"transfer-encoding", 0},
        {"content-length", 0},
        {"host", 0},
        {"expect", 0},
        {"proxy-authorization", 0},
        {"proxy-authenticate", 0},
        {"x-request-id", 0},
        {"x-forwarded-for", 0},
        {"x-forwarded-host", 0},
        {"x-forwarded-proto", 0},
        {"x-data-parallel-rank", 0},
        {"authorization", WITH_KEY | KEEPS_CREDENTIALS},
        {"x-api-key", KEEPS_CREDENTIALS},
        {"x-conversation-id", KEEPS_CONVERSATION},
        {stripped, STRIPS},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (kvr_slice_is_nocase(name, fields[i].name) &&
            (fields[i].when == 0 || (choices & fields[i].when)))
            return true;
    if (name.len > 10 && strncasecmp(name.data, "x-kvroute-", 10) == 0)
        return true;
    for (unsigned i = 0; i < message->count; i++) {
        struct kvr_slice list = message->fields[i].value;
        if (!kvr_slice_is_nocase(message->fields[i].name, "connection"))
            continue;
        while (list.len) {
            const char *comma = memchr(list.data, ',', list.len);
            size_t len = comma ? (size_t)(comma - list.data) : list.len;
            struct kvr_slice token = kvr_slice_trim(kvr_slice_make(list.data, len));
            if (token.len == name.len && name.len &&
                strncasecmp(token.data, name.data, name.len) == 0)
                return true;
            list.data += comma ? len + 1 : len;
            list.len -= comma ? len + 1 : len;
        }
    }
    return false;
}

/* What of a target a replica may see: without scheme and authority. */
static struct kvr_slice origin_form(struct kvr_slice target, struct kvr_slice *authority)
{
    if (target.len <= 7 || strncasecmp(target.data, "http://", 7) != 0)
        return target;
    size_t at = 7;
    while (at < target.len && target.data[at] != '/' && target.data[at] != '?')
        at++;
    *authority = kvr_slice_make(target.data + 7, at - 7);
    FUZZ_CHECK(at == target.len || target.data[at] == '/'); /* a query alone has no origin form */
    return at == target.len ? kvr_slice_of("/") : kvr_slice_make(target.data + at, target.len - at);
}

static void check_fields(const struct strict_message *from, const struct strict_message *to,
                         unsigned choices)
{
    unsigned next = 0;
    for (unsigned i = 0; i < from->count; i++) {
        if (ends_here(from, from->fields[i].name, choices))
            continue;
        while (next < to->count &&
               !(kvr_slice_equal(to->fields[next].name, from->fields[i].name) &&
                 kvr_slice_equal(to->fields[next].value, from->fields[i].value)))
            next++;
        FUZZ_CHECK(next < to->count); /* passed on, in its order */
        next++;
    }
    unsigned kept = 0, ours = 0;
    static const char *const names[] = {
        "host",           "x-forwarded-for",   "x-request-id",  "x-forwarded-host",
        "content-length", "x-forwarded-proto", "authorization", "x-data-parallel-rank"};
    for (unsigned i = 0; i < from->count; i++)
        kept += !ends_here(from, from->fields[i].name, choices);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct kvr_slice value;
        bool written = i < 6 || (i == 6 && (choices & WITH_KEY)) || i == 7;
        unsigned found = written ? strict_find(to, names[i], &value) : 0;
        FUZZ_CHECK(found <= 1);
        ours += found;
    }
    FUZZ_CHECK(to->count == kept + ours); /* and nothing else */
}

static void check_forwarded(const struct connection *connection, const struct strict_message *from)
{
    const struct kvr_http_head *head = &connection->head;
    bool with_key = connection->choices & WITH_KEY;
    const struct kvr_slice strip = kvr_slice_of(stripped);
    struct kvr_slice body = kvr_buffer_slice(&connection->body);
    struct kvr_forward_request how = {
        .authority = kvr_slice_of("replica:8000"),
        .rank = connection->choices & WITH_RANK ? 7 : -1,
        .key = kvr_slice_of(with_key ? "secret" : ""),
        .keeps_credentials = connection->choices & KEEPS_CREDENTIALS,
        .keeps_conversation = connection->choices & KEEPS_CONVERSATION,
        .strip = &strip,
        .strip_count = connection->choices & STRIPS ? 1 : 0,
        .request_id = kvr_slice_of("the-id"),
        .peer = kvr_slice_of("192.0.2.1"),
        .body_len = body.len,
        .has_body = head->has_length || head->chunked,
    };
    struct kvr_buffer out = {0};
    kvr_forward_request(&out, head, &how);
    kvr_buffer_append_slice(&out, body);
    struct strict_message to;
    enum strict_verdict verdict = strict_request(&to, kvr_buffer_slice(&out));
    FUZZ_CHECK(verdict == STRICT_OK);
    FUZZ_CHECK(to.size == out.len); /* never two requests where we saw one */
    FUZZ_CHECK(to.minor == 1 && !to.chunked);
    FUZZ_CHECK(kvr_slice_equal(to.method, from->method));
    struct kvr_slice host = {NULL, 0}, forwarded_host = {NULL, 0}, peers = {NULL, 0};
    strict_find(from, "host", &host);
    FUZZ_CHECK(kvr_slice_equal(to.target, origin_form(from->target, &host)));
    FUZZ_CHECK(kvr_slice_equal(kvr_buffer_slice(&to.body), body));
    check_fields(from, &to, connection->choices);
    FUZZ_CHECK(strict_find(&to, "x-forwarded-host", &forwarded_host) == (host.len > 0));
    FUZZ_CHECK(kvr_slice_equal(forwarded_host, host));
    FUZZ_CHECK(strict_find(&to, "host", &host) == 1 && kvr_slice_is(host, "replica:8000"));
    FUZZ_CHECK(strict_find(&to, "x-forwarded-for", &peers) == 1 && peers.len >= how.peer.len);
    peers.data += peers.len - how.peer.len;
    peers.len = how.peer.len;
    FUZZ_CHECK(kvr_slice_equal(peers, how.peer)); /* the last is the one we have seen */
    kvr_buffer_deinit(&to.body);
    kvr_buffer_deinit(&out);
}

/* ---- what the proxy understands ---- */

static void accept_request(struct connection *connection, size_t used)
{
    const struct kvr_http_head *head = &connection->head;
    struct strict_message strict;
    enum strict_verdict verdict = strict_request(&strict, kvr_buffer_slice(&connection->in));
    if (verdict != STRICT_OK)
        fprintf(stderr, "accepted, although: %s\n", strict.fault ? strict.fault : "incomplete");
    FUZZ_CHECK(verdict == STRICT_OK);
    FUZZ_CHECK(strict.head_size == head->size && strict.size == used);
    FUZZ_CHECK(strict.minor == head->minor && strict.count == head->count);
    FUZZ_CHECK(kvr_slice_equal(strict.method, head->method));
    FUZZ_CHECK(
        kvr_slice_equal(kvr_buffer_slice(&strict.body), kvr_buffer_slice(&connection->body)));
    check_forwarded(connection, &strict);
    kvr_buffer_deinit(&strict.body);

    struct kvr_buffer *log = &connection->log;
    fuzz_note_slice(log, "method", head->method);
    fuzz_note_slice(log, "target", head->target);
    fuzz_note_slice(log, "path", head->path);
    fuzz_note_slice(log, "host", head->host);
    for (uint32_t i = 0; i < head->count; i++) {
        fuzz_note_slice(log, "name", head->headers[i].name);
        fuzz_note_slice(log, "value", head->headers[i].value);
    }
    kvr_buffer_printf(log, "keep %d expect %d upgrade %d length %d chunked %d\n", head->keep_alive,
                      head->expect_continue, head->upgrade, head->has_length, head->chunked);
    fuzz_note_slice(log, "body", kvr_buffer_slice(&connection->body));
}

static void refuse(struct connection *connection, int64_t code)
{
    kvr_buffer_printf(&connection->log, "refused %d\n", (int)code);
    connection->refused = true;
}

/* Reads a head at the start of the bytes. False: wait, or refused. */
static bool take_head(struct connection *connection)
{
    struct kvr_buffer *in = &connection->in;
    while (connection->scanned == 0 && in->len >= 2 && memcmp(in->data, "\r\n", 2) == 0)
        kvr_buffer_consume(in, 2);
    struct kvr_error error = {0};
    int64_t size =
        in->len ? kvr_http_find_head(in->data, in->len, &connection->scanned, &error) : 0;
    if (size == 0)
        return false;
    int rc = size < 0 ? (int)size
                      : kvr_http_parse_request(in->data, (size_t)size, &connection->head, &error);
    if (rc < 0) {
        FUZZ_CHECK(error.text[0] && error.code == rc);
        refuse(connection, rc);
        return false;
    }
    FUZZ_CHECK(connection->head.size == (size_t)size);
    connection->in_body = true;
    connection->body_at = (size_t)size;
    connection->chunked = (struct kvr_chunked){0};
    connection->body.len = 0;
    return true;
}

/* Reads on in the body. False: wait, or refused. */
static bool take_body(struct connection *connection)
{
    const struct kvr_buffer *in = &connection->in;
    const struct kvr_http_head *head = &connection->head;
    if (!head->chunked) {
        uint64_t length = head->has_length ? head->content_length : 0;
        if (in->len - head->size < length)
            return false;
        kvr_buffer_append(&connection->body, in->data + head->size, (size_t)length);
        connection->body_at = head->size + (size_t)length;
        return true;
    }
    while (connection->body_at < in->len && !kvr_chunked_done(&connection->chunked)) {
        struct kvr_slice piece;
        size_t left = in->len - connection->body_at;
        int64_t used =
            kvr_chunked_next(&connection->chunked, in->data + connection->body_at, left, &piece);
        if (used < 0) {
            refuse(connection, used);
            return false;
        }
        FUZZ_CHECK(used > 0 && (size_t)used <= left && piece.len <= (size_t)used);
        if (piece.len)
            kvr_buffer_append_slice(&connection->body, piece);
        connection->body_at += (size_t)used;
    }
    return kvr_chunked_done(&connection->chunked);
}

static void feed(struct connection *connection, const char *data, size_t len)
{
    kvr_buffer_append(&connection->in, data, len);
    while (!connection->refused) {
        if (!connection->in_body && !take_head(connection))
            return;
        /* The buffer may have moved since the head was read: its slices point into it. */
        int rc = kvr_http_parse_request(connection->in.data, connection->head.size,
                                        &connection->head, NULL);
        FUZZ_CHECK(rc == 0);
        if (!take_body(connection))
            return;
        accept_request(connection, connection->body_at);
        kvr_buffer_consume(&connection->in, connection->body_at);
        connection->in_body = false;
        connection->scanned = 0;
    }
}

static struct kvr_buffer understand(const char *data, size_t len, struct fuzz_cuts cuts,
                                    unsigned choices)
{
    struct connection *connection = calloc(1, sizeof *connection);
    FUZZ_CHECK(connection);
    connection->choices = choices;
    for (size_t at = 0; at < len && !connection->refused;) {
        size_t piece = fuzz_piece(&cuts, len - at);
        feed(connection, data + at, piece);
        at += piece;
    }
    struct kvr_buffer log = connection->log;
    kvr_buffer_deinit(&connection->in);
    kvr_buffer_deinit(&connection->body);
    free(connection);
    return log;
}

/* The same from memory of exactly the right size: nothing may be read past it. */
static void read_exactly(const char *data, size_t len)
{
    static struct kvr_http_head head, plain;
    size_t scanned = 0;
    int64_t size = kvr_http_find_head(data, len, &scanned, NULL);
    FUZZ_CHECK(size <= (int64_t)len && scanned <= len);
    size_t request = kvr_http_plain_request(data, len, &plain);
    FUZZ_CHECK(request == 0 || ((int64_t)request == size &&
                                kvr_http_parse_request(data, request, &head, NULL) == 0 &&
                                head.count == plain.count));
    size_t response = kvr_http_plain_response(data, len, &plain);
    FUZZ_CHECK(response == 0 || ((int64_t)response == size &&
                                 kvr_http_parse_response(data, response, &head, NULL) == 0 &&
                                 head.count == plain.count));
    if (size <= 0)
        return;
    struct fuzz_input exact = {(const uint8_t *)data, (size_t)size};
    char *copy = fuzz_rest(&exact);
    (void)kvr_http_parse_request(copy, (size_t)size, &head, NULL);
    (void)kvr_http_parse_response(copy, (size_t)size, &head, NULL);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned choices = fuzz_byte(&input) % CHOICES_MAX;
    struct fuzz_cuts cuts = fuzz_take_cuts(&input);
    char *bytes = fuzz_rest(&input);
    read_exactly(bytes, input.left);
    struct kvr_buffer whole = understand(bytes, input.left, fuzz_whole, choices);
    struct kvr_buffer cut = understand(bytes, input.left, cuts, choices);
    struct kvr_buffer bytewise = understand(bytes, input.left, fuzz_bytewise, choices);
    fuzz_same(&whole, &cut);
    fuzz_same(&whole, &bytewise);
    kvr_buffer_deinit(&whole);
    kvr_buffer_deinit(&cut);
    kvr_buffer_deinit(&bytewise);
    free(bytes);
    return 0;
}
