#include "step_log.h"

#include <string.h>

#include "memory.h"

#define FIRST_CAPACITY 256u

void kvr_step_log_init(struct kvr_step_log *log)
{
    *log = (struct kvr_step_log){.mask = FIRST_CAPACITY - 1};
    log->durations = kvr_alloc_zero(FIRST_CAPACITY, sizeof *log->durations);
}

void kvr_step_log_deinit(struct kvr_step_log *log)
{
    kvr_free(log->durations);
    kvr_free(log->scratch);
}

void kvr_step_log_ensure(struct kvr_step_log *log, uint64_t steps, uint64_t next)
{
    if (steps <= log->mask + 1 || log->mask + 1 == KVR_STEP_LOG_MAX)
        return;
    uint64_t old = log->mask + 1;
    uint64_t capacity = old;
    while (capacity < steps && capacity < KVR_STEP_LOG_MAX)
        capacity *= 2;
    uint64_t *durations = kvr_alloc_zero(capacity, sizeof *durations);
    /* `next` itself may be there already: its duration is logged when it starts. */
    for (uint64_t back = 0; back < old && back <= next; back++)
        durations[(next - back) & (capacity - 1)] = log->durations[(next - back) & log->mask];
    kvr_free(log->durations);
    log->durations = durations;
    log->mask = capacity - 1;
}

uint64_t kvr_step_log_copy(const struct kvr_step_log *log, uint64_t first, uint64_t last,
                           uint64_t *out)
{
    if (first > last)
        return 0;
    if (last - first > log->mask)
        first = last - log->mask;
    uint64_t count = last - first + 1;
    uint64_t start = first & log->mask;
    uint64_t until_wrap = log->mask + 1 - start;
    uint64_t head = count < until_wrap ? count : until_wrap;
    memcpy(out, log->durations + start, head * sizeof *out);
    memcpy(out + head, log->durations, (count - head) * sizeof *out);
    return count;
}

static void swap(uint64_t *a, uint64_t *b)
{
    uint64_t kept = *a;
    *a = *b;
    *b = kept;
}

/* The value of rank `rank` (0 smallest), by Hoare's selection; reorders `values`. */
static uint64_t select_rank(uint64_t *values, uint64_t count, uint64_t rank)
{
    uint64_t low = 0;
    uint64_t high = count - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (values[middle] < values[low])
            swap(&values[middle], &values[low]);
        if (values[high] < values[low])
            swap(&values[high], &values[low]);
        if (values[high] < values[middle])
            swap(&values[high], &values[middle]);
        uint64_t pivot = values[middle];
        uint64_t i = low;
        uint64_t j = high;
        for (;;) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i >= j)
                break;
            swap(&values[i++], &values[j--]);
        }
        /* values[low..j] <= pivot <= values[j+1..high] */
        if (rank <= j)
            high = j;
        else
            low = j + 1;
    }
    return values[rank];
}

struct kvr_gap_stats kvr_step_log_stats(struct kvr_step_log *log, const uint64_t *saved,
                                        uint64_t saved_len, uint64_t first, uint64_t last)
{
    uint64_t most = saved_len + log->mask + 1;
    if (log->scratch_capacity < most) {
        log->scratch_capacity = 2 * most;
        kvr_free(log->scratch);
        log->scratch = kvr_alloc(log->scratch_capacity * sizeof *log->scratch);
    }
    if (saved_len)
        memcpy(log->scratch, saved, saved_len * sizeof *saved);
    uint64_t count = saved_len + kvr_step_log_copy(log, first, last, log->scratch + saved_len);
    if (!count)
        return (struct kvr_gap_stats){0, 0};
    uint64_t max = 0;
    for (uint64_t i = 0; i < count; i++)
        max = log->scratch[i] > max ? log->scratch[i] : max;
    return (struct kvr_gap_stats){select_rank(log->scratch, count, (count - 1) / 2), max};
}
