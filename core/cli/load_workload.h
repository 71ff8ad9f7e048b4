/* What is sent, by the command line of `kvroute load`: the options of a workload, a trace, a list
 * of times. */
#ifndef KVR_LOAD_WORKLOAD_H
#define KVR_LOAD_WORKLOAD_H

#include "options.h"
#include "workload.h"

/* Not given: 0, a negative number, NULL. */
struct kvr_load_words {
    struct kvr_option_list settings; /* NAME=VALUE of the workload */
    uint64_t seed;
    bool seeded;
    uint64_t users;    /* closed loop */
    double think_ms;   /* closed loop: from an answer to the next turn */
    double rate;       /* open loop: requests a second */
    double burstiness; /* shape of the Gamma gaps, as vLLM has it: 1 Poisson, below it bursts */
    double rate_end;   /* where the rate goes in a line ... */
    double ramp_s;     /* ... within this time */
    const char *trace; /* file of rows */
    const char *times; /* file of milliseconds, a number a line */
    bool closed;       /* a trace: each session waits for its answers */
};

/* NULL with the reason: KVR_E_INVALID for words that make no sense, else the world's. */
struct kvr_workload *kvr_load_workload(const struct kvr_load_words *words, struct kvr_error *error);

#endif
