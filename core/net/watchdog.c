#include "watchdog.h"

#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "check.h"
#include "guard.h"

static void *watch(void *argument)
{
    struct kvr_watchdog *watchdog = argument;
    while (!atomic_load(&watchdog->stopping)) {
        uint64_t sleep_ns = kvr_guard_watch(watchdog->budget_ns);
        struct timespec pause = {.tv_sec = 0, .tv_nsec = (long)sleep_ns};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

void kvr_watchdog_start(struct kvr_watchdog *watchdog, uint32_t budget_ms)
{
    watchdog->budget_ns = (uint64_t)(budget_ms ? budget_ms : KVR_WATCHDOG_BUDGET_MS) * 1000000u;
    atomic_init(&watchdog->stopping, false);
    kvr_guard_start();
    /* The process's signals are the loop's business. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    KVR_CHECK(pthread_create(&watchdog->thread, NULL, watch, watchdog) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void kvr_watchdog_stop(struct kvr_watchdog *watchdog)
{
    atomic_store(&watchdog->stopping, true);
    pthread_join(watchdog->thread, NULL);
    kvr_guard_stop();
}
