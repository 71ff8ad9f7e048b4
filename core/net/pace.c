#include "pace.h"

#define SMOOTHING 4 /* windows */

static void learn_event_cost(struct kvr_pace *pace)
{
    if (pace->on || pace->events == 0)
        return;
    uint64_t cost = pace->worked_ns / pace->events;
    uint64_t before = pace->event_ns ? pace->event_ns : cost;
    pace->event_ns = (before * (SMOOTHING - 1) + cost) / SMOOTHING;
}

static bool is_busy(const struct kvr_pace *pace, uint64_t elapsed_ns)
{
    if (pace->on)
        return pace->events * pace->event_ns * 100 >= elapsed_ns * KVR_PACE_OFF;
    return pace->worked_ns * 100 >= elapsed_ns * KVR_PACE_ON;
}

static void end_window(struct kvr_pace *pace, uint64_t now_ns)
{
    learn_event_cost(pace);
    uint32_t others = pace->served > pace->reads ? pace->served - pace->reads : 0;
    pace->on = pace->open >= KVR_PACE_REQUESTS && pace->events > others &&
               is_busy(pace, now_ns - pace->began_ns);
    pace->began_ns = now_ns;
    pace->worked_ns = 0;
    pace->events = pace->reads = pace->served = 0;
}

uint64_t kvr_pace_turn(struct kvr_pace *pace, uint64_t now_ns, uint64_t woke_ns, uint32_t served)
{
    if (!kvr_pace_matters(pace))
        return 0;
    pace->worked_ns += now_ns - woke_ns;
    pace->served += served;
    if (now_ns - pace->began_ns >= KVR_PACE_WINDOW_NS)
        end_window(pace, now_ns);
    uint64_t since_ns = now_ns - pace->polled_ns;
    if (!pace->on || since_ns >= pace->period_ns)
        return 0;
    pace->waits++;
    return pace->period_ns - since_ns;
}
