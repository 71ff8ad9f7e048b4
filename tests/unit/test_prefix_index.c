/* core/model/prefix_index: random calls against a model that keeps everything in plain arrays and
 * searches them, and the situations that random calls meet too rarely.
 *
 * Prompts are paths in a random tree, so they share prefixes as prompts do. After every call the
 * two agree on all results, on who is remembered and on the order of eviction; in between, the
 * index's own structure is walked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memory.h"
#include "prefix_index.h"
#include "replica.h"
#include "rng.h"

#define TREE     700u
#define PATH_MAX 64u
#define RECENT   16u

struct config {
    uint32_t replicas;
    uint32_t blocks_max;
    uint32_t per_replica_max; /* 0: none */
    uint32_t roots;           /* of the tree */
    uint64_t ttl_ns;
    uint64_t step_ns; /* mean time between calls */
    uint32_t calls;
    uint32_t first_stamp; /* close to the wrap */
};

/* A pair in the model: the 64-bit number of its admission, 0 for none, and the tick. It stays when
 * it has lapsed, until its block is met, as in the index. */
struct belief {
    uint64_t stamp;
    uint64_t tick;
};

struct naive {
    bool present[TREE];
    uint64_t touched[TREE];      /* number of the last admission of that block */
    struct belief (*held)[TREE]; /* by replica */
    uint32_t voids[TREE];        /* pairs of replicas that were purged since */
    uint32_t count;
    uint64_t next;
    uint64_t tick;
    uint64_t evicted, reclaimed, replica_evicted;
    struct kvr_belief_counters ended;
};

struct admission {
    uint32_t path[PATH_MAX];
    uint32_t len, replica;
    uint64_t stamp;
};

struct fixture {
    struct config config;
    uint64_t tick_ns;
    struct kvr_prefix_index index;
    struct naive naive;
    struct kvr_rng rng;
    uint32_t parent[TREE]; /* itself for a root */
    uint64_t now_ns;
    struct admission recent[RECENT];
    uint32_t blocks_by_replica[KVR_REPLICAS_MAX];
};

static uint64_t key_of(uint32_t node)
{
    return kvr_mix64(node + 1000u);
}

static void keys_of(const uint32_t *path, uint32_t len, uint64_t *chain)
{
    for (uint32_t i = 0; i < len; i++)
        chain[i] = key_of(path[i]);
}

/* The model. */

static bool naive_live(const struct fixture *f, uint32_t node, uint32_t replica)
{
    const struct belief *belief = &f->naive.held[replica][node];
    return belief->stamp != 0 && f->naive.tick - belief->tick <= KVR_STAMP_TICKS;
}

static bool naive_any(const struct fixture *f, uint32_t node)
{
    for (uint32_t r = 0; r < f->config.replicas; r++) {
        if (naive_live(f, node, r))
            return true;
    }
    return false;
}

/* Drops the pairs of the block that have lapsed, but for that replica's. */
static void naive_prune(struct fixture *f, uint32_t node, uint32_t except)
{
    f->naive.ended.voided += f->naive.voids[node];
    f->naive.voids[node] = 0;
    for (uint32_t r = 0; r < f->config.replicas; r++) {
        struct belief *belief = &f->naive.held[r][node];
        if (r == except || belief->stamp == 0 || naive_live(f, node, r))
            continue;
        f->naive.ended.expired++;
        belief->stamp = 0;
    }
}

static void naive_remove(struct fixture *f, uint32_t node)
{
    assert_true(f->naive.present[node]);
    f->naive.present[node] = false;
    f->naive.count--;
    naive_prune(f, node, UINT32_MAX);
    for (uint32_t r = 0; r < f->config.replicas; r++) {
        f->naive.ended.evicted += f->naive.held[r][node].stamp != 0;
        f->naive.held[r][node].stamp = 0;
    }
}

static bool on_path(const uint32_t *path, uint32_t len, uint32_t node)
{
    for (uint32_t i = 0; i < len; i++) {
        if (path[i] == node)
            return true;
    }
    return false;
}

/* The block admitted longest ago that is not on the path; TREE: there is none. */
static uint32_t naive_oldest(const struct fixture *f, const uint32_t *path, uint32_t len)
{
    uint32_t oldest = TREE;
    for (uint32_t node = 0; node < TREE; node++) {
        if (f->naive.present[node] && !on_path(path, len, node) &&
            (oldest == TREE || f->naive.touched[node] < f->naive.touched[oldest]))
            oldest = node;
    }
    return oldest;
}

static void naive_set_time(struct fixture *f)
{
    f->naive.tick = f->now_ns / f->tick_ns;
}

static uint32_t naive_match(struct fixture *f, const uint32_t *path, uint32_t len, uint32_t replica)
{
    uint32_t blocks = 0;
    while (blocks < len && f->naive.present[path[blocks]] && naive_live(f, path[blocks], replica))
        blocks++;
    return blocks;
}

static void naive_cap_replica(struct fixture *f, const uint32_t *path, uint32_t len,
                              uint32_t replica)
{
    struct belief *held = f->naive.held[replica];
    for (;;) {
        uint32_t pairs = 0, oldest = TREE;
        for (uint32_t node = 0; node < TREE; node++) {
            if (held[node].stamp == 0 || on_path(path, len, node))
                continue;
            pairs++;
            if (oldest == TREE || held[node].stamp < held[oldest].stamp)
                oldest = node;
        }
        if (pairs + len <= f->config.per_replica_max)
            return;
        bool live = naive_live(f, oldest, replica);
        held[oldest].stamp = 0;
        if (!live) {
            f->naive.ended.expired++;
            continue;
        }
        f->naive.ended.evicted++;
        f->naive.replica_evicted++;
        if (!naive_any(f, oldest))
            naive_remove(f, oldest);
    }
}

static void naive_admit(struct fixture *f, const uint32_t *path, uint32_t len, uint32_t replica)
{
    struct naive *naive = &f->naive;
    for (uint32_t budget = len; budget; budget--) {
        uint32_t oldest = naive_oldest(f, path, len);
        if (oldest == TREE || naive_any(f, oldest))
            break;
        naive_remove(f, oldest);
        naive->reclaimed++;
    }
    if (f->config.per_replica_max)
        naive_cap_replica(f, path, len, replica);
    uint32_t missing = 0;
    for (uint32_t i = 0; i < len; i++)
        missing += !naive->present[path[i]];
    while (naive->count + missing > f->config.blocks_max) {
        uint32_t oldest = naive_oldest(f, path, len);
        if (naive_any(f, oldest))
            naive->evicted++;
        else
            naive->reclaimed++;
        naive_remove(f, oldest);
    }
    for (uint32_t i = len; i-- > 0;) {
        naive->count += !naive->present[path[i]];
        naive->present[path[i]] = true;
        naive->touched[path[i]] = naive->next;
        naive_prune(f, path[i], replica);
        naive->held[replica][path[i]] = (struct belief){naive->next++, naive->tick};
    }
}

static void naive_withdraw(struct fixture *f, const struct admission *admission)
{
    for (uint32_t i = 0; i < admission->len; i++) {
        uint32_t node = admission->path[i];
        struct belief *belief = &f->naive.held[admission->replica][node];
        if (!f->naive.present[node] || !naive_live(f, node, admission->replica) ||
            belief->stamp < admission->stamp || belief->stamp >= admission->stamp + admission->len)
            continue;
        belief->stamp = 0;
        f->naive.ended.withdrawn++;
        if (!naive_any(f, node))
            naive_remove(f, node);
    }
}

/* The comparison. */

/* Order and membership: the list of the index is the model's blocks by last admission. */
static void check_order(struct fixture *f)
{
    const struct kvr_block_store *store = &f->index.store;
    assert_int_equal(store->count, f->naive.count);
    uint64_t last = UINT64_MAX;
    uint32_t walked = 0;
    for (uint32_t b = store->blocks[0].older; b; b = store->blocks[b].older, walked++) {
        uint32_t node = 0;
        while (node < TREE && key_of(node) != store->blocks[b].key)
            node++;
        assert_true(node < TREE && f->naive.present[node]);
        assert_true(f->naive.touched[node] < last);
        last = f->naive.touched[node];
        assert_int_equal(store->blocks[store->blocks[b].older].newer, b);
    }
    assert_int_equal(walked, f->naive.count);
}

/* Every pair of the model is in the index, live or not, with the same stamp, and no other. */
static void check_pairs(struct fixture *f)
{
    const struct kvr_beliefs *beliefs = &f->index.beliefs;
    uint32_t by_tenancy[KVR_TENANCIES_MAX] = {0};
    uint64_t pairs = 0;
    for (uint32_t node = 0; node < TREE; node++) {
        pairs += f->naive.voids[node];
        uint64_t key = key_of(node);
        uint32_t block;
        kvr_block_store_find(&f->index.store, &key, 1, 0, &block);
        assert_int_equal(block != 0, f->naive.present[node]);
        for (uint32_t r = 0; r < f->config.replicas; r++) {
            uint16_t tenancy = kvr_tenancy_of(&beliefs->tenancies, r);
            uint32_t place = block ? kvr_belief_find(beliefs, block, tenancy) : KVR_NO_PLACE;
            bool live =
                place && kvr_belief_live(beliefs, tenancy, kvr_belief_stamp(beliefs, place));
            assert_int_equal(live, naive_live(f, node, r));
            assert_int_equal(place != KVR_NO_PLACE, f->naive.held[r][node].stamp != 0);
            if (place)
                assert_int_equal(kvr_belief_stamp(beliefs, place),
                                 (uint32_t)f->naive.held[r][node].stamp);
            if (place) {
                assert_int_equal(kvr_belief_block(beliefs, place), block);
                by_tenancy[tenancy]++;
                pairs++;
            }
        }
    }
    assert_int_equal(beliefs->pairs, pairs);
    for (uint32_t r = 0; r < f->config.replicas; r++) {
        uint16_t tenancy = kvr_tenancy_of(&beliefs->tenancies, r);
        assert_int_equal(kvr_prefix_index_believed(&f->index, r),
                         tenancy ? by_tenancy[tenancy] : 0);
        if (!kvr_belief_order_kept(&beliefs->order) || !tenancy)
            continue;
        /* Its order has all of its pairs, by falling stamp. */
        uint32_t walked = 0, newer = 0;
        for (uint32_t place = beliefs->tenancies.items[tenancy].newest; place; walked++) {
            if (newer)
                assert_in_range(kvr_belief_stamp(beliefs, newer) - kvr_belief_stamp(beliefs, place),
                                1, UINT32_C(1) << 30);
            newer = place;
            place = kvr_belief_order_older(&beliefs->order, place);
        }
        assert_int_equal(beliefs->tenancies.items[tenancy].oldest, newer);
        assert_int_equal(walked, by_tenancy[tenancy]);
    }
}

static void check_counts(struct fixture *f)
{
    struct kvr_prefix_index_stats stats;
    kvr_prefix_index_read_stats(&f->index, &stats);
    assert_int_equal(stats.blocks, f->naive.count);
    assert_true(stats.blocks <= f->config.blocks_max);
    assert_true(stats.bytes <= stats.bytes_max);
    assert_int_equal(stats.counters.blocks_evicted, f->naive.evicted);
    assert_int_equal(stats.counters.blocks_reclaimed, f->naive.reclaimed);
    assert_int_equal(stats.counters.replica_evicted, f->naive.replica_evicted);
    assert_memory_equal(&stats.beliefs, &f->naive.ended, sizeof stats.beliefs);
    for (uint32_t r = 0; r < f->config.replicas && f->config.per_replica_max; r++)
        assert_true(kvr_prefix_index_believed(&f->index, r) <= f->config.per_replica_max);
}

/* The calls. */

static uint32_t random_path(struct fixture *f, uint32_t *path)
{
    uint32_t reversed[PATH_MAX] = {0};
    uint32_t len = 0;
    for (uint32_t node = (uint32_t)kvr_rng_below(&f->rng, TREE);; node = f->parent[node]) {
        reversed[len++] = node;
        if (f->parent[node] == node)
            break;
    }
    for (uint32_t i = 0; i < len; i++)
        path[i] = reversed[len - 1 - i];
    /* Sometimes only the opening of that prompt. */
    if (kvr_rng_below(&f->rng, 4) == 0)
        len = 1 + (uint32_t)kvr_rng_below(&f->rng, len);
    return len;
}

static void call_match(struct fixture *f, const uint32_t *path, uint32_t len)
{
    uint64_t chain[PATH_MAX] = {0};
    keys_of(path, len, chain);
    naive_set_time(f);
    uint32_t longest =
        kvr_prefix_index_match(&f->index, f->now_ns, chain, len, f->blocks_by_replica);
    uint32_t expected_longest = 0;
    for (uint32_t r = 0; r < f->config.replicas; r++) {
        uint32_t expected = naive_match(f, path, len, r);
        assert_int_equal(f->blocks_by_replica[r], expected);
        expected_longest = expected > expected_longest ? expected : expected_longest;
        f->blocks_by_replica[r] = 0;
    }
    assert_int_equal(longest, expected_longest);
}

static void call_admit(struct fixture *f, const uint32_t *path, uint32_t len)
{
    uint64_t chain[PATH_MAX] = {0};
    keys_of(path, len, chain);
    naive_set_time(f);
    struct admission *admission = &f->recent[kvr_rng_below(&f->rng, RECENT)];
    admission->replica = (uint32_t)kvr_rng_below(&f->rng, f->config.replicas);
    admission->len = len < f->index.chain_max ? len : f->index.chain_max;
    admission->stamp = f->naive.next;
    memcpy(admission->path, path, len * sizeof *path);
    uint32_t stamp = kvr_prefix_index_admit(&f->index, f->now_ns, chain, len, admission->replica);
    assert_int_equal(stamp, (uint32_t)f->naive.next);
    naive_admit(f, path, admission->len, admission->replica);
}

static void call_withdraw(struct fixture *f)
{
    struct admission *admission = &f->recent[kvr_rng_below(&f->rng, RECENT)];
    uint64_t chain[PATH_MAX] = {0};
    keys_of(admission->path, admission->len, chain);
    kvr_prefix_index_withdraw(&f->index, chain, admission->len, admission->replica,
                              (uint32_t)admission->stamp);
    naive_withdraw(f, admission);
    admission->len = 0;
}

static void call_purge(struct fixture *f)
{
    uint32_t replica = (uint32_t)kvr_rng_below(&f->rng, f->config.replicas);
    kvr_prefix_index_purge(&f->index, replica);
    assert_int_equal(kvr_prefix_index_believed(&f->index, replica), 0);
    for (uint32_t node = 0; node < TREE; node++) {
        f->naive.voids[node] += f->naive.held[replica][node].stamp != 0;
        f->naive.held[replica][node].stamp = 0;
    }
}

static void one_call(struct fixture *f)
{
    uint32_t path[PATH_MAX] = {0}, other[PATH_MAX] = {0};
    uint32_t len = random_path(f, path);
    uint64_t kind = kvr_rng_below(&f->rng, 1000);
    f->now_ns += kvr_rng_below(&f->rng, 2 * f->config.step_ns + 1);
    if (kind < 450) {
        call_match(f, path, len);
        call_admit(f, path, len);
    } else if (kind < 550) { /* another prompt in between, or a part of this one */
        call_match(f, path, len);
        uint32_t other_len = random_path(f, other);
        call_match(f, other, other_len);
        call_admit(f, path, 1 + (uint32_t)kvr_rng_below(&f->rng, len));
    } else if (kind < 750) {
        call_admit(f, path, len);
    } else if (kind < 900) {
        call_match(f, path, len);
    } else if (kind < 990) {
        call_withdraw(f);
    } else if (kind < 996) {
        call_purge(f);
    } else if (kind < 999) {
        f->now_ns += f->config.ttl_ns / 2;
    } else {
        f->now_ns += f->config.ttl_ns + f->tick_ns;
    }
}

static void run_random(const struct config *config, uint64_t seed)
{
    struct fixture *f = kvr_alloc_zero(1, sizeof *f);
    f->config = *config;
    f->tick_ns = (config->ttl_ns + KVR_STAMP_TICKS - 1) / KVR_STAMP_TICKS;
    kvr_rng_init(&f->rng, seed);
    for (uint32_t node = 0; node < TREE; node++) {
        /* Mostly the node before it: long prompts that branch here and there. */
        uint64_t shape = kvr_rng_below(&f->rng, 10);
        uint32_t depth = 0;
        f->parent[node] = node;
        if (node >= config->roots)
            f->parent[node] = shape < 8 ? node - 1 : (uint32_t)kvr_rng_below(&f->rng, node);
        for (uint32_t up = node; f->parent[up] != up; up = f->parent[up])
            depth++;
        if (depth + 1 >= PATH_MAX)
            f->parent[node] = node;
    }
    f->naive.held = kvr_alloc_zero(config->replicas, sizeof *f->naive.held);
    /* The model's numbers do not wrap; the low half is the index's stamp. */
    f->naive.next = (UINT64_C(1) << 32) + config->first_stamp;
    kvr_prefix_index_init(&f->index, &(struct kvr_prefix_index_options){
                                         .blocks_max = config->blocks_max,
                                         .blocks_per_replica_max = config->per_replica_max,
                                         .replicas_max = config->replicas,
                                         .ttl_ns = config->ttl_ns,
                                         .seed = seed,
                                     });
    f->index.beliefs.clock.next = config->first_stamp;
    for (uint32_t call = 0; call < config->calls; call++) {
        one_call(f);
        check_counts(f);
        if (call % 16 == 0)
            check_order(f);
        if (call % 128 == 0)
            check_pairs(f);
    }
    check_order(f);
    check_pairs(f);
    /* Every way to lose a belief was taken, or the run proves less than it says. */
    struct kvr_prefix_index_stats stats;
    kvr_prefix_index_read_stats(&f->index, &stats);
    assert_true(stats.beliefs.expired > 0);
    assert_true(stats.beliefs.voided > 0);
    assert_true(stats.beliefs.withdrawn > 0);
    assert_true(stats.counters.blocks_reclaimed > 0);
    bool caps_differ =
        !config->per_replica_max || config->per_replica_max * config->replicas > config->blocks_max;
    assert_true(!caps_differ || stats.counters.blocks_evicted > 0);
    assert_true(!config->per_replica_max || stats.counters.replica_evicted > 0);
    kvr_prefix_index_deinit(&f->index);
    kvr_free(f->naive.held);
    kvr_free(f);
}

static void test_random_against_model(void **state)
{
    (void)state;
    static const struct config configs[] = {
        {1, 150, 0, 4, 1000000, 1000, 20000, 0},
        {1, 150, 90, 4, 1000000, 1000, 12000, 0},
        {3, 300, 0, 8, 4096, 4, 20000, UINT32_MAX - 20000},
        {3, 200, 150, 8, 1000000, 1000, 12000, 0},
        {8, 400, 0, 3, 1000000, 100, 20000, 0},
        {8, 350, 120, 3, 1000000, 100, 12000, UINT32_MAX - 50000},
        {64, 300, 0, 3, 1000000, 100, 12000, 0},
        {64, 300, 50, 3, 4000000, 1000, 10000, 0},
        {200, 250, 0, 2, 9000000, 1000, 10000, 0},
        {200, 250, 40, 2, 9000000, 1000, 8000, 0},
        /* Chains longer than the whole index, or than a replica's share. */
        {3, 20, 0, 2, 1000000, 1000, 8000, 0},
        {3, 14, 7, 2, 1000000, 1000, 8000, 0},
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
        run_random(&configs[i], 100 + i);
}

/* The rest: single situations over hand-made chains. */

static void number_chain(uint64_t *chain, uint64_t id, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        chain[i] = kvr_mix64(id * 100000 + i + 1);
}

static uint32_t match_at(struct kvr_prefix_index *index, uint64_t now_ns, const uint64_t *chain,
                         uint32_t len, uint32_t replica)
{
    uint32_t blocks[KVR_REPLICAS_MAX] = {0};
    kvr_prefix_index_match(index, now_ns, chain, len, blocks);
    return blocks[replica];
}

static void test_empty(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    uint64_t chain[3];
    number_chain(chain, 1, 3);
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){0});
    assert_int_equal(match_at(&index, 5, chain, 3, 0), 0);
    assert_int_equal(match_at(&index, 5, chain, 0, 0), 0);
    kvr_prefix_index_admit(&index, 5, chain, 0, 0);
    kvr_prefix_index_withdraw(&index, chain, 3, 0, 0);
    kvr_prefix_index_purge(&index, KVR_REPLICAS_MAX - 1);
    struct kvr_prefix_index_stats stats;
    kvr_prefix_index_read_stats(&index, &stats);
    assert_int_equal(stats.blocks, 0);
    /* The default is 64 MiB, and most of it is for blocks. */
    assert_int_equal(stats.bytes_max, 64 << 20);
    assert_true(stats.bytes <= stats.bytes_max);
    assert_true(stats.bytes > 63 << 20);
    assert_in_range(stats.blocks_max, 800000, 1000000);
    kvr_prefix_index_deinit(&index);
}

static void test_memory_is_bounded_for_any_options(void **state)
{
    (void)state;
    static const uint32_t replicas[] = {1, 8, 9, 64, 1024};
    static const uint32_t caps[] = {0, 1000};
    static const uint64_t sizes[] = {2, 3, 10, 64, 200, 4096};
    for (size_t r = 0; r < 5; r++) {
        for (size_t c = 0; c < 2; c++) {
            for (size_t s = 0; s < 6; s++) {
                struct kvr_prefix_index index;
                struct kvr_prefix_index_stats stats;
                kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){
                                                  .memory_bytes = sizes[s] << 20,
                                                  .replicas_max = replicas[r],
                                                  .blocks_per_replica_max = caps[c],
                                              });
                kvr_prefix_index_read_stats(&index, &stats);
                assert_true(stats.bytes <= sizes[s] << 20);
                assert_true(stats.blocks_max >= 1000);
                assert_true(replicas[r] <= KVR_BLOCK_HOLDERS
                                ? stats.overflow_max == 0
                                : stats.overflow_max > stats.blocks_max / 20);
                if (sizes[s] >= 10 && sizes[s] <= 200)
                    assert_true(stats.bytes > (sizes[s] << 20) * 8 / 10);
                kvr_prefix_index_deinit(&index);
            }
        }
    }
}

static void test_ttl_edges(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    const uint64_t second = 1000000000u;
    uint64_t chain[4];
    number_chain(chain, 1, 4);
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){.ttl_ns = second});
    for (uint64_t start = 7 * second; start < 9 * second; start += 123456789) {
        kvr_prefix_index_purge(&index, 2);
        kvr_prefix_index_admit(&index, start, chain, 4, 2);
        assert_int_equal(match_at(&index, start + second, chain, 4, 2), 4);
        assert_int_equal(match_at(&index, start + second + second / 4096 + 1000, chain, 4, 2), 0);
        start += second; /* time has been told: it does not run backwards */
    }
    kvr_prefix_index_deinit(&index);
}

/* A turn that extends the prompt refreshes its opening: each block lives by its own last time. */
static void test_ttl_is_per_block_and_replica(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    uint64_t chain[6];
    number_chain(chain, 1, 6);
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){.ttl_ns = 4096});
    kvr_prefix_index_admit(&index, 10000, chain, 6, 0);
    kvr_prefix_index_admit(&index, 12000, chain, 4, 0);
    kvr_prefix_index_admit(&index, 13000, chain, 2, 1);
    assert_int_equal(match_at(&index, 14000, chain, 6, 0), 6);
    assert_int_equal(match_at(&index, 15000, chain, 6, 0), 4);
    assert_int_equal(match_at(&index, 17000, chain, 6, 0), 0);
    assert_int_equal(match_at(&index, 17000, chain, 6, 1), 2);
    kvr_prefix_index_deinit(&index);
}

/* Eviction shortens the oldest prompt from its tail. */
static void test_eviction_eats_tails(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    uint64_t first[10], second[10], third[5];
    number_chain(first, 1, 10);
    number_chain(second, 2, 10);
    number_chain(third, 3, 5);
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){.blocks_max = 20});
    kvr_prefix_index_admit(&index, 1, first, 10, 0);
    kvr_prefix_index_admit(&index, 2, second, 10, 0);
    kvr_prefix_index_admit(&index, 3, third, 3, 0);
    assert_int_equal(match_at(&index, 4, first, 10, 0), 7);
    assert_int_equal(match_at(&index, 4, second, 10, 0), 10);
    kvr_prefix_index_admit(&index, 5, first, 10, 0); /* takes its tail back from the second */
    assert_int_equal(match_at(&index, 6, first, 10, 0), 10);
    assert_int_equal(match_at(&index, 6, second, 10, 0), 7);
    kvr_prefix_index_deinit(&index);
}

static void test_withdraw_spares_other_claims(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    uint64_t chain[8];
    number_chain(chain, 1, 8);
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){0});
    uint32_t failed = kvr_prefix_index_admit(&index, 1, chain, 8, 3);
    kvr_prefix_index_admit(&index, 1, chain, 8, 4); /* moved there, same moment */
    kvr_prefix_index_withdraw(&index, chain, 8, 3, failed);
    assert_int_equal(match_at(&index, 1, chain, 8, 3), 0);
    assert_int_equal(match_at(&index, 1, chain, 8, 4), 8);
    /* A later admission to the same replica, even at the same moment, is not the failed one's. */
    failed = kvr_prefix_index_admit(&index, 1, chain, 8, 3);
    kvr_prefix_index_admit(&index, 1, chain, 5, 3);
    kvr_prefix_index_withdraw(&index, chain, 8, 3, failed);
    assert_int_equal(match_at(&index, 1, chain, 8, 3), 5);
    /* A second withdrawal finds nothing. */
    kvr_prefix_index_withdraw(&index, chain, 8, 3, failed);
    assert_int_equal(match_at(&index, 1, chain, 8, 3), 5);
    kvr_prefix_index_deinit(&index);
}

static void test_withdraw_frees_unheld_blocks(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    uint64_t chain[8];
    number_chain(chain, 1, 8);
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){.blocks_max = 100});
    for (uint32_t i = 0; i < 2 * KVR_TENANCIES_MAX; i++) {
        uint32_t stamp = kvr_prefix_index_admit(&index, i, chain, 8, i % 5);
        kvr_prefix_index_withdraw(&index, chain, 8, i % 5, stamp);
        assert_int_equal(index.store.count, 0);
        kvr_prefix_index_purge(&index, i % 5); /* nothing to void: costs no life */
    }
    kvr_prefix_index_deinit(&index);
}

/* The slot of a purged replica has another life: beliefs of the old one never come back. */
static void test_purge_voids_and_slot_is_reused(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    uint64_t chain[8];
    number_chain(chain, 1, 8);
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){0});
    uint32_t stamp = kvr_prefix_index_admit(&index, 1, chain, 8, 3);
    kvr_prefix_index_admit(&index, 2, chain, 6, 4);
    kvr_prefix_index_purge(&index, 3);
    assert_int_equal(match_at(&index, 3, chain, 8, 3), 0);
    assert_int_equal(match_at(&index, 3, chain, 8, 4), 6);
    kvr_prefix_index_admit(&index, 4, chain, 2, 3);
    assert_int_equal(match_at(&index, 5, chain, 8, 3), 2);
    kvr_prefix_index_withdraw(&index, chain, 8, 3, stamp); /* of the old life */
    assert_int_equal(match_at(&index, 5, chain, 8, 3), 2);
    assert_int_equal(kvr_prefix_index_believed(&index, 3), 2);
    kvr_prefix_index_deinit(&index);
}

/* More purges than there are numbers for lives, each leaving a belief behind, and the oldest block
 * in use, so that nothing is reclaimed at the old end: sweeps find the void ones. */
static void test_lives_run_out(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    uint64_t oldest[1], chain[1];
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){.replicas_max = 4});
    number_chain(oldest, 0, 1);
    kvr_prefix_index_admit(&index, 1, oldest, 1, 0);
    for (uint32_t i = 1; i <= 2 * KVR_TENANCIES_MAX; i++) {
        number_chain(chain, i, 1);
        kvr_prefix_index_admit(&index, 1, chain, 1, 3);
        assert_int_equal(kvr_prefix_index_believed(&index, 3), 1);
        kvr_prefix_index_purge(&index, 3);
    }
    struct kvr_prefix_index_stats stats;
    kvr_prefix_index_read_stats(&index, &stats);
    assert_int_equal(match_at(&index, 1, oldest, 1, 0), 1);
    assert_int_equal(match_at(&index, 1, chain, 1, 3), 0);
    assert_int_equal(stats.counters.sweeps, 2);
    assert_true(stats.holders < KVR_TENANCIES_MAX);
    assert_int_equal(stats.bytes <= stats.bytes_max, 1);
    kvr_prefix_index_deinit(&index);
}

/* With the overflow used up, the stalest holder of the block gives way, and the rest is right. */
static void test_overflow_used_up(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    enum { REPLICAS = 1000, CHAIN = 64 };
    uint64_t chain[CHAIN];
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){.memory_bytes = 2 << 20,
                                                                     .replicas_max = REPLICAS});
    for (uint64_t id = 1; id <= 4; id++) {
        number_chain(chain, id, CHAIN);
        for (uint32_t r = 0; r < REPLICAS; r++)
            kvr_prefix_index_admit(&index, id, chain, CHAIN, r);
    }
    struct kvr_prefix_index_stats stats;
    kvr_prefix_index_read_stats(&index, &stats);
    assert_true(stats.beliefs.displaced > 0);
    assert_int_equal(stats.overflow, stats.overflow_max);
    assert_int_equal(stats.blocks, 4 * CHAIN);
    /* The last admission always holds; older claims gave way, the oldest first. */
    uint32_t blocks[REPLICAS] = {0};
    assert_int_equal(kvr_prefix_index_match(&index, 5, chain, CHAIN, blocks), CHAIN);
    assert_int_equal(blocks[REPLICAS - 1], CHAIN);
    assert_int_equal(blocks[0], 0);
    for (uint32_t r = 1; r < REPLICAS; r++)
        assert_true(blocks[r] >= blocks[r - 1]); /* replicas were sent it in that order */
    uint64_t total = 0;
    for (uint32_t r = 0; r < REPLICAS; r++)
        total += kvr_prefix_index_believed(&index, r);
    assert_int_equal(total, stats.holders);
    /* All of it comes back when nobody is believed to hold anything. */
    for (uint32_t r = 0; r < REPLICAS; r++)
        kvr_prefix_index_purge(&index, r);
    for (uint64_t id = 100; id < 110; id++) {
        number_chain(chain, id, CHAIN);
        kvr_prefix_index_admit(&index, 6, chain, CHAIN, 7);
    }
    kvr_prefix_index_read_stats(&index, &stats);
    assert_int_equal(stats.overflow, 0);
    assert_int_equal(stats.holders, 10 * CHAIN);
    kvr_prefix_index_deinit(&index);
}

/* The second block's one line is like the head line of the first, which has another behind it. */
static void test_lines_alike_of_blocks_that_are_not(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    uint64_t chain[2];
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){.replicas_max = 32});
    number_chain(chain, 1, 2);
    for (uint32_t r = 0; r < 18; r++)
        kvr_prefix_index_admit(&index, 1, chain, r < 7 || r > 15 ? 2 : 1, r);
    for (uint32_t again = 0; again < 2; again++) {
        uint32_t blocks[32] = {0};
        assert_int_equal(kvr_prefix_index_match(&index, 2, chain, 2, blocks), 2);
        for (uint32_t r = 0; r < 18; r++)
            assert_int_equal(blocks[r], r < 7 || r > 15 ? 2 : 1);
        kvr_prefix_index_admit(&index, 2, chain, 2, 17);
    }
    kvr_prefix_index_deinit(&index);
}

/* No belief outlives 2^30 stamps, and blocks that old are freed before stamps wrap. */
static void test_stamps_run_out(void **state)
{
    (void)state;
    struct kvr_prefix_index index;
    uint64_t old[3], hot[3];
    number_chain(old, 1, 3);
    number_chain(hot, 2, 3);
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){.ttl_ns = UINT64_MAX});
    kvr_prefix_index_admit(&index, 1, old, 3, 0);
    kvr_prefix_index_admit(&index, 1, hot, 3, 0);
    for (int i = 0; i < 9; i++) {
        index.beliefs.clock.next += UINT32_C(1) << 29;
        kvr_prefix_index_admit(&index, 1, hot, 3, 0);
        assert_int_equal(match_at(&index, 1, hot, 3, 0), 3);
        assert_int_equal(match_at(&index, 1, old, 3, 0), i < 1 ? 3 : 0);
        assert_int_equal(index.store.count, i < 1 ? 6 : 3);
    }
    kvr_prefix_index_deinit(&index);
}

/* A chain with one key twice takes a collision of hashes. It must do no harm. */
static void test_key_twice_in_a_chain(void **state)
{
    (void)state;
    for (uint32_t cap = 0; cap <= 6; cap += 6) {
        struct kvr_prefix_index index;
        uint64_t chain[6], other[4];
        number_chain(chain, 1, 6);
        number_chain(other, 2, 4);
        chain[4] = chain[1];
        kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){
                                          .blocks_max = 12, .blocks_per_replica_max = cap});
        for (uint64_t now = 1; now < 50; now++) {
            uint32_t stamp = kvr_prefix_index_admit(&index, now, chain, 6, 0);
            assert_true(match_at(&index, now, chain, 6, 0) >= 4);
            if (now % 3 == 0)
                kvr_prefix_index_withdraw(&index, chain, 6, 0, stamp);
            kvr_prefix_index_admit(&index, now, other, 4, now % 2 ? 1 : 0);
            assert_int_equal(match_at(&index, now, other, 4, now % 2 ? 1 : 0), 4);
            uint32_t walked = 0;
            for (uint32_t b = kvr_block_store_oldest(&index.store); b;
                 b = index.store.blocks[b].newer)
                walked++;
            assert_int_equal(walked, index.store.count);
            assert_true(index.store.count <= 12);
        }
        kvr_prefix_index_deinit(&index);
    }
}

/* Prompts of hundreds of kilobytes are gone over in stretches. It must not show. */
static void test_long_chains(void **state)
{
    (void)state;
    enum { LEN = 1000 };
    struct kvr_prefix_index index;
    uint64_t first[LEN], second[LEN];
    number_chain(first, 1, LEN);
    number_chain(second, 2, LEN);
    kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){.blocks_max = 3 * LEN / 2});
    uint32_t stamp = kvr_prefix_index_admit(&index, 1, first, LEN, 0);
    uint32_t block = index.store.blocks[0].older; /* the newest: the chain's first */
    for (uint32_t i = 0; i < LEN; i++, block = index.store.blocks[block].older) {
        uint16_t tenancy = kvr_tenancy_of(&index.beliefs.tenancies, 0);
        uint32_t place = kvr_belief_find(&index.beliefs, block, tenancy);
        assert_int_equal(index.store.blocks[block].key, first[i]);
        assert_int_equal(kvr_belief_stamp(&index.beliefs, place), stamp + LEN - 1 - i);
    }
    assert_int_equal(block, 0);
    for (uint32_t len = 1; len < LEN; len += 37) {
        uint32_t short_stamp = kvr_prefix_index_admit(&index, 2, first, len, 1);
        assert_int_equal(match_at(&index, 2, first, LEN, 0), LEN);
        assert_int_equal(match_at(&index, 2, first, LEN, 1), len);
        kvr_prefix_index_withdraw(&index, first, LEN, 1, short_stamp);
        assert_int_equal(match_at(&index, 2, first, LEN, 1), 0);
    }
    assert_int_equal(kvr_prefix_index_believed(&index, 0), LEN);
    kvr_prefix_index_admit(&index, 3, second, LEN, 2);
    assert_int_equal(match_at(&index, 3, first, LEN, 0), LEN / 2);
    assert_int_equal(match_at(&index, 3, second, LEN, 2), LEN);
    kvr_prefix_index_admit(&index, 4, first, LEN, 3);
    assert_int_equal(match_at(&index, 4, first, LEN, 0), LEN / 2);
    assert_int_equal(match_at(&index, 4, first, LEN, 3), LEN);
    assert_int_equal(match_at(&index, 4, second, LEN, 2), LEN / 2);
    kvr_prefix_index_deinit(&index);
}

/* The table's seed changes where blocks lie and nothing else. */
static void test_seed_changes_no_result(void **state)
{
    (void)state;
    uint64_t digests[2];
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct kvr_prefix_index index;
        struct kvr_rng rng;
        kvr_rng_init(&rng, 9);
        kvr_prefix_index_init(&index, &(struct kvr_prefix_index_options){.blocks_max = 500,
                                                                         .replicas_max = 12,
                                                                         .seed = seed * 77777});
        uint64_t digest = 0;
        for (uint64_t now = 1; now < 5000; now++) {
            uint64_t chain[20];
            uint32_t blocks[12] = {0};
            number_chain(chain, kvr_rng_below(&rng, 60), 20);
            kvr_prefix_index_match(&index, now, chain, 20, blocks);
            for (uint32_t r = 0; r < 12; r++)
                digest = kvr_mix64(digest ^ blocks[r]);
            kvr_prefix_index_admit(&index, now, chain, 1 + (uint32_t)kvr_rng_below(&rng, 20),
                                   (uint32_t)kvr_rng_below(&rng, 12));
        }
        digests[seed] = digest;
        kvr_prefix_index_deinit(&index);
    }
    assert_int_equal(digests[0], digests[1]);
}

/* The table alone, filled to its cap with keys that all want one bucket, then random churn. */
static void test_table_with_crowded_buckets(void **state)
{
    (void)state;
    enum { N = 1000 };
    static struct kvr_block blocks[N + 1];
    static bool in[N + 1];
    struct kvr_block_table table;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 6);
    kvr_block_table_init(&table, N, 0);
    for (uint32_t b = 1; b <= N; b++) {
        /* Nine in ten crowd into a few buckets. */
        do
            blocks[b].key = kvr_rng_next(&rng);
        while (b % 10 &&
               kvr_block_table_bucket(&table, kvr_block_table_hash(&table, blocks[b].key)) % 25);
    }
    for (uint32_t step = 0; step < 60000; step++) {
        uint32_t b = 1 + (uint32_t)kvr_rng_below(&rng, N);
        uint64_t hash = kvr_block_table_hash(&table, blocks[b].key);
        assert_int_equal(kvr_block_table_find(&table, blocks, hash, blocks[b].key), in[b] ? b : 0);
        if (step < 20000 ? !in[b] : in[b] == (kvr_rng_below(&rng, 2) == 0)) {
            if (in[b])
                kvr_block_table_remove(&table, hash, b);
            else
                kvr_block_table_insert(&table, hash, b);
            in[b] = !in[b];
        }
    }
    for (uint32_t b = 1; b <= N; b++) {
        if (in[b])
            kvr_block_table_remove(&table, kvr_block_table_hash(&table, blocks[b].key), b);
    }
    for (uint64_t i = 0; i < table.bucket_count; i++) {
        for (uint32_t e = 0; e < KVR_BUCKET_ENTRIES; e++)
            assert_int_equal(table.buckets[i].entries[e], 0);
        assert_int_equal(table.buckets[i].passed, 0);
    }
    kvr_block_table_deinit(&table);
}

/* With tags of two bits most buckets hold strangers with the right tag: only keys decide. */
static void test_tags_that_lie(void **state)
{
    (void)state;
    enum { N = 600 };
    struct kvr_block_store store;
    uint64_t keys[2 * N];
    uint32_t numbers[2 * N], again[2 * N];
    kvr_block_store_init(&store, N, 5);
    store.table.number_bits = 30;
    number_chain(keys, 1, 2 * N);
    for (uint32_t i = 0; i < N; i++) {
        numbers[i] = kvr_block_store_take(&store, keys[i]);
        kvr_block_store_link_chain(&store, &numbers[i], 1);
    }
    kvr_block_store_find(&store, keys, 2 * N, 0, again);
    for (uint32_t i = 0; i < 2 * N; i++)
        assert_int_equal(again[i], i < N ? numbers[i] : 0);
    for (uint32_t i = 0; i < N; i += 2)
        kvr_block_store_release(&store, numbers[i]);
    kvr_block_store_find(&store, keys, 2 * N, 0, again);
    for (uint32_t i = 0; i < 2 * N; i++)
        assert_int_equal(again[i], i < N && i % 2 ? numbers[i] : 0);
    kvr_block_store_deinit(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_memory_is_bounded_for_any_options),
        cmocka_unit_test(test_ttl_edges),
        cmocka_unit_test(test_ttl_is_per_block_and_replica),
        cmocka_unit_test(test_eviction_eats_tails),
        cmocka_unit_test(test_withdraw_spares_other_claims),
        cmocka_unit_test(test_withdraw_frees_unheld_blocks),
        cmocka_unit_test(test_purge_voids_and_slot_is_reused),
        cmocka_unit_test(test_lives_run_out),
        cmocka_unit_test(test_overflow_used_up),
        cmocka_unit_test(test_lines_alike_of_blocks_that_are_not),
        cmocka_unit_test(test_stamps_run_out),
        cmocka_unit_test(test_key_twice_in_a_chain),
        cmocka_unit_test(test_long_chains),
        cmocka_unit_test(test_seed_changes_no_result),
        cmocka_unit_test(test_table_with_crowded_buckets),
        cmocka_unit_test(test_tags_that_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
