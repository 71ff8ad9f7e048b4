/* Every file of tests/data/requests, against what it expects of a router: the part that the scan of
 * the body decides. Pairs are checked by the relation their files name; what `must` says in words
 * has a function of its own for each file, and a file without one fails. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "data_file.h"
#include "request_fixture.h"
#include "session.h"

static void scan_envelope(struct scanned *scanned, const struct envelope *envelope,
                          uint32_t block_bytes)
{
    scan_body(scanned, kvr_api_of(envelope->path), kvr_buffer_slice(&envelope->body), NULL,
              block_bytes);
    if (scanned->code == KVR_OK)
        scanned_check(scanned, scanned->request.scope);
}

static void assert_text(const struct scanned *scanned, const char *part)
{
    if (!strstr(scanned->text.data, part))
        fail_msg("not in the canonical prompt: %s", part);
}

/* --- one check a file ---------------------------------------------------------------------- */

static void check_parts(const struct scanned *s)
{
    assert_text(s, "\x01user\x02Which band does a 17 kilogram crate fall in?\x03");
}

static void check_null_content(const struct scanned *s)
{
    assert_text(s, "\x01"
                   "assistant\x06[{\"id\":\"call_a1\",\"type\":\"function\",\"function\":{\"name\":"
                   "\"parcel_status\",\"arguments\":\"{\"parcel\":\"QX004417\"}\"}}]\x03");
    assert_text(s, "\x01tool\x02{\"depot\":\"north\",\"state\":\"sorted\"}\x07"
                   "call_a1\x03");
    assert_memory_equal(s->text.data, "[{\"type\":\"function\"", 19); /* tools come first */
    assert_int_equal(s->request.messages, 4);
    assert_int_equal(s->request.turn, 1);
}

static void check_tools(const struct scanned *s)
{
    const char *tool = strstr(s->text.data, "depot_weather"),
               *system = strstr(s->text.data, "\x01");
    assert_true(tool && system && tool < system);
    assert_int_equal(s->request.turn, 1);
}

static void check_image(const struct scanned *s)
{
    assert_int_equal(s->request.media, 1);
    assert_int_equal(s->request.extra_tokens, KVR_MEDIA_TOKENS);
    /* base64 is no text: what counts is the role, the question and four marks */
    assert_int_equal(s->request.prompt_bytes,
                     strlen("\x01user\x02Name the colour of this label.\x03"));
    assert_int_equal(s->text.len, s->request.prompt_bytes + 17);
    assert_memory_equal(s->text.data, "\x01user\x02\x04", 7);
}

static void check_unicode(const struct scanned *s)
{
    assert_text(s, "\xc3\x89tiquette \xe2\x84\x96 7");
    assert_text(s, "\xf0\x9d\x94\x98\xf0\x9d\x94\xab\xf0\x9d\x94\xa6 \xe2\x80\x94 e\xcc\x81\x03");
}

static void check_token_ids(const struct scanned *s)
{
    assert_int_equal(s->request.prompt_tokens, 70);
    assert_int_equal(s->prompt.chain_len, 4); /* 16 ids a block, 6 left over */
    uint32_t first = 104729;
    assert_memory_equal(s->text.data, &first, 4);
    assert_int_equal(s->request.turn, 0);
}

static void check_token_batch(const struct scanned *s)
{
    assert_int_equal(s->request.prompts, 2);
    assert_int_equal(s->request.n, 2);
    assert_int_equal(s->request.prompt_tokens, 31); /* of the first, which alone is the key */
    assert_int_equal(s->request.other_tokens, 18);
    assert_int_equal(s->text.len, 31 * 4);
}

static void check_string_batch(const struct scanned *s)
{
    assert_int_equal(s->request.prompts, 3);
    assert_int_equal(s->request.messages, 0);
    assert_memory_equal(s->text.data, "You answer questions", 20);
    assert_string_equal(s->text.data + s->text.len - strlen(" more t One."), " more t One.");
    assert_true(s->request.other_bytes > 2 * s->request.prompt_bytes);
}

static void check_empty_messages(const struct scanned *s)
{
    assert_int_equal(s->prompt.chain_len, 0);
    assert_int_equal(s->request.prompts, 0);
    assert_int_equal(s->request.prompt_bytes, 0);
}

static void check_null_user(const struct scanned *s)
{
    assert_int_equal(s->prompt.chain_len, 0);
    assert_int_equal(s->request.max_tokens, 0);
    assert_int_equal(s->request.opening_bytes, 0);
}

static void check_roles(const struct scanned *s)
{
    assert_text(s, "\x01"
                   "developer\x02Prefer metric units.\x03");
    assert_text(s, "\x01user\x05"
                   "dock_7\x02Pallet height limit?\x03");
    assert_text(s, "\x01"
                   "critic\x02Too vague.\x03");
}

static void check_stream(const struct scanned *s)
{
    assert_true(s->request.stream);
    assert_int_equal(s->request.n, 2);
}

static void check_model_last(const struct scanned *s)
{
    assert_true(s->request.stream);
    assert_true(s->prompt.chain_len > 250);
    assert_text(s, "Sum up.\x03");
}

static void check_duplicate_model(const struct scanned *s)
{
    assert_true(kvr_slice_is(s->request.model, "demo-8b-instruct"));
    struct scanned plain; /* the key of a request that names the last model only */
    scan_body(
        &plain, KVR_API_CHAT,
        kvr_slice_of("{\"messages\":[{\"role\":\"user\",\"content\":\"Hello there, depot.\"}],"
                     "\"model\":\"demo-8b-instruct\"}"),
        NULL, 16);
    assert_true(plain.request.scope == s->request.scope);
    scanned_close(&plain);
}

static void check_lone_surrogate(const struct scanned *s)
{
    assert_text(s, "cut emoji \xef\xbf\xbd then text\x03");
}

static void check_blanks(const struct scanned *s)
{
    assert_true(kvr_slice_is(s->request.model, "demo-8b-instruct"));
    assert_string_equal(s->text.data, "\x01user\x02Short note.\x03");
}

static void check_truncated(const struct scanned *s)
{
    assert_int_equal(s->code, KVR_E_TRUNCATED);
    assert_string_equal(s->error.text, "byte 79: the text ends inside a string");
    assert_int_equal(s->prompt.chain_len, 0);
}

static void check_numbers(const struct scanned *s)
{
    assert_int_equal(s->request.max_tokens, 100);
}

static void check_salt(const struct scanned *s)
{
    assert_true(s->request.cache_salt.len > 0);
    assert_true(kvr_slice_is(s->request.user, "u-481"));
    assert_true(s->request.identities[KVR_IDENTITY_PROMPT_CACHE_KEY] != 0);
}

static void check_prefix_only(const struct scanned *s)
{
    assert_true(s->prompt.chain_len > 60);
}

static const struct {
    const char *file;
    void (*check)(const struct scanned *scanned);
} checks[] = {
    {"s01-content-parts.json", check_parts},
    {"s02-content-string.json", check_parts},
    {"s03-null-content-tool-calls.json", check_null_content},
    {"s04-tools-order-ab.json", check_tools},
    {"s05-tools-order-ba.json", check_tools},
    {"s06-image-data-url-red.json", check_image},
    {"s07-image-data-url-blue.json", check_image},
    {"s08-unicode-raw.json", check_unicode},
    {"s09-unicode-escaped.json", check_unicode},
    {"s10-prompt-token-ids.json", check_token_ids},
    {"s11-prompt-token-batch.json", check_token_batch},
    {"s12-prompt-string-batch.json", check_string_batch},
    {"s13-empty-messages.json", check_empty_messages},
    {"s14-null-user-zero-max.json", check_null_user},
    {"s15-developer-role-names.json", check_roles},
    {"s16-stream-n2-session.json", check_stream},
    {"s17-model-key-last.json", check_model_last},
    {"s18-duplicate-model-key.json", check_duplicate_model},
    {"s19-lone-surrogate.json", check_lone_surrogate},
    {"s20-bom-and-blanks.json", check_blanks},
    {"s21-truncated-json.json", check_truncated},
    {"s22-number-forms.json", check_numbers},
    {"s23-cache-salt-1.json", check_salt},
    {"s24-cache-salt-2.json", check_salt},
    {"s25-clock-in-system.json", check_prefix_only},
};

#define FILES (sizeof checks / sizeof *checks)

static void test_every_file_has_a_check(void **state)
{
    (void)state;
    DIR *folder = opendir(KVR_SOURCE_DIR "/tests/data/requests");
    size_t found = 0;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!strstr(entry->d_name, ".json"))
            continue;
        found++;
        bool known = false;
        for (size_t i = 0; i < FILES; i++)
            known = known || strcmp(checks[i].file, entry->d_name) == 0;
        if (!known)
            fail_msg("no check for %s", entry->d_name);
    }
    closedir(folder);
    assert_int_equal(found, FILES);
}

static void test_every_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILES; i++) {
        struct envelope envelope;
        struct scanned scanned, again;
        envelope_open(&envelope, checks[i].file);
        scan_envelope(&scanned, &envelope, 0);
        bool rejected = kvr_slice_is(envelope.forward, "reject");
        if ((scanned.code != KVR_OK) != rejected)
            fail_msg("%s: %s", checks[i].file, scanned.error.text);
        if (!rejected && !kvr_slice_is(scanned.request.model, "demo-vl-7b"))
            assert_true(kvr_slice_is(scanned.request.model, "demo-8b-instruct"));
        if (kvr_slice_is(envelope.affinity, "none"))
            assert_int_equal(scanned.prompt.chain_len, 0);
        checks[i].check(&scanned);
        scan_envelope(&again, &envelope, 0); /* same input, same key */
        assert_int_equal(again.prompt.chain_len, scanned.prompt.chain_len);
        assert_int_equal(shared_blocks(&again, &scanned), scanned.prompt.chain_len);
        scanned_close(&again);
        scanned_close(&scanned);
        envelope_close(&envelope);
    }
}

/* A bigger picture than the file's own blanks: the pretty body and the compact one are one prompt.
 */
static void test_blanks_do_not_matter(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILES; i++) {
        struct envelope envelope;
        struct scanned compact, pretty;
        struct kvr_json_reader json;
        struct kvr_json_span key;
        struct kvr_slice raw = {0};
        envelope_open(&envelope, checks[i].file);
        kvr_json_reader_init(&json, kvr_buffer_slice(&envelope.file));
        assert_true(kvr_json_enter_object(&json));
        while (kvr_json_next_key(&json, &key)) {
            struct kvr_slice value;
            kvr_json_skip(&json, &value);
            if (kvr_slice_is(key.raw, "body"))
                raw = value;
        }
        if (raw.len) {
            scan_envelope(&compact, &envelope, 0);
            scan_body(&pretty, kvr_api_of(envelope.path), raw, NULL, 0);
            assert_true(raw.len > envelope.body.len);
            assert_int_equal(pretty.text.len, compact.text.len);
            assert_memory_equal(pretty.text.data, compact.text.data, compact.text.len);
            assert_int_equal(shared_blocks(&pretty, &compact), compact.prompt.chain_len);
            scanned_close(&compact);
            scanned_close(&pretty);
        }
        envelope_close(&envelope);
    }
}

static void check_pair(struct kvr_slice relation, const struct scanned *a, const struct scanned *b)
{
    uint32_t block_bytes = a->prompt.options.block_bytes;
    uint32_t blocks = shared_blocks(a, b);
    size_t bytes = shared_bytes(a, b);
    if (kvr_slice_is(relation, "same_prefix") || kvr_slice_is(relation, "same_prefix_preferred")) {
        assert_int_equal(a->prompt.chain_len, b->prompt.chain_len);
        assert_int_equal(blocks, a->prompt.chain_len);
        assert_true(a->prompt.chain_len > 0);
    } else if (kvr_slice_is(relation, "must_differ")) {
        assert_int_equal(blocks, 0);
        assert_true(a->prompt.chain_len > 0);
    } else if (kvr_slice_is(relation, "no_shared_prefix")) {
        assert_int_equal(blocks, 0);
    } else if (kvr_slice_is(relation, "diverge_at_image")) {
        assert_int_equal(bytes, strlen("\x01user\x02\x04"));
        assert_int_equal(blocks, bytes / block_bytes);
        assert_true(a->prompt.chain_len > blocks);
    } else if (kvr_slice_is(relation, "must_not_match_beyond_common_start")) {
        assert_int_equal(blocks, bytes / block_bytes);
        assert_true(bytes < 48); /* the first tool's name tells them apart */
    } else {
        fail_msg("unknown relation %.*s", (int)relation.len, relation.data);
    }
}

static void test_every_pair(void **state)
{
    (void)state;
    size_t pairs = 0;
    for (size_t i = 0; i < FILES; i++) {
        struct envelope envelope, other;
        struct scanned a, b;
        char name[128];
        envelope_open(&envelope, checks[i].file);
        if (envelope.pair_with.len) {
            pairs++;
            snprintf(name, sizeof name, "%.*s.json", (int)envelope.pair_with.len,
                     envelope.pair_with.data);
            envelope_open(&other, name);
            scan_envelope(&a, &envelope, 16); /* small blocks show more */
            scan_envelope(&b, &other, 16);
            check_pair(envelope.pair_relation, &a, &b);
            scanned_close(&a);
            scanned_close(&b);
            envelope_close(&other);
        }
        envelope_close(&envelope);
    }
    assert_int_equal(pairs, 11);
}

/* The message list as it stands in a body; empty when there is none, or the body is broken. */
static struct kvr_slice messages_of(struct kvr_slice body)
{
    struct kvr_json_reader json;
    struct kvr_json_span key;
    struct kvr_slice list = {0};
    kvr_json_reader_init(&json, body);
    kvr_json_enter_object(&json);
    while (kvr_json_next_key(&json, &key))
        kvr_json_skip(&json, kvr_slice_is(key.raw, "messages") ? &list : NULL);
    return kvr_json_finish(&json) ? list : (struct kvr_slice){0};
}

/* s03 asks: a later turn that appends to the list shares everything up to its new message. */
static void test_appended_turn_keeps_the_prefix(void **state)
{
    (void)state;
    size_t appended = 0;
    for (size_t i = 0; i < FILES; i++) {
        struct envelope envelope;
        struct scanned first, second;
        envelope_open(&envelope, checks[i].file);
        struct kvr_slice list = messages_of(kvr_buffer_slice(&envelope.body));
        if (list.len && !kvr_slice_is(list, "[]")) {
            struct kvr_buffer longer = {0};
            size_t list_end = (size_t)(list.data - envelope.body.data) + list.len - 1;
            kvr_buffer_append(&longer, envelope.body.data, list_end);
            kvr_buffer_append_text(&longer, ",{\"role\":\"user\",\"content\":\"And then?\"}");
            kvr_buffer_append(&longer, envelope.body.data + list_end, envelope.body.len - list_end);
            scan_envelope(&first, &envelope, 16);
            scan_body(&second, KVR_API_CHAT, kvr_buffer_slice(&longer), NULL, 16);
            assert_int_equal(second.code, KVR_OK);
            assert_int_equal(second.request.messages, first.request.messages + 1);
            assert_int_equal(shared_bytes(&first, &second), first.text.len);
            assert_int_equal(shared_blocks(&first, &second), first.prompt.chain_len);
            appended++;
            kvr_buffer_deinit(&longer);
            scanned_close(&first);
            scanned_close(&second);
        }
        envelope_close(&envelope);
    }
    assert_int_equal(appended, 20);
}

/* s16: the session header; s23 and s24: the cache key is a session, scoped by the salt. */
static void test_sessions_of_files(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *source;
    } cases[] = {{"s16-stream-n2-session.json", "x-session-id"},
                 {"s23-cache-salt-1.json", "prompt_cache_key"},
                 {"s24-cache-salt-2.json", "prompt_cache_key"},
                 {"s02-content-string.json", "fingerprint"},
                 {"s01-content-parts.json", "fingerprint"},
                 {"s10-prompt-token-ids.json", "none"},
                 {"s13-empty-messages.json", "none"},
                 {"s14-null-user-zero-max.json", "none"}};
    uint64_t keys[sizeof cases / sizeof *cases];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct envelope envelope;
        struct scanned scanned;
        envelope_open(&envelope, cases[i].file);
        scan_envelope(&scanned, &envelope, 0);
        struct kvr_header header = {kvr_slice_of("x-session-id"), envelope.session};
        struct kvr_session session = kvr_session_derive(NULL, &header, 1, &scanned.request);
        assert_string_equal(kvr_session_source_name(session.source), cases[i].source);
        assert_int_equal(session.key != 0, strcmp(cases[i].source, "none") != 0);
        keys[i] = session.key;
        scanned_close(&scanned);
        envelope_close(&envelope);
    }
    assert_true(keys[1] != keys[2]); /* another salt, another session */
    assert_true(keys[3] == keys[4]); /* the same conversation in two shapes */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_file_has_a_check),
        cmocka_unit_test(test_every_file),
        cmocka_unit_test(test_blanks_do_not_matter),
        cmocka_unit_test(test_every_pair),
        cmocka_unit_test(test_appended_turn_keeps_the_prefix),
        cmocka_unit_test(test_sessions_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
