/* Turns what happens to a replica into moves of its operational state. Pure: the prober asks which
 * probe is due and reports outcomes; nothing here sends anything or touches a load account.
 *
 *   probe passes x passes_to_admit   down -> ramping (or up, without a ramp)
 *   probe fails x failures_to_eject  up -> suspect at the first, down at the last
 *   connect refused, stream lost     -> down at once
 *   ramp over                        ramping -> up
 *
 * A probe that times out while bytes flow from that replica is no failure: engines answer /health
 * late during a long prefill. */
#ifndef KVR_HEALTH_H
#define KVR_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "replica.h"

struct kvr_health_options {
    uint64_t interval_ns;       /* between probes of one replica; default 1 s */
    uint64_t timeout_ns;        /* of one probe; default 0.8 s */
    uint32_t failures_to_eject; /* default 2 */
    uint32_t passes_to_admit;   /* default 2 */
    uint64_t ramp_ns;           /* after a return; default 10 s, 0 none */
};

enum kvr_probe_outcome { KVR_PROBE_PASS, KVR_PROBE_FAIL, KVR_PROBE_TIMEOUT };

struct kvr_health_entry {
    uint64_t next_probe_ns;
    uint64_t last_bytes_ns; /* last response byte from it */
    bool probing;           /* a probe is out */
    bool seen;              /* it has passed once: the first admission needs one pass, no ramp */
    uint32_t passes;        /* in a row */
    uint32_t failures;      /* in a row */
};

struct kvr_health {
    struct kvr_health_options options;  /* defaults filled in */
    struct kvr_replica_table *replicas; /* the router's */
    struct kvr_health_entry *entries;   /* by slot */
};

void kvr_health_init(struct kvr_health *health, const struct kvr_health_options *options,
                     struct kvr_replica_table *replicas);
void kvr_health_deinit(struct kvr_health *health);

/* A member was added at this slot: first probe is due at once. */
void kvr_health_added(struct kvr_health *health, uint32_t slot, uint64_t now_ns);
/* The next slot whose probe is due, marked as out, or KVR_NO_REPLICA. */
uint32_t kvr_health_next_due(struct kvr_health *health, uint64_t now_ns);
/* When to ask again at the latest. */
uint64_t kvr_health_next_time(const struct kvr_health *health, uint64_t now_ns);

/* These return true when the operational state changed. */
bool kvr_health_probed(struct kvr_health *health, uint32_t slot, enum kvr_probe_outcome outcome,
                       uint64_t now_ns);
/* A connect to it failed, or it was lost mid-stream, by its own doing. */
bool kvr_health_broke(struct kvr_health *health, uint32_t slot, uint64_t now_ns);
/* Bytes came from it. */
void kvr_health_bytes(struct kvr_health *health, uint32_t slot, uint64_t now_ns);
/* Ends ramps that are over. */
bool kvr_health_tick(struct kvr_health *health, uint64_t now_ns);

#endif
