#include "load_request.h"

#include <math.h>

void kvr_load_measure(struct kvr_load_request *request, const struct kvr_load_clock *clock,
                      struct kvr_load_measure *measure)
{
    struct kvr_load_call *call = &request->call;
    uint64_t first_ns = call->streamed ? call->usage.first_content_ns : call->first_byte_ns;
    double to_ms = clock->scale * 1e-6;
    double *ms = measure->ms;
    *measure = (struct kvr_load_measure){.output_tokens = kvr_load_call_output_tokens(call)};
    measure->first_byte_ms =
        call->first_byte_ns ? kvr_load_ms(clock, call->started_ns, call->first_byte_ns) : NAN;
    ms[KVR_LOAD_E2EL] = kvr_load_ms(clock, call->started_ns, call->ended_ns);
    if (first_ns == 0)
        return;
    ms[KVR_LOAD_TTFT] = kvr_load_ms(clock, call->started_ns, first_ns);
    if (call->streamed && measure->output_tokens > 1)
        ms[KVR_LOAD_TPOT] =
            kvr_load_ms(clock, first_ns, call->ended_ns) / (measure->output_tokens - 1);
    double sum = 0, most = 0;
    for (uint32_t i = 0; i < call->gaps_len; i++) {
        sum += (double)call->gaps_ns[i];
        most = (double)call->gaps_ns[i] > most ? (double)call->gaps_ns[i] : most;
    }
    if (call->gaps_len)
        ms[KVR_LOAD_ITL_MEAN] = sum / call->gaps_len * to_ms;
    ms[KVR_LOAD_ITL_MAX] = most * to_ms;
    ms[KVR_LOAD_ITL_P50] = kvr_load_call_median_gap(call) * to_ms;
}
