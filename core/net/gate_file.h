/* The gate in force in an ingress: reads what `kvroute gate --out` wrote, puts its baseline in the
 * slot of that name, and hands the envelope to the router (envelope.h), all or nothing. */
#ifndef KVR_GATE_FILE_H
#define KVR_GATE_FILE_H

#include <stdint.h>

#include "envelope.h"
#include "error.h"
#include "role.h"
#include "slice.h"

#define KVR_GATE_FILE_BYTES_MAX ((size_t)64 << 20)
#define KVR_GATE_PATH_MAX       1024

struct kvr_ingress;

struct kvr_gate_options {
    const char *baseline; /* policy that takes over; NULL or empty: what the gate was against */
    struct kvr_envelope_options envelope;
};

struct kvr_gate {
    char path[KVR_GATE_PATH_MAX]; /* of the one in force; empty: none */
    uint64_t since_ns;
};

/* On failure what was in force stays. A gate after one that has been left brings the policy back.
 */
int kvr_gate_load(struct kvr_ingress *ingress, struct kvr_slice path, struct kvr_error *error);
/* No gate: nothing is guarded, and what was left is back. */
void kvr_gate_drop(struct kvr_ingress *ingress);
/* The role whose script in force is the text that was gated; KVR_ROLES: none is. */
enum kvr_script_role kvr_gate_covers(const struct kvr_ingress *ingress);

#endif
