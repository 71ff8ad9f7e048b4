/* The envelope of a gate (envelope.h) in a router: what it is told, and what follows when it is
 * left. Used by the router only. */
#ifndef KVR_GATE_H
#define KVR_GATE_H

#include "router.h"

#define KVR_GATE_WORDS_MAX 512

/* How what acts stands to what was gated. */
struct kvr_gate_cover {
    enum kvr_script_role role; /* policy or canary: the one that is nearer to it */
    uint32_t policy, spill; /* KVR_ENVELOPE_* of it and of its spill rule; 0: they are the same */
    bool covers;            /* both are */
};

/* With an envelope in force. */
struct kvr_gate_cover kvr_gate_cover(const struct kvr_router *router);
/* "policy p2c: name and text differ; spill rule load_min: params differ". Empty where it covers. */
void kvr_gate_cover_words(const struct kvr_router *router, const struct kvr_gate_cover *cover,
                          char words[KVR_GATE_WORDS_MAX]);
/* Scripts or params have changed: tells the log when what acts is no longer what was gated. */
void kvr_gate_scripts_changed(struct kvr_router *router);

/* A request came that is routed by policy. */
void kvr_gate_arrived(struct kvr_router *router, uint64_t now_ns, uint64_t routing_key);
/* It has its first token, after `ttft_ns`. */
void kvr_gate_answered(struct kvr_router *router, uint64_t now_ns,
                       const struct kvr_request_record *record, uint64_t ttft_ns);
/* It has ended: now an answer counts that came whole. A stream without a first token counts as late
 * where that is the fleet's fault, or where it had waited too long already; else it says nothing.
 */
void kvr_gate_ended(struct kvr_router *router, uint64_t now_ns,
                    const struct kvr_request_record *record, const struct kvr_ending *ending);
void kvr_gate_tick(struct kvr_router *router, uint64_t now_ns);

#endif
