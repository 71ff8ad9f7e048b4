/* core/emu/alarm and live_engine: an alarm never rings early; and what the live engine did on the
 * wall clock is, to the nanosecond, what the engine does under virtual time. */
#include "live_engine.h"
#include "net_fixture.h"
#include "rng.h"

#define MS ((uint64_t)1000000)

/* ---- the alarm ---- */

struct bell {
    struct kvr_alarm alarm;
    int rings;
    uint64_t due_ns;
    uint64_t late_ns;
    uint64_t again_ns; /* > 0: set it anew, so much later */
};

static void on_ring(void *context)
{
    struct bell *bell = context;
    uint64_t now = kvr_loop_now();
    assert_true(now >= bell->due_ns);
    if (now - bell->due_ns > bell->late_ns)
        bell->late_ns = now - bell->due_ns;
    bell->rings++;
    if (bell->again_ns && bell->rings < 20) {
        bell->due_ns = now + bell->again_ns;
        kvr_alarm_set(&bell->alarm, bell->due_ns);
    }
}

static void set(struct bell *bell, uint64_t in_ns)
{
    bell->due_ns = kvr_loop_now() + in_ns;
    kvr_alarm_set(&bell->alarm, bell->due_ns);
}

static void test_alarm(void **state)
{
    (void)state;
    struct net_fixture net;
    struct bell bell = {0};
    struct kvr_error error;
    net_fixture_init(&net);
    assert_int_equal(kvr_alarm_init(&bell.alarm, &net.uv, on_ring, &bell, &error), 0);

    set(&bell, 300000); /* less than a millisecond */
    assert_true(net_run_until(&net, &bell.rings, 1, 1000));
    net_run_for(&net, 20);
    assert_int_equal(bell.rings, 1); /* once */

    bell.due_ns = 0;
    kvr_alarm_set(&bell.alarm, 1); /* long past: at the next turn, not inside the call */
    assert_int_equal(bell.rings, 1);
    assert_true(net_run_until(&net, &bell.rings, 2, 1000));

    set(&bell, 5 * MS); /* moved to later, and to earlier */
    set(&bell, 900 * MS);
    net_run_for(&net, 15);
    assert_int_equal(bell.rings, 2);
    set(&bell, 1 * MS);
    assert_true(net_run_until(&net, &bell.rings, 3, 1000));
    net_run_for(&net, 40);
    assert_int_equal(bell.rings, 3);

    set(&bell, 5 * MS); /* taken back */
    kvr_alarm_set(&bell.alarm, KVR_ALARM_NEVER);
    net_run_for(&net, 15);
    assert_int_equal(bell.rings, 3);

    bell.again_ns = 200000; /* set anew from its own callback */
    bell.rings = 0;
    set(&bell, 200000);
    assert_true(net_run_until(&net, &bell.rings, 20, 2000));

    kvr_alarm_deinit(&bell.alarm);
    net_fixture_deinit(&net);
}

/* ---- the engine ---- */

#define REQUESTS 60

struct record {
    struct kvr_live_request live;
    uint64_t blocks[64];
    uint64_t submitted_ns; /* to the engine */
    uint64_t first_ns;
    uint64_t last_ns;
    uint64_t token_sum_ns; /* of all its token times */
    uint32_t tokens;
    uint32_t cached;
    int accepted;
    int refused;
    int finished;
};

struct world {
    struct net_fixture net;
    struct kvr_live_engine live;
    struct record records[REQUESTS];
    int over;     /* finished or refused */
    int foreseen; /* events that were told to be near */
    uint64_t last_event_ns;
    bool dies; /* it is being restarted */
};

static struct record *record_of(struct kvr_live_request *live)
{
    return KVR_LIST_ENTRY(live, struct record, live);
}

static void on_accepted(void *context, struct kvr_live_request *live)
{
    (void)context;
    struct record *record = record_of(live);
    record->accepted++;
    record->submitted_ns = live->due_ns;
}

static void on_refused(void *context, struct kvr_live_request *live, int code)
{
    struct world *world = context;
    assert_true(code < 0);
    record_of(live)->refused++;
    world->over++;
}

static void on_token(void *context, struct kvr_live_request *live,
                     const struct kvr_engine_event *event)
{
    struct world *world = context;
    struct record *record = record_of(live);
    assert_int_equal(record->accepted, 1);
    assert_int_equal(event->token, record->tokens);
    assert_true(event->time_ns >= world->last_event_ns);
    world->last_event_ns = event->time_ns;
    if (record->tokens++ == 0)
        record->first_ns = event->time_ns;
    record->token_sum_ns += event->time_ns;
    record->cached = event->cached_tokens;
    /* Never seen before its time, and the way back; what dies hands out all it has. */
    assert_true(world->dies ||
                kvr_live_engine_now(&world->live) + 2000 >= event->time_ns + world->live.after_ns);
}

static void on_finished(void *context, struct kvr_live_request *live,
                        const struct kvr_engine_event *event)
{
    struct world *world = context;
    struct record *record = record_of(live);
    record->finished++;
    record->last_ns = event->time_ns;
    world->over++;
}

/* Of one that is over it would be told memory that is gone. */
static void on_soon(void *context, const struct kvr_live_request *live)
{
    struct world *world = context;
    const struct record *record = KVR_LIST_ENTRY(live, struct record, live);
    assert_int_equal(record->accepted, 1);
    assert_int_equal(record->finished, 0);
    world->foreseen++;
}

static const struct kvr_live_handler handler = {
    .on_accepted = on_accepted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_finished = on_finished,
    .owner_bytes = sizeof(struct record),
    .on_soon = on_soon,
};

static void begin(struct world *world, const struct kvr_profile *profile, double scale,
                  uint32_t max_waiting)
{
    struct kvr_error error;
    struct kvr_live_handler events = handler;
    memset(world, 0, sizeof *world);
    net_fixture_init(&world->net);
    events.context = world;
    const struct kvr_live_options options = {
        .profile = profile, .time_scale = scale, .seed = 7, .max_waiting = max_waiting};
    assert_int_equal(kvr_live_engine_init(&world->live, &world->net.uv, &options, &events, &error),
                     0);
}

static void end(struct world *world)
{
    kvr_live_engine_deinit(&world->live);
    net_fixture_deinit(&world->net);
}

static void prepare(struct record *record, uint64_t kind, uint32_t prompt, uint32_t output)
{
    kvr_live_request_init(&record->live);
    uint32_t blocks = prompt / 16;
    for (uint32_t i = 0; i < blocks; i++)
        record->blocks[i] = kvr_mix64(kind * 1000 + i + 1) | 1;
    record->live.engine = (struct kvr_engine_request){.blocks = record->blocks,
                                                      .blocks_len = blocks,
                                                      .prompt_tokens = prompt,
                                                      .output_tokens = output,
                                                      .reason = KVR_FINISH_LENGTH};
}

/* The same requests at the same times, in the engine alone. */
static void check_against_engine(const struct world *world, const struct kvr_profile *profile)
{
    struct kvr_engine engine;
    struct kvr_error error;
    const struct kvr_engine_options options = {.profile = profile, .seed = 7, .token_events = true};
    assert_int_equal(kvr_engine_init(&engine, &options, &error), 0);
    uint64_t first[REQUESTS] = {0};
    uint64_t last[REQUESTS] = {0};
    uint64_t sum[REQUESTS] = {0};
    uint32_t cached[REQUESTS] = {0};
    for (uint32_t i = 0; i <= REQUESTS; i++) {
        /* Submissions were in the order of the records. */
        uint64_t now = i < REQUESTS ? world->records[i].submitted_ns : KVR_ENGINE_NEVER - 1;
        struct kvr_engine_event event;
        if (i < REQUESTS) {
            struct kvr_engine_request request = world->records[i].live.engine;
            struct kvr_engine_handle handle;
            request.id = i;
            assert_int_equal(kvr_engine_submit(&engine, now, &request, &handle), 0);
        } else {
            kvr_engine_advance(&engine, now);
        }
        while (kvr_engine_next_event(&engine, &event)) {
            if (event.kind == KVR_ENGINE_FINISHED)
                last[event.request] = event.time_ns;
            if (event.kind != KVR_ENGINE_TOKEN)
                continue;
            if (event.token == 0)
                first[event.request] = event.time_ns;
            sum[event.request] += event.time_ns;
            cached[event.request] = event.cached_tokens;
        }
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const struct record *record = &world->records[i];
        assert_int_equal(record->first_ns, first[i]);
        assert_int_equal(record->last_ns, last[i]);
        assert_int_equal(record->token_sum_ns, sum[i]);
        assert_int_equal(record->cached, cached[i]);
    }
    kvr_engine_deinit(&engine);
}

static void test_live_is_virtual(void **state)
{
    (void)state;
    const struct kvr_profile *profile = kvr_profile_find(kvr_slice_of("rtx3090-8b-awq"));
    assert_non_null(profile);
    struct world world;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 3);
    begin(&world, profile, 40, 0);
    for (int i = 0; i < REQUESTS; i++) {
        prepare(&world.records[i], kvr_rng_below(&rng, 6), 40 + (uint32_t)kvr_rng_below(&rng, 900),
                1 + (uint32_t)kvr_rng_below(&rng, 40));
        world.records[i].live.engine.blocks = world.records[i].blocks;
        kvr_live_engine_submit(&world.live, &world.records[i].live);
        if (i % 3 == 0)
            net_run_for(&world.net, (unsigned)kvr_rng_below(&rng, 6));
        /* Sometimes the process is held up: timers are late, the engine is not. */
        if (i % 13 == 0)
            usleep(20000);
    }
    assert_true(net_run_until(&world.net, &world.over, REQUESTS, 10000));
    for (int i = 0; i < REQUESTS; i++) {
        const struct record *record = &world.records[i];
        assert_int_equal(record->accepted, 1);
        assert_int_equal(record->finished, 1);
        assert_int_equal(record->refused, 0);
        assert_int_equal(record->tokens, record->live.engine.output_tokens);
        assert_int_equal(record->submitted_ns, record->live.arrived_ns + world.live.before_ns);
    }
    kvr_engine_verify(&world.live.engine);
    check_against_engine(&world, profile);
    assert_true(world.foreseen > 0);
    end(&world);
}

static void test_abort_anywhere(void **state)
{
    (void)state;
    const struct kvr_profile *profile = kvr_profile_find(kvr_slice_of("h100-8b-bf16"));
    struct world world;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 11);
    begin(&world, profile, 50, 0);
    int aborted = 0;
    for (int i = 0; i < REQUESTS; i++) {
        prepare(&world.records[i], (uint64_t)i % 4, 300, 30);
        kvr_live_engine_submit(
            &world.live, &world.records[i].live); /* Every third goes before it has reached the
                                                     engine, the others wherever they are. */
        bool at_once = i % 3 == 0;
        if (!at_once)
            net_run_for(&world.net, (unsigned)kvr_rng_below(&rng, 3));
        uint64_t which = at_once ? (uint64_t)i : kvr_rng_below(&rng, (uint64_t)i + 1);
        struct record *victim = &world.records[which];
        if (victim->finished)
            continue;
        aborted += victim->live.slot != UINT32_MAX;
        uint32_t tokens = victim->tokens;
        kvr_live_engine_abort(&world.live, &victim->live);
        kvr_live_engine_abort(&world.live, &victim->live); /* harmless */
        victim->finished = -1;
        victim->tokens = tokens;
    }
    assert_true(net_run_until(&world.net, &world.over, REQUESTS - aborted, 10000));
    net_run_for(&world.net, 20);
    assert_int_equal(world.over, REQUESTS - aborted);
    assert_true(aborted >= REQUESTS / 3);
    struct kvr_engine_gauges gauges = kvr_engine_gauges(&world.live.engine);
    assert_int_equal(gauges.running + gauges.waiting + gauges.blocks_used, 0);
    kvr_engine_verify(&world.live.engine);
    end(&world);
}

static void test_refusals_and_restart(void **state)
{
    (void)state;
    struct kvr_profile profile = *kvr_profile_find(kvr_slice_of("simple"));
    profile.overhead_ms = 20;
    profile.startup_ms = 300;
    profile.max_num_seqs = 1;
    struct world world;
    begin(&world, &profile, 1, 1);
    struct record *records = world.records;
    for (int i = 0; i < 3; i++) {
        prepare(&records[i], 1, 100, 2000);
        kvr_live_engine_submit(&world.live, &records[i].live);
    } /* One can run and one can wait, so the third is too many. (The second is too, if the first
       * had not begun to run when it came.) */
    assert_true(net_run_until(&world.net, &records[2].refused, 1, 1000));
    assert_int_equal(records[0].accepted, 1);
    /* One runs, one is on its way, and the process dies. */
    prepare(&records[3], 1, 100, 10);
    kvr_live_engine_submit(&world.live, &records[3].live);
    world.dies = true;
    kvr_live_engine_restart(&world.live);
    world.dies = false;
    assert_int_equal(world.over, 4);
    assert_int_equal(records[3].refused, 1);
    assert_int_equal(records[0].finished, 1);
    assert_false(kvr_live_engine_ready(&world.live));
    prepare(&records[4], 1, 100, 10);
    kvr_live_engine_submit(&world.live, &records[4].live);
    assert_true(net_run_until(&world.net, &records[4].refused, 1, 1000));
    while (!kvr_live_engine_ready(&world.live))
        net_run_for(&world.net, 10);
    prepare(&records[5], 1, 100, 10);
    kvr_live_engine_submit(&world.live, &records[5].live);
    assert_true(net_run_until(&world.net, &records[5].finished, 1, 1000));
    assert_int_equal(records[5].cached, 0);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alarm),
        cmocka_unit_test(test_live_is_virtual),
        cmocka_unit_test(test_abort_anywhere),
        cmocka_unit_test(test_refusals_and_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
