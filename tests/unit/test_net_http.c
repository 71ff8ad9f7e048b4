#include "unit.h"

#include "chunked.h"
#include "http.h"

static struct kvr_http_head head;

/* Finds and parses, fed byte by byte: 0, or the first negative code. */
static int parse(const char *text, struct kvr_error *error)
{
    size_t scanned = 0;
    int64_t size = 0;
    for (size_t len = 1; len <= strlen(text) && size == 0; len++)
        size = kvr_http_find_head(text, len, &scanned, error);
    if (size <= 0)
        return size ? (int)size : KVR_E_TRUNCATED;
    size_t whole = 0;
    assert_int_equal(kvr_http_find_head(text, strlen(text), &whole, NULL), size);
    return kvr_http_parse_request(text, (size_t)size, &head, error);
}

static void test_a_plain_request(void **state)
{
    (void)state;
    struct kvr_error error = {0};
    assert_int_equal(parse("POST /v1/chat?a=%2F&b HTTP/1.1\r\nHost: x:1\r\nX-Empty:\r\n"
                           "Content-Length: 12\r\nX-Pad:  \t v v \t\r\n\r\nbody",
                           &error),
                     0);
    assert_true(kvr_slice_is(head.method, "POST"));
    assert_true(kvr_slice_is(head.target, "/v1/chat?a=%2F&b"));
    assert_true(kvr_slice_is(head.path, "/v1/chat"));
    assert_true(kvr_slice_is(head.host, "x:1"));
    assert_true(kvr_slice_is(kvr_http_header(&head, "x-pad"), "v v"));
    assert_int_equal(kvr_http_header(&head, "x-empty").len, 0);
    assert_true(head.has_length && head.content_length == 12 && head.keep_alive && !head.chunked);
}

static void test_forms_of_targets(void **state)
{
    (void)state;
    assert_int_equal(parse("GET http://h:9/x?y HTTP/1.1\r\nHost: other\r\n\r\n", NULL), 0);
    assert_true(kvr_slice_is(head.target, "/x?y"));
    assert_true(kvr_slice_is(head.host, "h:9"));
    assert_int_equal(parse("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", NULL), 0);
    assert_true(kvr_slice_is(head.target, "/"));
    assert_int_equal(parse("GET /x HTTP/1.0\r\n\r\n", NULL), 0);
    assert_true(head.minor == 0 && !head.keep_alive);
    assert_int_equal(parse("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", NULL), 0);
    assert_true(head.keep_alive);
    assert_int_equal(parse("GET /x HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n", NULL), 0);
    assert_false(head.keep_alive);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "GET /x HTTP/1.1\nHost: a\n\n",
        "GET /x HTTP/1.1\r\nHost: a\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nA: b\rc\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nA: b\r\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nA: b\rTransfer-Encoding: chunked\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "GET /x HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost\t: a\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nA\x01: b\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nA: b\x7f\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nNoColon\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n",
        "GET /x HTTP/1.1\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /x HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET /x HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET /x HTTP/0.9\r\n\r\n",
        "GET /x\r\nHost: a\r\n\r\n",
        "NOSUCH /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        ("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked"
         "\r\n\r\n"),
        "POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET  /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /x  HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /x HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "DESCRIBE /x RTSP/1.0\r\n\r\n",
        "SOURCE /x ICE/1.0\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: user@a\r\n\r\n",
        "GET http://a?/x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://user@a/x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/x HTTP/1.1\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-X Encoding: chunked\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct kvr_error error = {0};
        int rc = parse(refused[i], &error);
        if (rc >= 0)
            fail_msg("accepted: %s", refused[i]);
        assert_true(error.text[0]);
    }
}

static void test_nul_bytes(void **state)
{
    (void)state;
    static const char bytes[] = "GET /x HTTP/1.1\r\nHost: a\r\nA: b\0c\r\n\r\n";
    size_t scanned = 0;
    assert_int_equal(kvr_http_find_head(bytes, sizeof bytes - 1, &scanned, NULL), KVR_E_INVALID);
}

static void test_too_many_headers(void **state)
{
    (void)state;
    char text[8192];
    int at = snprintf(text, sizeof text, "GET /x HTTP/1.1\r\nHost: a\r\n");
    for (int i = 1; i < KVR_HTTP_HEADERS_MAX; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "H%d: v\r\n", i);
    int end = at;
    snprintf(text + end, sizeof text - (size_t)end, "\r\n");
    assert_int_equal(parse(text, NULL), 0);
    assert_int_equal(head.count, KVR_HTTP_HEADERS_MAX);
    snprintf(text + end, sizeof text - (size_t)end, "One-more: v\r\n\r\n");
    assert_int_equal(parse(text, NULL), KVR_E_LIMIT);
}

static void test_hop_by_hop(void **state)
{
    (void)state;
    assert_int_equal(parse("GET /x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-One\r\n"
                           "Connection: x-two\r\nKeep-Alive: 5\r\nTE: trailers\r\n\r\n",
                           NULL),
                     0);
    static const char *const hop[] = {
        "X-One",          "X-Two",           "keep-alive", "TE", "Connection", "Transfer-Encoding",
        "Content-Length", "Proxy-Connection"};
    for (size_t i = 0; i < sizeof hop / sizeof hop[0]; i++)
        assert_true(kvr_http_is_hop_by_hop(&head, kvr_slice_of(hop[i])));
    assert_false(kvr_http_is_hop_by_hop(&head, kvr_slice_of("X-Three")));
    assert_int_equal(
        parse("GET /x HTTP/1.1\r\nHost: a\r\nConnection: x-one\r\nConnection:\r\n\r\n", NULL), 0);
    assert_true(kvr_http_is_hop_by_hop(&head, kvr_slice_of("X-One")));
    assert_int_equal(parse("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                           "Connection: keep-alive\r\n\r\n",
                           NULL),
                     0);
    assert_false(head.keep_alive);
}

static void test_responses(void **state)
{
    (void)state;
    static const char ok[] = "HTTP/1.1 200 All good\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_int_equal(kvr_http_parse_response(ok, sizeof ok - 1, &head, NULL), 0);
    assert_true(head.status == 200 && head.chunked && head.keep_alive);
    assert_true(kvr_slice_is(head.phrase, "All good"));
    static const char both[] =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n";
    assert_int_equal(kvr_http_parse_response(both, sizeof both - 1, &head, NULL), KVR_E_INVALID);
    assert_false(kvr_http_response_has_body(204, kvr_slice_of("GET")));
    assert_false(kvr_http_response_has_body(200, kvr_slice_of("HEAD")));
    assert_true(kvr_http_response_has_body(404, kvr_slice_of("GET")));
}

/* Decodes with the input cut at every `step` bytes; returns the payload's length or a code. */
static int64_t unchunk(const char *data, size_t len, size_t step, char *out, size_t *used)
{
    struct kvr_chunked chunked = {0};
    size_t payload = 0, at = 0;
    while (at < len && !kvr_chunked_done(&chunked)) {
        size_t end = at + step < len ? at + step : len;
        while (at < end && !kvr_chunked_done(&chunked)) {
            struct kvr_slice piece;
            int64_t n = kvr_chunked_next(&chunked, data + at, end - at, &piece);
            if (n < 0)
                return n;
            assert_true(n > 0);
            memcpy(out + payload, piece.data ? piece.data : "", piece.len);
            payload += piece.len;
            at += (size_t)n;
        }
    }
    *used = at;
    return kvr_chunked_done(&chunked) ? (int64_t)payload : KVR_E_TRUNCATED;
}

static void test_chunks_cut_anywhere(void **state)
{
    (void)state;
    static const char text[] =
        "5\r\nhello\r\nA;x=\"y z\"\r\n0123456789\r\n000\r\nTrailer: v\r\n\r\nNEXT";
    for (size_t step = 1; step < sizeof text; step++) {
        char out[64];
        size_t used = 0;
        assert_int_equal(unchunk(text, sizeof text - 1, step, out, &used), 15);
        assert_memory_equal(out, "hello0123456789", 15);
        assert_int_equal(used, sizeof text - 1 - 4);
    }
}

static void test_malformed_chunks(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "5\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;a=\rx\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "10000000000000000\r\nx",
        "FFFFFFFFFFFFFFFFF\r\nx",
        "0000000000000005\r\nhello\r\n0\r\n\r\n",
        "0\r\n folded\r\n\r\n",
        "0\r\nA: b\nC: d\r\n\r\n",
        "0\r\n\n",
        "G\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char out[64];
        size_t used;
        if (unchunk(bad[i], strlen(bad[i]), 1, out, &used) != KVR_E_INVALID)
            fail_msg("accepted: %s", bad[i]);
    }
}

static void test_extensions_are_bounded(void **state)
{
    (void)state;
    struct kvr_chunked chunked = {0};
    struct kvr_slice piece;
    int64_t n = kvr_chunked_next(&chunked, "5;", 2, &piece);
    for (int i = 0; n >= 0 && i < 1 << 20; i++)
        n = kvr_chunked_next(&chunked, "x", 1, &piece);
    assert_int_equal(n, KVR_E_INVALID);
    assert_true(chunked.extra <= KVR_CHUNK_EXTENSION_MAX + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plain_request),  cmocka_unit_test(test_forms_of_targets),
        cmocka_unit_test(test_what_is_refused),  cmocka_unit_test(test_nul_bytes),
        cmocka_unit_test(test_too_many_headers), cmocka_unit_test(test_hop_by_hop),
        cmocka_unit_test(test_responses),        cmocka_unit_test(test_chunks_cut_anywhere),
        cmocka_unit_test(test_malformed_chunks), cmocka_unit_test(test_extensions_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
