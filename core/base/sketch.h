/* A distribution of non-negative integers, in fixed memory, whose percentiles are right to 0.013 %:
 * 4,096 linear steps an octave, where histogram.h has 32. For what is published: times of requests,
 * in nanoseconds, from which percentiles are taken as numpy does, between the two nearest ranks.
 *
 * Values below 4,096 are exact, and so are count, mean, least and most. Memory is about 1.1 MB,
 * taken at the first value. Values of 2^46 (19 hours in ns) and more share the last step. */
#ifndef KVR_SKETCH_H
#define KVR_SKETCH_H

#include <stdint.h>

struct kvr_sketch {
    uint64_t count;
    uint64_t least; /* 0 when empty */
    uint64_t most;
    double sum;
    double squares;  /* sum of squares */
    uint64_t *steps; /* owned; NULL: empty */
};

/* Zeroed is empty. */
void kvr_sketch_deinit(struct kvr_sketch *sketch);
void kvr_sketch_add(struct kvr_sketch *sketch, uint64_t value);

/* All of these are NaN when empty. */
double kvr_sketch_mean(const struct kvr_sketch *sketch);
double kvr_sketch_deviation(const struct kvr_sketch *sketch); /* of the population */
/* `share` in [0, 1]: the value at rank share * (count - 1), ranks counted from 0; between two ranks
 * it is interpolated. 0.5 is the median. */
double kvr_sketch_quantile(const struct kvr_sketch *sketch, double share);

#endif
