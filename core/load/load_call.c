#include "load_call.h"

#include "memory.h"

const char *kvr_load_failure_name(enum kvr_load_failure failure)
{
    static const char *const names[KVR_LOAD_FAILURES] = {
        [KVR_LOAD_OK] = "ok",
        [KVR_LOAD_CONNECT] = "connect",
        [KVR_LOAD_OWN_LIMIT] = "own_limit",
        [KVR_LOAD_LOST] = "lost",
        [KVR_LOAD_STATUS] = "status",
        [KVR_LOAD_TRUNCATED] = "truncated",
        [KVR_LOAD_NO_DONE] = "no_done",
        [KVR_LOAD_ERROR_EVENT] = "error_event",
        [KVR_LOAD_ABORTED] = "aborted",
        [KVR_LOAD_MALFORMED] = "malformed",
        [KVR_LOAD_EMPTY] = "empty",
        [KVR_LOAD_TIMEOUT] = "timeout",
        [KVR_LOAD_DROPPED] = "dropped",
        [KVR_LOAD_CANCELLED] = "cancelled",
    };
    KVR_CHECK(failure < KVR_LOAD_FAILURES);
    return names[failure];
}

void kvr_load_call_deinit(struct kvr_load_call *call)
{
    kvr_free(call->gaps_ns);
    kvr_buffer_deinit(&call->head);
    if (call->reading)
        kvr_usage_reader_deinit(&call->usage);
}

uint32_t kvr_load_call_output_tokens(const struct kvr_load_call *call)
{
    if (!call->reading)
        return 0;
    int64_t counted = call->usage.usage.completion_tokens;
    return counted >= 0 && counted < UINT32_MAX ? (uint32_t)counted : call->usage.content_events;
}

static void swap(float *a, float *b)
{
    float kept = *a;
    *a = *b;
    *b = kept;
}

/* Hoare's selection: afterwards values[rank] is the one that sorting would put there, and nothing
 * before it is larger. */
static void select_rank(float *values, uint32_t len, uint32_t rank)
{
    uint32_t low = 0, high = len - 1;
    while (low < high) {
        float pivot = values[low + (high - low) / 2];
        int64_t i = (int64_t)low - 1, j = (int64_t)high + 1;
        for (;;) {
            do
                i++;
            while (values[i] < pivot);
            do
                j--;
            while (values[j] > pivot);
            if (i >= j)
                break;
            swap(&values[i], &values[j]);
        }
        if (rank <= (uint32_t)j)
            high = (uint32_t)j;
        else
            low = (uint32_t)j + 1;
    }
}

double kvr_load_call_median_gap(struct kvr_load_call *call)
{
    uint32_t len = call->gaps_len;
    if (len == 0)
        return 0;
    select_rank(call->gaps_ns, len, len / 2);
    double upper = call->gaps_ns[len / 2];
    if (len % 2)
        return upper;
    float lower = call->gaps_ns[0];
    for (uint32_t i = 1; i < len / 2; i++)
        if (call->gaps_ns[i] > lower)
            lower = call->gaps_ns[i];
    return (upper + (double)lower) / 2;
}
