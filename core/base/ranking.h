/* Many items in order of a 64-bit number: a stable radix sort, since millions of keys are ordered
 * at each plan and a comparison sort takes ten times as long. */
#ifndef KVR_RANKING_H
#define KVR_RANKING_H

#include <stdint.h>

struct kvr_ranked {
    uint64_t rank;
    uint32_t item;
};

/* By rising rank; equals stay as they were. `scratch` has room for `len` as well. O(len). */
void kvr_ranking_sort(struct kvr_ranked *items, struct kvr_ranked *scratch, uint32_t len);

/* Of a number that is not NaN: the larger the number, the smaller the rank. 0 and -0 are equal. */
uint64_t kvr_ranking_falling(double value);

#endif
