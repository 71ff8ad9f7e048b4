/* The open loop: requests go out when they are due. One that is late goes at once and says so; none
 * is skipped. */
#include "load_driver.h"

/* Looks for the next arrival, and sets the alarm to it. */
static void take_next(struct kvr_load_driver *driver)
{
    const struct kvr_load_options *options = &driver->options;
    driver->arrives = kvr_workload_next(options->workload, &driver->arrival);
    if (options->duration_ms > 0 && (double)driver->arrival.due_ns >= options->duration_ms * 1e6)
        driver->arrives = false;
    if (options->requests_max && driver->sent >= options->requests_max)
        driver->arrives = false;
}

void kvr_load_open_ring(struct kvr_load_driver *driver)
{
    uint64_t now_ns = kvr_loop_now();
    for (int i = 0; i < KVR_LOAD_BURST && driver->arrives; i++) {
        uint64_t due_ns = kvr_load_wall_ns(driver, (double)driver->arrival.due_ns);
        if (due_ns > now_ns) {
            kvr_alarm_set(&driver->alarm, due_ns);
            return;
        }
        if (kvr_load_ask(driver, driver->arrival.user, driver->arrival.turn))
            (void)kvr_load_send(driver, due_ns, 0); /* a failure is in the report */
        take_next(driver);
        now_ns = kvr_loop_now();
    }
    kvr_alarm_set(&driver->alarm, driver->arrives ? now_ns : KVR_ALARM_NEVER);
}

void kvr_load_open_start(struct kvr_load_driver *driver)
{
    take_next(driver);
    kvr_alarm_set(&driver->alarm, driver->clock.origin_ns);
}
