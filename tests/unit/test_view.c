/* The picture of a decision: its totals, scans and orders, against plain loops over random fleets.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rng.h"
#include "view.h"

#define ROWS 24

static double small_number(struct kvr_rng *rng)
{
    uint64_t draw = kvr_rng_below(rng, 12);
    return draw == 0 ? (double)NAN : draw == 1 ? (double)INFINITY : (double)(draw / 3);
}

static void random_rows(struct kvr_picture *picture, struct kvr_rng *rng, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct kvr_replica_view *row = &picture->rows[i];
        memset(row, 0, sizeof *row);
        row->weight = 1.0 + (double)kvr_rng_below(rng, 3);
        row->ramp = kvr_rng_below(rng, 4) ? 1.0 : 0.5;
        row->in_flight = (double)kvr_rng_below(rng, 5);
        row->load = row->in_flight / (row->weight * row->ramp);
        row->ttft_ms = small_number(rng);
        row->prefill_tokens_per_s = small_number(rng);
        row->match_blocks = (uint32_t)kvr_rng_below(rng, 4);
        row->assigned = (uint32_t)kvr_rng_below(rng, 2);
        row->key_age_ms = small_number(rng);
        row->available = kvr_rng_below(rng, 4) != 0;
        picture->ids[i] = kvr_rng_next(rng);
        picture->weights[i] = row->weight;
    }
}

static void totals_are_over_available_rows(void **state)
{
    (void)state;
    struct kvr_picture picture;
    struct kvr_rng rng;
    kvr_picture_init(&picture, ROWS);
    kvr_rng_init(&rng, 1);
    for (int round = 0; round < 2000; round++) {
        uint32_t count = (uint32_t)kvr_rng_below(&rng, ROWS + 1);
        random_rows(&picture, &rng, count);
        kvr_picture_summarise(&picture, count);
        uint32_t available = 0;
        uint32_t match = 0;
        double in_flight = 0.0;
        double load = 0.0;
        double weight = 0.0;
        double prefill = (double)NAN;
        double least_in_flight = 1e9;
        double most_in_flight = 0.0;
        double least_load = 1e9;
        for (uint32_t i = 0; i < count; i++) {
            const struct kvr_replica_view *row = &picture.rows[i];
            if (!row->available)
                continue;
            available++;
            in_flight += row->in_flight;
            load += row->load;
            weight += row->weight * row->ramp;
            least_in_flight = fmin(least_in_flight, row->in_flight);
            most_in_flight = fmax(most_in_flight, row->in_flight);
            least_load = fmin(least_load, row->load);
            match = row->match_blocks > match ? row->match_blocks : match;
            prefill = fmax(prefill, row->prefill_tokens_per_s); /* the other one, past a NaN */
        }
        const struct kvr_view *view = &picture.view;
        assert_int_equal(view->count, count);
        assert_int_equal(view->available, available);
        assert_int_equal(view->max_match_blocks, match);
        assert_true(view->total_in_flight == in_flight && view->total_weight == weight);
        assert_true(view->max_in_flight == most_in_flight);
        assert_true(view->max_prefill_tokens_per_s == prefill ||
                    (isnan(prefill) && isnan(view->max_prefill_tokens_per_s)));
        if (available == 0) {
            assert_true(isnan(view->min_load) && isnan(view->mean_load));
            assert_true(isnan(view->min_in_flight) && isnan(view->mean_in_flight));
            continue;
        }
        assert_true(view->min_in_flight == least_in_flight && view->min_load == least_load);
        assert_true(view->mean_in_flight == in_flight / available);
        assert_true(view->mean_load == load / available);
    }
    kvr_picture_deinit(&picture);
}

/* All rows that may be picked at the minimum of `field`; how many. */
static uint32_t naive_least(const struct kvr_picture *picture, size_t offset, uint32_t blocks,
                            uint32_t except, uint32_t assigned, double recent_ms, uint32_t *tied)
{
    uint32_t ties = 0;
    double best = 0.0;
    for (uint32_t i = 0; i < picture->view.count; i++) {
        const struct kvr_replica_view *row = &picture->rows[i];
        double number;
        memcpy(&number, (const char *)row + offset, sizeof number);
        if (!row->available || row->match_blocks < blocks || i == except || isnan(number) ||
            (assigned && !row->assigned) || (recent_ms < 9 && !(row->key_age_ms <= recent_ms)))
            continue;
        if (ties == 0 || number < best) {
            best = number;
            ties = 0;
        }
        if (number == best)
            tied[ties++] = i;
    }
    return ties;
}

static void the_least_is_found_and_ties_rotate(void **state)
{
    (void)state;
    static const size_t fields[] = {
        offsetof(struct kvr_replica_view, load),
        offsetof(struct kvr_replica_view, in_flight),
        offsetof(struct kvr_replica_view, ttft_ms),
    };
    struct kvr_picture picture;
    struct kvr_rng rng;
    kvr_picture_init(&picture, ROWS);
    kvr_rng_init(&rng, 2);
    for (int round = 0; round < 3000; round++) {
        uint32_t count = (uint32_t)kvr_rng_below(&rng, ROWS + 1);
        random_rows(&picture, &rng, count);
        kvr_picture_summarise(&picture, count);
        size_t offset = fields[kvr_rng_below(&rng, 3)];
        uint32_t blocks = (uint32_t)kvr_rng_below(&rng, 4);
        uint32_t except = (uint32_t)kvr_rng_below(&rng, 2 * ROWS);
        uint32_t assigned = (uint32_t)kvr_rng_below(&rng, 2);
        double recent_ms = kvr_rng_below(&rng, 2) ? (double)INFINITY : 2.0;
        uint32_t tied[ROWS];
        uint32_t ties = naive_least(&picture, offset, blocks, except, assigned, recent_ms, tied);
        for (uint32_t serial = 0; serial < 2 * ROWS; serial++) {
            picture.request.serial = serial;
            int32_t found =
                kvr_picture_least(&picture, (uint32_t)offset, blocks, except, assigned, recent_ms);
            assert_int_equal(found, ties ? (int32_t)tied[serial % ties] : -1);
        }
    }
    kvr_picture_deinit(&picture);
}

static void the_nth_and_the_first_skip_what_is_away(void **state)
{
    (void)state;
    struct kvr_picture picture;
    struct kvr_rng rng;
    kvr_picture_init(&picture, ROWS);
    kvr_rng_init(&rng, 3);
    for (int round = 0; round < 1000; round++) {
        uint32_t count = (uint32_t)kvr_rng_below(&rng, ROWS + 1);
        random_rows(&picture, &rng, count);
        kvr_picture_summarise(&picture, count);
        uint32_t here[ROWS];
        uint32_t available = 0;
        for (uint32_t i = 0; i < count; i++)
            if (picture.rows[i].available)
                here[available++] = i;
        for (uint32_t n = 0; n < 2 * ROWS; n++)
            assert_int_equal(kvr_picture_nth_available(&picture, n),
                             available ? (int32_t)here[n % available] : -1);
        uint32_t listed = kvr_picture_hrw_order(&picture, (uint32_t)round, 0, 0);
        int32_t first = -1, second = -1;
        for (uint32_t place = listed; place-- > 0;)
            if (picture.rows[picture.order_rows[place]].available)
                second = first, first = (int32_t)place;
        assert_int_equal(kvr_picture_first_available(&picture, UINT32_MAX), first);
        assert_int_equal(kvr_picture_first_available(&picture, ROWS), first);
        if (first >= 0)
            assert_int_equal(kvr_picture_first_available(&picture, picture.order_rows[first]),
                             second);
    }
    kvr_picture_deinit(&picture);
}

/* Both orders: every row once, away or not; a salt gives another order, a limit its beginning. */
static void orders_are_whole_and_salted(void **state)
{
    (void)state;
    struct kvr_picture picture;
    struct kvr_hash_ring ring;
    struct kvr_rng rng;
    struct kvr_ring_member members[ROWS];
    kvr_picture_init(&picture, ROWS);
    kvr_hash_ring_init(&ring);
    kvr_rng_init(&rng, 4);
    random_rows(&picture, &rng, ROWS);
    kvr_picture_summarise(&picture, ROWS);
    assert_int_equal(kvr_picture_ring_order(&picture, 1, 0, 0), 0); /* no ring yet */
    for (uint32_t i = 0; i < ROWS; i++)
        members[i] = (struct kvr_ring_member){picture.ids[i], picture.weights[i]};
    kvr_hash_ring_build(&ring, members, ROWS, 16);
    picture.ring = &ring;
    uint32_t (*const orders[])(struct kvr_picture *, uint32_t, uint32_t,
                               uint32_t) = {kvr_picture_ring_order, kvr_picture_hrw_order};
    for (int o = 0; o < 2; o++) {
        uint32_t same = 0;
        for (uint32_t key = 0; key < 400; key++) {
            uint32_t first[ROWS];
            uint32_t seen = 0;
            assert_int_equal(orders[o](&picture, key, 0, 0), ROWS);
            memcpy(first, picture.order_rows, sizeof first);
            for (uint32_t i = 0; i < ROWS; i++)
                seen |= 1u << picture.order.rows[i];
            assert_int_equal(seen, (1u << ROWS) - 1);
            assert_int_equal(orders[o](&picture, key, 0, 5), 5);
            assert_int_equal(picture.order.count, 5);
            assert_memory_equal(picture.order_rows, first, 5 * sizeof first[0]);
            orders[o](&picture, key, 1, 1);
            same += picture.order_rows[0] == first[0];
        }
        /* By chance one in 24, more on a ring of uneven arcs and for heavy rows. */
        assert_in_range(same, 5, 60);
    }
    kvr_hash_ring_deinit(&ring);
    kvr_picture_deinit(&picture);
}

static void shares_of_openings_are_of_requests(void **state)
{
    (void)state;
    struct kvr_picture picture;
    struct kvr_window openings;
    kvr_picture_init(&picture, 1);
    kvr_window_init(&openings, &(struct kvr_window_options){.replicas_max = 1});
    uint64_t chain[1024];
    for (uint32_t i = 0; i < 1024; i++)
        chain[i] = kvr_mix64(i + 1);
    picture.request.chain = (const struct kvr_block_key *)(const void *)chain;
    picture.request.chain_len = 1024;
    picture.now_ns = 1000;
    assert_true(isnan(kvr_picture_opening_share(&picture, 4))); /* nobody counts */
    picture.openings = &openings;
    assert_true(kvr_picture_opening_share(&picture, 4) == 0);
    kvr_picture_count_opening(&openings, 1000, chain, 1024);
    kvr_picture_count_opening(&openings, 1000, chain, 7);
    kvr_picture_count_opening(&openings, 1000, chain, 0);
    kvr_picture_count_opening(&openings, 1000, chain + 1, 8); /* keys stand for whole prefixes */
    assert_true(kvr_picture_opening_share(&picture, 1) == 0.5);
    assert_true(kvr_picture_opening_share(&picture, 4) == 0.5);
    assert_true(kvr_picture_opening_share(&picture, 8) == 0.25);
    assert_true(kvr_picture_opening_share(&picture, 512) == 0.25);
    static const uint32_t counted[] = {16, 32, 64, 96, 288, 480};
    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++)
        assert_true(kvr_picture_opening_share(&picture, counted[i]) == 0.25);
    static const uint32_t not_counted[] = {0, 3, 5, 31, 48, 511, 544, 1024};
    for (size_t i = 0; i < sizeof not_counted / sizeof not_counted[0]; i++)
        assert_true(isnan(kvr_picture_opening_share(&picture, not_counted[i])));
    for (int i = 0; i < 4; i++) /* of 8: 6 begin with 1 block, 2 with more than 96 */
        kvr_picture_count_opening(&openings, 1000, chain, 100);
    static const struct {
        double share;
        uint32_t least, blocks;
    } rare[] = {{1, 0, 1},       {0.75, 1, 1},      {0.74, 1, 8}, {0.74, 9, 16}, {0.6, 1, 128},
                {0.6, 129, 160}, {0.125, 512, 512}, {0.1, 1, 0},  {1, 513, 0}};
    for (size_t i = 0; i < sizeof rare / sizeof rare[0]; i++)
        assert_int_equal(kvr_picture_rare_opening(&picture, rare[i].share, rare[i].least),
                         rare[i].blocks);
    picture.request.chain_len = 127;
    assert_int_equal(kvr_picture_rare_opening(&picture, 0.5, 1), 0);
    picture.request.chain_len = 3;
    assert_true(isnan(kvr_picture_opening_share(&picture, 4)));
    picture.now_ns += 2 * KVR_WINDOW_SPAN_DEFAULT_NS;
    assert_true(kvr_picture_opening_share(&picture, 1) == 0);
    kvr_window_deinit(&openings);
    kvr_picture_deinit(&picture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_are_over_available_rows),
        cmocka_unit_test(the_least_is_found_and_ties_rotate),
        cmocka_unit_test(the_nth_and_the_first_skip_what_is_away),
        cmocka_unit_test(orders_are_whole_and_salted),
        cmocka_unit_test(shares_of_openings_are_of_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
