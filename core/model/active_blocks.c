#include "active_blocks.h"

#include "memory.h"
#include "rng.h"

#define GOLDEN      UINT64_C(0x9e3779b97f4a7c15)
#define PAIRS_LEAST 1024u

void kvr_active_blocks_init(struct kvr_active_blocks *active, uint32_t replicas_max,
                            uint32_t pairs_max)
{
    *active = (struct kvr_active_blocks){
        .replicas_max = replicas_max,
        .pairs_max = pairs_max ? pairs_max : KVR_ACTIVE_PAIRS_DEFAULT,
    };
    active->distinct = kvr_alloc_zero(replicas_max, sizeof *active->distinct);
}

void kvr_active_blocks_deinit(struct kvr_active_blocks *active)
{
    kvr_free(active->pairs);
    kvr_free(active->distinct);
    *active = (struct kvr_active_blocks){0};
}

static uint64_t hash_of(uint32_t replica, uint64_t block)
{
    uint64_t hash = kvr_mix64(block ^ GOLDEN * (replica + UINT64_C(1)));
    return hash ? hash : 1;
}

/* Where the pair is, or the empty place where it would be. */
static uint32_t find(const struct kvr_active_blocks *active, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & active->mask;
    while (active->pairs[at].hash && active->pairs[at].hash != hash)
        at = (at + 1) & active->mask;
    return at;
}

static void grow(struct kvr_active_blocks *active, uint32_t places)
{
    struct kvr_active_pair *before = active->pairs;
    uint32_t count = before ? active->mask + 1 : 0;
    active->pairs = kvr_alloc_zero(places, sizeof *active->pairs);
    active->mask = places - 1;
    for (uint32_t i = 0; i < count; i++)
        if (before[i].hash)
            active->pairs[find(active, before[i].hash)] = before[i];
    kvr_free(before);
}

bool kvr_active_blocks_add(struct kvr_active_blocks *active, uint32_t replica,
                           const uint64_t *chain, uint32_t len)
{
    KVR_CHECK(replica < active->replicas_max);
    uint64_t most = active->used + (uint64_t)len;
    if (most > active->pairs_max) {
        active->refused++;
        return false;
    }
    uint64_t places = active->pairs ? active->mask + UINT64_C(1) : PAIRS_LEAST;
    while (places < 2 * most)
        places *= 2;
    if (!active->pairs || places > active->mask + UINT64_C(1))
        grow(active, (uint32_t)places);
    for (uint32_t i = 0; i < len; i++) {
        uint64_t hash = hash_of(replica, chain[i]);
        struct kvr_active_pair *pair = &active->pairs[find(active, hash)];
        if (!pair->hash) {
            pair->hash = hash;
            active->used++;
            active->distinct[replica]++;
        }
        pair->count++;
    }
    return true;
}

/* Empties the place, and moves up those behind it that would no longer be found. */
static void empty(struct kvr_active_blocks *active, uint32_t hole)
{
    struct kvr_active_pair *pairs = active->pairs;
    for (uint32_t at = (hole + 1) & active->mask; pairs[at].hash; at = (at + 1) & active->mask) {
        uint32_t home = (uint32_t)pairs[at].hash & active->mask;
        if (((at - home) & active->mask) >= ((at - hole) & active->mask)) {
            pairs[hole] = pairs[at];
            hole = at;
        }
    }
    pairs[hole] = (struct kvr_active_pair){0};
    active->used--;
}

void kvr_active_blocks_remove(struct kvr_active_blocks *active, uint32_t replica,
                              const uint64_t *chain, uint32_t len)
{
    KVR_CHECK(replica < active->replicas_max);
    for (uint32_t i = 0; i < len; i++) {
        uint32_t at = find(active, hash_of(replica, chain[i]));
        KVR_CHECK(active->pairs[at].hash);
        if (--active->pairs[at].count == 0) {
            empty(active, at);
            active->distinct[replica]--;
        }
    }
}

uint32_t kvr_active_blocks_match(const struct kvr_active_blocks *active, uint32_t replica,
                                 const uint64_t *chain, uint32_t len)
{
    KVR_CHECK(replica < active->replicas_max);
    uint32_t low = 0;
    uint32_t high = active->distinct[replica] < len ? active->distinct[replica] : len;
    while (low < high) { /* chain[0 .. low) is there, and chain[high] is not */
        uint32_t middle = low + (high - low) / 2;
        if (active->pairs[find(active, hash_of(replica, chain[middle]))].hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
