/* The batch of one engine, step by step, after vLLM V1: continuous batching with chunked prefill.
 *
 * A step is planned when it starts and takes effect when it ends:
 *
 *   start    1. every running sequence, in order of admission: one token if it decodes, else as
 * much of its prompt as the token budget allows. One that needs a block when none is free preempts
 * the last of the batch (its blocks are freed but stay findable, it goes back to the front of the
 * queue and starts over) until there is one or it went itself.
 *            2. the queue, strictly in order, while budget, seats and blocks last and nothing was
 *               preempted in this step: the longest cached prefix is pinned (never the whole
 * prompt: at least one token is computed), the rest is prefilled. The first that does not fit
 *               blocks those behind it.
 *            3. blocks that the step fills get their hashes now: two requests of one prefix in the
 *               same step can share.
 *   end      KV changes of the step become visible; each sequence that has computed all its tokens
 *            emits one; finished ones free their blocks.
 *
 * What makes it fast. At most one running sequence has not finished its prefill, and it is the last
 * one: a chunk that ends early has used up the budget, so nobody was admitted after it (which needs
 * max_num_batched_tokens >= max_num_seqs). All others decode, one token a step, all alike. So the
 * batch is kept as sums (how many decode, how much context) and the sequences in it are touched
 * only when something happens to them: every 16 steps for a block, once to finish. A step in which
 * nothing happens costs a few additions. */
#ifndef KVR_SCHEDULER_H
#define KVR_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "decode_set.h"
#include "kv_cache.h"
#include "list.h"
#include "profile.h"
#include "report.h"
#include "sequence.h"
#include "step_log.h"
#include "step_time.h"

/* Most steps that one look ahead covers. */
#define KVR_LOOK_AHEAD_STEPS 64

struct kvr_scheduler {
    const struct kvr_profile *profile;    /* the engine's copy */
    struct kvr_report_queue *reports;     /* the engine's: where results go */
    struct kvr_engine_counters *counters; /* the engine's */
    bool token_events;                    /* report every token */

    struct kvr_kv_cache cache;
    struct kvr_sequence_pool pool;
    struct kvr_step_time step_time;
    struct kvr_step_log log;

    struct kvr_list waiting; /* head is admitted next */
    uint32_t waiting_len;
    uint64_t waiting_tokens; /* prompt tokens of those */

    struct kvr_list running; /* in order of admission */
    uint32_t running_len;
    uint64_t admissions; /* so far; gives `order` */

    struct kvr_decode_set decode; /* running and past their first token */

    struct kvr_sequence *partial;   /* running with its prefill unfinished; the last one, or NULL */
    struct kvr_sequence **prefills; /* owned; scheduled to prefill in the running step; an aborted
                                       one is NULL */
    uint32_t prefills_len;

    uint64_t step; /* number of the running step, or of the next */
    bool stepping; /* a step is running */
    uint64_t step_start_ns;
    uint64_t step_end_ns;

    /* The head of the queue did not fit; nothing has changed since while these hold. */
    const struct kvr_sequence *blocked;
    uint64_t blocked_version; /* of the cache */
    uint32_t blocked_budget;
};

struct kvr_scheduler_options {
    const struct kvr_profile *profile;
    struct kvr_report_queue *reports;
    struct kvr_engine_counters *counters;
    uint64_t seed;
    bool token_events;
    bool kv_events;
};

void kvr_scheduler_init(struct kvr_scheduler *s, const struct kvr_scheduler_options *options);
void kvr_scheduler_deinit(struct kvr_scheduler *s);

/* Puts a new sequence at the end of the queue. */
void kvr_scheduler_queue(struct kvr_scheduler *s, struct kvr_sequence *sequence);
/* Takes a sequence out, wherever it is, frees its blocks and the sequence itself. */
void kvr_scheduler_abort(struct kvr_scheduler *s, struct kvr_sequence *sequence);
/* Ends the step and starts none; everything in batch and queue is reported as FINISHED with reason
 * ERROR; the cache is emptied. */
void kvr_scheduler_restart(struct kvr_scheduler *s, uint64_t now_ns);

/* Starts a step at `now_ns`; no step is running. False when there is nothing to do. */
bool kvr_scheduler_start(struct kvr_scheduler *s, uint64_t now_ns);
/* Ends the running step at its time. */
void kvr_scheduler_finish(struct kvr_scheduler *s);
/* The end of the next step that may show something, if nothing comes in before: never later than
 * the first that does, and at most KVR_LOOK_AHEAD_STEPS ahead. A step is running. */
uint64_t kvr_scheduler_quiet_until(struct kvr_scheduler *s);
/* Reports the cache's journal as of `time_ns`. */
void kvr_scheduler_report_changes(struct kvr_scheduler *s, uint64_t time_ns);
/* Dies unless batch, queue, sums and blocks agree. For tests. */
void kvr_scheduler_verify(const struct kvr_scheduler *s);

#endif
