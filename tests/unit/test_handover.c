/* core/model/handover: which keys move, who warms their new homes, and when they have moved. */
#include "unit.h"

#include "handover.h"
#include "rng.h"

#define S 1000000000u

/* Two plans and what moves between them. */
struct fixture {
    struct kvr_plan *last, *next;
    struct kvr_handover *handover;
};

/* Two destinations that change places in numbers when `now` says so. */
static void set_up(struct fixture *f, const struct kvr_plan_key *before,
                   const struct kvr_plan_key *after, uint32_t len, double q_cap,
                   uint32_t destinations, const uint16_t *now, uint32_t every)
{
    const struct kvr_plan_options options = {.q_cap = q_cap};
    struct kvr_plan_input input = {
        .keys = before, .keys_len = len, .destinations = destinations, .now = now};
    f->last = kvr_plan_make(&options, &input, NULL);
    input.keys = after;
    input.last = f->last;
    f->next = kvr_plan_make(&options, &input, NULL);
    assert_non_null(f->last);
    assert_non_null(f->next);
    const struct kvr_handover_options how = {.every = every, .most_ns = 30 * (uint64_t)S};
    f->handover = kvr_handover_create(&how, f->next, &input);
    if (f->handover)
        kvr_handover_begin(f->handover, 100 * (uint64_t)S);
}

static void tear_down(struct fixture *f)
{
    kvr_handover_destroy(f->handover);
    kvr_plan_destroy(f->next);
    kvr_plan_destroy(f->last);
}

/* Keys 1 and 2 change places, 3 stays at 1. */
static const struct kvr_plan_key before[] = {{1, 5}, {2, 4}, {3, 2}};
static const struct kvr_plan_key after[] = {{1, 4}, {2, 5}, {3, 2}};

static uint64_t at(uint32_t second)
{
    return (100 + (uint64_t)second) * S;
}

static void it_is_off_or_has_nothing_to_do(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, before, after, 3, 0, 2, NULL, 0);
    assert_null(f.handover);
    tear_down(&f);
    set_up(&f, before, before, 3, 0, 2, NULL, 4);
    assert_null(f.handover);
    tear_down(&f);
    /* 1 has left its only home for good, as 2 has: where they go, nobody waits for them. */
    const uint16_t gone[] = {KVR_PLAN_GONE, KVR_PLAN_GONE};
    set_up(&f, before, after, 3, 0, 2, gone, 4);
    assert_null(f.handover);
    tear_down(&f);
}

static void one_request_in_so_many_warms(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, before, after, 3, 0, 2, NULL, 4);
    assert_int_equal(f.handover->keys, 2);
    uint32_t count, new_home = 0, requests = 4000;
    for (uint64_t number = 0; number < requests; number++) {
        const uint16_t *places = kvr_handover_lookup(f.handover, at(1), 1, number, &count);
        assert_int_equal(count, 1);
        assert_true(kvr_handover_lookup(f.handover, at(29), 1, number, &count) == places);
        new_home += places[0] == 1;
        const uint16_t *other = kvr_handover_lookup(f.handover, at(1), 2, number, &count);
        assert_int_equal(other[0], 1 - places[0]);
    }
    assert_true(new_home > requests / 5 && new_home < requests * 3 / 10);
    assert_null(kvr_handover_lookup(f.handover, at(1), 3, 0, &count));
    assert_null(kvr_handover_lookup(f.handover, at(1), 4, 0, &count));
    assert_null(kvr_handover_lookup(f.handover, at(30), 1, 0, &count)); /* time is over */
    tear_down(&f);
}

static void a_key_has_moved_when_its_new_home_is_as_warm(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t count;
    set_up(&f, before, after, 3, 0, 2, NULL, 4);
    for (int i = 0; i < 9; i++)
        kvr_handover_saw(f.handover, at(1), 1, 1, 1); /* nobody knows what is usual */
    assert_non_null(kvr_handover_lookup(f.handover, at(2), 1, 0, &count));
    tear_down(&f);
    set_up(&f, before, after, 3, 0, 2, NULL, 4);
    kvr_handover_saw(f.handover, at(1), 1, 0, 0.8);
    kvr_handover_saw(f.handover, at(1), 1, 1, 0.3); /* only what all keys share */
    uint32_t answers = 0;
    for (; kvr_handover_lookup(f.handover, at(2), 1, 0, &count) && answers < 100; answers++) {
        assert_int_equal(f.handover->moving, 2);
        kvr_handover_saw(f.handover, at(2), 1, 1, 0.8);
    }
    assert_int_equal(answers, 7); /* 0.8 - 0.5 * 0.75^7 is the first above 0.72 */
    assert_int_equal(f.handover->moving, 1);
    assert_non_null(kvr_handover_lookup(f.handover, at(2), 2, 0, &count));
    /* Other keys, other places and late answers say nothing. */
    kvr_handover_saw(f.handover, at(2), 3, 1, 0.8);
    kvr_handover_saw(f.handover, at(2), 2, 7, 0.8);
    kvr_handover_saw(f.handover, at(30), 2, 1, 0.8);
    kvr_handover_saw(f.handover, at(30), 2, 0, 0.8);
    assert_int_equal(f.handover->moving, 1);
    tear_down(&f);
}

static void only_new_homes_are_warmed(void **state)
{
    (void)state;
    /* Two copies, at 0 and 1; then at 0 and, since its number has changed, at 2. */
    const struct kvr_plan_key key = {1, 5};
    const uint16_t now[] = {0, 2, 1};
    struct fixture f;
    set_up(&f, &key, &key, 1, 3, 3, now, 2);
    bool seen[2] = {false};
    for (uint64_t number = 0; number < 100; number++) {
        uint32_t count;
        const uint16_t *places = kvr_handover_lookup(f.handover, at(0), 1, number, &count);
        seen[count - 1] = true;
        assert_true(count == 1 ? places[0] == 1 : places[0] == 0 && places[1] == 2);
    }
    assert_true(seen[0] && seen[1]);
    tear_down(&f);
}

static void many_keys_are_all_found(void **state)
{
    (void)state;
    enum { LEN = 3000 };
    static struct kvr_plan_key one[LEN], two[LEN];
    struct kvr_rng rng;
    kvr_rng_init(&rng, 2);
    for (uint32_t i = 0; i < LEN; i++) {
        one[i] = (struct kvr_plan_key){kvr_mix64(i), 1 + kvr_rng_double(&rng)};
        two[i] = (struct kvr_plan_key){kvr_mix64(i), 1 + kvr_rng_double(&rng)};
    }
    struct fixture f;
    set_up(&f, one, two, LEN, 0, 20, NULL, 2);
    uint32_t moving = 0;
    for (uint32_t i = 0; i < LEN; i++) {
        uint32_t count;
        uint16_t old = kvr_plan_lookup(f.last, one[i].key, &count)[0];
        uint16_t new = kvr_plan_lookup(f.next, one[i].key, &count)[0];
        for (uint64_t number = 0; number < 20; number++) {
            const uint16_t *places =
                kvr_handover_lookup(f.handover, at(0), one[i].key, number, &count);
            assert_int_equal(places != NULL, old != new);
            if (places)
                assert_true(count == 1 && (places[0] == old || places[0] == new));
        }
        moving += old != new;
    }
    assert_int_equal(f.handover->keys, moving);
    assert_true(moving > LEN / 2);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_off_or_has_nothing_to_do),
        cmocka_unit_test(one_request_in_so_many_warms),
        cmocka_unit_test(a_key_has_moved_when_its_new_home_is_as_warm),
        cmocka_unit_test(only_new_homes_are_warmed),
        cmocka_unit_test(many_keys_are_all_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
