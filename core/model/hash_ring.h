/* Orders of preference over the members of a fleet, by a key alone: consistent hashing on a ring of
 * virtual nodes, and rendezvous (highest random weight). Neither knows load; both give the same
 * order for the same key on any machine, and a member that joins or leaves moves only the keys that
 * become or were its own.
 *
 *            0 ---a--c----b-a------c---b---> 2^64      a b c: points of three members
 *                      ^ key                           order of this key: b, a, c
 *
 * A member is a 64-bit identity and a weight; results are indices into the caller's array. Where a
 * member's points lie depends on its identity and nothing else, never on its index or on who else
 * is there. Identities and keys pass an avalanche finaliser here, so short or consecutive ones are
 * as good as random: without it a fleet with names that differ in one letter shares the ring 20
 * : 1.
 *
 * The ring owns its arrays; build replaces its content. Orders only read. */
#ifndef KVR_HASH_RING_H
#define KVR_HASH_RING_H

#include <stdint.h>

#include "check.h"

#define KVR_RING_MEMBERS_MAX    1024
#define KVR_RING_VNODES_DEFAULT 128
/* Points of one ring. When weights ask for more, all members get half (or a quarter, ...) of
 * theirs: shares stay, and so do the points that are left. */
#define KVR_RING_POINTS_MAX (1u << 18)

struct kvr_ring_member {
    uint64_t id;   /* hashed to its points; unique in a ring */
    double weight; /* > 0; 1 has `vnodes` points */
};

/* All zero: an empty ring. */
struct kvr_hash_ring {
    uint64_t *positions; /* owned, ascending; `points` of them */
    uint16_t *owners;    /* owned; member at each position */
    uint32_t *starts;    /* first point of each equal slice of the circle, one slice more than
                            there are, so that a lookup needs no search */
    uint32_t points;
    uint32_t members;
    uint32_t slice_shift; /* position >> slice_shift is its slice */
};

KVR_EXPORT void kvr_hash_ring_init(struct kvr_hash_ring *ring);
KVR_EXPORT void kvr_hash_ring_deinit(struct kvr_hash_ring *ring);

/* `vnodes` points for a member of weight 1 (0: the default), at least one for each. At most
 * KVR_RING_MEMBERS_MAX members with distinct identities and finite weights > 0. */
KVR_EXPORT void kvr_hash_ring_build(struct kvr_hash_ring *ring,
                                    const struct kvr_ring_member *members, uint32_t count,
                                    uint32_t vnodes);

/* Distinct members clockwise from the key's position, at most `limit` of them (0: all). Returns
 * how many; 0 for an empty ring. */
uint32_t kvr_hash_ring_order(const struct kvr_hash_ring *ring, uint64_t key, uint32_t limit,
                             uint32_t *order);

/* The `limit` (0: all) members with the highest rendezvous scores, best first. Weighted exactly: a
 * member wins a share of keys that is its share of the weights, and a changed weight moves keys
 * only to or from that member. `weights` NULL: all equal, which is faster. Returns how many. */
uint32_t kvr_hrw_order(const uint64_t *ids, const double *weights, uint32_t count, uint64_t key,
                       uint32_t limit, uint32_t *order);

#endif
