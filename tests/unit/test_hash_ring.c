/* core/model/hash_ring: what consistent hashing promises. Few keys move, shares follow weights,
 * nothing depends on the order in which members are named, and results are pinned bit by bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hash_ring.h"
#include "rng.h"

#define MEMBERS 40
#define KEYS    20000

static void name_members(struct kvr_ring_member *members, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++)
        members[i] = (struct kvr_ring_member){kvr_mix64(seed * 1000 + i), 1.0};
}

static uint32_t first(const struct kvr_hash_ring *ring, uint64_t key)
{
    uint32_t order[1];
    assert_int_equal(kvr_hash_ring_order(ring, key, 1, order), 1);
    return order[0];
}

static void test_empty_and_single(void **state)
{
    (void)state;
    struct kvr_hash_ring ring;
    uint32_t order[2] = {7, 7};
    kvr_hash_ring_init(&ring);
    assert_int_equal(kvr_hash_ring_order(&ring, 1, 0, order), 0);
    kvr_hash_ring_build(&ring, NULL, 0, 0);
    assert_int_equal(kvr_hash_ring_order(&ring, 1, 0, order), 0);
    struct kvr_ring_member one = {42, 1.0};
    kvr_hash_ring_build(&ring, &one, 1, 1);
    assert_int_equal(ring.points, 1);
    for (uint64_t key = 0; key < 100; key++) {
        order[0] = 7;
        assert_int_equal(kvr_hash_ring_order(&ring, key, 0, order), 1);
        assert_int_equal(order[0], 0);
    }
    assert_int_equal(order[1], 7);
    assert_int_equal(kvr_hrw_order(NULL, NULL, 0, 1, 0, order), 0);
    kvr_hash_ring_deinit(&ring);
}

/* The indexed lookup against a plain scan for the first point at or after the key. The ring's own
 * positions are the keys' targets, so exact hits and both ends of the circle are covered. */
static void test_lookup_is_first_point_at_or_after(void **state)
{
    (void)state;
    struct kvr_ring_member members[MEMBERS];
    struct kvr_hash_ring ring;
    kvr_hash_ring_init(&ring);
    for (uint32_t count = 1; count <= MEMBERS; count += 13) {
        name_members(members, count, count);
        kvr_hash_ring_build(&ring, members, count, 16);
        assert_int_equal(ring.points, 16 * count);
        for (uint32_t i = 1; i < ring.points; i++)
            assert_true(ring.positions[i - 1] <= ring.positions[i]);
        for (uint64_t key = 0; key < 5000; key++) {
            uint64_t position = kvr_mix64(key + UINT64_C(0xd1b54a32d192ed03));
            uint32_t at = 0;
            while (at < ring.points && ring.positions[at] < position)
                at++;
            assert_int_equal(first(&ring, key), ring.owners[at % ring.points]);
        }
    }
    kvr_hash_ring_deinit(&ring);
}

/* max / mean arc of a ring, from the arcs themselves. */
static double imbalance(const struct kvr_hash_ring *ring)
{
    double arcs[KVR_RING_MEMBERS_MAX] = {0};
    for (uint32_t i = 0; i < ring->points; i++) {
        uint64_t before = ring->positions[i ? i - 1 : ring->points - 1];
        arcs[ring->owners[i]] += (double)(ring->positions[i] - before);
    }
    double most = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < ring->members; i++) {
        sum += arcs[i];
        most = arcs[i] > most ? arcs[i] : most;
    }
    assert_true(fabs(sum / 0x1.0p+64 - 1.0) < 1e-9);
    return most * ring->members / sum;
}

/* Averages over 100 rings. Expected: the mean of the largest of n sums of V exponential gaps. */
static void test_balance_follows_vnodes(void **state)
{
    (void)state;
    static const struct {
        uint32_t members, vnodes;
        double low, high;
    } cases[] = {
        {5, 1, 2.15, 2.45},    {30, 1, 3.6, 4.2},      {5, 16, 1.28, 1.36},  {30, 16, 1.54, 1.68},
        {5, 128, 1.09, 1.12},  {30, 128, 1.17, 1.21},  {5, 160, 1.08, 1.11}, {30, 160, 1.15, 1.19},
        {5, 1024, 1.02, 1.05}, {30, 1024, 1.05, 1.08},
    };
    struct kvr_hash_ring ring;
    kvr_hash_ring_init(&ring);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        double sum = 0.0;
        for (uint64_t seed = 1; seed <= 100; seed++) {
            struct kvr_ring_member members[MEMBERS];
            name_members(members, cases[c].members, seed);
            kvr_hash_ring_build(&ring, members, cases[c].members, cases[c].vnodes);
            sum += imbalance(&ring);
        }
        double mean = sum / 100;
        if (mean < cases[c].low || mean > cases[c].high)
            fail_msg("n=%u V=%u: max/mean %.3f", cases[c].members, cases[c].vnodes, mean);
    }
    kvr_hash_ring_deinit(&ring);
}

/* Identities 0, 1, 2, ... and keys 0, 1, 2, ...: without an avalanche these land in one place. */
static void test_consecutive_names_and_keys_spread(void **state)
{
    (void)state;
    struct kvr_ring_member members[8];
    uint64_t ids[8];
    for (uint32_t i = 0; i < 8; i++) {
        members[i] = (struct kvr_ring_member){i, 1.0};
        ids[i] = i;
    }
    struct kvr_hash_ring ring;
    kvr_hash_ring_init(&ring);
    kvr_hash_ring_build(&ring, members, 8, 128);
    uint32_t by_ring[8] = {0}, by_rendezvous[8] = {0};
    for (uint64_t key = 0; key < 8000; key++) {
        uint32_t best;
        by_ring[first(&ring, key)]++;
        kvr_hrw_order(ids, NULL, 8, key, 1, &best);
        by_rendezvous[best]++;
    }
    for (uint32_t i = 0; i < 8; i++) {
        assert_in_range(by_ring[i], 700, 1300);
        assert_in_range(by_rendezvous[i], 880, 1120); /* 4 sigma */
    }
    kvr_hash_ring_deinit(&ring);
}

/* A member that leaves gives its keys away and disturbs no others; that also holds for every later
 * place in the order. Members are named in another order the second time. */
static void test_only_the_leavers_keys_move(void **state)
{
    (void)state;
    enum { N = 9, GONE = 4 };
    struct kvr_ring_member members[N], rest[N - 1];
    name_members(members, N, 77);
    members[2].weight = 2.5;
    uint32_t rest_count = 0;
    uint32_t original[N - 1];
    for (uint32_t i = N; i-- > 0;) {
        if (i != GONE) {
            original[rest_count] = i;
            rest[rest_count++] = members[i];
        }
    }
    struct kvr_hash_ring full, less;
    kvr_hash_ring_init(&full);
    kvr_hash_ring_init(&less);
    kvr_hash_ring_build(&full, members, N, 0);
    kvr_hash_ring_build(&less, rest, N - 1, 0);
    uint64_t ids[N], rest_ids[N - 1];
    double weights[N], rest_weights[N - 1];
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = members[i].id;
        weights[i] = members[i].weight;
    }
    for (uint32_t i = 0; i < N - 1; i++) {
        rest_ids[i] = rest[i].id;
        rest_weights[i] = rest[i].weight;
    }
    for (uint64_t key = 0; key < KEYS; key++) {
        for (int mode = 0; mode < 3; mode++) {
            uint32_t before[N], after[N - 1];
            uint32_t n, m;
            if (mode == 0) {
                n = kvr_hash_ring_order(&full, key, 0, before);
                m = kvr_hash_ring_order(&less, key, 0, after);
            } else {
                n = kvr_hrw_order(ids, mode == 1 ? NULL : weights, N, key, 0, before);
                m = kvr_hrw_order(rest_ids, mode == 1 ? NULL : rest_weights, N - 1, key, 0, after);
            }
            assert_int_equal(n, N);
            assert_int_equal(m, N - 1);
            uint32_t j = 0;
            for (uint32_t i = 0; i < N; i++) {
                if (before[i] != GONE)
                    assert_int_equal(original[after[j++]], before[i]);
            }
        }
    }
    kvr_hash_ring_deinit(&full);
    kvr_hash_ring_deinit(&less);
}

/* A higher weight only draws keys to that member. */
static void test_more_weight_only_attracts(void **state)
{
    (void)state;
    enum { N = 6 };
    struct kvr_ring_member members[N];
    name_members(members, N, 5);
    struct kvr_hash_ring before, after;
    kvr_hash_ring_init(&before);
    kvr_hash_ring_init(&after);
    kvr_hash_ring_build(&before, members, N, 0);
    members[3].weight = 1.75;
    kvr_hash_ring_build(&after, members, N, 0);
    uint64_t ids[N];
    double weights[N];
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = members[i].id;
        weights[i] = members[i].weight;
    }
    uint32_t moved[2] = {0, 0};
    for (uint64_t key = 0; key < KEYS; key++) {
        uint32_t was = first(&before, key), is = first(&after, key);
        assert_true(was == is || is == 3);
        moved[0] += was != is;
        kvr_hrw_order(ids, NULL, N, key, 1, &was);
        kvr_hrw_order(ids, weights, N, key, 1, &is);
        assert_true(was == is || is == 3);
        moved[1] += was != is;
    }
    /* From 1/6 to 1.75/6.75 of all keys. */
    double expected = KEYS * (1.75 / 6.75 - 1.0 / 6.0);
    assert_true(fabs(moved[1] - expected) < 0.08 * expected);
    assert_true(fabs(moved[0] - expected) < 0.35 * expected);
    kvr_hash_ring_deinit(&before);
    kvr_hash_ring_deinit(&after);
}

static void test_shares_follow_weights(void **state)
{
    (void)state;
    enum { N = 5 };
    const double weights[N] = {0.1, 1.0, 1.0, 2.0, 5.9};
    uint64_t ids[N];
    struct kvr_ring_member members[N];
    uint32_t wins[N] = {0}, ring_wins[N] = {0};
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = kvr_mix64(i);
        members[i] = (struct kvr_ring_member){ids[i], weights[i]};
    }
    struct kvr_hash_ring ring;
    kvr_hash_ring_init(&ring);
    kvr_hash_ring_build(&ring, members, N, 1000);
    assert_int_equal(ring.points, 10000);
    for (uint64_t key = 0; key < 200000; key++) {
        uint32_t best;
        kvr_hrw_order(ids, weights, N, key, 1, &best);
        wins[best]++;
        ring_wins[first(&ring, key)]++;
    }
    for (uint32_t i = 0; i < N; i++) {
        double expected = 20000.0 * weights[i];
        assert_true(fabs(wins[i] - expected) < 5.0 * sqrt(expected));
        assert_true(fabs(ring_wins[i] - expected) < 0.2 * expected);
    }
    kvr_hash_ring_deinit(&ring);
}

/* Weights far beyond the bound on points: all shrink together, shares stay. */
static void test_points_are_bounded(void **state)
{
    (void)state;
    struct kvr_ring_member members[3] = {{1, 1e9}, {2, 3e9}, {3, 1e-9}};
    struct kvr_hash_ring ring;
    kvr_hash_ring_init(&ring);
    kvr_hash_ring_build(&ring, members, 3, 0);
    assert_true(ring.points <= KVR_RING_POINTS_MAX);
    assert_true(ring.points > KVR_RING_POINTS_MAX / 4);
    uint32_t owned[3] = {0};
    for (uint32_t i = 0; i < ring.points; i++)
        owned[ring.owners[i]]++;
    assert_int_equal(owned[2], 1);
    assert_true(fabs((double)owned[1] / owned[0] - 3.0) < 0.001);
    uint32_t order[3];
    assert_int_equal(kvr_hash_ring_order(&ring, 9, 0, order), 3);
    kvr_hash_ring_deinit(&ring);
}

/* Every prefix of the full order is what a smaller limit gives; all members once. */
static void test_limits_are_prefixes(void **state)
{
    (void)state;
    static struct kvr_ring_member members[KVR_RING_MEMBERS_MAX];
    static uint64_t ids[KVR_RING_MEMBERS_MAX];
    static double weights[KVR_RING_MEMBERS_MAX];
    static uint32_t full[KVR_RING_MEMBERS_MAX], part[KVR_RING_MEMBERS_MAX];
    name_members(members, KVR_RING_MEMBERS_MAX, 3);
    for (uint32_t i = 0; i < KVR_RING_MEMBERS_MAX; i++) {
        ids[i] = members[i].id;
        weights[i] = members[i].weight = 0.5 + (double)(i % 7);
    }
    struct kvr_hash_ring ring;
    kvr_hash_ring_init(&ring);
    for (uint32_t count = 1; count <= KVR_RING_MEMBERS_MAX; count = count * 4) {
        kvr_hash_ring_build(&ring, members, count, 16);
        for (uint64_t key = 0; key < 40; key++) {
            for (int mode = 0; mode < 3; mode++) {
                const double *w = mode == 1 ? NULL : weights;
                uint32_t n = mode == 0 ? kvr_hash_ring_order(&ring, key, 0, full)
                                       : kvr_hrw_order(ids, w, count, key, 0, full);
                assert_int_equal(n, count);
                uint8_t named[KVR_RING_MEMBERS_MAX] = {0};
                for (uint32_t i = 0; i < n; i++) {
                    assert_true(full[i] < count);
                    assert_int_equal(named[full[i]]++, 0);
                }
                for (uint32_t limit = 1; limit <= count + 1; limit = limit * 3) {
                    uint32_t expected = limit < count ? limit : count;
                    n = mode == 0 ? kvr_hash_ring_order(&ring, key, limit, part)
                                  : kvr_hrw_order(ids, w, count, key, limit, part);
                    assert_int_equal(n, expected);
                    assert_memory_equal(part, full, expected * sizeof *part);
                }
            }
        }
    }
    kvr_hash_ring_deinit(&ring);
}

/* A digest of many orders: equal on any machine and compiler, or recorded runs cannot be replayed.
 */
static void test_same_orders_everywhere(void **state)
{
    (void)state;
    enum { N = 30 };
    struct kvr_ring_member members[N];
    uint64_t ids[N];
    double weights[N];
    name_members(members, N, 11);
    for (uint32_t i = 0; i < N; i++) {
        weights[i] = members[i].weight = 0.25 * (double)(1 + i % 9);
        ids[i] = members[i].id;
    }
    struct kvr_hash_ring ring;
    kvr_hash_ring_init(&ring);
    kvr_hash_ring_build(&ring, members, N, 0);
    uint64_t digest = 0;
    for (uint64_t key = 0; key < 5000; key++) {
        uint32_t order[N];
        kvr_hash_ring_order(&ring, key, 0, order);
        for (uint32_t i = 0; i < N; i++)
            digest = kvr_mix64(digest ^ order[i]);
        kvr_hrw_order(ids, weights, N, key, 0, order);
        for (uint32_t i = 0; i < N; i++)
            digest = kvr_mix64(digest ^ order[i]);
    }
    assert_int_equal(digest, UINT64_C(0x194e2e63417424bc));
    kvr_hash_ring_deinit(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_and_single),
        cmocka_unit_test(test_lookup_is_first_point_at_or_after),
        cmocka_unit_test(test_balance_follows_vnodes),
        cmocka_unit_test(test_consecutive_names_and_keys_spread),
        cmocka_unit_test(test_only_the_leavers_keys_move),
        cmocka_unit_test(test_more_weight_only_attracts),
        cmocka_unit_test(test_shares_follow_weights),
        cmocka_unit_test(test_points_are_bounded),
        cmocka_unit_test(test_limits_are_prefixes),
        cmocka_unit_test(test_same_orders_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
