/* A slot holds the script that is in force for one purpose: a routing policy or a spill rule. Each
 * load makes a new generation in a Lua VM of its own; the last good generation stays in force when
 * anything about a new one fails. The caller falls back to C whenever a call here does not decide.
 *
 *   text -> check in a scratch VM -> build a fresh VM -> export/import -> swap -> close the old
 *
 * Failures of calls are counted against a budget: KVR_FAILURES_MAX of them within
 * KVR_FAILURES_CALLS calls, or one that had to be left behind, quarantine the slot: it decides
 * nothing until the next good load. A script that hits its memory cap starts afresh, without what
 * it had learned.
 *
 * The contract of the scripts stands in policies/README.md, what they see in model/abi.h. */
#ifndef KVR_SLOT_H
#define KVR_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "slice.h"
#include "view.h"

#define KVR_SCRIPT_NAME_MAX   64
#define KVR_SCRIPT_PATH_MAX   512
#define KVR_SCRIPT_PARAMS_MAX 1024
#define KVR_FAILURES_MAX      10
#define KVR_FAILURES_CALLS    1000

enum kvr_script_kind { KVR_SCRIPT_POLICY, KVR_SCRIPT_SPILL };

/* What a script asks for, because it costs something. */
enum kvr_script_needs {
    KVR_NEEDS_MATCH = 1,     /* believed prefix matches */
    KVR_NEEDS_PLAN = 2,      /* the plan's assignment */
    KVR_NEEDS_RESIDENCY = 4, /* resident blocks from KV events */
    KVR_NEEDS_KEYS = 8,      /* the key windows: kvr.share, key_age_ms */
    KVR_NEEDS_OPENINGS = 16, /* how prompts begin: kvr.opening_share */
    KVR_NEEDS_WORK = 32,     /* what was dispatched lately: recent_uncached_tokens */
    KVR_NEEDS_ACTIVE = 64,   /* blocks of prompts in flight: active_blocks, active_match_blocks */
};

/* One generation, as rows, metrics and the admin page name it. */
struct kvr_script_info {
    char name[KVR_SCRIPT_NAME_MAX];
    char path[KVR_SCRIPT_PATH_MAX];          /* empty: loaded from memory */
    char params[KVR_SCRIPT_PARAMS_MAX];      /* "k=v k=v", sorted by key */
    char default_spill[KVR_SCRIPT_NAME_MAX]; /* a policy's params.spill; empty: none */
    uint64_t hash;                           /* of the text */
    uint64_t params_hash;                    /* of params */
    uint32_t generation;                     /* 1, 2, ... over the slot's life */
    uint32_t needs;                          /* KVR_NEEDS_* */
    bool observes;                           /* it has P.observe */
};

struct kvr_script_counters {
    uint64_t calls;       /* of pick or spill */
    uint64_t errors;      /* raised */
    uint64_t bad_results; /* wrong type, index out of range, unavailable */
    uint64_t slow;        /* took over 1 ms of CPU; only where the guard runs */
    uint64_t runaways;    /* left behind by the guard */
    uint64_t memory;      /* hit the allocator cap */
    uint64_t loads;       /* generations put in force */
    uint64_t refusals;    /* loads refused */
    uint64_t quarantines; /* put out of force for its errors */
};

enum kvr_verdict {
    KVR_VERDICT_PICK,   /* index, reason and affine are set */
    KVR_VERDICT_NONE,   /* no opinion */
    KVR_VERDICT_HOLD,   /* wait for a change of the fleet */
    KVR_VERDICT_REJECT, /* refuse the request */
};

struct kvr_decision {
    enum kvr_verdict verdict;
    uint32_t index;  /* row of the view */
    uint16_t reason; /* see reason.h */
    bool affine;     /* chosen for its cache: the spill rule may be asked */
};

/* A setting from outside the file: it overrides the default of the same name in `params`, whose
 * type it must fit. */
struct kvr_script_param {
    struct kvr_slice key;
    struct kvr_slice value;
};

struct kvr_slot;
struct kvr_slot_next;

/* `picture` is the memory its scripts read; it must outlive the slot. `seed` feeds math.random. */
KVR_EXPORT struct kvr_slot *kvr_slot_create(enum kvr_script_kind kind, struct kvr_picture *picture,
                                            uint64_t seed);
KVR_EXPORT void kvr_slot_destroy(struct kvr_slot *slot);
/* What logs and errors call it in place of its kind: "canary", say. A constant. */
KVR_EXPORT void kvr_slot_set_role(struct kvr_slot *slot, const char *role);
/* Cap of the Lua heap of the generations to come; 0: the default, 32 MiB. */
KVR_EXPORT void kvr_slot_limit_memory(struct kvr_slot *slot, size_t bytes);

/* Checks `text` and puts it in force. `name` is what rows and metrics call it (empty: what the text
 * says); with a path it is the file's, and the text must say the same. On failure the reason, with
 * file and line, is in `error` and in kvr_slot_last_error, and what was in force stays. The same
 * name, text and params as in force are no new generation, unless the slot is quarantined. */
KVR_EXPORT int kvr_slot_load(struct kvr_slot *slot, struct kvr_slice name, struct kvr_slice path,
                             struct kvr_slice text, const struct kvr_script_param *params,
                             uint32_t params_count, struct kvr_error *error);
/* The same in two steps, for scripts that come in force together or not at all: prepare does all
 * that may fail; then put, or drop, before the slot is called again. NULL on failure. */
KVR_EXPORT struct kvr_slot_next *kvr_slot_prepare(struct kvr_slot *slot, struct kvr_slice name,
                                                  struct kvr_slice path, struct kvr_slice text,
                                                  const struct kvr_script_param *params,
                                                  uint32_t params_count, struct kvr_error *error);
KVR_EXPORT void kvr_slot_put(struct kvr_slot *slot, struct kvr_slot_next *next);
KVR_EXPORT void kvr_slot_drop(struct kvr_slot_next *next);
/* What put will put in force. */
KVR_EXPORT const struct kvr_script_info *kvr_slot_next_info(const struct kvr_slot *slot,
                                                            const struct kvr_slot_next *next);
/* A text that never came here, since its file could not be read: a refusal like any other. */
KVR_EXPORT void kvr_slot_refused(struct kvr_slot *slot, const struct kvr_error *error);
/* A new text for what is in force: same name, path and params. What a saved file goes through. */
KVR_EXPORT int kvr_slot_reload(struct kvr_slot *slot, struct kvr_slice text,
                               struct kvr_error *error);
/* Changes params of what is in force, on top of those set before: same text, new generation. */
KVR_EXPORT int kvr_slot_set_params(struct kvr_slot *slot, const struct kvr_script_param *params,
                                   uint32_t params_count, struct kvr_error *error);
/* Nothing in force: every call says KVR_VERDICT_NONE. */
KVR_EXPORT void kvr_slot_clear(struct kvr_slot *slot);

/* NULL when nothing is in force. Valid until the next load. */
KVR_EXPORT const struct kvr_script_info *kvr_slot_info(const struct kvr_slot *slot);
KVR_EXPORT const struct kvr_script_counters *kvr_slot_counters(const struct kvr_slot *slot);
/* Those since this script was chosen: over all generations of its name and path, and refusals of
 * these alone. */
KVR_EXPORT struct kvr_script_counters kvr_slot_since_chosen(const struct kvr_slot *slot);
/* The last failure of a load or a call; "" when there was none since the last good load. */
KVR_EXPORT const char *kvr_slot_last_error(const struct kvr_slot *slot);
KVR_EXPORT bool kvr_slot_quarantined(const struct kvr_slot *slot);
/* Bytes of the Lua heap in force. */
KVR_EXPORT size_t kvr_slot_memory(const struct kvr_slot *slot);

/* One call each. Return 0 and a decision (index in range and available, or no index), or a negative
 * code after which the caller falls back; whatever went wrong is counted and remembered. */
KVR_EXPORT int kvr_slot_pick(struct kvr_slot *slot, struct kvr_decision *decision);
KVR_EXPORT int kvr_slot_spill(struct kvr_slot *slot, uint32_t preferred,
                              struct kvr_decision *decision);
/* Hands picture->observation to P.observe, where there is one. */
KVR_EXPORT void kvr_slot_observe(struct kvr_slot *slot);

#endif
