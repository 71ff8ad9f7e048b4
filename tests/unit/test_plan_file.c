/* core/model/plan_file: a plan that was written, and what is wrong with one. */
#include "unit.h"

#include <math.h>

#include "memory.h"
#include "model_key.h"
#include "plan_file.h"
#include "replica.h"
#include "rng.h"
#include "routing_key.h"

static uint64_t replicas[3];
static const double weights[] = {1, 2, 1};
static struct kvr_plan_fleet fleet = {replicas, weights, NULL, 3};

#define TWO(lines) "# kvroute plan 2, 2 keys\nkey,rate,destinations\n" lines

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

/* A text that is taken, of that version. */
static struct kvr_plan *read_good(const char *text, struct kvr_plan_key **keys, uint32_t expected)
{
    struct kvr_error error = {0};
    uint32_t version;
    struct kvr_plan *plan = kvr_plan_read(kvr_slice_of(text), &fleet, keys, &version, &error);
    if (!plan)
        fail_msg("%s", error.text);
    assert_int_equal(version, expected);
    return plan;
}

static void check_what_was_written(const char *first, uint32_t version)
{
    char text[256];
    snprintf(text, sizeof text,
             "%skey,rate,destinations\ncool,1,c:1\r\nhot,6.5e0,b:1#2 a:1\n\n"
             "00c0ffee00c0ffee,2,%016llx\n",
             first, (unsigned long long)replicas[0]);
    struct kvr_plan_key *keys;
    struct kvr_plan *plan = read_good(text, &keys, version);
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

static void test_reads_what_was_written(void **state)
{
    (void)state;
    check_what_was_written("# kvroute plan 2, 3 keys\r\n", 2);
    check_what_was_written("", 1);
}

static void assert_under(const struct kvr_plan *plan, const char *model, const char *key,
                         int expected)
{
    uint32_t count, name = *model ? kvr_hash32(kvr_name_hash(kvr_slice_of(model))) : 0;
    const uint16_t *assigned = kvr_plan_lookup(
        plan, kvr_model_key(name, kvr_hash32(kvr_routing_key_named(kvr_slice_of(key)))), &count);
    assert_int_equal(count, expected >= 0);
    if (count)
        assert_int_equal(assigned[0], expected);
}

/* With a column of models a key is one under each; without, it is the same under all. */
static void test_keys_of_models(void **state)
{
    (void)state;
    struct kvr_plan_key *keys;
    struct kvr_plan *plan = read_good("# kvroute plan 2, 3 keys\nkey,model,rate,destinations\n"
                                      "k,red,1,a:1\nk,blue,2,c:1\nk,,3,b:1#2\n",
                                      &keys, 2);
    assert_int_equal(plan->admitted, 3);
    assert_under(plan, "red", "k", 0);
    assert_under(plan, "blue", "k", 2);
    assert_under(plan, "", "k", 1);
    assert_under(plan, "green", "k", -1);
    kvr_free(keys);
    kvr_plan_destroy(plan);
    plan = read_good("# kvroute plan 2, 1 key\nkey,rate,destinations\nk,1,c:1\n", &keys, 2);
    assert_under(plan, "red", "k", 2);
    assert_under(plan, "", "k", 2);
    kvr_free(keys);
    kvr_plan_destroy(plan);
}

/* a:1 serves red, the others whatever is asked for. */
static void test_destinations_serve_the_model(void **state)
{
    (void)state;
    struct kvr_replica a = {.models_known = true, .models_count = 1};
    const struct kvr_replica any = {.any_model = true}, unknown = {.models_known = false};
    a.models[0] = kvr_name_hash(kvr_slice_of("red"));
    struct kvr_serving serving;
    kvr_serving_init(&serving, 3);
    kvr_serving_add(&serving, &a);
    kvr_serving_add(&serving, &any);
    kvr_serving_add(&serving, &unknown);
    fleet.serving = &serving;
    struct kvr_plan_key *keys;
    struct kvr_plan *plan = read_good("# kvroute plan 2, 3 keys\nkey,model,rate,destinations\n"
                                      "k,red,1,a:1\nk,blue,2,c:1 b:1#2\nk,,3,a:1\n",
                                      &keys, 2);
    kvr_free(keys);
    kvr_plan_destroy(plan);
    struct kvr_error error = {0};
    uint32_t version;
    assert_null(kvr_plan_read(kvr_slice_of("# kvroute plan 2, 2 keys\nkey,model,rate,destinations\n"
                                           "k,red,1,a:1\nk,blue,2,c:1 a:1\n"),
                              &fleet, &keys, &version, &error));
    assert_string_equal(error.text, "line 4: destinations serve the model of the key, not \"a:1\"");
    fleet.serving = NULL;
    kvr_serving_deinit(&serving);
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
    snprintf(text, sizeof text, TWO("%s,1,a:1\n%s,4,c:1\n"), name, twin);
    struct kvr_plan_key *keys;
    struct kvr_plan *plan = read_good(text, &keys, 2);
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
        {"", "line 1: a plan begins with # kvroute plan 2, N keys, not \"\""},
        {"key,rate\n", "line 1: a plan begins with # kvroute plan 2, N keys, not \"key,rate\""},
        {"# kvroute plan 3, 1 key\n", "line 1: the version of a plan is 2, or 1 without this line, "
                                      "not \"# kvroute plan 3, 1 key\""},
        {"# kvroute plan 2, x keys\n", "line 1: a plan begins with # kvroute plan 2, N keys, not "
                                       "\"# kvroute plan 2, x keys\""},
        {"# kvroute plan 2, 1 keys of us\n", "line 1: a plan begins with # kvroute plan 2, N keys, "
                                             "not \"# kvroute plan 2, 1 keys of us\""},
        {"# kvroute plan 2, 1 key\nkey\n",
         "line 2: here is key,rate,destinations or key,model,rate,destinations, not \"key\""},
        /* What has been cut, at the end of a line and elsewhere */
        {"# kvroute plan 2, 0 keys\nkey,rate,destinations\n",
         "line 1: a plan has keys, not \"# kvroute plan 2, 0 keys\""},
        {"key,rate,destinations\n", "line 1: a plan has keys, not 0"},
        {TWO(""), "line 2: the plan ends with 0 of 2 keys: it has been cut"},
        {TWO("k,1,a:1\n"), "line 3: the plan ends with 1 of 2 keys: it has been cut"},
        {TWO("k,1,a:1\nm,1,a:1"), "line 4: the last line has no end: it has been cut"},
        {TWO("k,1,a:1\nm,1,a:1\nn,1,a:1\n"),
         "line 5: the plan has more keys than its first line says, not \"n\""},
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
        uint32_t version;
        assert_null(kvr_plan_read(kvr_slice_of(cases[i][0]), &fleet, &keys, &version, &error));
        assert_string_equal(error.text, cases[i][1]);
        assert_int_equal(error.code, KVR_E_INVALID);
    }
}

/* Wherever it is cut, a whole plan is none any more. */
static void test_any_cut_is_noticed(void **state)
{
    (void)state;
    static const char text[] = TWO("k,1,a:1 c:1\nm,2,b:1#2 c:1\n");
    for (size_t len = 0; len < sizeof text - 1; len++) {
        struct kvr_error error = {0};
        struct kvr_plan_key *keys;
        uint32_t version;
        assert_null(kvr_plan_read(kvr_slice_make(text, len), &fleet, &keys, &version, &error));
        assert_memory_equal(error.text, "line ", 5);
    }
    struct kvr_plan_key *keys;
    kvr_plan_destroy(read_good(text, &keys, 2));
    kvr_free(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_was_written),
        cmocka_unit_test(test_keys_of_models),
        cmocka_unit_test(test_destinations_serve_the_model),
        cmocka_unit_test(test_names_that_fall_together),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_any_cut_is_noticed),
    };
    return cmocka_run_group_tests(tests, name_replicas, NULL);
}
