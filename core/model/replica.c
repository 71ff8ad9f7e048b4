#include "replica.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "memory.h"
#include "rng.h"

#define RAMP_START 0.1 /* share of its weight that a returned replica starts with */

const char *kvr_operational_name(enum kvr_operational state)
{
    static const char *const names[] = {"down", "suspect", "ramping", "up"};
    return names[state];
}

const char *kvr_administrative_name(enum kvr_administrative state)
{
    static const char *const names[] = {"off", "draining", "ready"};
    return names[state];
}

uint64_t kvr_name_hash(struct kvr_slice name)
{
    uint64_t hash = XXH3_64bits(name.data ? name.data : "", name.len);
    return hash ? hash : 1;
}

uint32_t kvr_hash32(uint64_t hash)
{
    if (hash == 0)
        return 0;
    uint32_t folded = (uint32_t)(kvr_mix64(hash) >> 32);
    return folded ? folded : 1;
}

void kvr_replica_table_init(struct kvr_replica_table *table, uint32_t capacity)
{
    KVR_CHECK(capacity > 0 && capacity <= KVR_REPLICAS_MAX);
    *table = (struct kvr_replica_table){.capacity = capacity, .version = 1};
    table->slots = kvr_alloc_zero(capacity, sizeof *table->slots);
}

void kvr_replica_table_deinit(struct kvr_replica_table *table)
{
    kvr_free(table->slots);
    *table = (struct kvr_replica_table){0};
}

static int check_spec(const struct kvr_replica_table *table, const struct kvr_replica_spec *spec)
{
    const struct kvr_slice authority = spec->authority;
    if (authority.len == 0 || authority.len > KVR_AUTHORITY_MAX)
        return KVR_E_INVALID;
    for (size_t i = 0; i < authority.len; i++)
        if ((unsigned char)authority.data[i] <= ' ' || authority.data[i] == '#' ||
            authority.data[i] == '"' || (unsigned char)authority.data[i] >= 0x7f)
            return KVR_E_INVALID;
    if (!(spec->weight >= 0 && spec->weight <= 1e6))
        return KVR_E_INVALID;
    return table->count == table->capacity ? KVR_E_LIMIT : 0;
}

static size_t write_name(char *name, const struct kvr_replica_spec *spec)
{
    size_t len = spec->authority.len;
    memcpy(name, spec->authority.data, len);
    if (spec->rank >= 0) {
        char digits[11];
        size_t at = sizeof digits;
        uint32_t rank = (uint32_t)spec->rank;
        do {
            digits[--at] = (char)('0' + rank % 10);
            rank /= 10;
        } while (rank);
        name[len++] = '#';
        memcpy(name + len, digits + at, sizeof digits - at);
        len += sizeof digits - at;
    }
    name[len] = '\0';
    return len;
}

int kvr_replica_add(struct kvr_replica_table *table, const struct kvr_replica_spec *spec)
{
    int rc = check_spec(table, spec);
    if (rc)
        return rc;
    char name[KVR_REPLICA_NAME_MAX];
    size_t len = write_name(name, spec);
    if (kvr_replica_find(table, kvr_slice_make(name, len)) != KVR_NO_REPLICA)
        return KVR_E_EXISTS;
    uint32_t slot = 0;
    while (slot < table->capacity && (table->slots[slot].member || table->slots[slot].holds))
        slot++;
    if (slot == table->capacity)
        return KVR_E_LIMIT; /* the free ones are still named by requests */
    struct kvr_replica *replica = &table->slots[slot];
    uint32_t generation = replica->generation + 1;
    *replica = (struct kvr_replica){
        .member = true,
        .operational = KVR_DOWN,
        .administrative = KVR_READY,
        .generation = generation ? generation : 1,
        .id = kvr_name_hash(kvr_slice_make(name, len)),
        .authority_len = (uint16_t)spec->authority.len,
        .rank = spec->rank,
        .weight = spec->weight > 0 ? spec->weight : 1,
        .capacity = spec->capacity ? spec->capacity : UINT32_MAX,
        .any_model = spec->any_model,
    };
    memcpy(replica->name, name, len + 1);
    table->count++;
    if (slot >= table->end)
        table->end = slot + 1;
    table->version++;
    return (int)slot;
}

static struct kvr_replica *member(struct kvr_replica_table *table, uint32_t slot)
{
    KVR_CHECK(slot < table->end && table->slots[slot].member);
    return &table->slots[slot];
}

void kvr_replica_remove(struct kvr_replica_table *table, uint32_t slot)
{
    struct kvr_replica *replica = member(table, slot);
    replica->member = false;
    replica->generation++;
    table->count--;
    table->version++;
}

uint32_t kvr_replica_find(const struct kvr_replica_table *table, struct kvr_slice name)
{
    for (uint32_t i = 0; i < table->end; i++)
        if (table->slots[i].member && kvr_slice_is(name, table->slots[i].name))
            return i;
    return KVR_NO_REPLICA;
}

void kvr_replica_set_operational(struct kvr_replica_table *table, uint32_t slot,
                                 enum kvr_operational state, uint64_t now_ns)
{
    /* rows: from, columns: to */
    static const bool allowed[4][4] = {
        [KVR_DOWN] = {[KVR_RAMPING] = true, [KVR_UP] = true},
        [KVR_SUSPECT] = {[KVR_DOWN] = true, [KVR_RAMPING] = true, [KVR_UP] = true},
        [KVR_RAMPING] = {[KVR_DOWN] = true, [KVR_SUSPECT] = true, [KVR_UP] = true},
        [KVR_UP] = {[KVR_DOWN] = true, [KVR_SUSPECT] = true},
    };
    struct kvr_replica *replica = member(table, slot);
    KVR_CHECK(allowed[replica->operational][state]);
    if (replica->operational == KVR_DOWN)
        replica->available_since_ns = now_ns;
    if (state == KVR_DOWN) {
        replica->generation++;
        replica->ejections++;
    }
    replica->operational = state;
}

void kvr_replica_set_administrative(struct kvr_replica_table *table, uint32_t slot,
                                    enum kvr_administrative state)
{
    member(table, slot)->administrative = state;
}

int kvr_replica_set_weight(struct kvr_replica_table *table, uint32_t slot, double weight)
{
    struct kvr_replica *replica = member(table, slot);
    if (!(weight > 0 && weight <= 1e6))
        return KVR_E_INVALID;
    replica->weight = weight;
    table->version++;
    return 0;
}

void kvr_replica_restarted(struct kvr_replica_table *table, uint32_t slot)
{
    member(table, slot)->generation++;
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void kvr_replica_set_models(struct kvr_replica_table *table, uint32_t slot,
                            const struct kvr_slice *names, uint32_t count)
{
    struct kvr_replica *replica = member(table, slot);
    uint64_t hashes[KVR_REPLICA_MODELS_MAX];
    if (count > KVR_REPLICA_MODELS_MAX)
        count = KVR_REPLICA_MODELS_MAX;
    for (uint32_t i = 0; i < count; i++)
        hashes[i] = kvr_name_hash(names[i]);
    qsort(hashes, count, sizeof *hashes, compare_hashes);
    if (replica->models_known && replica->models_count == count &&
        memcmp(replica->models, hashes, count * sizeof *hashes) == 0)
        return;
    memcpy(replica->models, hashes, count * sizeof *hashes);
    replica->models_count = count;
    replica->models_known = true;
    table->version++;
}

bool kvr_replica_serves(const struct kvr_replica *replica, uint64_t model)
{
    if (replica->any_model || !replica->models_known || model == 0)
        return true;
    for (uint32_t i = 0; i < replica->models_count; i++)
        if (replica->models[i] == model)
            return true;
    return false;
}

double kvr_replica_ramping(const struct kvr_replica *replica, uint64_t now_ns)
{
    if (replica->ramp_ns == 0)
        return 1;
    uint64_t age = now_ns > replica->available_since_ns ? now_ns - replica->available_since_ns : 0;
    if (age >= replica->ramp_ns)
        return 1;
    return RAMP_START + (1 - RAMP_START) * ((double)age / (double)replica->ramp_ns);
}
