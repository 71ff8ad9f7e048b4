/* What an engine tells: its counters, and the events that its steps have brought and nobody has
 * read yet, a ring of small records in order of time. The ring grows to what its reader leaves
 * unread; a reader that never reads is a bug, found at KVR_REPORTS_MAX. */
#ifndef KVR_REPORT_H
#define KVR_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#define KVR_REPORTS_MAX (1u << 26)

enum kvr_finish_reason {
    KVR_FINISH_STOP,
    KVR_FINISH_LENGTH,
    KVR_FINISH_ABORT,
    KVR_FINISH_ERROR, /* the engine was restarted */
    KVR_FINISH_REASONS,
};

enum kvr_engine_event_kind {
    KVR_ENGINE_TOKEN,    /* one token; without token_events only the first (token == 0) */
    KVR_ENGINE_FINISHED, /* after its last token; the handle is dead */
    KVR_ENGINE_STORED,   /* block: a prefix became findable */
    KVR_ENGINE_REMOVED,  /* block: it is gone */
    KVR_ENGINE_CLEARED,  /* every block is gone */
};

/* Since init; a restart does not reset them. */
struct kvr_engine_counters {
    uint64_t submitted;         /* requests that were taken */
    uint64_t rejected_requests; /* queue full by max_waiting */
    uint64_t rejected_tokens;   /* queue full by max_waiting_tokens */
    uint64_t finished[KVR_FINISH_REASONS];
    uint64_t prompt_tokens;  /* of requests whose prefill is complete */
    uint64_t cached_tokens;  /* of those, from the cache */
    uint64_t prefix_queries; /* tokens asked for at first admission */
    uint64_t prefix_hits;    /* tokens found then */
    uint64_t generation_tokens;
    uint64_t preemptions;
    uint64_t steps;
    uint64_t restarts;
};

struct kvr_report {
    uint64_t time_ns;
    enum kvr_engine_event_kind kind;
    uint32_t slot;       /* TOKEN, FINISHED: the sequence */
    uint32_t generation; /* a record whose sequence has been aborted is skipped by this */
    uint32_t token;      /* TOKEN: index; STORED: index of the block in its sequence */
    uint64_t block;      /* STORED, REMOVED: hash */
    uint64_t parent;     /* STORED: hash of the block before */
    uint64_t owner;      /* STORED: the caller's id of the sequence */
};

struct kvr_report_queue {
    struct kvr_report *items; /* owned; ring */
    uint32_t first;
    uint32_t len;
    uint32_t mask; /* capacity - 1 */
};

void kvr_report_queue_init(struct kvr_report_queue *queue);
void kvr_report_queue_deinit(struct kvr_report_queue *queue);
/* The new last record, to be filled in. */
struct kvr_report *kvr_report_queue_add(struct kvr_report_queue *queue);
/* False when empty. */
bool kvr_report_queue_take(struct kvr_report_queue *queue, struct kvr_report *report);

#endif
