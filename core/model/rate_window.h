/* How much of something there was in the last minute: 61 counts, one a second, so that no minute,
 * wherever it begins, holds more than the sum allows; a place comes back up to a second late. */
#ifndef KVR_RATE_WINDOW_H
#define KVR_RATE_WINDOW_H

#include <stdint.h>

#define KVR_RATE_SECONDS 61

struct kvr_rate_window {
    uint64_t counts[KVR_RATE_SECONDS]; /* by second, modulo their number */
    uint64_t sum;
    uint64_t second; /* of the newest count */
};

/* Zeroed is empty. `now_ns` must not fall. */
void kvr_rate_window_add(struct kvr_rate_window *window, uint64_t now_ns, uint64_t amount);
uint64_t kvr_rate_window_sum(struct kvr_rate_window *window, uint64_t now_ns);
/* Nanoseconds until the sum is at most `most`, if nothing is added meanwhile. */
uint64_t kvr_rate_window_wait(struct kvr_rate_window *window, uint64_t now_ns, uint64_t most);

#endif
