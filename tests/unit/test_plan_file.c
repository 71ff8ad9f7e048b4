/* core/model/plan_file: a plan that was written, and what is wrong with one. */
#include "unit.h"

#include <math.h>

#include "memory.h"
#include "plan_file.h"
#include "replica.h"
#include "rng.h"
#include "routing_key.h"

static uint64_t replicas[3];
static const double weights[] = {1, 2, 1};
static struct kvr_plan_fleet fleet = {replicas, weights, 3};

static int name_replicas(void **state)
{
    (void)state;
    replicas[0] = kvr_name_hash(kvr_slice_of("a:1"));
    replicas[1] = kvr_name_hash(kvr_slice_of("b:1#2"));
    replicas[2] = kvr_name_hash(kvr_slice_of("c:1"));
    return 0;
}

static void assert_places(const struct kvr_plan *plan, const char *key, uint32_t count,
                          const uint16_t *places)
{
    uint32_t found;
    const uint16_t *assigned =
        kvr_plan_lookup(plan, kvr_hash32(kvr_routing_key_named(kvr_slice_of(key))), &found);
    assert_int_equal(found, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(assigned[i], places[i]);
}

static void test_reads_what_was_written(void **state)
{
    (void)state;
    char text[256];
    snprintf(text, sizeof text,
             "key,rate,destinations\ncool,1,c:1\r\nhot,6.5e0,b:1#2 a:1\n\n"
             "00c0ffee00c0ffee,2,%016llx\n",
             (unsigned long long)replicas[0]);
    struct kvr_error error = {0};
    struct kvr_plan_key *keys;
    struct kvr_plan *plan = kvr_plan_read(kvr_slice_of(text), &fleet, &keys, &error);
    if (!plan)
        fail_msg("%s", error.text);
    assert_int_equal(plan->keys, 3);
    assert_int_equal(plan->admitted, 3);
    assert_int_equal(plan->copies, 4);
    assert_int_equal(plan->split, 1);
    assert_places(plan, "hot", 2, (const uint16_t[]){1, 0});
    assert_places(plan, "cool", 1, (const uint16_t[]){2});
    assert_places(plan, "00c0ffee00c0ffee", 1, (const uint16_t[]){0});
    assert_places(plan, "other", 0, NULL);
    assert_true(keys[0].rate == 6.5 && keys[1].rate == 2 && keys[2].rate == 1); /* falling */
    assert_true(keys[0].key == plan->entries[0].key);
    assert_true(plan->loads[0] == 5.25 && plan->loads[1] == 3.25 && plan->loads[2] == 1);
    assert_true(plan->admitted_rate == 9.5 && plan->tail_rate == 0);
    assert_true(fabs(plan->imbalance - 5.25 * 4 / 9.5) < 1e-12);
    kvr_free(keys);
    kvr_plan_destroy(plan);
}

/* Two names of one 32-bit key: the hotter one is planned, wherever it stands. */
static void test_names_that_fall_together(void **state)
{
    (void)state;
    enum { NAMES = 1 << 18 };
    uint64_t *seen = kvr_alloc_zero(NAMES, sizeof *seen); /* 32-bit key in 2^18 buckets */
    char name[17], twin[17] = "", text[128];
    uint64_t first = 0, second = 0;
    for (uint64_t i = 1; !second; i++) {
        uint64_t key = kvr_mix64(i);
        uint64_t *place = &seen[kvr_hash32(key) % NAMES];
        if (*place && kvr_hash32(*place) == kvr_hash32(key)) {
            first = *place;
            second = key;
        }
        *place = key;
    }
    kvr_free(seen);
    snprintf(name, sizeof name, "%016llx", (unsigned long long)first);
    snprintf(twin, sizeof twin, "%016llx", (unsigned long long)second);
    snprintf(text, sizeof text, "key,rate,destinations\n%s,1,a:1\n%s,4,c:1\n", name, twin);
    struct kvr_error error = {0};
    struct kvr_plan_key *keys;
    struct kvr_plan *plan = kvr_plan_read(kvr_slice_of(text), &fleet, &keys, &error);
    if (!plan)
        fail_msg("%s", error.text);
    assert_int_equal(plan->keys, 2);
    assert_int_equal(plan->admitted, 1);
    assert_places(plan, name, 1, (const uint16_t[]){2});
    assert_true(plan->tail_rate == 1);
    kvr_free(keys);
    kvr_plan_destroy(plan);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "line 1: a plan begins with key,rate,destinations, not \"\""},
        {"key,rate\n", "line 1: a plan begins with key,rate,destinations, not \"key,rate\""},
        {"key,rate,destinations\nk,1,a:1\nm,x,a:1\n",
         "line 3: a rate is a number from 0 to 1e15, not \"x\""},
        {"key,rate,destinations\nk,-1,a:1",
         "line 2: a rate is a number from 0 to 1e15, not \"-1\""},
        {"key,rate,destinations\nk,1e999,a:1",
         "line 2: a rate is a number from 0 to 1e15, not \"1e999\""},
        {"key,rate,destinations\nk,1,a:1\nm,1.1e15,a:1",
         "line 3: a rate is a number from 0 to 1e15, not \"1.1e15\""},
        {"key,rate,destinations\nk,1", "line 2: a key has destinations, not \"\""},
        {"key,rate,destinations\n,1,a:1",
         "line 2: a key is a text or 16 hexadecimal digits, not \"\""},
        {"key,rate,destinations\nk,1,a:1 d:1",
         "line 2: destinations are replicas that are here and not draining, not \"d:1\""},
        {"key,rate,destinations\nk,1,a:1 c:1 a:1",
         "line 2: a destination is named once a key, not \"a:1\""},
        {"key,rate,destinations\nk,1,a:1\n\nm,2,c:1\nk,3,c:1", "line 5: the key of line 2 again"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_error error = {0};
        struct kvr_plan_key *keys;
        assert_null(kvr_plan_read(kvr_slice_of(cases[i][0]), &fleet, &keys, &error));
        assert_string_equal(error.text, cases[i][1]);
        assert_int_equal(error.code, KVR_E_INVALID);
    }
}

static void test_empty(void **state)
{
    (void)state;
    struct kvr_plan_key *keys;
    struct kvr_plan *plan =
        kvr_plan_read(kvr_slice_of("key,rate,destinations\n"), &fleet, &keys, NULL);
    assert_non_null(plan);
    assert_int_equal(plan->admitted, 0);
    assert_true(plan->imbalance == 1);
    assert_places(plan, "k", 0, NULL);
    kvr_free(keys);
    kvr_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_was_written),
        cmocka_unit_test(test_names_that_fall_together),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, name_replicas, NULL);
}
