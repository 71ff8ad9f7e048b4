/* Stamps: numbers that order all admissions of blocks, and how old each is.
 *
 * Every block that is admitted takes the next stamp, so stamps give an exact order where clock
 * readings would tie, and name the admission they belong to. Which stamps are older than the TTL is
 * kept as a queue of (tick, first stamp of that tick) for the ticks that can still be fresh:
 *
 *     ticks     | 70: 1000 | 71: 1129 | 75: 1410 |          next = 1500
 *     now = 75 + TTL  ->  oldest fresh stamp 1410; the first two ticks are dropped
 *
 * A tick is 1/4096 of the TTL. Stamps are 32 bits and wrap: what is 2^30 stamps old counts as
 * expired, and nobody may keep a stamp until it is 2^32 old. */
#ifndef KVR_STAMP_CLOCK_H
#define KVR_STAMP_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define KVR_STAMP_TICKS 4096u /* a TTL is as many ticks */

struct kvr_stamp_tick {
    uint64_t tick;
    uint32_t first; /* stamp */
};

struct kvr_stamp_clock {
    uint64_t tick_ns;
    uint64_t tick;               /* latest seen: time never runs backwards here */
    uint32_t next;               /* stamp to be given out */
    uint32_t oldest;             /* stamps from here to next - 1 are fresh */
    struct kvr_stamp_tick *ring; /* KVR_STAMP_TICKS + 1 places */
    uint32_t head, count;        /* ticks in the ring, oldest at head */
};

void kvr_stamp_clock_init(struct kvr_stamp_clock *clock, uint64_t ttl_ns);
void kvr_stamp_clock_deinit(struct kvr_stamp_clock *clock);

/* It is now_ns: moves `oldest`. */
void kvr_stamp_clock_set(struct kvr_stamp_clock *clock, uint64_t now_ns);

/* Gives out `count` stamps at the time last set. Returns the first. */
uint32_t kvr_stamp_clock_take(struct kvr_stamp_clock *clock, uint32_t count);

static inline bool kvr_stamp_fresh(const struct kvr_stamp_clock *clock, uint32_t stamp)
{
    return stamp - clock->oldest < clock->next - clock->oldest;
}

#endif
