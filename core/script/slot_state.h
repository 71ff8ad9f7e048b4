/* The inside of a slot, for its two halves: slot.c loads, slot_call.c calls. */
#ifndef KVR_SLOT_STATE_H
#define KVR_SLOT_STATE_H

#include "overrides.h"
#include "script.h"
#include "stopwatch.h"

struct kvr_slot {
    enum kvr_script_kind kind;
    const char *role;            /* constant, for people */
    struct kvr_picture *picture; /* the router's */
    uint64_t seed;
    size_t memory_bytes;
    struct kvr_script *script;      /* in force; NULL: none */
    struct kvr_buffer text;         /* of what is in force */
    struct kvr_overrides overrides; /* of what is in force */
    uint32_t generation;
    bool quarantined;
    uint64_t calls;                      /* of all functions */
    uint64_t failures[KVR_FAILURES_MAX]; /* the last ones, by call number, as a ring */
    uint32_t failures_at;
    uint64_t log_lines; /* printed for this generation */
    uint64_t log_call;  /* of the last one */
    struct kvr_stopwatch stopwatch;
    struct kvr_script_counters counters;
    struct kvr_script_counters at_choice; /* what they were when this script was chosen */
    uint64_t own_refusals;                /* of texts for this script, since then */
    char last_error[KVR_ERROR_TEXT_MAX];
};

/* Of the VM of its next generation. */
struct kvr_vm_options kvr_slot_vm_options(const struct kvr_slot *slot);

#endif
