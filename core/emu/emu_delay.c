#include "emu_delay.h"

#include "check.h"
#include "loop.h"

static struct kvr_emu_delay *first(const struct kvr_emu_delays *delays)
{
    return kvr_list_empty(&delays->waiting)
               ? NULL
               : KVR_LIST_ENTRY(delays->waiting.next, struct kvr_emu_delay, link);
}

static void set_alarm(struct kvr_emu_delays *delays)
{
    const struct kvr_emu_delay *next = first(delays);
    kvr_alarm_set(&delays->alarm, next ? next->due_ns : KVR_ALARM_NEVER);
}

static void on_ring(void *context)
{
    struct kvr_emu_delays *delays = context;
    uint64_t now = kvr_loop_now();
    struct kvr_emu_delay *delay;
    /* What a callback puts off again is due after `now`, so this ends. */
    while ((delay = first(delays)) && delay->due_ns <= now) {
        kvr_list_remove(&delay->link);
        delay->on_due(delay);
    }
    set_alarm(delays);
}

int kvr_emu_delays_init(struct kvr_emu_delays *delays, uv_loop_t *uv, struct kvr_error *error)
{
    kvr_list_init(&delays->waiting);
    return kvr_alarm_init(&delays->alarm, uv, on_ring, delays, error);
}

void kvr_emu_delays_deinit(struct kvr_emu_delays *delays)
{
    KVR_CHECK(kvr_list_empty(&delays->waiting));
    kvr_alarm_deinit(&delays->alarm);
}

void kvr_emu_delay_init(struct kvr_emu_delay *delay, void (*on_due)(struct kvr_emu_delay *delay))
{
    *delay = (struct kvr_emu_delay){.on_due = on_due};
    kvr_list_init(&delay->link);
}

void kvr_emu_delay_start(struct kvr_emu_delays *delays, struct kvr_emu_delay *delay, double ms)
{
    kvr_list_remove(&delay->link);
    delay->due_ns = kvr_loop_now() + 1 + (uint64_t)(ms * 1e6);
    struct kvr_list *after = delays->waiting.prev;
    while (after != &delays->waiting &&
           KVR_LIST_ENTRY(after, struct kvr_emu_delay, link)->due_ns > delay->due_ns)
        after = after->prev;
    kvr_list_prepend(after, &delay->link);
    set_alarm(delays);
}

void kvr_emu_delay_stop(struct kvr_emu_delay *delay)
{
    kvr_list_remove(&delay->link);
}
