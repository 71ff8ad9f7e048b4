/* Faults that an emulated replica commits on demand, one request after another.
 *
 * A fault is one line, the same on the command line, in the header `x-kvroute-fault` of a request
 * and in the body of POST /fault: its kind, and what it needs, as key=value between semicolons.
 * kvr_emu_fault_help (`kvroute replica --faults`) has them all.
 *
 * Where in an answer a fault acts is exact to the byte (emu_output.h). A fault that is set stays
 * until it is taken back or has acted `times`; the oldest that is meant for a request is the one
 * that it gets. */
#ifndef KVR_EMU_FAULT_H
#define KVR_EMU_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "error.h"
#include "slice.h"

#define KVR_EMU_FAULTS_MAX     16 /* set at a time */
#define KVR_EMU_FAULT_TEXT_MAX 128

enum kvr_emu_fault_kind {
    KVR_EMU_FAULT_NONE,
    /* of an answer's bytes */
    KVR_EMU_FAULT_STALL,
    KVR_EMU_FAULT_RESET,
    KVR_EMU_FAULT_CLOSE,
    KVR_EMU_FAULT_CUT,
    KVR_EMU_FAULT_DRIP,
    /* of an answer */
    KVR_EMU_FAULT_ERROR,
    KVR_EMU_FAULT_STATUS,
    KVR_EMU_FAULT_HUGE,
    KVR_EMU_FAULT_RACE,
    /* of the replica */
    KVR_EMU_FAULT_REFUSE,
    KVR_EMU_FAULT_IDLE,
    KVR_EMU_FAULT_SLOW,
    KVR_EMU_FAULT_RESTART,
};

enum kvr_emu_place {
    KVR_EMU_AT_HEAD,
    KVR_EMU_AT_BODY,
    KVR_EMU_AFTER_TOKENS,
    KVR_EMU_AFTER_BYTES,
};

enum kvr_emu_inside {
    KVR_EMU_IN_NOTHING,
    KVR_EMU_IN_SIZE,
    KVR_EMU_IN_DATA,
    KVR_EMU_IN_UTF8,
    KVR_EMU_IN_NEWLINE,
    KVR_EMU_IN_DONE,
};

struct kvr_emu_fault {
    enum kvr_emu_fault_kind kind;
    enum kvr_emu_place place;
    enum kvr_emu_inside inside;
    uint32_t after;  /* tokens */
    uint64_t bytes;  /* of the body; HUGE: its size; DRIP: of each write */
    double ms;       /* to wait before acting; negative: not given */
    bool every;      /* CUT: in each event from there on */
    bool sized;      /* HUGE: with a Content-Length */
    bool orderly;    /* RACE: FIN rather than RST */
    uint16_t status; /* STATUS */
    uint32_t retry_after_s;
    uint64_t times; /* how often still; 0: without end */
    double factor;  /* SLOW */
    char path[KVR_EMU_FAULT_TEXT_MAX];
    char marker[KVR_EMU_FAULT_TEXT_MAX]; /* in the body; empty: any */
};

/* The faults that are set, oldest first. */
struct kvr_emu_faults {
    struct kvr_emu_fault items[KVR_EMU_FAULTS_MAX];
    uint32_t len;
    uint64_t committed; /* counter */
};

/* KVR_E_INVALID with the word that is wrong. */
int kvr_emu_fault_parse(struct kvr_slice text, struct kvr_emu_fault *fault,
                        struct kvr_error *error) KVR_MUST_USE;
/* All of them, for people. */
extern const char kvr_emu_fault_help[];
/* As it would be written. */
void kvr_emu_fault_write(const struct kvr_emu_fault *fault, struct kvr_buffer *out);
/* Is it one of the replica, and no request's? */
bool kvr_emu_fault_is_standing(enum kvr_emu_fault_kind kind);

/* KVR_E_LIMIT when too many are set. */
int kvr_emu_faults_add(struct kvr_emu_faults *faults, const struct kvr_emu_fault *fault,
                       struct kvr_error *error) KVR_MUST_USE;
/* The oldest that is meant for this request, used up by one; false when there is none. `generates`:
 * the request goes to the engine. */
bool kvr_emu_faults_take(struct kvr_emu_faults *faults, struct kvr_slice path,
                         struct kvr_slice body, bool generates, bool reused,
                         struct kvr_emu_fault *fault);

#endif
