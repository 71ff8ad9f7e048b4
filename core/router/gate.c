#include "gate.h"

#include "log.h"

static void note(struct kvr_router *router, bool left)
{
    if (!left)
        return;
    const struct kvr_envelope *envelope = router->envelope;
    const struct kvr_envelope_counts *saw = &envelope->saw;
    router->metrics.envelopes_left++;
    router->queue.epoch++; /* what waits for the word of a policy is asked about anew */
    kvr_shadow_scripts_changed(router);
    kvr_log(KVR_LOG_WARN,
            "the envelope of the gate of %s is left (%s): %s decides until a new gate. Of %llu "
            "requests %llu had known keys, of %llu answers %llu were late",
            envelope->candidate, kvr_envelope_left_name(envelope->left),
            router->records[KVR_ROLE_BASELINE] ? router->records[KVR_ROLE_BASELINE]->info.name
                                               : "least in flight",
            (unsigned long long)saw->requests, (unsigned long long)saw->active,
            (unsigned long long)saw->answers, (unsigned long long)saw->late);
}

struct kvr_envelope *kvr_router_install_envelope(struct kvr_router *router,
                                                 struct kvr_envelope *envelope)
{
    struct kvr_envelope *before = router->envelope;
    router->envelope = envelope;
    router->queue.epoch++;
    kvr_shadow_scripts_changed(router);
    return before;
}

void kvr_gate_arrived(struct kvr_router *router, uint64_t now_ns, uint64_t routing_key)
{
    if (router->envelope)
        note(router, kvr_envelope_arrived(router->envelope, now_ns, routing_key));
}

/* An answer that comes at once and whole has no first token to be late with. */
static bool counts(const struct kvr_router *router, const struct kvr_request_record *record)
{
    return router->envelope && record->guarded && record->stream;
}

void kvr_gate_answered(struct kvr_router *router, uint64_t now_ns,
                       const struct kvr_request_record *record, uint64_t ttft_ns)
{
    if (counts(router, record))
        note(router, kvr_envelope_answered(router->envelope, now_ns, ttft_ns));
}

void kvr_gate_ended(struct kvr_router *router, uint64_t now_ns,
                    const struct kvr_request_record *record, const struct kvr_ending *ending)
{
    if (!counts(router, record) || record->got_first_token)
        return;
    bool fault = ending->outcome == KVR_OUTCOME_DROPPED ||
                 (ending->outcome == KVR_OUTCOME_FAILED && ending->status >= 500);
    bool late = now_ns - record->received_ns > router->envelope->ttft_ns;
    if (fault || late)
        note(router, kvr_envelope_answered(router->envelope, now_ns, KVR_ENVELOPE_NEVER));
}

void kvr_gate_tick(struct kvr_router *router, uint64_t now_ns)
{
    if (router->envelope)
        note(router, kvr_envelope_tick(router->envelope, now_ns));
}
