/* Exponentially weighted moving average with a fixed weight a sample. NaN until the first. */
#ifndef KVR_EWMA_H
#define KVR_EWMA_H

#include <math.h>

struct kvr_ewma {
    double value; /* NaN: no sample yet */
};

static inline void kvr_ewma_init(struct kvr_ewma *ewma)
{
    ewma->value = (double)NAN;
}

/* `weight` in (0, 1]: the share of the new sample. */
static inline void kvr_ewma_add(struct kvr_ewma *ewma, double sample, double weight)
{
    if (isnan(ewma->value))
        ewma->value = sample;
    else
        ewma->value += weight * (sample - ewma->value);
}

#endif
