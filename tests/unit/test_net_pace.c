/* core/net/pace: a loop that is busy with streams gathers, and no other does; and whatever it does,
 * it polls again within its period. */
#include "pace.h"
#include "unit.h"

#define US     ((uint64_t)1000)
#define PERIOD (100 * US)
#define SECOND (1000000 * US)

/* A loop to which events come at equal distances. One alone costs `alone_ns`, each that is found
 * with another a tenth of it. */
struct world {
    struct kvr_pace pace;
    uint64_t now_ns;
    uint64_t gap_ns;
    uint64_t alone_ns;
    uint64_t next_ns; /* when the next event comes */
    uint32_t others;  /* sockets served beside, for each event */
    uint64_t turns;
    uint64_t events;
};

static struct world new_world(uint64_t gap_ns)
{
    return (struct world){.pace = {.period_ns = PERIOD, .open = 64},
                          .now_ns = SECOND,
                          .next_ns = SECOND,
                          .gap_ns = gap_ns,
                          .alone_ns = 4 * US};
}

/* Waits for an event, takes all that have come, and rests as it is told. */
static void turn(struct world *world)
{
    struct kvr_pace *pace = &world->pace;
    if (world->now_ns < world->next_ns)
        world->now_ns = world->next_ns;
    uint64_t woke_ns = world->now_ns;
    uint32_t events = 0;
    for (; world->next_ns <= woke_ns; world->next_ns += world->gap_ns)
        events++;
    world->now_ns += world->alone_ns + (events - 1) * world->alone_ns / 10;
    world->events += events;
    world->turns++;
    pace->events += events;
    pace->reads++;
    uint64_t wait_ns = kvr_pace_turn(pace, world->now_ns, woke_ns, 1 + events * world->others);
    if (wait_ns)
        assert_int_equal(world->now_ns + wait_ns, pace->polled_ns + PERIOD);
    world->now_ns += wait_ns;
    kvr_pace_poll(pace, world->now_ns);
}

/* Returns how often it has waited. */
static uint64_t run(struct world *world, uint64_t for_ns)
{
    uint64_t waits = world->pace.waits;
    uint64_t end_ns = world->now_ns + for_ns;
    while (world->now_ns < end_ns)
        turn(world);
    return world->pace.waits - waits;
}

static void it_gathers_while_busy(void **state)
{
    (void)state;
    struct world world = new_world(5 * US); /* works 80 % of the time */
    run(&world, 3 * KVR_PACE_WINDOW_NS);
    assert_true(world.pace.on);
    /* By gathering it works a sixth of the time, and goes on all the same: once in each period. */
    world.turns = world.events = 0;
    uint64_t waits = run(&world, SECOND);
    assert_in_range(waits, SECOND / PERIOD * 98 / 100, SECOND / PERIOD + 1);
    assert_in_range(world.turns, waits, waits + 2);
    assert_in_range(world.events, SECOND / world.gap_ns - 40, SECOND / world.gap_ns + 40);
}

static void it_does_not_while_idle(void **state)
{
    (void)state;
    struct world world = new_world(50 * US); /* 8 % */
    assert_int_equal(run(&world, SECOND), 0);
    assert_int_equal(world.turns, world.events);
}

static void it_ends_with_the_load(void **state)
{
    (void)state;
    struct world world = new_world(5 * US);
    assert_true(run(&world, SECOND) > 0);
    world.gap_ns = 50 * US;
    run(&world, 2 * KVR_PACE_WINDOW_NS);
    assert_false(world.pace.on);
    assert_int_equal(run(&world, SECOND), 0);
    world.gap_ns = 5 * US; /* and begins again */
    assert_true(run(&world, SECOND) > 0);
}

/* Between the two limits it stays as it is. */
static void it_does_not_waver(void **state)
{
    (void)state;
    struct world world = new_world(16 * US); /* 25 % */
    assert_int_equal(run(&world, SECOND), 0);
    world.gap_ns = 5 * US;
    run(&world, 10 * KVR_PACE_WINDOW_NS);
    world.gap_ns = 16 * US;
    assert_true(run(&world, SECOND) >= SECOND / PERIOD * 98 / 100);
}

static void few_streams_never_wait(void **state)
{
    (void)state;
    struct world world = new_world(5 * US);
    world.pace.open = KVR_PACE_REQUESTS - 1;
    assert_int_equal(run(&world, SECOND), 0);
    world.pace.open++;
    assert_true(run(&world, SECOND) > 0);
    world.pace.open--;
    run(&world, 2 * KVR_PACE_WINDOW_NS);
    assert_int_equal(run(&world, SECOND), 0);
}

static void plain_requests_do_not_wait_for_streams(void **state)
{
    (void)state;
    struct world world = new_world(5 * US);
    world.others = 2;
    assert_int_equal(run(&world, SECOND), 0);
}

static void a_long_turn_is_not_made_longer(void **state)
{
    (void)state;
    struct world world = new_world(5 * US);
    run(&world, 3 * KVR_PACE_WINDOW_NS);
    world.alone_ns = PERIOD;
    run(&world, KVR_PACE_WINDOW_NS);
    assert_int_equal(run(&world, SECOND), 0);
    assert_true(world.pace.on);
}

static void without_a_period_it_never_waits(void **state)
{
    (void)state;
    struct world world = new_world(5 * US);
    world.pace.period_ns = 0;
    assert_int_equal(run(&world, SECOND), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_gathers_while_busy),
        cmocka_unit_test(it_does_not_while_idle),
        cmocka_unit_test(it_ends_with_the_load),
        cmocka_unit_test(it_does_not_waver),
        cmocka_unit_test(few_streams_never_wait),
        cmocka_unit_test(plain_requests_do_not_wait_for_streams),
        cmocka_unit_test(a_long_turn_is_not_made_longer),
        cmocka_unit_test(without_a_period_it_never_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
