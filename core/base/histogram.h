/* Counts of non-negative integers in logarithmic buckets: 32 linear steps an octave, so that a
 * quantile read back is within 3.2 % of the sample. Fixed size, no allocation. Unit is the
 * caller's.
 *
 *   values   0..31 exact | 32..63 step 1 | 64..127 step 2 | 128..255 step 4 | ... */
#ifndef KVR_HISTOGRAM_H
#define KVR_HISTOGRAM_H

#include <stdint.h>

#define KVR_HISTOGRAM_STEPS   32
#define KVR_HISTOGRAM_OCTAVES 40
#define KVR_HISTOGRAM_BUCKETS (KVR_HISTOGRAM_STEPS * (KVR_HISTOGRAM_OCTAVES + 1))

struct kvr_histogram {
    uint64_t count;
    uint64_t sum;
    uint64_t max;
    uint64_t buckets[KVR_HISTOGRAM_BUCKETS];
};

void kvr_histogram_add(struct kvr_histogram *histogram, uint64_t value);
/* `share` in [0, 1]; upper edge of the bucket that holds the nearest-rank sample; 0 when empty. */
uint64_t kvr_histogram_quantile(const struct kvr_histogram *histogram, double share);
/* How many samples are <= value, by bucket (a Prometheus `le` count). */
uint64_t kvr_histogram_count_le(const struct kvr_histogram *histogram, uint64_t value);

#endif
