/* The eight places of a block looked at all at once. Eight branches that the processor guesses
 * wrong now and then cost more than the cache line they are about, so the loops over chains ask
 * these instead. A set of places is a mask: bit i is place i. */
#ifndef KVR_LANES_H
#define KVR_LANES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "block.h"
#include "check.h"
#include "stamp_clock.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define KVR_LANES_ALL ((1u << KVR_BLOCK_HOLDERS) - 1)

_Static_assert(KVR_BLOCK_HOLDERS == 8, "eight 16-bit tenancies fill one vector");

/* Do the same holders sit in the same places? Both are the `tenancies` of a block. */
static inline bool kvr_lanes_alike(const uint16_t *a, const uint16_t *b)
{
#if defined(__SSE2__)
    __m128i left = _mm_load_si128((const __m128i *)(const void *)a);
    __m128i right = _mm_load_si128((const __m128i *)(const void *)b);
    return _mm_movemask_epi8(_mm_cmpeq_epi8(left, right)) == 0xffff;
#else
    return memcmp(a, b, KVR_BLOCK_HOLDERS * sizeof *a) == 0;
#endif
}

/* Places that name that tenancy. */
static inline uint32_t kvr_lanes_naming(const uint16_t *tenancies, uint16_t tenancy)
{
#if defined(__SSE2__)
    __m128i places = _mm_load_si128((const __m128i *)(const void *)tenancies);
    __m128i equal = _mm_cmpeq_epi16(places, _mm_set1_epi16((short)tenancy));
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128()));
#else
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < KVR_BLOCK_HOLDERS; i++)
        lanes |= (uint32_t)(tenancies[i] == tenancy) << i;
    return lanes;
#endif
}

/* What is fresh now, apart from the clock: a copy, which stores into stamps cannot be thought to
 * change, so that loops keep it in registers. */
struct kvr_lanes_span {
    uint32_t oldest; /* fresh stamps begin here ... */
    uint32_t last;   /* ... and end so many later, that one included */
};

/* Something must be fresh. */
static inline struct kvr_lanes_span kvr_lanes_span(const struct kvr_stamp_clock *clock)
{
    KVR_CHECK(clock->next != clock->oldest);
    return (struct kvr_lanes_span){clock->oldest, clock->next - 1 - clock->oldest};
}

/* Places whose stamp is not fresh, as kvr_stamp_fresh has it. Of places that are empty or lead to
 * the overflow it tells nothing. */
static inline uint32_t kvr_lanes_stale(struct kvr_lanes_span span, const uint32_t *stamps)
{
#if defined(__SSE2__)
    /* SSE2 compares signed numbers only: both sides are moved by 2^31. */
    __m128i oldest = _mm_set1_epi32((int)(span.oldest + 0x80000000u));
    __m128i last = _mm_set1_epi32((int)(span.last + 0x80000000u));
    __m128i low = _mm_load_si128((const __m128i *)(const void *)stamps);
    __m128i high = _mm_load_si128((const __m128i *)(const void *)(stamps + 4));
    low = _mm_cmpgt_epi32(_mm_sub_epi32(low, oldest), last);
    high = _mm_cmpgt_epi32(_mm_sub_epi32(high, oldest), last);
    __m128i eight = _mm_packs_epi32(low, high);
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(eight, _mm_setzero_si128()));
#else
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < KVR_BLOCK_HOLDERS; i++)
        lanes |= (uint32_t)(stamps[i] - span.oldest > span.last) << i;
    return lanes;
#endif
}

#endif
