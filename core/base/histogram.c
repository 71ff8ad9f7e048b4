#include "histogram.h"

#include <math.h>
#include <string.h>

static unsigned bucket_of(uint64_t value)
{
    if (value < KVR_HISTOGRAM_STEPS)
        return (unsigned)value;
    unsigned octave = 63u - (unsigned)__builtin_clzll(value) - 5; /* 0 for 32..63 */
    unsigned step = (unsigned)(value >> octave) - KVR_HISTOGRAM_STEPS;
    unsigned bucket = KVR_HISTOGRAM_STEPS * (octave + 1) + step;
    return bucket < KVR_HISTOGRAM_BUCKETS ? bucket : KVR_HISTOGRAM_BUCKETS - 1;
}

static uint64_t upper_edge(unsigned bucket)
{
    if (bucket < KVR_HISTOGRAM_STEPS)
        return bucket;
    unsigned octave = bucket / KVR_HISTOGRAM_STEPS - 1;
    uint64_t step = bucket % KVR_HISTOGRAM_STEPS;
    return ((KVR_HISTOGRAM_STEPS + step + 1) << octave) - 1;
}

void kvr_histogram_add(struct kvr_histogram *histogram, uint64_t value)
{
    histogram->count++;
    histogram->sum += value;
    if (value > histogram->max)
        histogram->max = value;
    histogram->buckets[bucket_of(value)]++;
}

uint64_t kvr_histogram_quantile(const struct kvr_histogram *histogram, double share)
{
    if (histogram->count == 0)
        return 0;
    uint64_t rank = (uint64_t)ceil(share * (double)histogram->count);
    if (rank == 0)
        rank = 1;
    uint64_t seen = 0;
    for (unsigned i = 0; i < KVR_HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank)
            return upper_edge(i) < histogram->max ? upper_edge(i) : histogram->max;
    }
    return histogram->max;
}

uint64_t kvr_histogram_count_le(const struct kvr_histogram *histogram, uint64_t value)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < KVR_HISTOGRAM_BUCKETS && upper_edge(i) <= value; i++)
        seen += histogram->buckets[i];
    return seen;
}
