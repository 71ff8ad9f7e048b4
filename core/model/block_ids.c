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
    ids->table = NULL;
}

static void forget_all(struct kvr_block_ids *ids)
{
    memset(ids->table, 0, (size_t)ids->keys_max * 2 * sizeof *ids->table);
    ids->count = 0;
    ids->epochs++;
}

static uint64_t id_of(struct kvr_block_ids *ids, uint64_t key)
{
    uint32_t mask = ids->keys_max * 2 - 1;
    uint64_t named = key ? key : 1; /* 0 marks a free place */
    uint32_t at = (uint32_t)kvr_mix64(named) & mask;
    while (ids->table[at].key && ids->table[at].key != named)
        at = (at + 1) & mask;
    if (ids->table[at].key == 0) {
        ids->table[at] = (struct kvr_block_id){named, ids->next++};
        ids->count++;
    }
    return ids->table[at].id;
}

uint32_t kvr_block_ids_runs(struct kvr_block_ids *ids, const uint64_t *chain, uint32_t len,
                            struct kvr_block_run *runs)
{
    uint32_t count = 0;
    if (!ids->table)
        ids->table = kvr_alloc_zero((size_t)ids->keys_max * 2, sizeof *ids->table);
    /* Before the chain, not inside it: its own blocks stay one run. */
    if (ids->count && len > ids->keys_max - ids->count)
        forget_all(ids);
    for (uint32_t i = 0; i < len; i++) {
        if (ids->count == ids->keys_max) /* one chain longer than the table */
            forget_all(ids);
        uint64_t id = id_of(ids, chain[i]);
        if (count && runs[count - 1].first + runs[count - 1].count == id)
            runs[count - 1].count++;
        else
            runs[count++] = (struct kvr_block_run){id, 1};
    }
    return count;
}
