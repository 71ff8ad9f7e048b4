/* A running median in 44 bytes: the P-square estimate of Jain and Chlamtac (1985). Exact (the lower
 * of two) up to five samples, later an estimate that no sample has to be kept for. */
#ifndef KVR_MEDIAN_H
#define KVR_MEDIAN_H

#include <stdint.h>

struct kvr_median {
    float heights[5];      /* estimates of minimum, quartile, median, quartile, maximum */
    uint32_t positions[5]; /* ranks of the five among the samples, from 1 */
    uint32_t count;        /* samples */
};

/* Zeroed is empty. */
void kvr_median_add(struct kvr_median *median, float sample);
float kvr_median_value(const struct kvr_median *median); /* 0 when empty */

#endif
