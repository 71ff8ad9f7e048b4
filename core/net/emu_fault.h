/* Faults that an emulated replica commits on demand, one request after another.
 *
 * A fault is written as one line, the same on the command line, in the header `x-kvroute-fault` of
 * a request and in the body of POST /fault:
 *
 *   stall;after=3                  no byte after the third token, for ever
 *   stall;at=body;ms=500           head at once, then half a second of silence, then on
 *   reset;after=3;in=utf8          the connection breaks inside a character of the fourth event
 *   close;bytes=100                an orderly close in the middle of the body
 *   cut;in=newline;every=1         every event in two writes, 5 ms apart
 *   drip;bytes=1;ms=2              one byte a write
 *   error;after=2                  an engine's error event in the stream
 *   status;code=503;marker=XYZ     this answer to requests whose body contains XYZ
 *   huge;bytes=20000000            so many bytes at once, without an engine
 *   race                           a connection that is used again closes on receipt of the request
 *
 * Where it happens: `at=head` before the first byte (also the default), `at=body` after the head,
 * `after=N` when the event of the N-th token is out, `bytes=N` after N bytes of the body; `in=`
 * puts it inside the next event: `size` of its chunk, `data` of its field name, `utf8` inside its
 * first wide character, `newline` between the two that end it, `done` inside [DONE]. `ms` waits
 * before acting. Which requests: `path=` (default: those that generate; `*` all), `marker=`,
 * `times=N`.
 *
 * Faults of the replica rather than of a request: `refuse` (no new connections, ms= for a time),
 * `idle;ms=N` (idle connections close after N ms), `slow;factor=F` (of the engine's steps),
 * `restart` (of the engine), `none` (nothing: overrides those that are set). */
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
/* Whether one of that kind is set. */
const struct kvr_emu_fault *kvr_emu_faults_find(const struct kvr_emu_faults *faults,
                                                enum kvr_emu_fault_kind kind);

#endif
