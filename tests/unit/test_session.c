/* core/model/session: which of the many places names the conversation, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "request_fixture.h"
#include "session.h"

/* Derives from a chat body and headers given as name, value, name, value, ..., NULL. */
static struct kvr_session derive(const char *key, const char *body, const char *const *texts)
{
    struct kvr_header headers[32];
    size_t count = 0;
    for (; texts && texts[0]; texts += 2)
        headers[count++] = (struct kvr_header){kvr_slice_of(texts[0]), kvr_slice_of(texts[1])};
    struct kvr_session_options options = {kvr_slice_of(key), {0}};
    struct kvr_api_options api_options = {.session_field = kvr_slice_of(key)};
    struct scanned scanned;
    scan_body(&scanned, KVR_API_CHAT, kvr_slice_of(body), &api_options, 0);
    if (scanned.code != KVR_OK)
        fail_msg("%s", scanned.error.text);
    struct kvr_session session = kvr_session_derive(&options, headers, count, &scanned.request);
    scanned_close(&scanned);
    return session;
}

static void assert_source(struct kvr_session session, const char *source)
{
    assert_string_equal(kvr_session_source_name(session.source), source);
    assert_int_equal(session.key != 0, session.source != KVR_SESSION_NONE);
}

#define HEADERS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_headers(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"x-session-id", "x-session-id"},
        {"X-Session-ID", "x-session-id"},
        {"x-session-affinity", "x-session-affinity"},
        {"X-Claude-Code-Session-Id", "x-claude-code-session-id"},
        {"session-id", "session-id"},
        {"Session_Id", "session-id"},
        {"X-Conversation-Id", "x-conversation-id"},
        {"X-Flow-Conversation-Id", "x-flow-conversation-id"},
        {"conversation-id", "conversation-id"},
        {"x-litellm-session-id", "x-litellm-session-id"},
        {"Helicone-Session-Id", "helicone-session-id"},
        {"X-Anything-At-All-Session-Id", "x-*-session-id"},
        {"x-request-id", "none"},
        {"x-user-id", "none"},
        {"traceparent", "none"},
        {"authorization", "none"},
        {"my-session-id", "none"},
        {"x-session-id2", "none"},
        {"xx-session-id", "none"},
        {"cookie", "none"},
        {"", "none"},
    };
    struct kvr_session first = derive("", "{}", HEADERS("x-session-id", "abc"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_session session = derive("", "{}", HEADERS("host", "h", cases[i][0], "abc"));
        assert_source(session, cases[i][1]);
        if (session.key)
            assert_true(session.key == first.key); /* the value names it, not where it stood */
    }
}

static void test_precedence(void **state)
{
    (void)state;
    /* Everything at once; then the winner is taken away, one after another. */
    static const char *const headers[] = {"mine",
                                          "x-session-id",
                                          "x-session-affinity",
                                          "x-claude-code-session-id",
                                          "session-id",
                                          "x-conversation-id",
                                          "x-flow-conversation-id",
                                          "conversation-id",
                                          "x-litellm-session-id",
                                          "helicone-session-id",
                                          "x-other-session-id"};
    static const char *const fields[] = {
        "\"conversation\":{\"id\":\"a\"}",
        "\"conversation_id\":\"b\"",
        "\"session_id\":\"c\"",
        "\"metadata\":{\"session_id\":\"d\",\"user_id\":\"x_session_e\"}",
        "\"metadata\":{\"user_id\":\"x_session_e\"}",
        "\"prompt_cache_key\":\"f\"",
        "\"previous_response_id\":\"g\"",
        "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"};
    static const char *const sources[] = {"configured",
                                          "x-session-id",
                                          "x-session-affinity",
                                          "x-claude-code-session-id",
                                          "session-id",
                                          "x-conversation-id",
                                          "x-flow-conversation-id",
                                          "conversation-id",
                                          "x-litellm-session-id",
                                          "helicone-session-id",
                                          "x-*-session-id",
                                          "body.conversation",
                                          "body.conversation_id",
                                          "body.session_id",
                                          "body.metadata.session_id",
                                          "body.metadata.user_id",
                                          "prompt_cache_key",
                                          "previous_response_id",
                                          "fingerprint",
                                          "none"};
    for (size_t first = 0; first < 20; first++) {
        const char *list[32] = {NULL};
        char body[1024] = "{\"user\":\"u\"";
        size_t n = 0;
        for (size_t i = 11; i-- > first;) { /* weakest first: their order must not matter */
            list[n++] = headers[i];
            list[n++] = "value";
        }
        for (size_t i = 0; i < 8; i++) {
            if (i + 11 < first)
                continue;
            if (i == 4 && first + 1 <= 11 + 4)
                continue; /* the fuller metadata is there */
            snprintf(body + strlen(body), sizeof body - strlen(body), ",%s", fields[i]);
        }
        strcat(body, "}");
        assert_source(derive("mine", body, list), sources[first]);
    }
}

static void test_blank_is_missing(void **state)
{
    (void)state;
    assert_source(derive("", "{}", HEADERS("x-session-id", "")), "none");
    assert_source(derive("", "{}", HEADERS("x-session-id", " \t ")), "none");
    assert_source(derive("", "{}", HEADERS("x-session-id", "", "x-session-affinity", "a")),
                  "x-session-affinity");
    assert_source(derive("", "{}", HEADERS("x-session-id", "a", "x-session-id", "")),
                  "x-session-id");
    assert_source(derive("", "{\"session_id\":\"\",\"prompt_cache_key\":\"k\"}", NULL),
                  "prompt_cache_key");
    assert_source(derive("", "{\"session_id\":null,\"conversation\":{},\"metadata\":{}}", NULL),
                  "none");
    assert_source(derive("mine", "{\"mine\":\"\"}", HEADERS("mine", "")), "none");
    assert_true(derive("", "{}", HEADERS("x-session-id", " a ")).key ==
                derive("", "{\"session_id\":\"a\"}", NULL).key);
}

static void test_configured_key(void **state)
{
    (void)state;
    struct kvr_session header = derive("X-Flow", "{}", HEADERS("x-flow", "v"));
    assert_source(header, "configured");
    assert_source(derive("flow", "{\"flow\":\"v\"}", NULL), "configured");
    assert_true(derive("flow", "{\"flow\":\"v\"}", NULL).key == header.key);
    assert_true(derive("flow", "{\"fl\\u006fw\":\"\\u0076\"}", NULL).key == header.key);
    assert_true(derive("flow", "{\"flow\":\"w\"}", HEADERS("flow", "v")).key == header.key);
    assert_source(derive("flow", "{\"flow\":17}", NULL), "configured");
    assert_source(derive("flow", "{\"flow\":{\"a\":1}}", NULL), "none");
    assert_source(derive("flow", "{\"flow\":true}", NULL), "none");
    assert_source(derive("flow", "{\"other\":{\"flow\":\"v\"}}", NULL), "none");
    assert_true(derive("metadata.flow", "{\"metadata\":{\"a\":1,\"flow\":\"v\"}}", NULL).key ==
                header.key);
    assert_source(derive("metadata.flow", "{\"flow\":\"v\",\"metadata\":{}}", NULL), "none");
    assert_true(derive("user", "{\"user\":\"v\"}", NULL).key == header.key); /* if one insists */
    assert_source(derive("model", "{\"model\":\"v\"}", NULL), "configured");
}

static void test_user_id_with_a_session_inside(void **state)
{
    (void)state;
    uint64_t wanted = derive("", "{\"session_id\":\"0f-1\"}", NULL).key;
    static const char *const good[] = {
        "{\"metadata\":{\"user_id\":\"{\\\"device_id\\\":1,\\\"session_id\\\":\\\"0f-1\\\"}\"}}",
        "{\"metadata\":{\"user_id\":\"user_ab12_account_cd_session_0f-1\"}}",
        "{\"metadata\":{\"user_id\":\"user_ab12_account__session_0f-1\"}}",
        "{\"metadata\":{\"user_id\":\"a_session_b_session_0f-1\"}}"};
    for (size_t i = 0; i < 4; i++) {
        struct kvr_session session = derive("", good[i], NULL);
        assert_source(session, "body.metadata.user_id");
        assert_true(session.key == wanted);
    }
    static const char *const none[] = {
        "{\"metadata\":{\"user_id\":\"user_17\"}}",
        "{\"metadata\":{\"user_id\":\"user_session_\"}}",
        "{\"metadata\":{\"user_id\":\"_session\"}}",
        "{\"metadata\":{\"user_id\":\"{\\\"device_id\\\":1}\"}}",
        "{\"metadata\":{\"user_id\":\"{\\\"session_id\\\":\\\"x\\\"\"}}",
        "{\"metadata\":{\"user_id\":\"{\"}}",
        "{\"metadata\":{\"user_id\":\"\"}}",
        "{\"metadata\":{\"user_id\":17}}"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_source(derive("", none[i], NULL), "none");
}

static void test_scope(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{\"session_id\":\"s\",\"model\":\"a\"}", "{\"session_id\":\"s\",\"model\":\"b\"}",
        "{\"session_id\":\"s\",\"model\":\"a\",\"cache_salt\":\"x\"}",
        "{\"session_id\":\"s\",\"model\":\"a\",\"lora_path\":\"x\"}",
        "{\"session_id\":\"t\",\"model\":\"a\"}"};
    uint64_t keys[5];
    for (size_t i = 0; i < 5; i++) {
        keys[i] = derive("", bodies[i], NULL).key;
        for (size_t j = 0; j < i; j++)
            assert_true(keys[i] != keys[j]);
    }
    assert_true(derive("", "{\"model\":\"a\",\"session_id\":\"s\",\"stream\":true}", NULL).key ==
                keys[0]);
}

static void test_long_values(void **state)
{
    (void)state;
    char value[16385], same[300], body[16500];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    memset(same, 'v', sizeof same);
    memcpy(same + KVR_IDENTITY_BYTES_MAX, "other", 6);
    uint64_t key = derive("", "{}", HEADERS("x-session-id", value)).key;
    assert_true(key == derive("", "{}", HEADERS("x-session-id", same)).key);
    same[KVR_IDENTITY_BYTES_MAX - 1] = 'w';
    assert_true(key != derive("", "{}", HEADERS("x-session-id", same)).key);
    snprintf(body, sizeof body, "{\"session_id\":\"%s\"}", value);
    assert_true(key == derive("", body, NULL).key);
    snprintf(body, sizeof body, "{\"session_id\":\"\\u0076%s\"}", value);
    assert_true(key == derive("", body, NULL).key);
}

static void test_fingerprint(void **state)
{
    (void)state;
    static const char first[] = "{\"model\":\"m\",\"tools\":[{\"a\":1}],\"messages\":[{\"role\":"
                                "\"system\",\"content\":\"S\"},"
                                "{\"role\":\"user\",\"content\":\"U one\"}]}";
    struct kvr_session session = derive("", first, NULL);
    assert_source(session, "fingerprint");
    static const char *const same[] = {
        /* later turns, other sampling, another shape of the content, tools behind the messages */
        "{\"model\":\"m\",\"temperature\":1,\"messages\":[{\"role\":\"system\",\"content\":\"S\"},"
        "{\"role\":\"user\",\"content\":[{\"text\":\"U "
        "one\"}]},{\"role\":\"assistant\",\"content\":"
        "\"A\"},{\"role\":\"user\",\"content\":\"U two\"}],\"tools\":[{\"a\":1}]}",
        "{\"user\":\"u\",\"model\":\"m\",\"tools\":[{ \"a\" : 1 "
        "}],\"messages\":[{\"content\":\"S\","
        "\"role\":\"system\"},{\"content\":\"U "
        "one\",\"role\":\"user\"},{\"role\":\"assistant\"}]}"};
    for (size_t i = 0; i < 2; i++)
        assert_true(derive("", same[i], NULL).key == session.key);
    static const char *const others[] = {
        "{\"model\":\"m2\",\"tools\":[{\"a\":1}],\"messages\":[{\"role\":\"system\",\"content\":"
        "\"S\"},"
        "{\"role\":\"user\",\"content\":\"U one\"}]}",
        "{\"model\":\"m\",\"tools\":[{\"a\":2}],\"messages\":[{\"role\":\"system\",\"content\":"
        "\"S\"},"
        "{\"role\":\"user\",\"content\":\"U one\"}]}",
        "{\"model\":\"m\",\"tools\":[{\"a\":1}],\"messages\":[{\"role\":\"system\",\"content\":"
        "\"T\"},"
        "{\"role\":\"user\",\"content\":\"U one\"}]}",
        "{\"model\":\"m\",\"tools\":[{\"a\":1}],\"messages\":[{\"role\":\"system\",\"content\":"
        "\"S\"},"
        "{\"role\":\"user\",\"content\":\"U two\"}]}",
        ("{\"model\":\"m\",\"cache_salt\":\"x\",\"tools\":[{\"a\":1}],\"messages\":[{\"role\":"
         "\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U one\"}]}")};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(derive("", others[i], NULL).key != session.key);
    /* a system prompt alone is no conversation */
    assert_source(derive("", "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"}]}", NULL),
                  "none");
}

/* The whole first message counts: two that start alike for a long way are two conversations. */
static void test_fingerprint_of_long_first_messages(void **state)
{
    (void)state;
    char a[9000] = "{\"messages\":[{\"role\":\"user\",\"content\":\"", b[9000];
    memset(a + strlen(a), 'p', 8000);
    strcpy(b, a);
    strcat(a, "1\"}]}");
    strcat(b, "2\"}]}");
    assert_true(derive("", a, NULL).key != derive("", b, NULL).key);
}

static void test_tenant(void **state)
{
    (void)state;
    struct kvr_session_options options = {{0}, kvr_slice_of("x-tenant")};
    struct kvr_api_options api_options = {.tenant_field = kvr_slice_of("user")};
    struct kvr_header header = {kvr_slice_of("X-Tenant"), kvr_slice_of("acme")};
    struct scanned s;
    scan_body(&s, KVR_API_CHAT, kvr_slice_of("{\"model\":\"m\",\"user\":\"acme\"}"), &api_options,
              0);
    struct kvr_session by_header = kvr_session_derive(&options, &header, 1, &s.request);
    struct kvr_session by_body = kvr_session_derive(&options, NULL, 0, &s.request);
    scanned_close(&s);
    assert_true(by_header.tenant && by_header.tenant == by_body.tenant);
    assert_source(by_header, "none"); /* a tenant is no session */
    scan_body(&s, KVR_API_CHAT, kvr_slice_of("{\"model\":\"n\",\"user\":\"acme\"}"), NULL, 0);
    struct kvr_session none = kvr_session_derive(NULL, &header, 1, &s.request);
    assert_true(none.tenant == 0); /* not configured */
    assert_true(kvr_session_derive(&options, &header, 1, &s.request).tenant == by_header.tenant);
    scanned_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_blank_is_missing),
        cmocka_unit_test(test_configured_key),
        cmocka_unit_test(test_user_id_with_a_session_inside),
        cmocka_unit_test(test_scope),
        cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_fingerprint_of_long_first_messages),
        cmocka_unit_test(test_tenant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
