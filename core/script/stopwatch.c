#include "stopwatch.h"

#include <time.h>

#define SLOW_NS       1000000u
#define PRECISE_CALLS 1000u

static uint64_t read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Ticks come at 1 to 4 GHz on x86: fewer than a million are surely less than 1 ms. */
#define SUSPECT_TICKS 1000000u

static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return read_ns(CLOCK_MONOTONIC);
#endif
}

void kvr_stopwatch_start(struct kvr_stopwatch *stopwatch)
{
    stopwatch->cpu_ns = stopwatch->precise ? read_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
    stopwatch->ticks = ticks();
}

bool kvr_stopwatch_stop(struct kvr_stopwatch *stopwatch)
{
    bool suspect = ticks() - stopwatch->ticks >= SUSPECT_TICKS;
    if (stopwatch->precise)
        stopwatch->precise--;
    if (!suspect)
        return false;
    stopwatch->precise = PRECISE_CALLS;
    return stopwatch->cpu_ns && read_ns(CLOCK_THREAD_CPUTIME_ID) - stopwatch->cpu_ns > SLOW_NS;
}
