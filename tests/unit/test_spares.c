#include "unit.h"

#include "memory.h"
#include "spares.h"

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(kvr_spares_size(0), 64);
    assert_int_equal(kvr_spares_size(64), 64);
    assert_int_equal(kvr_spares_size(65), 128);
    assert_int_equal(kvr_spares_size(4096), 4096);
    assert_int_equal(kvr_spares_size(16385), 32768);
}

static void test_the_last_given_is_the_first_taken(void **state)
{
    (void)state;
    struct kvr_spares spares = {0};
    char *a = kvr_spares_take(&spares, 3000), *b = kvr_spares_take(&spares, 4096);
    memset(a, 1, 4096);
    memset(b, 2, 4096);
    kvr_spares_give(&spares, a, 4096);
    kvr_spares_give(&spares, b, 4096);
    char *other = kvr_spares_take(&spares, 5000);
    assert_true(other != a && other != b);
    memset(other, 3, kvr_spares_size(5000));
    if (KVR_SPARES_KEEPS) {
        assert_ptr_equal(kvr_spares_take(&spares, 2049), b);
        assert_ptr_equal(kvr_spares_take(&spares, 4096), a);
        kvr_spares_give(&spares, b, 4096);
        kvr_free(a);
    }
    kvr_spares_give(&spares, other, 8192);
    kvr_spares_deinit(&spares);
}

static void test_what_is_not_kept(void **state)
{
    (void)state;
    struct kvr_spares spares = {0};
    kvr_spares_give(&spares, NULL, 0);
    kvr_spares_give(&spares, kvr_alloc(100), 100); /* no power of two: it may be too small */
    kvr_spares_give(&spares, kvr_alloc(1 << 15), 1 << 15); /* too large */
    for (uint32_t i = 0; i < KVR_SPARES_SIZES; i++)
        assert_int_equal(spares.counts[i], 0);
    for (uint32_t i = 0; i < 2 * KVR_SPARES_EACH; i++)
        kvr_spares_give(&spares, kvr_alloc(1024), 1024);
    assert_int_equal(spares.counts[4], KVR_SPARES_KEEPS ? KVR_SPARES_EACH : 0);
    kvr_spares_deinit(&spares);
    assert_int_equal(spares.counts[4], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_the_last_given_is_the_first_taken),
        cmocka_unit_test(test_what_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
