/* One timer of nanosecond precision on the loop, where uv's own count whole milliseconds. It is set
 * to a time of kvr_loop_now and rings once, in a loop callback; setting it again moves it.
 *
 * A time that has passed rings at the loop's next turn, never inside kvr_alarm_set. */
#ifndef KVR_ALARM_H
#define KVR_ALARM_H

#include <stdint.h>
#include <uv.h>

#include "error.h"

#define KVR_ALARM_NEVER UINT64_MAX

struct kvr_alarm {
    uv_poll_t poll;
    void (*on_ring)(void *context);
    void *context;
    int fd;          /* a timerfd */
    uint64_t set_ns; /* KVR_ALARM_NEVER: not set */
    uint64_t rings;  /* counter */
};

/* KVR_E_IO when there is no descriptor left. */
int kvr_alarm_init(struct kvr_alarm *alarm, uv_loop_t *uv, void (*on_ring)(void *context),
                   void *context, struct kvr_error *error) KVR_MUST_USE;
/* Stops it; the loop must turn once more before the memory goes. */
void kvr_alarm_deinit(struct kvr_alarm *alarm);

/* Rings at `at_ns`; KVR_ALARM_NEVER: not at all. */
void kvr_alarm_set(struct kvr_alarm *alarm, uint64_t at_ns);

#endif
