/* Responses as an exchange reads them and passes them on: interim heads, the head, the body by its
 * framing, and the head written towards the client. Input: one byte of choices, a plan of cuts, the
 * bytes of a replica. fuzz_exchange.c drives the real exchange; here the parsers are alone, and
 * fast.
 *
 * What is accepted must mean the same however it was cut, and reach the client as exactly one
 * strict response with the same status, body and end-to-end fields. */
#include "fuzz.h"

#include "chunked.h"
#include "forward.h"
#include "http.h"
#include "strict_http.h"

enum choices { TO_HEAD = 1, TO_HTTP10 = 2, KEEP_ALIVE = 4 };

enum framing { NONE, SIZED, CHUNKED, UNTIL_CLOSE };

struct answer {
    struct kvr_buffer in; /* the head so far */
    size_t scanned;
    struct kvr_http_head head; /* slices into `in` */
    bool head_done;
    enum framing framing;
    struct kvr_chunked chunked;
    uint64_t left;
    struct kvr_buffer raw;     /* body bytes of this answer, as they came */
    struct kvr_buffer payload; /* the same without chunk framing */
    size_t behind;             /* bytes after the answer */
    bool refused;
    struct kvr_buffer log;
    unsigned choices;
};

static bool is_complete(const struct answer *answer)
{
    if (!answer->head_done)
        return false;
    return answer->framing == NONE || (answer->framing == SIZED && answer->left == 0) ||
           (answer->framing == CHUNKED && kvr_chunked_done(&answer->chunked));
}

/* Reads on in the body; returns how many bytes are the answer's. */
static size_t take_body(struct answer *answer, const char *data, size_t len)
{
    size_t used = 0;
    switch (answer->framing) {
    case NONE:
        return 0;
    case SIZED:
        used = len < answer->left ? len : (size_t)answer->left;
        answer->left -= used;
        break;
    case UNTIL_CLOSE:
        used = len;
        break;
    case CHUNKED:
        while (used < len && !kvr_chunked_done(&answer->chunked)) {
            struct kvr_slice piece;
            int64_t n = kvr_chunked_next(&answer->chunked, data + used, len - used, &piece);
            if (n < 0) {
                answer->refused = true;
                return used;
            }
            if (piece.len)
                kvr_buffer_append_slice(&answer->payload, piece);
            used += (size_t)n;
        }
    }
    if (used)
        kvr_buffer_append(&answer->raw, data, used);
    if (answer->framing != CHUNKED && used)
        kvr_buffer_append(&answer->payload, data, used);
    return used;
}

static void choose_framing(struct answer *answer)
{
    const struct kvr_http_head *head = &answer->head;
    struct kvr_slice method = kvr_slice_of(answer->choices & TO_HEAD ? "HEAD" : "GET");
    answer->framing = !kvr_http_response_has_body(head->status, method) ? NONE
                      : head->chunked                                   ? CHUNKED
                      : head->has_length                                ? SIZED
                                                                        : UNTIL_CLOSE;
    answer->left = head->content_length;
}

/* Reads one head at the start of `in`. Returns the bytes behind it that are not its own, or
 * negative: wait, or refused. Interim heads are dropped. */
static int64_t take_head(struct answer *answer)
{
    struct kvr_buffer *in = &answer->in;
    for (;;) {
        int64_t size = in->len ? kvr_http_find_head(in->data, in->len, &answer->scanned, NULL) : 0;
        if (size == 0)
            return -1;
        if (size < 0 || kvr_http_parse_response(in->data, (size_t)size, &answer->head, NULL) != 0 ||
            answer->head.status == 101) {
            answer->refused = true;
            return -1;
        }
        if (answer->head.status >= 200) {
            answer->head_done = true;
            choose_framing(answer);
            return (int64_t)in->len - size;
        }
        kvr_buffer_printf(&answer->log, "interim %u\n", answer->head.status);
        kvr_buffer_consume(in, (size_t)size);
        answer->scanned = 0;
    }
}

static void feed(struct answer *answer, const char *data, size_t len)
{
    if (!answer->head_done) {
        kvr_buffer_append(&answer->in, data, len);
        int64_t rest = take_head(answer);
        if (rest < 0)
            return;
        data += (int64_t)len - rest;
        len = (size_t)rest;
    }
    size_t used = is_complete(answer) ? 0 : take_body(answer, data, len);
    if (!answer->refused)
        answer->behind += len - used;
}

/* What the client reads is one response that means what the replica's did. */
static void check_forwarded(const struct answer *answer)
{
    const struct kvr_http_head *head = &answer->head;
    bool http10 = answer->choices & TO_HTTP10;
    bool unchunk = answer->framing == CHUNKED && http10;
    bool until_close = unchunk || answer->framing == UNTIL_CLOSE;
    bool sized = head->has_length && head->status != 204;
    struct kvr_buffer out = {0};
    kvr_forward_answer(&out, head,
                       &(struct kvr_forward_answer){
                           .extra = kvr_slice_of("x-kvroute-replica: r\r\n"),
                           .chunked = answer->framing == CHUNKED && !unchunk,
                           .sized = sized,
                           .length = head->content_length,
                           .close = until_close || !(answer->choices & KEEP_ALIVE),
                           .keep_alive_10 = http10,
                       });
    kvr_buffer_append_slice(&out, kvr_buffer_slice(unchunk ? &answer->payload : &answer->raw));
    struct strict_message strict;
    enum strict_verdict verdict =
        strict_response(&strict, kvr_buffer_slice(&out), answer->choices & TO_HEAD, until_close);
    FUZZ_CHECK(verdict == STRICT_OK);
    FUZZ_CHECK(strict.size == out.len);
    FUZZ_CHECK(strict.status == head->status);
    FUZZ_CHECK(kvr_slice_equal(kvr_buffer_slice(&strict.body), kvr_buffer_slice(&answer->payload)));
    FUZZ_CHECK(strict.minor == 1 && (!strict.chunked || !http10));
    unsigned next = 0, kept = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        struct kvr_slice name = head->headers[i].name;
        if (kvr_http_is_hop_by_hop(head, name) ||
            (name.len > 10 && strncasecmp(name.data, "x-kvroute-", 10) == 0))
            continue;
        FUZZ_CHECK(next < strict.count && kvr_slice_equal(strict.fields[next].name, name) &&
                   kvr_slice_equal(strict.fields[next].value, head->headers[i].value));
        next++;
        kept++;
    }
    struct kvr_slice value = {NULL, 0};
    unsigned ours = strict_find(&strict, "content-length", &value) +
                    strict_find(&strict, "transfer-encoding", &value) +
                    strict_find(&strict, "connection", &value) + 1;
    FUZZ_CHECK(strict.count == kept + ours);
    FUZZ_CHECK(!until_close || kvr_slice_is(value, "close"));
    kvr_buffer_deinit(&strict.body);
    kvr_buffer_deinit(&out);
}

static struct kvr_buffer understand(const char *data, size_t len, struct fuzz_cuts cuts,
                                    unsigned choices)
{
    struct answer *answer = calloc(1, sizeof *answer);
    FUZZ_CHECK(answer);
    answer->choices = choices;
    for (size_t at = 0; at < len && !answer->refused;) {
        size_t piece = fuzz_piece(&cuts, len - at);
        feed(answer, data + at, piece);
        at += piece;
    }
    struct kvr_buffer *log = &answer->log;
    if (answer->head_done) {
        const struct kvr_http_head *head = &answer->head;
        fuzz_note_slice(log, "phrase", head->phrase);
        for (uint32_t i = 0; i < head->count; i++) {
            fuzz_note_slice(log, "name", head->headers[i].name);
            fuzz_note_slice(log, "value", head->headers[i].value);
        }
        kvr_buffer_printf(log, "status %u framing %d keep %d behind %zu\n", head->status,
                          answer->framing, head->keep_alive, answer->refused ? 0 : answer->behind);
        fuzz_note_slice(log, "payload", kvr_buffer_slice(&answer->payload));
    }
    bool whole = is_complete(answer) || (answer->head_done && answer->framing == UNTIL_CLOSE);
    kvr_buffer_printf(log, "refused %d whole %d\n", answer->refused, whole);
    if (whole && !answer->refused)
        check_forwarded(answer);
    struct kvr_buffer result = *log;
    kvr_buffer_deinit(&answer->in);
    kvr_buffer_deinit(&answer->raw);
    kvr_buffer_deinit(&answer->payload);
    free(answer);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned choices = fuzz_byte(&input);
    struct fuzz_cuts cuts = fuzz_take_cuts(&input);
    char *bytes = fuzz_rest(&input);
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
