/* core/model/serving: where keys may go, by who serves what. */
#include "unit.h"

#include <stdbool.h>

#include "model_key.h"
#include "serving.h"

static uint32_t hash(const char *name)
{
    return *name ? kvr_hash32(kvr_name_hash(kvr_slice_of(name))) : 0;
}

static struct kvr_plan_key key(const char *model, uint32_t routing_key)
{
    return (struct kvr_plan_key){kvr_model_key(hash(model), routing_key), 1};
}

static void add(struct kvr_serving *serving, const char *one, const char *other)
{
    struct kvr_replica replica = {.models_known = true};
    if (one)
        replica.models[replica.models_count++] = kvr_name_hash(kvr_slice_of(one));
    if (other)
        replica.models[replica.models_count++] = kvr_name_hash(kvr_slice_of(other));
    kvr_serving_add(serving, &replica);
}

static void test_models_of_the_same_replicas_have_one_set(void **state)
{
    (void)state;
    struct kvr_serving serving;
    kvr_serving_init(&serving, 4);
    add(&serving, "red", "pink");
    add(&serving, "red", "blue");
    add(&serving, "pink", NULL);
    kvr_serving_add(&serving, &(struct kvr_replica){.any_model = true});
    assert_true(kvr_serving_has(&serving, 0, hash("red")));
    assert_false(kvr_serving_has(&serving, 2, hash("red")));
    const struct kvr_plan_key keys[] = {key("red", 1),  key("blue", 1), key("red", 2), key("", 1),
                                        key("pink", 1), key("none", 1), key("nil", 1)};
    struct kvr_serving_sets sets;
    assert_int_equal(kvr_serving_sets(&serving, keys, 7, &sets, NULL), KVR_OK);
    assert_int_equal(sets.count, 5);
    assert_int_equal(sets.words, 1);
    static const uint64_t expected[] = {11, 10, 11, 15, 13, 8, 8};
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(sets.bits[sets.set_of[i]], expected[i]);
    assert_int_equal(sets.set_of[5], sets.set_of[6]);
    kvr_serving_sets_deinit(&sets);
    kvr_serving_deinit(&serving);
}

static void test_one_model_for_all_needs_none(void **state)
{
    (void)state;
    struct kvr_serving serving;
    struct kvr_serving_sets sets;
    kvr_serving_init(&serving, 2);
    add(&serving, "red", NULL);
    kvr_serving_add(&serving, &(struct kvr_replica){.models_known = false});
    const struct kvr_plan_key keys[] = {key("red", 1), key("red", 2), key("", 1)};
    assert_int_equal(kvr_serving_sets(&serving, keys, 3, &sets, NULL), KVR_OK);
    assert_null(sets.bits);
    kvr_serving_sets_deinit(&sets);
    /* Another model, which only one of them may serve. */
    const struct kvr_plan_key other = key("blue", 1);
    assert_int_equal(kvr_serving_sets(&serving, &other, 1, &sets, NULL), KVR_OK);
    assert_int_equal(sets.bits[sets.set_of[0]], 2);
    kvr_serving_sets_deinit(&sets);
    kvr_serving_deinit(&serving);
}

/* Each replica serves two of the models, and no two models are served by the same ones. */
static void test_limit(void **state)
{
    (void)state;
    enum { REPLICAS = 1024, MODELS = 1200 };
    static struct kvr_plan_key keys[MODELS];
    struct kvr_serving serving;
    struct kvr_serving_sets sets;
    struct kvr_error error = {0};
    kvr_serving_init(&serving, REPLICAS);
    for (uint32_t i = 0; i < REPLICAS; i++) {
        char one[16], other[16];
        snprintf(one, sizeof one, "m%u", i);
        snprintf(other, sizeof other, "m%u", (i + MODELS - REPLICAS) % MODELS);
        add(&serving, one, other);
    }
    for (uint32_t i = 0; i < MODELS; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%u", i);
        keys[i] = key(name, 1);
    }
    assert_int_equal(kvr_serving_sets(&serving, keys, 100, &sets, NULL), KVR_OK);
    kvr_serving_sets_deinit(&sets);
    assert_int_equal(kvr_serving_sets(&serving, keys, MODELS, &sets, &error), KVR_E_LIMIT);
    assert_string_equal(error.text,
                        "models are served by more than 1024 different sets of replicas");
    kvr_serving_deinit(&serving);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_of_the_same_replicas_have_one_set),
        cmocka_unit_test(test_one_model_for_all_needs_none),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
