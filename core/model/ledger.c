#include "ledger.h"

#include "check.h"
#include "memory.h"

#define FULL UINT32_MAX

void kvr_ledger_init(struct kvr_ledger *ledger, uint32_t capacity, struct kvr_load *loads,
                     uint32_t loads_count)
{
    KVR_CHECK(capacity > 0 && capacity < FULL);
    *ledger = (struct kvr_ledger){
        .capacity = capacity, .first_free = 0, .loads = loads, .loads_count = loads_count};
    ledger->entries = kvr_alloc_zero(capacity, sizeof *ledger->entries);
}

void kvr_ledger_deinit(struct kvr_ledger *ledger)
{
    kvr_free(ledger->entries);
    *ledger = (struct kvr_ledger){0};
}

/* next_free holds the index after the next free one, so that a zeroed array is a free list in order
 * and untouched pages stay untouched: 0 means "the one behind me". */
static uint32_t next_free(const struct kvr_ledger *ledger, uint32_t slot)
{
    uint32_t next = ledger->entries[slot].next_free;
    if (next == 0)
        return slot + 1 < ledger->capacity ? slot + 1 : FULL;
    return next == FULL ? FULL : next - 1;
}

struct kvr_ticket kvr_ledger_open(struct kvr_ledger *ledger, uint32_t replica,
                                  uint32_t prompt_tokens, uint32_t uncached_tokens)
{
    KVR_CHECK(replica < ledger->loads_count);
    uint32_t slot = ledger->first_free;
    if (slot == FULL)
        return (struct kvr_ticket){0, 0};
    struct kvr_ledger_entry *entry = &ledger->entries[slot];
    KVR_CHECK(entry->generation % 2 == 0);
    ledger->first_free = next_free(ledger, slot);
    ledger->open++;
    entry->generation++;
    entry->replica = replica;
    entry->prompt_tokens = prompt_tokens;
    entry->uncached_tokens = uncached_tokens;
    struct kvr_load *load = &ledger->loads[replica];
    load->in_flight++;
    load->dispatched++;
    load->prompt_tokens += prompt_tokens;
    load->uncached_tokens += uncached_tokens;
    return (struct kvr_ticket){slot, entry->generation};
}

static struct kvr_ledger_entry *entry_of(struct kvr_ledger *ledger, struct kvr_ticket ticket)
{
    KVR_CHECK(ticket.slot < ledger->capacity);
    struct kvr_ledger_entry *entry = &ledger->entries[ticket.slot];
    KVR_CHECK(ticket.generation % 2 == 1 && entry->generation == ticket.generation);
    return entry;
}

void kvr_ledger_first_token(struct kvr_ledger *ledger, struct kvr_ticket ticket)
{
    struct kvr_ledger_entry *entry = entry_of(ledger, ticket);
    struct kvr_load *load = &ledger->loads[entry->replica];
    KVR_CHECK(load->uncached_tokens >= entry->uncached_tokens);
    load->uncached_tokens -= entry->uncached_tokens;
    entry->uncached_tokens = 0;
}

void kvr_ledger_close(struct kvr_ledger *ledger, struct kvr_ticket ticket)
{
    kvr_ledger_first_token(ledger, ticket);
    struct kvr_ledger_entry *entry = entry_of(ledger, ticket);
    struct kvr_load *load = &ledger->loads[entry->replica];
    KVR_CHECK(load->in_flight > 0 && ledger->open > 0);
    KVR_CHECK(load->prompt_tokens >= entry->prompt_tokens);
    load->in_flight--;
    load->prompt_tokens -= entry->prompt_tokens;
    ledger->open--;
    entry->generation++;
    entry->next_free = ledger->first_free == FULL ? FULL : ledger->first_free + 1;
    ledger->first_free = ticket.slot;
}

void kvr_ledger_verify(const struct kvr_ledger *ledger)
{
    uint32_t *in_flight = kvr_alloc_zero(ledger->loads_count, sizeof *in_flight);
    uint64_t *prompt = kvr_alloc_zero(ledger->loads_count, sizeof *prompt);
    uint64_t *uncached = kvr_alloc_zero(ledger->loads_count, sizeof *uncached);
    uint32_t open = 0;
    for (uint32_t i = 0; i < ledger->capacity; i++) {
        const struct kvr_ledger_entry *entry = &ledger->entries[i];
        if (entry->generation % 2 == 0)
            continue;
        open++;
        in_flight[entry->replica]++;
        prompt[entry->replica] += entry->prompt_tokens;
        uncached[entry->replica] += entry->uncached_tokens;
    }
    KVR_CHECK(open == ledger->open);
    for (uint32_t i = 0; i < ledger->loads_count; i++) {
        KVR_CHECK(in_flight[i] == ledger->loads[i].in_flight);
        KVR_CHECK(prompt[i] == ledger->loads[i].prompt_tokens);
        KVR_CHECK(uncached[i] == ledger->loads[i].uncached_tokens);
    }
    kvr_free(in_flight);
    kvr_free(prompt);
    kvr_free(uncached);
}
