#include "alarm.h"

#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "check.h"

static void program(struct kvr_alarm *alarm, uint64_t at_ns)
{
    /* Setting a timerfd also forgets its past expirations, so nothing ever has to be read. All
     * zeros would disarm it, which is what a time of 0 must not do. */
    uint64_t ns = at_ns == KVR_ALARM_NEVER ? 0 : at_ns ? at_ns : 1;
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)}};
    KVR_CHECK(timerfd_settime(alarm->fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct kvr_alarm *alarm = poll->data;
    uint64_t rung_for = alarm->set_ns;
    alarm->set_ns = KVR_ALARM_NEVER;
    alarm->rings++;
    alarm->on_ring(alarm->context);
    /* Set anew, it was reprogrammed; otherwise it would be readable for ever. */
    if (alarm->set_ns == KVR_ALARM_NEVER && rung_for != KVR_ALARM_NEVER && alarm->fd >= 0)
        program(alarm, KVR_ALARM_NEVER);
}

int kvr_alarm_init(struct kvr_alarm *alarm, uv_loop_t *uv, void (*on_ring)(void *context),
                   void *context, struct kvr_error *error)
{
    memset(alarm, 0, sizeof *alarm);
    alarm->on_ring = on_ring;
    alarm->context = context;
    alarm->set_ns = KVR_ALARM_NEVER;
    /* CLOCK_MONOTONIC is the clock of uv_hrtime, and so of kvr_loop_now. */
    alarm->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (alarm->fd < 0)
        return kvr_error_set(error, KVR_E_IO, "no timer: %s", strerror(errno));
    KVR_CHECK(uv_poll_init(uv, &alarm->poll, alarm->fd) == 0);
    alarm->poll.data = alarm;
    KVR_CHECK(uv_poll_start(&alarm->poll, UV_READABLE, on_readable) == 0);
    uv_unref((uv_handle_t *)&alarm->poll);
    return 0;
}

static void on_close(uv_handle_t *handle)
{
    (void)handle; /* it is embedded in its owner, who waits for the loop */
}

void kvr_alarm_deinit(struct kvr_alarm *alarm)
{
    if (alarm->fd < 0)
        return;
    uv_close((uv_handle_t *)&alarm->poll, on_close);
    close(alarm->fd);
    alarm->fd = -1;
    alarm->set_ns = KVR_ALARM_NEVER;
}

void kvr_alarm_set(struct kvr_alarm *alarm, uint64_t at_ns)
{
    if (at_ns == alarm->set_ns)
        return;
    alarm->set_ns = at_ns;
    program(alarm, at_ns);
}
