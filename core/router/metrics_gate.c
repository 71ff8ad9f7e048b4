/* The part of metrics_text.h that is about the gate in force. */
#include "metrics_text.h"

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

void kvr_metrics_text_gate(const struct kvr_router *router, uint64_t now_ns,
                           struct kvr_prom_writer *prom)
{
    const struct kvr_envelope *envelope = router->envelope;
    kvr_prom_counter(prom, "gate_left_total", router->metrics.envelopes_left,
                     "Times live traffic left the envelope of the gate in force.");
    kvr_prom_counter(prom, "baseline_requests_total", router->metrics.baseline,
                     "Requests that the baseline decided, since the envelope had been left.");
    kvr_prom_gauge(prom, "gate_in_force", envelope != NULL, "1: a gate is in force.");
    if (!envelope)
        return;
    struct kvr_envelope_counts window = kvr_envelope_window(envelope, now_ns);
    kvr_prom_family(prom, "gate_left", KVR_PROM_GAUGE, "1: left, by what it was left.");
    for (int i = KVR_ENVELOPE_ACTIVE_SET; i < KVR_ENVELOPE_LEFTS; i++) {
        kvr_prom_label(prom, "reason",
                       kvr_slice_of(kvr_envelope_left_name((enum kvr_envelope_left)i)));
        kvr_prom_uint(prom, (int)envelope->left == i);
    }
    kvr_prom_gauge(prom, "gate_active_share", share(window.active, window.requests),
                   "Share of the window's requests whose routing key the gate knew.");
    kvr_prom_gauge(prom, "gate_active_share_min", envelope->active_share,
                   "Below this the envelope is left.");
    kvr_prom_gauge(prom, "gate_covers", envelope->covers,
                   "1: what acts is what was gated, with its params and spill rule.");
    kvr_prom_family(prom, "gate_late_share", KVR_PROM_GAUGE,
                    "Share of the window's guarded answers that were late; over 0.01 the envelope "
                    "is left.");
    for (int i = 0; i < KVR_ENVELOPE_KINDS; i++) {
        const struct kvr_envelope_answers *answers = &window.answers[i];
        kvr_prom_label(prom, "answers",
                       kvr_slice_of(i == KVR_ENVELOPE_STREAMS ? "streams" : "wholes"));
        kvr_prom_double(prom, share(answers->late, answers->count));
    }
}
