/* Whether calls are slow, as cheaply as can be told. Slow is a matter of CPU time, since on a busy
 * machine any call may be interrupted for long; but reading that costs more than a decision. So
 * calls are timed by a tick counter, and one that looks slow starts a time in which CPU time is
 * read.
 *
 * What it says depends on the machine: a simulation must not ask. */
#ifndef KVR_STOPWATCH_H
#define KVR_STOPWATCH_H

#include <stdbool.h>
#include <stdint.h>

struct kvr_stopwatch {
    uint32_t precise; /* calls for which CPU time will still be read */
    uint64_t ticks;   /* at the start of this call */
    uint64_t cpu_ns;  /* the same; 0: not read */
};

void kvr_stopwatch_start(struct kvr_stopwatch *stopwatch);
/* True when this call took more than 1 ms of CPU time and that is known. */
bool kvr_stopwatch_stop(struct kvr_stopwatch *stopwatch);

#endif
