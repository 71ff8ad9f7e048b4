#include "stamp_clock.h"

#include <string.h>

#include "check.h"
#include "memory.h"

#define PLACES       (KVR_STAMP_TICKS + 1u)
#define STAMPS_FRESH (UINT32_C(1) << 30)

void kvr_stamp_clock_init(struct kvr_stamp_clock *clock, uint64_t ttl_ns)
{
    KVR_CHECK(ttl_ns > 0);
    memset(clock, 0, sizeof *clock);
    clock->tick_ns = ttl_ns / KVR_STAMP_TICKS + (ttl_ns % KVR_STAMP_TICKS != 0);
    clock->ring = kvr_alloc_zero(PLACES, sizeof *clock->ring);
}

void kvr_stamp_clock_deinit(struct kvr_stamp_clock *clock)
{
    kvr_free(clock->ring);
    memset(clock, 0, sizeof *clock);
}

void kvr_stamp_clock_set(struct kvr_stamp_clock *clock, uint64_t now_ns)
{
    /* Most calls fall into the tick of the call before, which takes no division to see. */
    if (now_ns - clock->tick * clock->tick_ns >= clock->tick_ns) {
        uint64_t tick = now_ns / clock->tick_ns;
        if (tick > clock->tick)
            clock->tick = tick;
    }
    while (clock->count && clock->tick - clock->ring[clock->head].tick > KVR_STAMP_TICKS) {
        clock->head = clock->head + 1 == PLACES ? 0 : clock->head + 1;
        clock->count--;
    }
    clock->oldest = clock->count ? clock->ring[clock->head].first : clock->next;
    if (clock->next - clock->oldest > STAMPS_FRESH)
        clock->oldest = clock->next - STAMPS_FRESH;
}

uint32_t kvr_stamp_clock_take(struct kvr_stamp_clock *clock, uint32_t count)
{
    KVR_CHECK(count < STAMPS_FRESH / 2);
    uint32_t last = clock->head + clock->count - 1;
    if (last >= PLACES)
        last -= PLACES;
    if (clock->count == 0 || clock->ring[last].tick != clock->tick) {
        /* Fresh ticks are at most KVR_STAMP_TICKS apart, so there is room for one of each. */
        KVR_CHECK(clock->count < PLACES);
        uint32_t place = clock->head + clock->count;
        if (place >= PLACES)
            place -= PLACES;
        clock->ring[place] = (struct kvr_stamp_tick){clock->tick, clock->next};
        clock->count++;
    }
    uint32_t first = clock->next;
    clock->next += count;
    if (clock->next - clock->oldest > STAMPS_FRESH)
        clock->oldest = clock->next - STAMPS_FRESH;
    return first;
}
