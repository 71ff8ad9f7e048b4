/* What a request is counted and planned by, as configured. */
#include "request_fixture.h"
#include "routing_key.h"
#include "unit.h"

static const char body[] = "{\"model\":\"m\",\"shard\":\"7\",\"metadata\":{\"team\":\"blue\"},"
                           "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
static const uint64_t chain[] = {11, 22, 33};

static struct kvr_session session = {.key = 5, .tenant = 6};

/* Of `body`, with a header X-Key unless `header` is NULL. */
static uint64_t key_by(enum kvr_routing_by by, const char *name, const char *header,
                       uint32_t blocks, uint32_t chain_len)
{
    struct kvr_routing_options options = {by, kvr_slice_of(name), blocks};
    struct kvr_api_options api = {.routing_field = options.key};
    struct kvr_header headers[] = {{kvr_slice_of("X-Key"), kvr_slice_of(header ? header : "")}};
    struct scanned s;
    scan_body(&s, KVR_API_CHAT, kvr_slice_of(body), &api, 0);
    uint64_t key =
        kvr_routing_key(&options, headers, header ? 1 : 0, &s.request, &session, chain, chain_len);
    scanned_close(&s);
    return key;
}

static void test_session_and_tenant(void **state)
{
    (void)state;
    assert_true(key_by(KVR_BY_SESSION, "", "v", 0, 3) == 5);
    assert_true(key_by(KVR_BY_TENANT, "", "v", 0, 3) == 6);
    session.tenant = 0; /* a request of nobody goes by its session */
    assert_true(key_by(KVR_BY_TENANT, "", "v", 0, 3) == 5);
    session.tenant = 6;
}

static void test_header_before_field(void **state)
{
    (void)state;
    uint64_t seven = kvr_routing_key_named(kvr_slice_of("7"));
    assert_true(key_by(KVR_BY_KEY, "x-key", "7", 0, 0) == seven);
    assert_true(key_by(KVR_BY_KEY, "shard", NULL, 0, 0) == seven);
    assert_true(key_by(KVR_BY_KEY, "shard", "8", 0, 0) == seven); /* a header of another name */
    assert_true(key_by(KVR_BY_KEY, "metadata.team", NULL, 0, 0) ==
                kvr_routing_key_named(kvr_slice_of("blue")));
    assert_true(key_by(KVR_BY_KEY, "x-key", "  ", 0, 0) == 5);
    assert_true(key_by(KVR_BY_KEY, "absent", NULL, 0, 0) == 5);
}

static void test_first_blocks(void **state)
{
    (void)state;
    assert_true(key_by(KVR_BY_BLOCKS, "", NULL, 1, 3) == 11);
    assert_true(key_by(KVR_BY_BLOCKS, "", NULL, 3, 3) == 33);
    assert_true(key_by(KVR_BY_BLOCKS, "", NULL, 16, 2) == 22); /* all of a shorter one */
    assert_true(key_by(KVR_BY_BLOCKS, "", NULL, 16, 0) == 5);
}

static void test_names_in_lists(void **state)
{
    (void)state;
    assert_true(kvr_routing_key_named(kvr_slice_of("00000000000000ff")) == 255);
    assert_true(kvr_routing_key_named(kvr_slice_of("fedcba9876543210")) == 0xfedcba9876543210u);
    static const char *const texts[] = {"ff", "00000000000000FF", "00000000000000fg",
                                        "00000000000000ff0"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_true(kvr_routing_key_named(kvr_slice_of(texts[i])) ==
                    kvr_identity_hash(kvr_slice_of(texts[i])));
    assert_true(kvr_routing_key_named(kvr_slice_of("")) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session_and_tenant),
        cmocka_unit_test(test_header_before_field),
        cmocka_unit_test(test_first_blocks),
        cmocka_unit_test(test_names_in_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
