/* What a gate vouched for: its file, and when live traffic leaves it. */
#include "unit.h"

#include "buffer.h"
#include "envelope.h"
#include "rng.h"

#define SECOND UINT64_C(1000000000)

static struct kvr_envelope *parse(const char *text, struct kvr_error *error)
{
    static const struct kvr_envelope_options options = {.window_ns = 10 * SECOND,
                                                        .requests_min = 100};
    return kvr_envelope_create(kvr_slice_of(text), &options, error);
}

#define HEAD                                                                                       \
    "{\"format\":\"kvroute-gate-2\",\"verdict\":\"enable\",\"reason\":\"so\","                     \
    "\"candidate\":{\"name\":\"cacheroute\",\"hash\":\"00000000000000ff\",\"params\":{\"a\":1},"   \
    "\"params_hash\":\"00000000000000fe\",\"spill\":{\"name\":\"load_min\","                       \
    "\"hash\":\"00000000000000fd\",\"params_hash\":\"00000000000000fc\"}},"                        \
    "\"against\":{\"name\":\"p2c\",\"hash\":\"0000000000000001\"},"                                \
    "\"bounds\":{\"active_share\":0.8,\"ttft_p99_ms\":1500,\"token_ms\":40},"
#define KEYS "\"keys\":[[\"000000000000000a\",1.5],[\"000000000000000b\",0.5]]}"

static struct kvr_envelope *good(void)
{
    struct kvr_error error = {0};
    struct kvr_envelope *envelope = parse(HEAD KEYS, &error);
    if (!envelope)
        fail_msg("%s", error.text);
    return envelope;
}

static void test_the_file_of_a_gate(void **state)
{
    (void)state;
    struct kvr_envelope *envelope = good();
    assert_string_equal(envelope->candidate.name, "cacheroute");
    assert_true(envelope->candidate.hash == 0xff && envelope->candidate.params_hash == 0xfe);
    assert_string_equal(envelope->spill.name, "load_min");
    assert_true(envelope->spill.hash == 0xfd && envelope->spill.params_hash == 0xfc);
    assert_string_equal(envelope->against.name, "p2c");
    assert_true(envelope->against.hash == 1);
    assert_string_equal(envelope->against_spill.name, "");
    assert_true(envelope->active_share == 0.8);
    assert_true(envelope->ttft_ns == 1500000000 && envelope->token_ns == 40000000);
    assert_int_equal(envelope->keys_len, 2);
    assert_true(kvr_envelope_has(envelope, 10) && kvr_envelope_has(envelope, 11));
    assert_false(kvr_envelope_has(envelope, 12) || kvr_envelope_has(envelope, 0));
    kvr_envelope_destroy(envelope);
    envelope = kvr_envelope_create(kvr_slice_of(HEAD KEYS), NULL, NULL);
    assert_true(envelope->options.window_ns == KVR_ENVELOPE_WINDOW_DEFAULT_NS);
    assert_int_equal(envelope->options.requests_min, KVR_ENVELOPE_REQUESTS_MIN_DEFAULT);
    kvr_envelope_destroy(envelope);
    const struct kvr_envelope_options short_window = {.window_ns = 1000};
    struct kvr_error error = {0};
    assert_null(kvr_envelope_create(kvr_slice_of(HEAD KEYS), &short_window, &error));
    assert_string_equal(error.text, "a window is 10 ms or more");
}

static void test_a_file_that_vouches_for_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "the text ends too early"},
        {"[]", "a gate is a JSON object"},
        {"{}", "is no file of kvroute gate (format kvroute-gate-2)"},
        {"{\"format\":\"kvroute-gate-1\"}", "is no file of kvroute gate (format kvroute-gate-2)"},
        {"{\"format\":\"kvroute-gate-2\",\"verdict\":\"keep\"}",
         "the verdict of this gate is not enable"},
        {"{\"format\":\"kvroute-gate-2\",\"verdict\":\"enable\"}",
         "candidate and against are needed"},
        {HEAD "\"candidate\":{\"name\":\"a\"}," KEYS,
         "params_hash and spill of the candidate are needed"},
        {HEAD "\"candidate\":{\"name\":\"a\",\"spill\":\"load_min\"}," KEYS,
         "a spill rule is an object or null"},
        {HEAD "\"bounds\":{\"ttft_p99_ms\":1,\"token_ms\":-1}," KEYS,
         "token_ms is a time of 0 or more"},
        {HEAD "\"keys\":[]}", "keys are needed"},
        {HEAD "\"keys\":[[\"a\",1]]}", "a key has 16 hexadecimal digits"},
        {HEAD "\"keys\":[[\"000000000000000G\",1]]}", "a key has 16 hexadecimal digits"},
        {HEAD "\"keys\":[7]}", "keys is a list of pairs of a key and its rate"},
        {HEAD "\"bounds\":{\"active_share\":2}," KEYS, "active_share is a share from 0 to 1"},
        {HEAD "\"bounds\":{\"ttft_p99_ms\":0}," KEYS, "bounds.ttft_p99_ms is a time above 0"},
        {HEAD "\"candidate\":{\"name\":\"\"}," KEYS, "a script's name is needed"},
        {HEAD "\"against\":3," KEYS, "a script is an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_error error = {0};
        assert_null(parse(cases[i].text, &error));
        assert_string_equal(error.text, cases[i].reason);
    }
}

static void test_many_keys(void **state)
{
    (void)state;
    struct kvr_buffer text = {0};
    struct kvr_rng rng;
    kvr_buffer_append_text(&text, HEAD "\"keys\":[");
    kvr_rng_init(&rng, 4);
    for (int i = 0; i < 5000; i++)
        kvr_buffer_printf(&text, "%s[\"%016llx\",1]", i ? "," : "",
                          (unsigned long long)kvr_rng_next(&rng));
    kvr_buffer_append_text(&text, "]}");
    struct kvr_envelope *envelope = kvr_envelope_create(kvr_buffer_slice(&text), NULL, NULL);
    assert_non_null(envelope);
    assert_int_equal(envelope->keys_len, 5000);
    kvr_rng_init(&rng, 4);
    for (int i = 0; i < 5000; i++)
        assert_true(kvr_envelope_has(envelope, kvr_rng_next(&rng)));
    for (int i = 0; i < 5000; i++)
        assert_false(kvr_envelope_has(envelope, kvr_rng_next(&rng)));
    kvr_envelope_destroy(envelope);
    kvr_buffer_deinit(&text);
}

/* Of the candidate and of its spill rule. */
static void test_what_differs_is_told_apart(void **state)
{
    (void)state;
    struct kvr_envelope *envelope = good();
    struct kvr_script_info info = {.name = "cacheroute", .hash = 0xff, .params_hash = 0xfe};
    assert_int_equal(kvr_envelope_compare(&envelope->candidate, &info), 0);
    info.params_hash = 1;
    assert_int_equal(kvr_envelope_compare(&envelope->candidate, &info), KVR_ENVELOPE_PARAMS);
    info.hash = 1;
    assert_int_equal(kvr_envelope_compare(&envelope->candidate, &info),
                     KVR_ENVELOPE_TEXT | KVR_ENVELOPE_PARAMS);
    info = (struct kvr_script_info){.name = "other", .hash = 0xff, .params_hash = 0xfe};
    assert_int_equal(kvr_envelope_compare(&envelope->candidate, &info), KVR_ENVELOPE_NAME);
    assert_int_equal(kvr_envelope_compare(&envelope->spill, NULL), KVR_ENVELOPE_NAME);
    envelope->spill = (struct kvr_envelope_script){0};
    assert_int_equal(kvr_envelope_compare(&envelope->spill, NULL), 0);
    assert_int_equal(kvr_envelope_compare(&envelope->spill, &info), KVR_ENVELOPE_NAME);
    kvr_envelope_destroy(envelope);
}

/* A whole answer may take as long as a stream of as many tokens. */
static void test_the_most_of_a_whole_answer(void **state)
{
    (void)state;
    struct kvr_envelope *envelope = good();
    assert_true(kvr_envelope_most_ns(envelope, 0) == 1500000000);
    assert_true(kvr_envelope_most_ns(envelope, 1) == 1500000000);
    assert_true(kvr_envelope_most_ns(envelope, 101) == 1500000000 + 100 * UINT64_C(40000000));
    assert_true(kvr_envelope_most_ns(envelope, UINT64_MAX) == UINT64_MAX);
    kvr_envelope_destroy(envelope);
}

static bool stream(struct kvr_envelope *envelope, uint64_t now_ns, uint64_t ttft_ns)
{
    return kvr_envelope_answered(envelope, now_ns, KVR_ENVELOPE_STREAMS,
                                 ttft_ns > envelope->ttft_ns);
}

/* A hundred requests a second of that key, until `until_s`; when it was left, in s, or 0. */
static double drive(struct kvr_envelope *envelope, double from_s, double until_s, uint64_t key,
                    uint64_t ttft_ms)
{
    uint64_t now = (uint64_t)(from_s * 1e9);
    for (; now < (uint64_t)(until_s * 1e9); now += SECOND / 100) {
        bool left = kvr_envelope_arrived(envelope, now, key);
        left |= stream(envelope, now, ttft_ms * 1000000);
        if (left)
            return (double)now / 1e9;
    }
    return 0;
}

static void test_other_keys_are_seen_within_a_window(void **state)
{
    (void)state;
    struct kvr_envelope *envelope = good();
    assert_true(drive(envelope, 1, 100, 10, 1000) == 0);
    assert_int_equal(envelope->left, KVR_ENVELOPE_KEPT);
    double at = drive(envelope, 100, 200, 99, 1000);
    assert_true(at > 101 && at < 110);
    assert_int_equal(envelope->left, KVR_ENVELOPE_ACTIVE_SET);
    assert_true(envelope->left_ns == (uint64_t)(at * 1e9));
    assert_true(envelope->saw.active * 10 < envelope->saw.requests * 8);
    /* It stays left, whatever comes, and says so once. */
    assert_true(drive(envelope, at + 0.01, 400, 10, 1000) == 0);
    assert_int_equal(envelope->left, KVR_ENVELOPE_ACTIVE_SET);
    assert_true(envelope->left_ns == (uint64_t)(at * 1e9));
    struct kvr_envelope_counts now = kvr_envelope_window(envelope, 400 * SECOND - 1);
    assert_true(now.requests >= 900 && now.requests <= 1000 && now.active == now.requests);
    kvr_envelope_destroy(envelope);
}

static void test_late_answers_are_seen_within_a_window(void **state)
{
    (void)state;
    struct kvr_envelope *envelope = good();
    assert_true(drive(envelope, 1, 50, 10, 1500) == 0); /* on the bound is within it */
    double at = drive(envelope, 50, 100, 10, 1501);
    assert_true(at > 50 && at < 60);
    assert_int_equal(envelope->left, KVR_ENVELOPE_TTFT_P99);
    kvr_envelope_destroy(envelope);
}

/* One in a hundred is no p99 beyond the bound; two are. */
static void test_p99_is_one_in_a_hundred(void **state)
{
    (void)state;
    for (uint64_t late = 1; late <= 2; late++) {
        struct kvr_envelope *envelope = good();
        bool left = false;
        for (uint64_t i = 0; i < 5000; i++) {
            uint64_t ttft = i % 100 < late ? UINT64_MAX : SECOND;
            left |= stream(envelope, SECOND + i * SECOND / 100, ttft);
        }
        assert_int_equal(left, late == 2);
        kvr_envelope_destroy(envelope);
    }
}

static void test_few_requests_say_nothing(void **state)
{
    (void)state;
    struct kvr_envelope *envelope = good();
    for (uint64_t s = 1; s < 500; s++) { /* nine a window */
        assert_false(kvr_envelope_arrived(envelope, s * SECOND, 99));
        assert_false(stream(envelope, s * SECOND, UINT64_MAX));
    }
    /* A gap empties the window. */
    assert_false(kvr_envelope_tick(envelope, 600 * SECOND));
    struct kvr_envelope_counts now = kvr_envelope_window(envelope, 600 * SECOND);
    assert_true(now.requests == 0 && now.answers[KVR_ENVELOPE_STREAMS].count == 0);
    kvr_envelope_destroy(envelope);
}

/* Nineteen good ones of one kind beside each late one of the other do not hide it. */
static void test_kinds_of_answers_are_judged_apart(void **state)
{
    (void)state;
    for (int late = 0; late < KVR_ENVELOPE_KINDS; late++) {
        struct kvr_envelope *envelope = good();
        for (uint64_t i = 0; i < 4000 && !envelope->left; i++) {
            uint64_t now = SECOND + i * SECOND / 400;
            enum kvr_envelope_kind kind = (enum kvr_envelope_kind)(i % 20 ? 1 - late : late);
            kvr_envelope_answered(envelope, now, kind, i % 400 == 0);
        }
        assert_int_equal(envelope->left, late == KVR_ENVELOPE_STREAMS ? KVR_ENVELOPE_TTFT_P99
                                                                      : KVR_ENVELOPE_TOTAL_P99);
        /* Over both together it is one in four hundred. */
        const struct kvr_envelope_answers *saw = envelope->saw.answers;
        assert_true((saw[0].late + saw[1].late) * 100 < saw[0].count + saw[1].count);
        kvr_envelope_destroy(envelope);
    }
}

/* With nothing more to come, time alone tells. */
static void test_a_tick_sees_it_too(void **state)
{
    (void)state;
    struct kvr_envelope *envelope = good();
    for (int i = 0; i < 200; i++)
        assert_false(kvr_envelope_arrived(envelope, 5 * SECOND, 99));
    assert_false(kvr_envelope_tick(envelope, 5 * SECOND + SECOND / 2));
    assert_true(kvr_envelope_tick(envelope, 6 * SECOND));
    assert_false(kvr_envelope_tick(envelope, 7 * SECOND));
    assert_string_equal(kvr_envelope_left_name(envelope->left), "active_set");
    kvr_envelope_destroy(envelope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_file_of_a_gate),
        cmocka_unit_test(test_a_file_that_vouches_for_nothing),
        cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_what_differs_is_told_apart),
        cmocka_unit_test(test_the_most_of_a_whole_answer),
        cmocka_unit_test(test_kinds_of_answers_are_judged_apart),
        cmocka_unit_test(test_other_keys_are_seen_within_a_window),
        cmocka_unit_test(test_late_answers_are_seen_within_a_window),
        cmocka_unit_test(test_p99_is_one_in_a_hundred),
        cmocka_unit_test(test_few_requests_say_nothing),
        cmocka_unit_test(test_a_tick_sees_it_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
