/* Heads that are read in one pass, against the reading of any head: what the first accepts the
 * second must accept, with the same meaning. Heads as clients and engines send them, with a few
 * bytes changed. */
#include "unit.h"

#include "http.h"
#include "memory.h"
#include "rng.h"

#define ROUNDS 150000

static const char *const requests[] = {
    "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: curl/7.88.1\r\n"
    "Accept: */*\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n",
    "POST /v1/completions?beta=true HTTP/1.1\r\nAccept-Encoding: gzip, deflate, br\r\nHost: h\r\n"
    "Connection: keep-alive\r\nAuthorization: Bearer sk-1\r\nX-Session-ID: 77\r\nX-Empty:\r\n"
    "Expect: 100-continue\r\nX-Utf8:  \t\xc3\xa9\r\nTransfer-Encoding: chunked\r\n\r\n",
};

static const char *const responses[] = {
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 266\r\n\r\n",
    "HTTP/1.1 404 Not Found\r\ndate: Mon, 30 Nov 2026 02:19:21 GMT\r\nserver: uvicorn\r\n"
    "content-length: 0\r\nconnection: close\r\nx_1:\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nUpgrade: h2c\r\n"
    "Transfer-Encoding: chunked\r\n\r\n",
};

static struct kvr_http_head plain, any;

static void assert_same_slice(struct kvr_slice a, struct kvr_slice b)
{
    assert_true(kvr_slice_equal(a, b));
}

static void assert_same(void)
{
    assert_same_slice(plain.method, any.method);
    assert_same_slice(plain.target, any.target);
    assert_same_slice(plain.path, any.path);
    assert_same_slice(plain.host, any.host);
    assert_same_slice(plain.phrase, any.phrase);
    assert_same_slice(plain.connection, any.connection);
    assert_int_equal(plain.status, any.status);
    assert_int_equal(plain.minor, any.minor);
    assert_int_equal(plain.size, any.size);
    assert_int_equal(plain.name_lengths, any.name_lengths);
    assert_true(plain.keep_alive == any.keep_alive && plain.chunked == any.chunked &&
                plain.has_length == any.has_length && plain.upgrade == any.upgrade &&
                plain.expect_continue == any.expect_continue &&
                plain.expect_other == any.expect_other);
    assert_int_equal(plain.content_length, any.content_length);
    assert_int_equal(plain.count, any.count);
    for (uint32_t i = 0; i < any.count; i++) {
        assert_same_slice(plain.headers[i].name, any.headers[i].name);
        assert_same_slice(plain.headers[i].value, any.headers[i].value);
    }
}

/* Reads it both ways. True: the one pass was enough. */
static bool check(bool request, const char *bytes, size_t len)
{
    size_t size = request ? kvr_http_plain_request(bytes, len, &plain)
                          : kvr_http_plain_response(bytes, len, &plain);
    if (size == 0)
        return false;
    size_t scanned = 0;
    int64_t found = kvr_http_find_head(bytes, len, &scanned, NULL);
    int rc = KVR_E_INVALID;
    if (found > 0)
        rc = request ? kvr_http_parse_request(bytes, (size_t)found, &any, NULL)
                     : kvr_http_parse_response(bytes, (size_t)found, &any, NULL);
    if (rc != 0 || (int64_t)size != found)
        fail_msg("accepted in one pass alone: %.*s", (int)len, bytes);
    assert_same();
    return true;
}

static size_t change(struct kvr_rng *rng, char *bytes, size_t len)
{
    static const char odd[] = " \t\r\n:;,/?#%@*\"\\\0\x01\x7f\x80\xff"
                              "09azAZ-_.~+=&[]{}";
    size_t at = kvr_rng_below(rng, (uint32_t)len);
    char c = kvr_rng_below(rng, 4) ? odd[kvr_rng_below(rng, sizeof odd - 1)]
                                   : (char)kvr_rng_below(rng, 256);
    switch (kvr_rng_below(rng, 4)) {
    case 0:
        bytes[at] = c;
        return len;
    case 1:
        memmove(bytes + at + 1, bytes + at, len - at);
        bytes[at] = c;
        return len + 1;
    case 2: /* a piece of it twice */
        memmove(bytes + at + 8, bytes + at, len - at);
        return len + 8;
    default:
        memmove(bytes + at, bytes + at + 1, len - at - 1);
        return len > 1 ? len - 1 : len;
    }
}

static void test_changed_heads(void **state)
{
    (void)state;
    struct kvr_rng rng;
    int accepted = 0, whole = 0;
    kvr_rng_init(&rng, 11);
    for (int round = 0; round < ROUNDS; round++) {
        char bytes[1024];
        bool request = kvr_rng_below(&rng, 2);
        const char *from =
            request ? requests[kvr_rng_below(&rng, 3)] : responses[kvr_rng_below(&rng, 3)];
        size_t len = strlen(from);
        memcpy(bytes, from, len);
        for (uint64_t changes = kvr_rng_below(&rng, 4); changes; changes--)
            len = change(&rng, bytes, len);
        if (kvr_rng_below(&rng, 4) == 0)
            len = 1 + kvr_rng_below(&rng, (uint32_t)len); /* not whole yet */
        else
            whole++;
        char *exact = kvr_alloc(len); /* nothing may be read past it */
        memcpy(exact, bytes, len);
        accepted += check(request, exact, len);
        kvr_free(exact);
    }
    assert_true(accepted > whole / 4 && accepted < whole * 9 / 10);
}

static void test_what_is_plain(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_true(check(true, requests[i], strlen(requests[i])));
        assert_true(check(false, responses[i], strlen(responses[i])));
    }
    /* The framing that is not a length is for the full reading. */
    assert_false(check(true, requests[2], strlen(requests[2])));
    assert_false(check(false, responses[2], strlen(responses[2])));
}

static void test_too_many_headers(void **state)
{
    (void)state;
    char text[4096] = "GET /x HTTP/1.1\r\nHost: a\r\n";
    for (int i = 1; i < KVR_HTTP_HEADERS_MAX; i++)
        strcat(text, "A: b\r\n");
    size_t len = strlen(text);
    strcpy(text + len, "\r\n");
    assert_true(check(true, text, len + 2));
    assert_int_equal(plain.count, KVR_HTTP_HEADERS_MAX);
    strcpy(text + len, "A: b\r\n\r\n");
    assert_false(check(true, text, len + 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_plain),
        cmocka_unit_test(test_too_many_headers),
        cmocka_unit_test(test_changed_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
