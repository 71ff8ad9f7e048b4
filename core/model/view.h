/* The picture that one decision sees: the memory that C fills and Lua reads (abi.h), one for the
 * whole router, preallocated, filled anew for every decision. A script must not keep any of it.
 *
 * The helpers that give orders of rows write into `order`, which the next call overwrites. */
#ifndef KVR_VIEW_H
#define KVR_VIEW_H

#include <stdint.h>

#include "abi.h"
#include "check.h"
#include "hash_ring.h"
#include "window.h"

struct kvr_picture {
    struct kvr_request_view request;
    struct kvr_view view;
    struct kvr_order order;
    struct kvr_observation observation;
    struct kvr_replica_view *rows;     /* capacity of them; view.rows points here */
    uint32_t *order_rows;              /* capacity of them; order.rows points here */
    uint64_t *ids;                     /* 64-bit identity of each row, for rendezvous orders */
    double *weights;                   /* of each row */
    uint32_t capacity;                 /* most rows */
    const struct kvr_hash_ring *ring;  /* over the rows of this view, by index; the router's */
    const struct kvr_window *keys;     /* by model key; the router's; NULL: not counted */
    const struct kvr_window *openings; /* by 64-bit block key; the router's; NULL: not counted */
    uint64_t now_ns;                   /* of this decision */
};

KVR_EXPORT void kvr_picture_init(struct kvr_picture *picture, uint32_t capacity);
KVR_EXPORT void kvr_picture_deinit(struct kvr_picture *picture);

/* Fills counts, totals, means, minima and maxima of the view from its rows 0..count-1, which must
 * be set. Over no available row, minima and means are NaN and the rest is 0. `planned` is the
 * caller's.
 */
KVR_EXPORT void kvr_picture_summarise(struct kvr_picture *picture, uint32_t count);

/* Fill `order` with at most `limit` distinct row indices (0: all): clockwise on the ring from the
 * key's position, or by falling rendezvous score. Unavailable rows are in it: a policy skips them,
 * so that the order of the others never depends on who is away. A salt makes an independent ring.
 * Return the count. Called from Lua through these addresses. */
KVR_EXPORT uint32_t kvr_picture_ring_order(struct kvr_picture *picture, uint32_t key, uint32_t salt,
                                           uint32_t limit);
KVR_EXPORT uint32_t kvr_picture_hrw_order(struct kvr_picture *picture, uint32_t key, uint32_t salt,
                                          uint32_t limit);
/* Index of the available row with the smallest double at byte `offset` of its struct, among rows
 * but `except` that match at least `blocks` blocks, that the plan has for this request if
 * `assigned` is 1, and where its key came within `recent_ms` if that is finite; rows whose number
 * is NaN are left out. Ties rotate by request.serial: the lowest index would take everything on an
 * idle fleet. -1: none. */
int32_t kvr_picture_least(const struct kvr_picture *picture, uint32_t offset, uint32_t blocks,
                          uint32_t except, uint32_t assigned, double recent_ms);
/* Index of the (n mod available)-th available row; -1: none. */
int32_t kvr_picture_nth_available(const struct kvr_picture *picture, uint32_t n);
/* Place in `order` of its first available row but `except`; -1: none. */
int32_t kvr_picture_first_available(const struct kvr_picture *picture, uint32_t except);
/* Share of recent requests with this routing key, from the key windows; NaN: nobody counts it. */
double kvr_picture_share(const struct kvr_picture *picture, uint32_t key);

/* How often prompts have begun with the same blocks: of each, the keys of its leading 1, 2, 4, 8,
 * 16, 32, 64, 96, ..., KVR_OPENING_MAX blocks are counted, as far as it has them. */
#define KVR_OPENING_STRIDE 32u
#define KVR_OPENING_MAX    512u
KVR_EXPORT void kvr_picture_count_opening(struct kvr_window *openings, uint64_t now_ns,
                                          const uint64_t *chain, uint32_t len);
/* Share of recent requests that begin with the leading `blocks` blocks of this one, 0..1. NaN: this
 * depth is none that is counted, the prompt is shorter, or nobody counts. */
double kvr_picture_opening_share(const struct kvr_picture *picture, uint32_t blocks);
/* The least of these depths, `least` or more, whose share is at most `share`; 0: none. */
uint32_t kvr_picture_rare_opening(const struct kvr_picture *picture, double share, uint32_t least);

#endif
