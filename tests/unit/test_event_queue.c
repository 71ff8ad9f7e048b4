/* core/sim/event_queue: random traffic against a sorted order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "event_queue.h"
#include "rng.h"

static void test_order(void **state)
{
    (void)state;
    struct kvr_event_queue queue;
    struct kvr_rng rng;
    kvr_event_queue_init(&queue);
    kvr_rng_init(&rng, 5);
    assert_true(kvr_event_queue_time(&queue) == UINT64_MAX);
    uint32_t in = 0, out = 0;
    uint64_t now = 0;
    while (out < 20000) {
        /* Few times, so that many events share one; none before what has come out. */
        if (in < 20000 && (queue.len == 0 || kvr_rng_below(&rng, 5) < 3)) {
            bool late = kvr_rng_below(&rng, 3) == 0;
            kvr_event_queue_add(&queue, now + kvr_rng_below(&rng, 20), late, late, in, ~in);
            in++;
            continue;
        }
        assert_true(kvr_event_queue_time(&queue) == queue.heap[0].time_ns);
        struct kvr_sim_event event = kvr_event_queue_take(&queue);
        assert_true(event.time_ns >= now && event.b == (uint64_t)~event.a);
        for (uint32_t i = 0; i < queue.len; i++) /* nothing left inside was due before it */
            assert_true(
                queue.heap[i].time_ns > event.time_ns ||
                (queue.heap[i].time_ns == event.time_ns && queue.heap[i].order > event.order));
        now = event.time_ns;
        out++;
    }
    assert_int_equal(in, out);
    kvr_event_queue_deinit(&queue);
}

/* All in, then all out: by time, then the late ones last, then in the order in which they came. */
static void test_ties(void **state)
{
    (void)state;
    struct kvr_event_queue queue;
    struct kvr_rng rng;
    kvr_event_queue_init(&queue);
    kvr_rng_init(&rng, 6);
    for (uint32_t i = 0; i < 5000; i++) {
        bool late = kvr_rng_below(&rng, 2);
        kvr_event_queue_add(&queue, kvr_rng_below(&rng, 50), late, late, i, 0);
    }
    struct kvr_sim_event last = kvr_event_queue_take(&queue);
    for (uint32_t i = 1; i < 5000; i++) {
        struct kvr_sim_event event = kvr_event_queue_take(&queue);
        if (event.time_ns == last.time_ns && event.kind == last.kind)
            assert_true(event.a > last.a);
        else if (event.time_ns == last.time_ns)
            assert_true(event.kind == 1 && last.kind == 0);
        else
            assert_true(event.time_ns > last.time_ns);
        last = event;
    }
    assert_int_equal(queue.len, 0);
    kvr_event_queue_deinit(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
