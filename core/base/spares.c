#include "spares.h"

#include <stdbool.h>

#include "memory.h"

void kvr_spares_deinit(struct kvr_spares *spares)
{
    for (uint32_t i = 0; i < KVR_SPARES_SIZES; i++)
        while (spares->counts[i])
            kvr_free(spares->pieces[i][--spares->counts[i]]);
}

/* The number of the list for that size; of a size that is not kept, one too large. */
static uint32_t list_of(size_t size)
{
    uint32_t power = size > 1 ? 64u - (uint32_t)__builtin_clzll(size - 1) : 0;
    return power > KVR_SPARES_LEAST ? power - KVR_SPARES_LEAST : 0;
}

size_t kvr_spares_size(size_t size)
{
    return (size_t)1 << (list_of(size) + KVR_SPARES_LEAST);
}

void *kvr_spares_take(struct kvr_spares *spares, size_t size)
{
    uint32_t list = list_of(size);
    if (list < KVR_SPARES_SIZES && spares->counts[list])
        return spares->pieces[list][--spares->counts[list]];
    return kvr_alloc(kvr_spares_size(size));
}

void kvr_spares_give(struct kvr_spares *spares, void *memory, size_t size)
{
    uint32_t list = list_of(size);
    bool fits =
        KVR_SPARES_KEEPS && memory && list < KVR_SPARES_SIZES && size == kvr_spares_size(size);
    if (fits && spares->counts[list] < KVR_SPARES_EACH)
        spares->pieces[list][spares->counts[list]++] = memory;
    else
        kvr_free(memory);
}
