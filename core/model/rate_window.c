#include "rate_window.h"

#include <string.h>

#include "check.h"

#define SECOND_NS 1000000000u

/* Forgets what is older than the window. */
static void move_to(struct kvr_rate_window *window, uint64_t second)
{
    if (second >= window->second + KVR_RATE_SECONDS) {
        memset(window->counts, 0, sizeof window->counts);
        window->sum = 0;
        window->second = second;
        return;
    }
    while (window->second < second) {
        uint64_t *oldest = &window->counts[++window->second % KVR_RATE_SECONDS];
        window->sum -= *oldest;
        *oldest = 0;
    }
}

void kvr_rate_window_add(struct kvr_rate_window *window, uint64_t now_ns, uint64_t amount)
{
    move_to(window, now_ns / SECOND_NS);
    window->counts[window->second % KVR_RATE_SECONDS] += amount;
    window->sum += amount;
}

uint64_t kvr_rate_window_sum(struct kvr_rate_window *window, uint64_t now_ns)
{
    move_to(window, now_ns / SECOND_NS);
    return window->sum;
}

uint64_t kvr_rate_window_wait(struct kvr_rate_window *window, uint64_t now_ns, uint64_t most)
{
    move_to(window, now_ns / SECOND_NS);
    uint64_t sum = window->sum;
    if (sum <= most)
        return 0;
    /* The oldest count goes when the second after the newest begins, and so on. */
    for (uint64_t next = window->second + 1;; next++) {
        sum -= window->counts[next % KVR_RATE_SECONDS];
        if (sum <= most)
            return next * SECOND_NS - now_ns;
        KVR_CHECK(next < window->second + KVR_RATE_SECONDS);
    }
}
