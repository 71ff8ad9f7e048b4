/* Numbers as text, against printf. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "digits.h"
#include "rng.h"

static void check(uint64_t value)
{
    char mine[64] = {0}, printed[64];
    *kvr_put_uint(mine, value) = '\0';
    snprintf(printed, sizeof printed, "%" PRIu64, value);
    assert_string_equal(mine, printed);
    *kvr_put_hex64(mine, value) = '\0';
    snprintf(printed, sizeof printed, "%016" PRIx64, value);
    assert_string_equal(mine, printed);
    *kvr_put_three(mine, (uint32_t)(value % 1000)) = '\0';
    snprintf(printed, sizeof printed, "%03u", (unsigned)(value % 1000));
    assert_string_equal(mine, printed);
}

static void every_length_and_its_neighbours(void **state)
{
    (void)state;
    check(0);
    check(UINT64_MAX);
    for (uint64_t power = 1; power <= UINT64_MAX / 10; power *= 10)
        for (uint64_t by = 0; by < 3; by++)
            check(power - 1 + by);
}

static void random_values_of_all_sizes(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 7);
    for (uint32_t i = 0; i < 200000; i++)
        check(kvr_rng_next(&rng) >> i % 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_and_its_neighbours),
        cmocka_unit_test(random_values_of_all_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
