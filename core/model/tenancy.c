#include "tenancy.h"

#include <string.h>

#include "memory.h"

static void grow(struct kvr_tenancies *tenancies, uint32_t capacity)
{
    if (capacity > KVR_TENANCIES_MAX)
        capacity = KVR_TENANCIES_MAX;
    tenancies->items = kvr_realloc(tenancies->items, capacity * sizeof *tenancies->items);
    tenancies->capacity = capacity;
}

void kvr_tenancies_init(struct kvr_tenancies *tenancies, uint32_t replicas_max)
{
    /* Twice the slots, so that there is always an ended tenancy to wait for, never a live one. */
    KVR_CHECK(replicas_max > 0 && replicas_max < KVR_TENANCIES_MAX / 2);
    memset(tenancies, 0, sizeof *tenancies);
    tenancies->replicas_max = replicas_max;
    tenancies->current = kvr_alloc_zero(replicas_max, sizeof *tenancies->current);
    grow(tenancies, 2 * replicas_max + 2);
    tenancies->items[KVR_TENANCY_NONE] = (struct kvr_tenancy){.replica = KVR_TENANCY_ENDED};
    tenancies->end = 1;
}

void kvr_tenancies_deinit(struct kvr_tenancies *tenancies)
{
    kvr_free(tenancies->items);
    kvr_free(tenancies->current);
    memset(tenancies, 0, sizeof *tenancies);
}

uint16_t kvr_tenancy_open(struct kvr_tenancies *tenancies, uint32_t replica)
{
    KVR_CHECK(replica < tenancies->replicas_max);
    uint16_t tenancy = tenancies->current[replica];
    if (tenancy != KVR_TENANCY_NONE)
        return tenancy;
    if (tenancies->free) {
        tenancy = (uint16_t)tenancies->free;
        tenancies->free = tenancies->items[tenancy].beliefs;
    } else {
        if (tenancies->end == tenancies->capacity)
            grow(tenancies, 2 * tenancies->capacity);
        if (tenancies->end == tenancies->capacity)
            return KVR_TENANCY_NONE;
        tenancy = (uint16_t)tenancies->end++;
    }
    tenancies->items[tenancy] = (struct kvr_tenancy){.replica = (uint16_t)replica};
    tenancies->current[replica] = tenancy;
    return tenancy;
}

void kvr_tenancy_free_number(struct kvr_tenancies *tenancies, uint16_t tenancy)
{
    tenancies->items[tenancy].replica = KVR_TENANCY_FREE;
    tenancies->items[tenancy].beliefs = tenancies->free;
    tenancies->free = tenancy;
}

void kvr_tenancy_end(struct kvr_tenancies *tenancies, uint32_t replica)
{
    KVR_CHECK(replica < tenancies->replicas_max);
    uint16_t tenancy = tenancies->current[replica];
    /* Nothing names it: it can go on. */
    if (tenancy == KVR_TENANCY_NONE || tenancies->items[tenancy].beliefs == 0)
        return;
    tenancies->current[replica] = KVR_TENANCY_NONE;
    tenancies->items[tenancy].replica = KVR_TENANCY_ENDED;
}
