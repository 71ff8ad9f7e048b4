/* How long the latest steps took. A sequence that decodes gets one token a step, so the gaps
 * between its tokens are a range of this log: nothing needs to be written per token. */
#ifndef KVR_STEP_LOG_H
#define KVR_STEP_LOG_H

#include <stdint.h>

/* Most steps remembered. Of a longer answer only the last so many gaps count. */
#define KVR_STEP_LOG_MAX 65536

struct kvr_step_log {
    uint64_t *durations; /* owned; ns, by step number & mask */
    uint64_t mask;       /* capacity - 1 */
    uint64_t *scratch;   /* owned; for the median */
    uint64_t scratch_capacity;
};

/* The gaps between the tokens of one sequence, ns. */
struct kvr_gap_stats {
    uint64_t p50_ns; /* lower median; 0 without gaps */
    uint64_t max_ns;
};

void kvr_step_log_init(struct kvr_step_log *log);
void kvr_step_log_deinit(struct kvr_step_log *log);
/* Remembers at least the last `steps` steps from now on; `next` is the next step's number. */
void kvr_step_log_ensure(struct kvr_step_log *log, uint64_t steps, uint64_t next);

static inline void kvr_step_log_put(struct kvr_step_log *log, uint64_t step, uint64_t duration_ns)
{
    log->durations[step & log->mask] = duration_ns;
}

/* Copies the durations of steps [first, last] to `out`, at most the last KVR_STEP_LOG_MAX of them;
 * returns how many. */
uint64_t kvr_step_log_copy(const struct kvr_step_log *log, uint64_t first, uint64_t last,
                           uint64_t *out);
/* Over `saved` (gaps from before an interruption) and the steps [first, last]; first > last: none
 * of these. */
struct kvr_gap_stats kvr_step_log_stats(struct kvr_step_log *log, const uint64_t *saved,
                                        uint64_t saved_len, uint64_t first, uint64_t last);

#endif
