/* Which of many secrets was given. That the time tells nothing is not measured here. */
#include "unit.h"

#include "credential.h"

#define COUNT 1000

static void test_the_right_one_is_found_and_no_other(void **state)
{
    (void)state;
    static struct kvr_digest digests[COUNT];
    char text[32];
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "secret-%d", i);
        digests[i] = kvr_credential_digest(42, kvr_slice_of(text));
    }
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "secret-%d", i);
        struct kvr_digest given = kvr_credential_digest(42, kvr_slice_of(text));
        assert_int_equal(kvr_credential_find(digests, COUNT, given), i);
        assert_int_equal(kvr_credential_find(digests, (uint32_t)i, given), KVR_NO_CREDENTIAL);
        given.high ^= 1;
        assert_int_equal(kvr_credential_find(digests, COUNT, given), KVR_NO_CREDENTIAL);
        given.high ^= 1;
        given.low ^= 1ull << 63;
        assert_int_equal(kvr_credential_find(digests, COUNT, given), KVR_NO_CREDENTIAL);
    }
    struct kvr_digest other = kvr_credential_digest(43, kvr_slice_of("secret-7"));
    assert_int_equal(kvr_credential_find(digests, COUNT, other), KVR_NO_CREDENTIAL);
    assert_int_equal(kvr_credential_find(NULL, 0, other), KVR_NO_CREDENTIAL);
    (void)kvr_credential_digest(42, kvr_slice_make(NULL, 0));
}

static void test_equal_is_equal(void **state)
{
    (void)state;
    static const struct {
        const char *secret, *given;
        bool equal;
    } cases[] = {
        {"abc", "abc", true},     {"abc", "abd", false}, {"abc", "ab", false},
        {"abc", "abcabc", false}, {"", "", true},        {"", "a", false},
        {"abc", "", false},       {"a", "aa", false},    {"\xff", "\xff", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(
            kvr_credential_equal(kvr_slice_of(cases[i].secret), kvr_slice_of(cases[i].given)),
            cases[i].equal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_right_one_is_found_and_no_other),
        cmocka_unit_test(test_equal_is_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
