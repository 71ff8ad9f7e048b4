/* One answer of an emulated replica, from the request to its last byte: it owns the words
 * (emu_answer), the way out (emu_output) and one engine request for each output.
 *
 *   begun ──> every output accepted ──> tokens ... ──> last one finished ──> sent
 *      \            (head of a stream)                                       |
 *       \── refused: an error instead                                        v
 *        \─────── client gone, fault, engine died ─────────────────────>  freed
 *
 * It is freed in one place, and its engine requests end with it. */
#ifndef KVR_EMU_CALL_H
#define KVR_EMU_CALL_H

#include <stdint.h>

#include "emu_answer.h"
#include "emu_huge.h"
#include "emu_log.h"
#include "emu_output.h"
#include "live_engine.h"

struct kvr_replica_server;
struct kvr_emu_shape;
struct kvr_emu_visit;
struct kvr_emu_call;

/* One output at the engine; beside answer.choices of the same index. */
struct kvr_emu_job {
    struct kvr_live_request live;
    struct kvr_emu_call *call;
    uint64_t *blocks; /* owned; hashes of its prompt, until the engine has them */
};

/* What each token needs comes first, in one piece that the live engine asks for ahead: the job and
 * the choice of the only output that most calls have are in it. */
struct kvr_emu_call {
    struct kvr_emu_job job;
    struct kvr_list link; /* in the server's calls */
    struct kvr_replica_server *server;
    const struct kvr_emu_shape *shape; /* NULL: a plain page */
    struct kvr_emu_job *jobs;          /* &job, or owned */
    uint32_t jobs_len;
    uint32_t accepted;     /* outputs that the engine has taken */
    uint32_t handler;      /* of its path, in the metrics */
    uint16_t status;       /* of the head that was written; 0: none yet */
    bool fails_at_a_token; /* its fault is an error event */
    struct kvr_emu_choice choice;
    struct kvr_emu_output output;
    struct kvr_emu_answer answer; /* its choices are &choice, or its own */
    struct kvr_emu_fault fault;
    struct kvr_emu_entry *entry;    /* in the log; may be NULL */
    struct kvr_emu_huge huge;       /* its body under that fault */
    struct kvr_buffer conversation; /* owned; to remember with a response */
};

/* Answers a request to a generating API (emu_call_begin.c). */
void kvr_emu_call_generate(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                           enum kvr_api api);
/* Answers with what is given, under a fault of its bytes. `headers` is lines, or empty. */
void kvr_emu_call_page(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                       uint16_t status, struct kvr_slice headers, struct kvr_slice content_type,
                       struct kvr_slice body);
/* Answers with an error. */
void kvr_emu_call_problem(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                          enum kvr_api api, const struct kvr_emu_problem *problem);
/* The fault `huge`. */
void kvr_emu_call_huge(struct kvr_replica_server *server, const struct kvr_emu_visit *visit);

/* Its client is gone, or the replica is. */
void kvr_emu_call_drop(struct kvr_emu_call *call, const char *outcome);
/* Room for more. */
void kvr_emu_call_drained(struct kvr_emu_call *call);

/* For the sink of the server; context: the call. */
void kvr_emu_call_on_event(void *context, struct kvr_slice event, uint32_t tokens);
/* emu_call_events.c; context: the server. */
extern const struct kvr_live_handler kvr_emu_call_events;

/* ---- for the files of a call ---- */

/* A call of nothing yet, under the visit's fault. */
struct kvr_emu_call *kvr_emu_call_new(struct kvr_replica_server *server,
                                      const struct kvr_emu_visit *visit);
/* The head of its answer, once. `headers` is lines, or empty; `length` < 0: not known yet. */
void kvr_emu_call_head(struct kvr_emu_call *call, uint16_t status, struct kvr_slice headers,
                       const char *content_type, int64_t length);
/* Instead of an answer, or in its middle. Ends the call, at once or when all is sent. */
void kvr_emu_call_fail(struct kvr_emu_call *call, const struct kvr_emu_problem *problem);

#endif
