/* When requests arrive, in order, from a seed: the open loop's clock.
 *
 *   renewal    gaps of mean 1 in the time that the rate makes: even, exponential or Gamma; the rate
 *              is constant or goes in a line to another
 *   times      as given
 *   bootstrap  runs of successive gaps of given times, drawn anew and put one after the other: what
 *              is bursty stays so, but no two runs are alike */
#ifndef KVR_ARRIVALS_H
#define KVR_ARRIVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "rng.h"

enum kvr_arrival_process { KVR_PROCESS_RENEWAL, KVR_PROCESS_TIMES, KVR_PROCESS_BOOTSTRAP };

struct kvr_arrivals_options {
    enum kvr_arrival_process process;
    uint64_t seed;
    double rate;            /* a second; RENEWAL: > 0; BOOTSTRAP: 0 keeps that of the times */
    double gap_cv;          /* RENEWAL: variation of the gaps; 0 even, 1 exponential */
    double rate_end;        /* 0: constant */
    double ramp_ms;         /* until it is `rate_end` */
    const double *times_ms; /* ascending; the caller's */
    uint64_t times_len;
    double time_scale;  /* TIMES, BOOTSTRAP: factor of the given times; > 0 */
    uint32_t block_len; /* BOOTSTRAP: gaps of a run; > 0 */
};

struct kvr_arrivals {
    struct kvr_arrivals_options options;
    struct kvr_rng rng;
    uint64_t count;      /* so far */
    double elapsed;      /* RENEWAL: mean gaps; BOOTSTRAP: milliseconds */
    double gap_scale;    /* BOOTSTRAP */
    uint64_t block_at;   /* BOOTSTRAP: the gap to take next */
    uint64_t block_left; /* and how many more of its block */
};

void kvr_arrivals_init(struct kvr_arrivals *arrivals, const struct kvr_arrivals_options *options);
/* Time of the next arrival, since the start; false: there are no more, or it comes never. */
bool kvr_arrivals_next(struct kvr_arrivals *arrivals, uint64_t *due_ns);

/* Milliseconds as nanoseconds; what no run gets to is as far ahead as can be. */
uint64_t kvr_arrivals_ns(double ms);

/* A Gamma deviate of mean 1 and that variation; 0 is the constant 1, 1 is exponential. */
double kvr_gamma_gap(struct kvr_rng *rng, double cv);

#endif
