/* The gate of a simulation: the part of sim.h about a policy on trial. */
#include <math.h>

#include "sim_parts.h"

int kvr_sim_gate(struct kvr_sim *sim, const char *text, size_t len, double window_ms,
                 uint32_t requests_min, struct kvr_error *error)
{
    struct kvr_envelope_options options = {
        .window_ns = (uint64_t)(window_ms * 1e6),
        .requests_min = requests_min,
    };
    struct kvr_envelope *envelope = kvr_envelope_create(kvr_slice_make(text, len), &options, error);
    if (!envelope)
        return KVR_E_INVALID;
    kvr_router_settle(&sim->router);
    kvr_envelope_destroy(kvr_router_install_envelope(&sim->router, envelope));
    return KVR_OK;
}

const char *kvr_sim_gate_state(const struct kvr_sim *sim, struct kvr_sim_gate *gate)
{
    const struct kvr_envelope *envelope = sim->router.envelope;
    *gate = (struct kvr_sim_gate){.left_s = (double)NAN};
    if (!envelope)
        return "none";
    gate->decisions = (double)sim->router.metrics.baseline;
    if (envelope->left) {
        gate->left_s = (double)(envelope->left_ns - KVR_SIM_ORIGIN_NS) / 1e9;
        gate->requests = (double)envelope->saw.requests;
        gate->active = (double)envelope->saw.active;
        gate->answers = (double)envelope->saw.answers[KVR_ENVELOPE_STREAMS].count;
        gate->late = (double)envelope->saw.answers[KVR_ENVELOPE_STREAMS].late;
    }
    return kvr_envelope_left_name(envelope->left);
}
