/* Runs a Lua call that can be left: when a watchdog finds it older than its budget of the thread's
 * CPU time, the thread jumps out of the call and the VM is abandoned for good. See guard.c for why
 * the jump is taken only when the interrupted instruction lies in LuaJIT, its machine code, libm or
 * a helper marked as a leaf.
 *
 * One guard a process: the guarded calls are made by one thread, and are not nested. On any other
 * thread, and before kvr_guard_start, calls run as they are: a simulation needs no watchdog. */
#ifndef KVR_GUARD_H
#define KVR_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KVR_GUARD_SIGNAL 12 /* SIGUSR2 */
/* VMs left behind before Lua stays off until a restart: each makes every later throw dearer. */
#define KVR_ABANDONED_MAX 64

/* For the thread that makes guarded calls, after all libraries are loaded: builds the table of
 * text segments and installs the signal handler. */
void kvr_guard_start(void);
/* After the watchdog has ended: the handler is removed, and calls run unguarded again. */
void kvr_guard_stop(void);
/* True on the thread that called kvr_guard_start. */
bool kvr_guard_active(void);

/* One look, from the watchdog's thread, every 5 ms: kicks the guarded thread when its call has used
 * more than `budget_ns` of CPU. Returns how long to sleep before the next look: 5 ms, or 50 us
 * while a kick waits to be taken. */
uint64_t kvr_guard_watch(uint64_t budget_ns);

/* The budget of the last look in milliseconds, for messages; 0 before the first. */
uint32_t kvr_guard_budget_ms(void);

/* Runs call(argument) and stores what it returns. False: the call was left behind; nothing that it
 * was working on may be touched again. `call` must hold no resource while Lua runs. */
bool kvr_guard_run(int (*call)(void *), void *argument, int *result);

/* Brackets a helper that scripts call and that may be left anywhere: it holds no lock and changes
 * nothing that outlives its VM, but scratch memory. Without it a script that spends all its time in
 * helpers could hardly ever be left. */
extern _Thread_local volatile int kvr_guard_leaf __attribute__((tls_model("initial-exec")));
static inline void kvr_guard_enter_leaf(void)
{
    kvr_guard_leaf = 1;
    atomic_signal_fence(memory_order_seq_cst);
}
static inline void kvr_guard_exit_leaf(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    kvr_guard_leaf = 0;
}

/* Keeps what a call left behind reachable for ever, since it can neither be used nor freed. */
void kvr_guard_bury(void *remains);
/* How many so far. At KVR_ABANDONED_MAX Lua stays off until a restart. */
uint32_t kvr_guard_abandoned(void);
bool kvr_guard_exhausted(void);

#endif
