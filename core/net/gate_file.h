/* The gate in force in an ingress: reads what `kvroute gate --out` wrote, puts its baseline in the
 * slot of that name, and hands the envelope to the router (envelope.h), all or nothing.
 *
 *   asked ──> read and parsed by a thread of libuv's pool ──> put in force by the loop
 *
 * A file of a million keys takes its time: no request waits for it. Its baseline is a script of the
 * policies folder, or of the path that `gate.baseline` gives, and is read as scripts are.
 *
 * Failure modes: a file that is none, is no gate, or vouches for nothing changes nothing, and who
 * asked is told why. Only regular files are read, of 64 MiB at most. */
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
struct kvr_gate_reading;

struct kvr_gate_options {
    const char *baseline; /* policy that takes over; NULL or empty: what the gate was against */
    struct kvr_envelope_options envelope;
};

struct kvr_gate {
    char path[KVR_GATE_PATH_MAX]; /* of the one in force; empty: none */
    uint64_t since_ns;
    struct kvr_gate_reading *reading; /* one that is asked for; NULL: none */
    void *closed_context;
    void (*on_closed)(void *context); /* NULL: it is not closing */
};

/* Someone who wants a gate. */
struct kvr_gate_wish {
    struct kvr_slice path;
    void *context;
    /* `error` is NULL when it is in force. */
    void (*on_done)(void *context, const struct kvr_error *error);
};

/* The gate to begin with, at once, before the loop runs. */
int kvr_gate_load_first(struct kvr_ingress *ingress, struct kvr_slice path,
                        struct kvr_error *error) KVR_MUST_USE;
/* A gate now; on_done is called when it is in force, or cannot be, never before this returns. On
 * failure what was in force stays. A gate after one that has been left brings the policy back.
 * KVR_E_STATE: another is being read. */
int kvr_gate_ask(struct kvr_ingress *ingress, const struct kvr_gate_wish *wish,
                 struct kvr_error *error) KVR_MUST_USE;
/* Whoever asked with that context is gone: the gate comes in force, and nobody is told. */
void kvr_gate_forget(struct kvr_ingress *ingress, const void *context);
/* No gate: nothing is guarded, what was left is back, and one that is being read is not wanted. */
void kvr_gate_drop(struct kvr_ingress *ingress);
/* Calls back when no thread reads a gate any more, perhaps at once. Nobody who asked is told. */
void kvr_gate_close(struct kvr_ingress *ingress, void *context, void (*on_closed)(void *context));

#endif
