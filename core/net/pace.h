/* How long a loop that is busy with streams waits before it polls again. Pure: time is an argument.
 *
 * A relay that is quick enough to take each event by itself is woken for each, sends each as a
 * segment of its own, and wakes its reader for each. A slower one finds several at a time, which
 * makes both itself and its peers cheaper, so that under load it carries more. A busy loop
 * therefore polls at most once in `period_ns`, and what has come meanwhile is found together:
 *
 *     poll, work ............... wait ...... poll, work .. wait .................. poll
 *     |<------- period ------------------->|<------- period ------------------->|
 *
 * No byte waits longer than a period for it, and a turn whose work takes as long is not made
 * longer.
 *
 * It begins when a loop has worked for KVR_PACE_ON percent of a window. While it lasts the work
 * says little, because it saves some: it ends when the events that came would have been less than
 * KVR_PACE_OFF percent at what each of them cost before. Both only while KVR_PACE_REQUESTS are
 * open, and events are most of what is served: what waits beside them would gain nothing.
 *
 * Work is counted from the first socket that a turn serves, so that being woken is not in it: a
 * loop that works 50 percent of the time by this measure, an event at a time, uses 70 of its core.
 */
#ifndef KVR_PACE_H
#define KVR_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define KVR_PACE_WINDOW_NS 50000000u
#define KVR_PACE_ON        30
#define KVR_PACE_OFF       20
#define KVR_PACE_REQUESTS  16

struct kvr_pace {
    uint64_t period_ns; /* 0: never waits */
    uint32_t open;      /* requests; the owner's count */
    uint32_t events;    /* chunks of streams relayed in this window; the owner adds to it */
    uint32_t reads;     /* that brought them; the owner adds to it */
    uint32_t served;    /* sockets in this window */
    uint64_t began_ns;  /* this window */
    uint64_t worked_ns; /* in this window */
    uint64_t polled_ns; /* when the loop last began to poll */
    uint64_t event_ns;  /* work an event, smoothed over windows without waits */
    bool on;
    uint64_t waits; /* counter */
};

/* Zeroed, with a period, is a loop that has done nothing. */

/* False while there are no events: a loop of plain requests need not ask for the time. */
static inline bool kvr_pace_matters(const struct kvr_pace *pace)
{
    return pace->period_ns && (pace->events || pace->on);
}
/* The end of a turn that began at `woke_ns` and served so many sockets. Returns for how long to
 * wait before the next poll, in nanoseconds; 0: not at all. */
uint64_t kvr_pace_turn(struct kvr_pace *pace, uint64_t now_ns, uint64_t woke_ns, uint32_t served);
/* The loop polls now. */
static inline void kvr_pace_poll(struct kvr_pace *pace, uint64_t now_ns)
{
    pace->polled_ns = now_ns;
}

#endif
