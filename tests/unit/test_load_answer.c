/* core/load: answers in every framing and cut, each way to be no answer, and what is measured. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "load_answer.h"
#include "load_request.h"
#include "rng.h"

#define HEAD_STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
#define CHUNKED     "Transfer-Encoding: chunked\r\n\r\n"
#define ROLE                                                                                       \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
#define WORD(text) "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" text "\"}}]}\n\n"
#define USAGE                                                                                      \
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":70,\"completion_tokens\":9,"               \
    "\"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\n"
#define DONE "data: [DONE]\n\n"

static struct kvr_http_head head;

/* The text in chunks of `size` bytes. */
static void add_chunks(struct kvr_buffer *out, const char *text, size_t size)
{
    size_t len = strlen(text);
    for (size_t at = 0; at < len; at += size) {
        size_t n = len - at < size ? len - at : size;
        kvr_buffer_printf(out, "%zx\r\n%.*s\r\n", n, (int)n, text + at);
    }
    kvr_buffer_append_text(out, "0\r\n\r\n");
}

/* Feeds pieces of at most `most` bytes, a millisecond apart; the last result. */
static int feed(struct kvr_load_call *call, const char *data, size_t len, size_t most,
                uint64_t *now_ns)
{
    int rc = 0;
    for (size_t at = 0; at < len && rc == 0; at += most) {
        *now_ns += 1000000;
        rc = kvr_load_answer_take(call, data + at, len - at < most ? len - at : most, *now_ns,
                                  &head);
    }
    return rc;
}

static void test_stream_cut_anywhere(void **state)
{
    (void)state;
    struct kvr_buffer answer = {0};
    kvr_buffer_append_text(&answer, "HTTP/1.1 100 Continue\r\n\r\n" HEAD_STREAM
                                    "x-kvroute-replica: r1\r\nx-kvroute-reason: prefix\r\n"
                                    "X-Kvroute-Match: 4096\r\n" CHUNKED);
    add_chunks(&answer, ROLE WORD("one") WORD(" two") WORD(" three") USAGE DONE, 33);
    for (size_t most = 1; most <= answer.len; most += 1 + most / 16) {
        struct kvr_load_call call = {0};
        uint64_t now_ns = 1000;
        assert_int_equal(feed(&call, answer.data, answer.len, most, &now_ns), 1);
        assert_int_equal(kvr_load_answer_judge(&call, now_ns), KVR_LOAD_OK);
        assert_int_equal(call.usage.content_events, 3);
        assert_int_equal(call.gaps_len, 2);
        assert_int_equal(call.usage.usage.prompt_tokens, 70);
        assert_int_equal(call.usage.usage.cached_tokens, 64);
        assert_int_equal(kvr_load_call_output_tokens(&call), 9);
        assert_string_equal(call.labels.replica, "r1");
        assert_string_equal(call.labels.reason, "prefix");
        assert_int_equal(call.labels.match_bytes, 4096);
        assert_true(call.keep && call.streamed);
        float sum = call.gaps_ns[0] + call.gaps_ns[1];
        assert_true(sum == (float)(call.usage.last_content_ns - call.usage.first_content_ns));
        kvr_load_call_deinit(&call);
    }
    kvr_buffer_deinit(&answer);
}

/* However it is spoilt, an answer in pieces is judged as it is in one. */
static void test_spoilt_answers(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 11);
    struct kvr_buffer answer = {0};
    for (int round = 0; round < 20000; round++) {
        answer.len = 0;
        kvr_buffer_append_text(&answer, HEAD_STREAM CHUNKED);
        add_chunks(&answer, ROLE WORD("one") WORD(" two") USAGE DONE, 1 + kvr_rng_below(&rng, 200));
        for (uint64_t i = kvr_rng_below(&rng, 4); i > 0; i--) {
            static const char bytes[] = "\r\n :{}[]\"x0aF\x80";
            answer.data[kvr_rng_below(&rng, answer.len)] =
                bytes[kvr_rng_below(&rng, sizeof bytes - 1)];
        }
        struct kvr_load_call whole = {0}, cut = {0};
        uint64_t now_ns = 0;
        int one = feed(&whole, answer.data, answer.len, answer.len, &now_ns);
        int many = feed(&cut, answer.data, answer.len, 1 + kvr_rng_below(&rng, 300), &now_ns);
        assert_int_equal(one, many);
        if (one >= 0) {
            assert_int_equal(kvr_load_answer_judge(&whole, now_ns),
                             kvr_load_answer_judge(&cut, now_ns));
            assert_int_equal(whole.body_bytes, cut.body_bytes);
            assert_int_equal(whole.usage.content_events, cut.usage.content_events);
            assert_int_equal(whole.gaps_len, cut.gaps_len);
            assert_int_equal(whole.usage.usage.prompt_tokens, cut.usage.usage.prompt_tokens);
        }
        kvr_load_call_deinit(&whole);
        kvr_load_call_deinit(&cut);
    }
    kvr_buffer_deinit(&answer);
}

struct verdict {
    const char *answer;
    int end;                       /* what take says of it in one piece */
    enum kvr_load_failure failure; /* when it ends well */
};

static void test_verdicts(void **state)
{
    (void)state;
    static const struct verdict verdicts[] = {
        {HEAD_STREAM "\r\n" WORD("a") DONE, 0, KVR_LOAD_OK}, /* to the end of the connection */
        {HEAD_STREAM "\r\n" WORD("a"), 0, KVR_LOAD_NO_DONE},
        {HEAD_STREAM "\r\n" ROLE DONE, 0, KVR_LOAD_EMPTY},
        {HEAD_STREAM "\r\n" WORD("a") "data: {\"error\":{\"message\":\"x\",\"code\":500}}\n\n" DONE,
         0, KVR_LOAD_ERROR_EVENT},
        {HEAD_STREAM "\r\n" WORD("a") "data: {\"choices\":[{\"index\":0,\"delta\":{},"
                                      "\"finish_reason\":\"abort\"}]}\n\n" DONE,
         0, KVR_LOAD_ABORTED},
        {HEAD_STREAM "\r\n" WORD("a") "data: {\"choi\n\n" DONE, 0, KVR_LOAD_MALFORMED},
        {HEAD_STREAM CHUNKED "5\r\ndata:\r\nnonsense\r\n", KVR_E_INVALID, KVR_LOAD_OK},
        {"HTTP/1.1 503 Full\r\nContent-Length: 2\r\n\r\nno", 1, KVR_LOAD_STATUS},
        {"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n", 1, KVR_LOAD_STATUS},
        {"HTTP/1.1 204 Nothing\r\n\r\n", 1, KVR_LOAD_MALFORMED},
        {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n", 1,
         KVR_LOAD_MALFORMED},
        {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 33\r\n\r\n"
         "{\"usage\":{\"completion_tokens\": 7}}",
         1, KVR_LOAD_OK},
        {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 24\r\n\r\n"
         "{\"error\":{\"code\": 500 }}",
         1, KVR_LOAD_ERROR_EVENT},
        {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n{\"a", 1,
         KVR_LOAD_MALFORMED},
        {"HTTP/1.1 101 Switch\r\n\r\n", KVR_E_INVALID, KVR_LOAD_OK},
        {"SSH-2.0-OpenSSH\r\n\r\n", KVR_E_INVALID, KVR_LOAD_OK},
    };
    for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; i++) {
        struct kvr_load_call call = {0};
        const struct verdict *verdict = &verdicts[i];
        int rc = kvr_load_answer_take(&call, verdict->answer, strlen(verdict->answer), 5, &head);
        if (rc != verdict->end)
            fail_msg("answer %zu: %d instead of %d", i, rc, verdict->end);
        enum kvr_load_failure failure = rc < 0 ? KVR_LOAD_OK : kvr_load_answer_judge(&call, 5);
        if (failure != verdict->failure)
            fail_msg("answer %zu: %s instead of %s", i, kvr_load_failure_name(failure),
                     kvr_load_failure_name(verdict->failure));
        kvr_buffer_deinit(&call.head);
        kvr_load_call_deinit(&call);
    }
}

/* A connection that has bytes behind an answer, or whose end is the answer's, is not kept. */
static void test_what_is_kept(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        bool kept;
    } cases[] = {
        {"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno", true},
        {"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nnone", false},
        {"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", false},
        {"HTTP/1.0 500 No\r\nContent-Length: 2\r\n\r\nno", false},
        {"HTTP/1.1 500 No\r\n\r\nno", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_load_call call = {0};
        kvr_load_answer_take(&call, cases[i].answer, strlen(cases[i].answer), 5, &head);
        assert_int_equal(call.keep, cases[i].kept);
        kvr_load_call_deinit(&call);
    }
}

static int compare(const void *a, const void *b)
{
    const float *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void test_median_gap(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 7);
    for (uint32_t len = 1; len < 400; len += 1 + len / 9) {
        struct kvr_load_call call = {.gaps_ns = calloc(len, sizeof(float)), .gaps_len = len};
        float *sorted = calloc(len, sizeof(float));
        for (uint32_t i = 0; i < len; i++) /* with many ties */
            sorted[i] = call.gaps_ns[i] = (float)kvr_rng_below(&rng, 1 + len / 2);
        qsort(sorted, len, sizeof(float), compare);
        double want = ((double)sorted[(len - 1) / 2] + (double)sorted[len / 2]) / 2;
        assert_true(kvr_load_call_median_gap(&call) == want);
        free(sorted);
        free(call.gaps_ns);
    }
}

/* ttft, tpot, e2el and gaps as `vllm bench serve` has them, at a scale of 10. */
static void test_measure(void **state)
{
    (void)state;
    float gaps[] = {2e6f, 4e6f, 6e6f, 20e6f};
    struct kvr_load_request request = {
        .call = {.streamed = true,
                 .reading = true,
                 .started_ns = 1000000000,
                 .first_byte_ns = 1040000000,
                 .ended_ns = 1090000000,
                 .gaps_ns = gaps,
                 .gaps_len = 4,
                 .usage = {.first_content_ns = 1050000000,
                           .content_events = 5,
                           .usage = {100, 11, 64}}},
    };
    struct kvr_load_clock clock = {.origin_ns = 500000000, .scale = 10};
    struct kvr_load_measure measure;
    kvr_load_measure(&request, &clock, &measure);
    assert_int_equal(measure.output_tokens, 11);
    assert_true(measure.first_byte_ms == 400);
    assert_true(measure.ms[KVR_LOAD_TTFT] == 500);
    assert_true(measure.ms[KVR_LOAD_E2EL] == 900);
    assert_true(measure.ms[KVR_LOAD_TPOT] == 40);
    assert_true(fabs(measure.ms[KVR_LOAD_ITL_P50] - 50) < 1e-9);
    assert_true(fabs(measure.ms[KVR_LOAD_ITL_MEAN] - 80) < 1e-9);
    assert_true(fabs(measure.ms[KVR_LOAD_ITL_MAX] - 200) < 1e-9);
    assert_true(kvr_load_at_ms(&clock, request.call.started_ns) == 5000);
    request.call.usage.usage.completion_tokens = -1; /* not told: the events are counted */
    kvr_load_measure(&request, &clock, &measure);
    assert_int_equal(measure.output_tokens, 5);
    request.call.usage.usage.completion_tokens = 1;
    kvr_load_measure(&request, &clock, &measure);
    assert_true(measure.ms[KVR_LOAD_TPOT] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream_cut_anywhere),
        cmocka_unit_test(test_spoilt_answers),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_median_gap),
        cmocka_unit_test(test_measure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
