/* What the steps have brought and nobody has read yet: a ring of small records in order of time. It
 * grows to what its reader leaves unread; a reader that never reads is a bug, found at
 * KVR_REPORTS_MAX. */
#ifndef KVR_REPORT_H
#define KVR_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#define KVR_REPORTS_MAX (1u << 26)

struct kvr_report {
    uint64_t time_ns;
    uint32_t kind;       /* enum kvr_engine_event_kind */
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
