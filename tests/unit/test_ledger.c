#include "unit.h"

#include "ledger.h"
#include "memory.h"
#include "rng.h"

#define REPLICAS 5
#define TICKETS  64

static void test_one_ticket(void **state)
{
    (void)state;
    struct kvr_load loads[REPLICAS] = {0};
    struct kvr_ledger ledger;
    kvr_ledger_init(&ledger, TICKETS, loads, REPLICAS);
    struct kvr_ticket ticket = kvr_ledger_open(&ledger, 2, 130, 100);
    assert_int_not_equal(ticket.generation, 0);
    assert_int_equal(loads[2].in_flight, 1);
    assert_int_equal(loads[2].prompt_tokens, 130);
    assert_int_equal(loads[2].uncached_tokens, 100);
    kvr_ledger_first_token(&ledger, ticket);
    assert_int_equal(loads[2].in_flight, 1);
    assert_int_equal(loads[2].prompt_tokens, 130);
    assert_int_equal(loads[2].uncached_tokens, 0);
    kvr_ledger_first_token(&ledger, ticket);
    kvr_ledger_close(&ledger, ticket);
    assert_int_equal(loads[2].in_flight, 0);
    assert_int_equal(loads[2].prompt_tokens, 0);
    assert_int_equal(ledger.open, 0);
    kvr_ledger_deinit(&ledger);
}

static void test_close_without_first_token_releases_it(void **state)
{
    (void)state;
    struct kvr_load loads[1] = {0};
    struct kvr_ledger ledger;
    kvr_ledger_init(&ledger, 4, loads, 1);
    struct kvr_ticket ticket = kvr_ledger_open(&ledger, 0, 80, 77);
    kvr_ledger_close(&ledger, ticket);
    assert_int_equal(loads[0].uncached_tokens, 0);
    kvr_ledger_deinit(&ledger);
}

static void test_full(void **state)
{
    (void)state;
    struct kvr_load loads[1] = {0};
    struct kvr_ledger ledger;
    struct kvr_ticket tickets[3];
    kvr_ledger_init(&ledger, 3, loads, 1);
    for (int i = 0; i < 3; i++)
        tickets[i] = kvr_ledger_open(&ledger, 0, 2, 1);
    assert_int_equal(kvr_ledger_open(&ledger, 0, 2, 1).generation, 0);
    assert_int_equal(loads[0].in_flight, 3);
    kvr_ledger_close(&ledger, tickets[1]);
    struct kvr_ticket again = kvr_ledger_open(&ledger, 0, 2, 1);
    assert_int_equal(again.slot, tickets[1].slot);
    assert_int_not_equal(again.generation, tickets[1].generation);
    kvr_ledger_deinit(&ledger);
}

static void test_second_close_dies(void **state)
{
    (void)state;
    struct kvr_load loads[1] = {0};
    struct kvr_ledger ledger;
    kvr_ledger_init(&ledger, 2, loads, 1);
    struct kvr_ticket ticket = kvr_ledger_open(&ledger, 0, 2, 1);
    kvr_ledger_close(&ledger, ticket);
    assert_dies(kvr_ledger_close(&ledger, ticket));
    struct kvr_ticket reused = kvr_ledger_open(&ledger, 0, 2, 1);
    assert_int_equal(reused.slot, ticket.slot);
    assert_dies(kvr_ledger_close(&ledger, ticket));
    kvr_ledger_deinit(&ledger);
}

/* Random opens, first tokens and closes: the loads are the sums over open tickets at every step,
 * and nothing is left at the end. */
static void test_conservation(void **state)
{
    (void)state;
    struct kvr_load loads[REPLICAS] = {0};
    struct kvr_ledger ledger;
    struct kvr_ticket held[TICKETS];
    uint32_t count = 0;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 7);
    kvr_ledger_init(&ledger, TICKETS, loads, REPLICAS);
    for (int step = 0; step < 20000; step++) {
        uint64_t what = kvr_rng_below(&rng, 3);
        if (what == 0 && count < TICKETS) {
            uint32_t replica = (uint32_t)kvr_rng_below(&rng, REPLICAS);
            uint32_t tokens = (uint32_t)kvr_rng_below(&rng, 5000);
            held[count++] = kvr_ledger_open(&ledger, replica, tokens,
                                            (uint32_t)kvr_rng_below(&rng, tokens + 1));
        } else if (count) {
            uint32_t at = (uint32_t)kvr_rng_below(&rng, count);
            if (what == 1) {
                kvr_ledger_first_token(&ledger, held[at]);
            } else {
                kvr_ledger_close(&ledger, held[at]);
                held[at] = held[--count];
            }
        }
        kvr_ledger_verify(&ledger);
        assert_int_equal(ledger.open, count);
    }
    while (count)
        kvr_ledger_close(&ledger, held[--count]);
    for (int i = 0; i < REPLICAS; i++) {
        assert_int_equal(loads[i].in_flight, 0);
        assert_int_equal(loads[i].prompt_tokens, 0);
        assert_int_equal(loads[i].uncached_tokens, 0);
    }
    kvr_ledger_deinit(&ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_ticket),
        cmocka_unit_test(test_close_without_first_token_releases_it),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_second_close_dies),
        cmocka_unit_test(test_conservation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
