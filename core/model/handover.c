#include "handover.h"

#include "memory.h"
#include "plan_parts.h"
#include "rng.h"

#define SHARE_WEIGHT 0.25f /* of one answer in the averages */
#define WARM         0.9f  /* of the usual share is as warm */

/* Where the key is, or would be. */
static struct kvr_handover_key *find(const struct kvr_handover *handover, uint64_t key)
{
    uint32_t at = (uint32_t)kvr_mix64(key) & handover->table_mask;
    while (handover->table[at].before && handover->table[at].key != key)
        at = (at + 1) & handover->table_mask;
    return &handover->table[at];
}

/* Does the key move? Then `places` has its old destinations, and behind them its new ones. */
static bool moves(const struct kvr_plan *next, const struct kvr_plan_input *input, uint32_t item,
                  uint16_t *places, uint16_t *before, uint16_t *after)
{
    uint32_t count;
    const uint16_t *assigned = kvr_plan_lookup(next, input->keys[item].key, &count);
    *after = 0;
    if (!assigned)
        return false;
    *before = (uint16_t)kvr_plan_last_places(input, item, places);
    for (uint32_t i = 0; *before && i < count; i++)
        if (!kvr_plan_is_in(places, *before, assigned[i]))
            places[*before + (*after)++] = assigned[i];
    return *after > 0;
}

static void add(struct kvr_handover *handover, const struct kvr_handover_key *key,
                const uint16_t *places)
{
    for (uint32_t i = 0; i < (uint32_t)key->before + key->after; i++)
        handover->places[key->first + i] = places[i];
    *find(handover, key->key) = *key;
}

struct kvr_handover *kvr_handover_create(const struct kvr_handover_options *options,
                                         const struct kvr_plan *next,
                                         const struct kvr_plan_input *input)
{
    uint16_t places[2 * KVR_REPLICAS_MAX];
    struct kvr_handover_key key = {.usual = -1, .warmth = -1};
    uint32_t keys = 0, copies = 0, size = 8;
    if (options->every == 0 || !input->last)
        return NULL;
    for (uint32_t i = 0; i < input->keys_len; i++)
        if (moves(next, input, i, places, &key.before, &key.after)) {
            keys++;
            copies += (uint32_t)key.before + key.after;
        }
    if (keys == 0)
        return NULL;
    while (size / 3 * 2 < keys)
        size *= 2;
    struct kvr_handover *handover = kvr_alloc_zero(1, sizeof *handover);
    *handover = (struct kvr_handover){
        .table = kvr_alloc_zero(size, sizeof *handover->table),
        .places = kvr_alloc(copies * sizeof *handover->places),
        .key_mask = next->key_mask,
        .table_mask = size - 1,
        .keys = keys,
        .moving = keys,
        .every = options->every,
        .most_ns = options->most_ns ? options->most_ns : KVR_HANDOVER_MOST_NS,
    };
    for (uint32_t i = 0; i < input->keys_len; i++)
        if (moves(next, input, i, places, &key.before, &key.after)) {
            key.key = input->keys[i].key & next->key_mask;
            add(handover, &key, places);
            key.first += (uint32_t)key.before + key.after;
        }
    return handover;
}

void kvr_handover_destroy(struct kvr_handover *handover)
{
    if (!handover)
        return;
    kvr_free(handover->table);
    kvr_free(handover->places);
    kvr_free(handover);
}

void kvr_handover_begin(struct kvr_handover *handover, uint64_t now_ns)
{
    handover->end_ns = now_ns + handover->most_ns;
}

const uint16_t *kvr_handover_lookup(const struct kvr_handover *handover, uint64_t now_ns,
                                    uint64_t key, uint64_t number, uint32_t *count)
{
    if (now_ns >= handover->end_ns)
        return NULL;
    const struct kvr_handover_key *entry = find(handover, key & handover->key_mask);
    if (!entry->before || entry->moved)
        return NULL;
    bool warms = kvr_mix64(number) % handover->every == 0;
    *count = warms ? entry->after : entry->before;
    return handover->places + entry->first + (warms ? entry->before : 0);
}

static void average(float *value, double share)
{
    *value = *value < 0 ? (float)share : *value + SHARE_WEIGHT * ((float)share - *value);
}

void kvr_handover_saw(struct kvr_handover *handover, uint64_t now_ns, uint64_t key,
                      uint32_t destination, double cached_share)
{
    struct kvr_handover_key *entry = find(handover, key & handover->key_mask);
    if (now_ns >= handover->end_ns || !entry->before || entry->moved)
        return;
    const uint16_t *places = handover->places + entry->first;
    if (kvr_plan_is_in(places, entry->before, destination))
        average(&entry->usual, cached_share);
    else if (kvr_plan_is_in(places + entry->before, entry->after, destination))
        average(&entry->warmth, cached_share);
    entry->moved = entry->usual >= 0 && entry->warmth >= WARM * entry->usual;
    handover->moving -= entry->moved;
}
