/* Counts by (key, replica) over the last while: how often each routing key or prefix came, where it
 * went and when it last went there. What policies with a memory (LMetric, Preble, DualMap) and the
 * planner remember lives here and survives every reload of them.
 *
 *   span  |s0|s1| ... |s14|s15|        16 slices; the newest is still filling, so a count covers
 *                          now ^       between 15/16 and the whole of the span
 *
 * An amount is whatever the caller counts: 1 a request, tokens, microseconds of prefill. Each key
 * has a cell for all replicas and one for each replica it went to; the cells are bounded, and the
 * one that was added to longest ago makes room. Totals are of everything added, also of what has
 * been evicted since, so a share never looks larger than it was.
 *
 * Time does not run backwards: an earlier now_ns counts as the latest seen. */
#ifndef KVR_WINDOW_H
#define KVR_WINDOW_H

#include <stdint.h>

#include "check.h"
#include "pages.h"

#define KVR_WINDOW_SLICES          16u
#define KVR_WINDOW_SPAN_DEFAULT_NS (UINT64_C(60) * 1000000000u)
#define KVR_WINDOW_CELLS_DEFAULT   131072u
#define KVR_WINDOW_CELLS_MAX       (1u << 24)
#define KVR_WINDOW_NEVER           UINT64_MAX

/* Zeros are defaults. */
struct kvr_window_options {
    uint64_t span_ns;      /* 0: 60 s */
    uint32_t cells_max;    /* 0: 131,072, which are 15 MB when full; at least 2 */
    uint32_t replicas_max; /* slots are below; 0: KVR_REPLICAS_MAX */
};

struct kvr_window_cell {
    uint64_t key;
    uint64_t last_ns;                   /* last addition; says which slices the counts are of */
    uint32_t counts[KVR_WINDOW_SLICES]; /* at slice number % 16 */
    uint32_t newer;                     /* ring of all cells by last addition, through cell 0 */
    uint32_t older;
    uint32_t next; /* of the same hash, or free */
    /* The cells of a key's replicas, behind the key's own: right of it is the first. */
    uint32_t left;
    uint32_t right;
    uint32_t life;    /* of the replica's slot; a cell of an earlier life is never found */
    uint16_t replica; /* UINT16_MAX: all; UINT16_MAX - 1: the cell is free */
};

/* Sums over everything, by slice. */
struct kvr_window_total {
    uint64_t last_slice; /* number of the slice of the last addition */
    uint64_t counts[KVR_WINDOW_SLICES];
};

struct kvr_window {
    struct kvr_window_cell *cells; /* cells_max + 1 */
    uint32_t *heads;               /* by hash; hash_mask + 1 */
    struct kvr_window_total total;
    struct kvr_window_total *replica_totals; /* replicas_max */
    uint32_t *lives;                         /* replicas_max: counts the forgettings of each slot */
    uint64_t slice_ns;
    uint64_t first_ns; /* first addition ever; KVR_WINDOW_NEVER before */
    uint64_t last_ns;  /* latest addition */
    uint32_t cells_max;
    uint32_t hash_mask;
    uint32_t replicas_max;
    uint32_t used; /* cells in the ring */
    uint32_t end;  /* cells 1 .. end - 1 have been used */
    uint32_t free; /* head of the free ones */
    uint64_t keys_evicted;
    uint64_t pairs_evicted;
    uint64_t saturated; /* additions that a slice of a cell could not hold */
    struct kvr_pages cell_pages, head_pages;
};

KVR_EXPORT void kvr_window_init(struct kvr_window *window,
                                const struct kvr_window_options *options);
KVR_EXPORT void kvr_window_deinit(struct kvr_window *window);

void kvr_window_add(struct kvr_window *window, uint64_t now_ns, uint64_t key, uint32_t replica,
                    uint32_t amount);

/* Sums over the span: of a key, of a key at one replica, of everything, of one replica. */
uint64_t kvr_window_count(const struct kvr_window *window, uint64_t now_ns, uint64_t key);
uint64_t kvr_window_count_at(const struct kvr_window *window, uint64_t now_ns, uint64_t key,
                             uint32_t replica);
uint64_t kvr_window_total(const struct kvr_window *window, uint64_t now_ns);
uint64_t kvr_window_total_at(const struct kvr_window *window, uint64_t now_ns, uint32_t replica);

/* The key's part of everything, 0..1; 0 while there is nothing. */
double kvr_window_share(const struct kvr_window *window, uint64_t now_ns, uint64_t key);

/* How long the sums reach back: divides a count into a rate. 0 before the first addition. */
uint64_t kvr_window_covered_ns(const struct kvr_window *window, uint64_t now_ns);

/* When the key last went to that replica, however long ago; KVR_WINDOW_NEVER if that is not
 * remembered. */
uint64_t kvr_window_last_ns(const struct kvr_window *window, uint64_t key, uint32_t replica);

/* Everything remembered of a key, one entry for each replica, in no particular but reproducible
 * order; `pairs` has room for `max`. Returns how many. One call fills a column of a view. */
struct kvr_window_pair {
    uint64_t count;   /* over the span; may be 0 */
    uint64_t last_ns; /* last addition */
    uint32_t replica;
};
uint32_t kvr_window_pairs(const struct kvr_window *window, uint64_t now_ns, uint64_t key,
                          struct kvr_window_pair *pairs, uint32_t max);

/* The keys with a count, for the planner: looks at the next `max` cells from `*cursor` on, which is
 * 0 to begin and 0 again after the last. Returns how many of them it wrote. A snapshot may be taken
 * in one call with cells_max, or in pieces between which keys come and go: one that is there all
 * the time is written once. */
struct kvr_window_key {
    uint64_t key;
    uint64_t count; /* over the span */
};
uint32_t kvr_window_keys(const struct kvr_window *window, uint64_t now_ns, uint32_t *cursor,
                         struct kvr_window_key *keys, uint32_t max);

/* The slot has another replica, or a new process: nothing has gone there yet. Counts of keys over
 * all replicas stay. O(1): the cells go when they are oldest. */
void kvr_window_forget(struct kvr_window *window, uint32_t replica);

uint64_t kvr_window_bytes(const struct kvr_window *window);

#endif
