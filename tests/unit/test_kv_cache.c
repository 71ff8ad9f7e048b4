/* core/engine/kv_cache: the order of the free queue by hand, then everything against a naive model
 * that keeps the queue as an array and finds hashes by looking at every block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kv_cache.h"
#include "rng.h"

/* Block numbers from the head of the free queue to its tail. */
static uint32_t queue_of(const struct kvr_kv_cache *cache, uint32_t *out)
{
    uint32_t len = 0;
    for (uint32_t at = cache->blocks[cache->count].next; at != cache->count;
         at = cache->blocks[at].next)
        out[len++] = at;
    return len;
}

static void assert_queue(const struct kvr_kv_cache *cache, const uint32_t *want, uint32_t len)
{
    uint32_t got[64];
    assert_int_equal(queue_of(cache, got), len);
    for (uint32_t i = 0; i < len; i++)
        assert_int_equal(got[i], want[i]);
}

static void test_free_queue_order(void **state)
{
    (void)state;
    struct kvr_kv_cache cache;
    kvr_kv_cache_init(&cache, 6, false);
    assert_queue(&cache, (uint32_t[]){0, 1, 2, 3, 4, 5}, 6);

    uint32_t blocks[4];
    kvr_kv_cache_allocate(&cache, blocks, 4);
    assert_queue(&cache, (uint32_t[]){4, 5}, 2);
    assert_true(kvr_kv_cache_register(&cache, 0, 100, 0, 0, 0));
    assert_true(kvr_kv_cache_register(&cache, 1, 101, 100, 0, 1));
    /* Last block first: 3 and 2 hold nothing and go to the head, 1 and 0 to the tail. */
    kvr_kv_cache_release(&cache, blocks, 4);
    assert_queue(&cache, (uint32_t[]){2, 3, 4, 5, 1, 0}, 6);
    assert_int_equal(cache.cached, 2);

    /* A hit takes blocks out of the middle; they come back as the most recently used. */
    uint32_t found[4];
    uint32_t idle = 9;
    assert_int_equal(kvr_kv_cache_lookup(&cache, (uint64_t[]){100, 999, 101}, 3, found, &idle), 1);
    assert_int_equal(found[0], 0);
    assert_int_equal(idle, 1);
    kvr_kv_cache_pin(&cache, found, 1);
    assert_queue(&cache, (uint32_t[]){2, 3, 4, 5, 1}, 5);

    /* Five blocks: the unhashed four, then 1, which evicts 101. */
    uint32_t five[5];
    kvr_kv_cache_allocate(&cache, five, 5);
    assert_int_equal(five[4], 1);
    assert_false(kvr_kv_cache_holds(&cache, 101));
    assert_true(kvr_kv_cache_holds(&cache, 100));
    assert_int_equal(cache.stats.evicted, 1);
    assert_int_equal(cache.free, 0);
    kvr_kv_cache_release(&cache, five, 5);
    kvr_kv_cache_release(&cache, found, 1);
    kvr_kv_cache_verify(&cache);
    kvr_kv_cache_deinit(&cache);
}

static void test_first_registered_wins(void **state)
{
    (void)state;
    struct kvr_kv_cache cache;
    kvr_kv_cache_init(&cache, 4, true);
    uint32_t blocks[2];
    kvr_kv_cache_allocate(&cache, blocks, 2);
    assert_true(kvr_kv_cache_register(&cache, blocks[0], 7, 0, 42, 0));
    assert_false(kvr_kv_cache_register(&cache, blocks[1], 7, 0, 43, 0));
    assert_int_equal(cache.stats.duplicates, 1);
    uint32_t found;
    uint32_t idle;
    assert_int_equal(kvr_kv_cache_lookup(&cache, (uint64_t[]){7}, 1, &found, &idle), 1);
    assert_int_equal(found, blocks[0]);
    assert_int_equal(idle, 0);
    assert_int_equal(kvr_kv_cache_reset(&cache), KVR_E_STATE); /* still pinned */
    kvr_kv_cache_release(&cache, blocks, 2);
    assert_int_equal(kvr_kv_cache_reset(&cache), KVR_OK);
    assert_int_equal(cache.cached, 0);

    assert_int_equal(cache.changes_len, 2);
    assert_int_equal(cache.changes[0].kind, KVR_KV_STORED);
    assert_int_equal(cache.changes[0].hash, 7);
    assert_int_equal(cache.changes[0].owner, 42);
    assert_int_equal(cache.changes[1].kind, KVR_KV_CLEARED);
    kvr_kv_cache_verify(&cache);
    kvr_kv_cache_deinit(&cache);
}

#define BLOCKS  40u
#define HOLDERS 8u
#define MOST    12u /* blocks one holder has at most */

struct naive {
    uint64_t hash[BLOCKS];
    uint32_t refs[BLOCKS];
    uint32_t queue[BLOCKS];
    uint32_t queue_len;
};

static uint32_t naive_find(const struct naive *naive, uint64_t hash)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (naive->hash[i] == hash)
            return i;
    return KVR_KV_NONE;
}

static void naive_dequeue(struct naive *naive, uint32_t at)
{
    memmove(&naive->queue[at], &naive->queue[at + 1],
            (naive->queue_len - at - 1) * sizeof naive->queue[0]);
    naive->queue_len--;
}

static void naive_pin(struct naive *naive, uint32_t block)
{
    if (naive->refs[block]++)
        return;
    for (uint32_t i = 0; i < naive->queue_len; i++)
        if (naive->queue[i] == block) {
            naive_dequeue(naive, i);
            return;
        }
    fail();
}

static uint32_t naive_allocate(struct naive *naive)
{
    uint32_t block = naive->queue[0];
    naive_dequeue(naive, 0);
    naive->hash[block] = 0;
    naive->refs[block] = 1;
    return block;
}

static void naive_release(struct naive *naive, uint32_t block)
{
    if (--naive->refs[block])
        return;
    if (naive->hash[block]) {
        naive->queue[naive->queue_len++] = block;
    } else {
        memmove(&naive->queue[1], &naive->queue[0], naive->queue_len * sizeof naive->queue[0]);
        naive->queue[0] = block;
        naive->queue_len++;
    }
}

struct holder {
    uint32_t blocks[MOST];
    uint32_t len;
};

/* Hash of block i of family f: families share their first blocks with others, as prompts do. */
static uint64_t family_hash(uint32_t family, uint32_t i)
{
    return 1 + (uint64_t)i * 16 + (i < 3 ? family % 2 : family);
}

/* What a request does: look up, pin, allocate the rest, register what is new. */
static void take(struct kvr_kv_cache *cache, struct naive *naive, struct holder *holder,
                 struct kvr_rng *rng)
{
    uint32_t family = (uint32_t)kvr_rng_below(rng, 6);
    uint32_t want = 1 + (uint32_t)kvr_rng_below(rng, MOST);
    uint32_t hashed = (uint32_t)kvr_rng_below(rng, want + 1);
    uint64_t hashes[MOST];
    for (uint32_t i = 0; i < want; i++)
        hashes[i] = family_hash(family, i);
    uint32_t idle = 0;
    uint32_t hits = kvr_kv_cache_lookup(cache, hashes, hashed, holder->blocks, &idle);
    uint32_t naive_hits = 0;
    uint32_t naive_idle = 0;
    while (naive_hits < hashed) {
        uint32_t block = naive_find(naive, hashes[naive_hits]);
        if (block == KVR_KV_NONE)
            break;
        assert_int_equal(holder->blocks[naive_hits], block);
        naive_idle += naive->refs[block] == 0;
        naive_hits++;
    }
    assert_int_equal(hits, naive_hits);
    assert_int_equal(idle, naive_idle);
    if (want - hits + idle > cache->free)
        return;
    kvr_kv_cache_pin(cache, holder->blocks, hits);
    for (uint32_t i = 0; i < hits; i++)
        naive_pin(naive, holder->blocks[i]);
    kvr_kv_cache_allocate(cache, holder->blocks + hits, want - hits);
    for (uint32_t i = hits; i < want; i++)
        assert_int_equal(holder->blocks[i], naive_allocate(naive));
    holder->len = want;
    for (uint32_t i = hits; i < hashed; i++) {
        bool first = naive_find(naive, hashes[i]) == KVR_KV_NONE;
        assert_int_equal(kvr_kv_cache_register(cache, holder->blocks[i], hashes[i], 0, 0, i),
                         first);
        if (first)
            naive->hash[holder->blocks[i]] = hashes[i];
    }
}

static void give(struct kvr_kv_cache *cache, struct naive *naive, struct holder *holder)
{
    kvr_kv_cache_release(cache, holder->blocks, holder->len);
    for (uint32_t i = holder->len; i-- > 0;)
        naive_release(naive, holder->blocks[i]);
    holder->len = 0;
}

static void assert_same(const struct kvr_kv_cache *cache, const struct naive *naive)
{
    assert_int_equal(cache->free, naive->queue_len);
    assert_queue(cache, naive->queue, naive->queue_len);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(cache->blocks[i].hash, naive->hash[i]);
        assert_int_equal(cache->blocks[i].refs, naive->refs[i]);
    }
    kvr_kv_cache_verify(cache);
}

/* What the journal tells must add up to what the cache holds. */
static void replay_journal(struct kvr_kv_cache *cache, bool *told, uint32_t size)
{
    for (uint32_t i = 0; i < cache->changes_len; i++) {
        const struct kvr_kv_change *change = &cache->changes[i];
        if (change->kind == KVR_KV_CLEARED) {
            memset(told, 0, size * sizeof *told);
            continue;
        }
        assert_true(change->hash < size);
        assert_int_equal(told[change->hash], change->kind == KVR_KV_REMOVED);
        told[change->hash] = change->kind == KVR_KV_STORED;
    }
    cache->changes_len = 0;
    for (uint32_t hash = 1; hash < size; hash++)
        assert_int_equal(told[hash], kvr_kv_cache_holds(cache, hash));
}

static void test_against_naive_model(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct kvr_rng rng;
        kvr_rng_init(&rng, seed);
        struct kvr_kv_cache cache;
        kvr_kv_cache_init(&cache, BLOCKS, true);
        struct naive naive = {.queue_len = BLOCKS};
        for (uint32_t i = 0; i < BLOCKS; i++)
            naive.queue[i] = i;
        struct holder holders[HOLDERS] = {{.len = 0}};
        bool told[16 * (MOST + 1)] = {false};
        for (int op = 0; op < 500; op++) {
            struct holder *holder = &holders[kvr_rng_below(&rng, HOLDERS)];
            if (holder->len)
                give(&cache, &naive, holder);
            else
                take(&cache, &naive, holder, &rng);
            if (kvr_rng_below(&rng, 100) == 0 && kvr_kv_cache_reset(&cache) == KVR_OK)
                memset(naive.hash, 0, sizeof naive.hash);
            assert_same(&cache, &naive);
            replay_journal(&cache, told, 16 * (MOST + 1));
        }
        for (uint32_t i = 0; i < HOLDERS; i++)
            give(&cache, &naive, &holders[i]);
        assert_int_equal(cache.free, BLOCKS); /* no block leaked */
        kvr_kv_cache_deinit(&cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_queue_order),
        cmocka_unit_test(test_first_registered_wins),
        cmocka_unit_test(test_against_naive_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
