#include "block_ids.h"

#include <string.h>

#include "check.h"
#include "memory.h"
#include "rng.h"

void kvr_block_ids_init(struct kvr_block_ids *ids, uint32_t keys_max)
{
    uint32_t wanted = keys_max ? keys_max : KVR_BLOCK_IDS_DEFAULT;
    KVR_CHECK(wanted <= 1u << 28);
    *ids = (struct kvr_block_ids){.keys_max = 1, .next = 1};
    while (ids->keys_max < wanted)
        ids->keys_max *= 2;
}

void kvr_block_ids_deinit(struct kvr_block_ids *ids)
{
    kvr_free(ids->table);
    kvr_free(ids->older);
    ids->table = ids->older = NULL;
}

/* What has not been seen since the last time goes. */
static void begin_epoch(struct kvr_block_ids *ids)
{
    size_t places = (size_t)ids->keys_max * 2;
    struct kvr_block_id *oldest = ids->older;
    ids->older = ids->table;
    ids->table = oldest ? oldest : kvr_alloc_zero(places, sizeof *ids->table);
    if (oldest)
        memset(oldest, 0, places * sizeof *oldest);
    ids->count = 0;
    ids->epochs++;
}

/* Where it is, or where it would be put. */
static struct kvr_block_id *place_of(struct kvr_block_id *table, uint32_t mask, uint64_t named)
{
    uint32_t at = (uint32_t)kvr_mix64(named) & mask;
    while (table[at].key && table[at].key != named)
        at = (at + 1) & mask;
    return &table[at];
}

static uint64_t id_of(struct kvr_block_ids *ids, uint64_t key)
{
    uint32_t mask = ids->keys_max * 2 - 1;
    uint64_t named = key ? key : 1; /* 0 marks a free place */
    struct kvr_block_id *place = place_of(ids->table, mask, named);
    if (place->key == 0) {
        const struct kvr_block_id *known = ids->older ? place_of(ids->older, mask, named) : place;
        *place = (struct kvr_block_id){named, known->key ? known->id : ids->next++};
        ids->count++;
    }
    return place->id;
}

uint32_t kvr_block_ids_runs(struct kvr_block_ids *ids, const uint64_t *chain, uint32_t len,
                            struct kvr_block_run *runs)
{
    uint32_t count = 0;
    if (!ids->table)
        ids->table = kvr_alloc_zero((size_t)ids->keys_max * 2, sizeof *ids->table);
    /* Before the chain, not inside it: its own blocks stay one run. */
    if (ids->count && len > ids->keys_max - ids->count)
        begin_epoch(ids);
    for (uint32_t i = 0; i < len; i++) {
        if (ids->count == ids->keys_max) /* one chain longer than the table */
            begin_epoch(ids);
        uint64_t id = id_of(ids, chain[i]);
        if (count && runs[count - 1].first + runs[count - 1].count == id)
            runs[count - 1].count++;
        else
            runs[count++] = (struct kvr_block_run){id, 1};
    }
    return count;
}
