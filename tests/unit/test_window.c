/* core/model/window: random additions and readings against a model that keeps every addition, and
 * the edges of the span. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memory.h"
#include "replica.h"
#include "rng.h"
#include "window.h"

#define KEYS     40u
#define REPLICAS 12u
#define ALL      REPLICAS /* the model's column for all replicas */
#define HISTORY  4096u

/* One cell of the model: everything added since it was born, as (slice, amount). */
struct naive_cell {
    bool present;
    uint64_t touched; /* order of the last addition */
    uint64_t last_ns;
    uint32_t count;
    struct {
        uint64_t slice;
        uint32_t amount;
    } additions[HISTORY];
};

struct naive {
    struct naive_cell cells[KEYS][REPLICAS + 1];
    struct naive_cell total;
    struct naive_cell by_replica[REPLICAS];
    uint64_t clock;
    uint64_t keys_evicted, pairs_evicted;
    uint32_t used;
};

struct fixture {
    struct kvr_window window;
    struct naive *naive;
    uint64_t now_ns;
    uint32_t cells_max;
};

static uint64_t key_of(uint32_t key)
{
    /* Small and close together, 0 among them. */
    return (uint64_t)key * 3;
}

static uint64_t naive_sum(const struct fixture *f, const struct naive_cell *cell)
{
    uint64_t now = f->now_ns / f->window.slice_ns, sum = 0;
    for (uint32_t i = 0; i < cell->count; i++) {
        if (now - cell->additions[i].slice < KVR_WINDOW_SLICES)
            sum += cell->additions[i].amount;
    }
    return sum;
}

static void naive_record(struct fixture *f, struct naive_cell *cell, uint32_t amount)
{
    uint64_t now = f->now_ns / f->window.slice_ns;
    if (cell->count == HISTORY) { /* forget what no reading can see */
        uint32_t kept = 0;
        for (uint32_t i = 0; i < HISTORY; i++) {
            if (now - cell->additions[i].slice < KVR_WINDOW_SLICES)
                cell->additions[kept++] = cell->additions[i];
        }
        assert_true(kept < HISTORY);
        cell->count = kept;
    }
    cell->additions[cell->count].slice = now;
    cell->additions[cell->count++].amount = amount;
    cell->touched = ++f->naive->clock;
    cell->last_ns = f->now_ns;
}

static void naive_make(struct fixture *f, struct naive_cell *cell, const struct naive_cell *spared)
{
    struct naive *naive = f->naive;
    if (cell->present)
        return;
    if (naive->used == f->cells_max) {
        struct naive_cell *oldest = NULL;
        bool own = false;
        for (uint32_t k = 0; k < KEYS; k++) {
            for (uint32_t r = 0; r <= REPLICAS; r++) {
                struct naive_cell *other = &naive->cells[k][r];
                if (other->present && other != spared &&
                    (!oldest || other->touched < oldest->touched)) {
                    oldest = other;
                    own = r == ALL;
                }
            }
        }
        oldest->present = false;
        naive->keys_evicted += own;
        naive->pairs_evicted += !own;
        naive->used--;
    }
    cell->present = true;
    cell->count = 0;
    naive->used++;
}

static void naive_add(struct fixture *f, uint32_t key, uint32_t replica, uint32_t amount)
{
    struct naive_cell *own = &f->naive->cells[key][ALL];
    struct naive_cell *pair = &f->naive->cells[key][replica];
    naive_make(f, own, pair->present ? NULL : own);
    naive_make(f, pair, own);
    naive_record(f, pair, amount);
    naive_record(f, own, amount);
    naive_record(f, &f->naive->total, amount);
    naive_record(f, &f->naive->by_replica[replica], amount);
}

static void check_key(struct fixture *f, uint32_t key)
{
    struct naive_cell *cells = f->naive->cells[key];
    const struct kvr_window *w = &f->window;
    uint64_t now = f->now_ns, name = key_of(key);
    uint64_t own = cells[ALL].present ? naive_sum(f, &cells[ALL]) : 0;
    uint64_t total = naive_sum(f, &f->naive->total);
    assert_int_equal(kvr_window_count(w, now, name), own);
    double share = total ? (double)own / (double)total : 0.0;
    assert_true(kvr_window_share(w, now, name) == share);
    struct kvr_window_pair pairs[REPLICAS];
    uint32_t listed = kvr_window_pairs(w, now, name, pairs, REPLICAS), expected = 0;
    for (uint32_t r = 0; r < REPLICAS; r++) {
        bool present = cells[r].present;
        uint64_t sum = present ? naive_sum(f, &cells[r]) : 0;
        uint64_t last = present ? cells[r].last_ns : KVR_WINDOW_NEVER;
        assert_int_equal(kvr_window_count_at(w, now, name, r), sum);
        assert_int_equal(kvr_window_last_ns(w, name, r), last);
        expected += present;
        for (uint32_t i = 0; i < listed; i++) {
            if (pairs[i].replica == r) {
                assert_true(present);
                assert_int_equal(pairs[i].count, sum);
                assert_int_equal(pairs[i].last_ns, last);
            }
        }
    }
    assert_int_equal(listed, expected);
}

static void check_all(struct fixture *f)
{
    assert_int_equal(f->window.used, f->naive->used);
    assert_true(f->window.used <= f->cells_max);
    assert_int_equal(f->window.keys_evicted, f->naive->keys_evicted);
    assert_int_equal(f->window.pairs_evicted, f->naive->pairs_evicted);
    assert_int_equal(kvr_window_total(&f->window, f->now_ns), naive_sum(f, &f->naive->total));
    for (uint32_t r = 0; r < REPLICAS; r++)
        assert_int_equal(kvr_window_total_at(&f->window, f->now_ns, r),
                         naive_sum(f, &f->naive->by_replica[r]));
    for (uint32_t key = 0; key < KEYS; key++)
        check_key(f, key);
    /* The snapshot in pieces of seven cells: every key with a count once. */
    bool seen[KEYS] = {false};
    uint32_t cursor = 0, count = 0, expected = 0;
    do {
        struct kvr_window_key keys[7];
        uint32_t piece = kvr_window_keys(&f->window, f->now_ns, &cursor, keys, 7);
        for (uint32_t i = 0; i < piece; i++, count++) {
            struct naive_cell *own = &f->naive->cells[keys[i].key / 3][ALL];
            assert_true(own->present && !seen[keys[i].key / 3]);
            seen[keys[i].key / 3] = true;
            assert_int_equal(keys[i].count, naive_sum(f, own));
        }
    } while (cursor);
    for (uint32_t key = 0; key < KEYS; key++) {
        struct naive_cell *own = &f->naive->cells[key][ALL];
        expected += own->present && naive_sum(f, own) > 0;
    }
    assert_int_equal(count, expected);
}

static void run_random(uint32_t cells_max, uint64_t span_ns, uint64_t step_ns, uint64_t seed)
{
    struct fixture f = {.cells_max = cells_max, .now_ns = 12345};
    struct kvr_rng rng;
    kvr_rng_init(&rng, seed);
    f.naive = kvr_alloc_zero(1, sizeof *f.naive);
    kvr_window_init(&f.window, &(struct kvr_window_options){.span_ns = span_ns,
                                                            .cells_max = cells_max,
                                                            .replicas_max = REPLICAS});
    for (uint32_t call = 0; call < 20000; call++) {
        f.now_ns += kvr_rng_below(&rng, 2 * step_ns + 1);
        if (kvr_rng_below(&rng, 400) == 0)
            f.now_ns += kvr_rng_below(&rng, 2 * span_ns);
        /* Some keys are much more frequent, so that rare ones get old. */
        uint64_t bound = 1 + kvr_rng_below(&rng, KEYS);
        uint32_t key = (uint32_t)kvr_rng_below(&rng, bound);
        uint32_t replica = (uint32_t)kvr_rng_below(&rng, REPLICAS);
        uint32_t amount = (uint32_t)kvr_rng_below(&rng, 5);
        kvr_window_add(&f.window, f.now_ns, key_of(key), replica, amount);
        naive_add(&f, key, replica, amount);
        check_key(&f, key);
        check_key(&f, (uint32_t)kvr_rng_below(&rng, KEYS));
        if (call % 64 == 0) {
            f.now_ns += kvr_rng_below(&rng, span_ns / 4);
            check_all(&f);
        }
    }
    check_all(&f);
    assert_true(cells_max > KEYS * (REPLICAS + 1) || f.naive->pairs_evicted > 0);
    kvr_window_deinit(&f.window);
    kvr_free(f.naive);
}

static void test_random_against_model(void **state)
{
    (void)state;
    run_random(1000, 16000, 100, 1);
    run_random(120, 16000, 10, 2);
    run_random(40, 1600, 10, 3);
    run_random(7, 1600, 10, 4);
    run_random(2, 1600, 10, 5);
    run_random(200, 17, 1, 6); /* slices of 2 ns */
}

static void test_empty(void **state)
{
    (void)state;
    struct kvr_window window;
    kvr_window_init(&window, &(struct kvr_window_options){0});
    struct kvr_window_key keys[1];
    struct kvr_window_pair pairs[1];
    assert_int_equal(kvr_window_count(&window, 5, 7), 0);
    assert_int_equal(kvr_window_count_at(&window, 5, 7, 1023), 0);
    assert_int_equal(kvr_window_total(&window, UINT64_MAX), 0);
    assert_int_equal(kvr_window_last_ns(&window, 7, 0), KVR_WINDOW_NEVER);
    assert_true(kvr_window_share(&window, 5, 7) == 0.0);
    assert_int_equal(kvr_window_covered_ns(&window, 5), 0);
    uint32_t cursor = 0;
    assert_int_equal(kvr_window_keys(&window, 5, &cursor, keys, 1), 0);
    assert_int_equal(cursor, 0);
    assert_int_equal(kvr_window_pairs(&window, 5, 7, pairs, 1), 0);
    kvr_window_forget(&window, 3);
    assert_true(kvr_window_bytes(&window) < 16 << 20);
    kvr_window_deinit(&window);
}

static void test_span_edges(void **state)
{
    (void)state;
    struct kvr_window window;
    kvr_window_init(&window, &(struct kvr_window_options){.span_ns = 1600});
    kvr_window_add(&window, 1000, 7, 2, 3); /* first moment of a slice of 100 */
    kvr_window_add(&window, 1099, 7, 2, 4); /* last moment of it */
    assert_int_equal(kvr_window_count(&window, 1099, 7), 7);
    assert_int_equal(kvr_window_count(&window, 2599, 7), 7);
    assert_int_equal(kvr_window_count(&window, 2600, 7), 0);
    assert_int_equal(kvr_window_last_ns(&window, 7, 2), 1099);
    assert_int_equal(kvr_window_total(&window, 2600), 0);
    /* An addition much later starts anew; an earlier now is the latest seen. */
    kvr_window_add(&window, 99000, 7, 2, 1);
    kvr_window_add(&window, 98000, 7, 2, 1);
    assert_int_equal(kvr_window_count(&window, 0, 7), 2);
    assert_int_equal(kvr_window_last_ns(&window, 7, 2), 99000);
    kvr_window_deinit(&window);
}

/* A steady rate is read back as that rate at any moment, also before the span has filled. */
static void test_covered_time_gives_rates(void **state)
{
    (void)state;
    struct kvr_window window;
    const uint64_t second = 1000000000u;
    kvr_window_init(&window, &(struct kvr_window_options){.span_ns = 60 * second});
    uint64_t now = 5000 * second;
    for (uint32_t i = 0; i < 30000; i++, now += second / 100) {
        kvr_window_add(&window, now, 9, 0, 1);
        if (i < 100)
            continue;
        double covered_s = (double)kvr_window_covered_ns(&window, now) / 1e9;
        assert_true(covered_s <= 60.0);
        assert_true(i < 6000 || covered_s > 56.0);
        double rate = (double)kvr_window_count(&window, now, 9) / covered_s;
        assert_true(fabs(rate - 100.0) < 1.1);
    }
    kvr_window_deinit(&window);
}

static void test_forget_is_of_one_replica(void **state)
{
    (void)state;
    struct kvr_window window;
    struct kvr_window_pair pairs[4];
    kvr_window_init(&window, &(struct kvr_window_options){.cells_max = 8, .replicas_max = 4});
    for (uint32_t r = 0; r < 3; r++)
        kvr_window_add(&window, 10 + r, 7, r, 5);
    kvr_window_forget(&window, 1);
    assert_int_equal(kvr_window_last_ns(&window, 7, 1), KVR_WINDOW_NEVER);
    assert_int_equal(kvr_window_count_at(&window, 20, 7, 1), 0);
    assert_int_equal(kvr_window_total_at(&window, 20, 1), 0);
    assert_int_equal(kvr_window_count(&window, 20, 7), 15);
    assert_int_equal(kvr_window_total(&window, 20), 15);
    assert_int_equal(kvr_window_pairs(&window, 20, 7, pairs, 4), 2);
    assert_int_equal(pairs[0].replica, 2);
    assert_int_equal(pairs[1].replica, 0);
    assert_int_equal(kvr_window_pairs(&window, 20, 7, pairs, 1), 1);
    kvr_window_add(&window, 21, 7, 1, 2);
    assert_int_equal(kvr_window_last_ns(&window, 7, 1), 21);
    assert_int_equal(kvr_window_count_at(&window, 21, 7, 1), 2);
    /* Slots that change hands all the time fill nothing but their own bound. */
    for (uint32_t i = 0; i < 1000; i++) {
        kvr_window_add(&window, 30 + i, i % 5, i % 4, 1);
        kvr_window_forget(&window, i % 4);
        assert_true(window.used <= 8);
    }
    assert_int_equal(kvr_window_pairs(&window, 1030, 4, pairs, 4), 0);
    kvr_window_deinit(&window);
}

static void test_large_amounts_saturate(void **state)
{
    (void)state;
    struct kvr_window window;
    kvr_window_init(&window, &(struct kvr_window_options){.span_ns = 1600});
    for (uint32_t i = 0; i < 3; i++)
        kvr_window_add(&window, 1000, 7, 2, UINT32_MAX);
    assert_int_equal(kvr_window_count(&window, 1000, 7), UINT32_MAX);
    assert_int_equal(window.saturated, 4); /* two additions, each to two cells */
    assert_int_equal(kvr_window_total(&window, 1000), 3 * (uint64_t)UINT32_MAX);
    kvr_window_add(&window, 1100, 7, 2, UINT32_MAX);
    assert_int_equal(kvr_window_count(&window, 1100, 7), 2 * (uint64_t)UINT32_MAX);
    kvr_window_deinit(&window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_span_edges),
        cmocka_unit_test(test_covered_time_gives_rates),
        cmocka_unit_test(test_forget_is_of_one_replica),
        cmocka_unit_test(test_large_amounts_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
