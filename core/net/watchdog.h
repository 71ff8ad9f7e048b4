/* The thread that looks at the loop's Lua calls (script/guard.h) and kicks those that do not end.
 * It does nothing else and touches nothing else. The storage is the caller's.
 *
 * Start it on the loop's thread, after everything that loads libraries. */
#ifndef KVR_WATCHDOG_H
#define KVR_WATCHDOG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define KVR_WATCHDOG_BUDGET_MS 50

struct kvr_watchdog {
    pthread_t thread;
    uint64_t budget_ns; /* CPU time that one call may use */
    atomic_bool stopping;
};

/* `budget_ms` 0: KVR_WATCHDOG_BUDGET_MS. Tools that slow a process down need more. */
void kvr_watchdog_start(struct kvr_watchdog *watchdog, uint32_t budget_ms);
/* On the same thread, outside of Lua calls; takes up to 5 ms. */
void kvr_watchdog_stop(struct kvr_watchdog *watchdog);

#endif
