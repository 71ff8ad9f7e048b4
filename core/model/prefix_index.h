/* The prefix index: which replica probably holds which prompt prefix. It is belief, made of what
 * this router sent where; nobody confirms it (facts from KV events are residency's).
 *
 *   chain of a prompt:  b0 -- b1 -- b2 -- b3      key of a block = hash of the whole prefix up to
 * it believed:           {r0,r2} {r0,r2} {r0}  -   match: r0 3 blocks, r2 2 blocks
 *
 * A block is remembered once, with the replicas that are believed to hold it and when each was last
 * sent it. Belief ends
 *   - `ttl_ns` after the last admission of that block to that replica, at the latest 1/4096 of the
 *     TTL later: time is told in ticks of that length;
 *   - when the replica goes down, restarts or leaves (purge);
 *   - when the admission failed (withdraw);
 *   - when a cap is reached. Over `blocks_max` the block that was admitted longest ago goes,
 *     whoever holds it. Over `blocks_per_replica_max` the replica loses what it was itself sent
 *     longest ago, which is what its own cache would drop. Both orders are exact. An admission
 *     counts its deepest block as the oldest, so eviction shortens prefixes from their tails and
 *     never leaves a tail without its opening.
 *
 * The order of calls for a request is match, decision, dispatch, admit; a failed dispatch is
 * withdrawn. match leaves behind which blocks it found, so that an admission of the same chain that
 * follows it does not look them up again.
 *
 * Memory is bounded by `memory_bytes`, reserved at init and backed as it fills. A block takes 64
 * bytes, one cache line, with up to eight holders; more overflow into lines of nine. When the
 * overflow is used up, a new holder displaces the block's stalest one, which is counted.
 *
 * Replicas are slots of the replica table. Results are a function of the calls alone. */
#ifndef KVR_PREFIX_INDEX_H
#define KVR_PREFIX_INDEX_H

#include <stdint.h>

#include "belief.h"
#include "block_store.h"

#define KVR_PREFIX_MEMORY_DEFAULT ((uint64_t)64 << 20)
#define KVR_PREFIX_MEMORY_MIN     ((uint64_t)2 << 20)
#define KVR_PREFIX_TTL_DEFAULT_NS (UINT64_C(120) * 1000000000u)
/* Leading blocks of a prompt that are matched and remembered: 4 MiB of prompt in blocks of 64. */
#define KVR_PREFIX_CHAIN_MAX 65536u

/* Zeros are defaults. */
struct kvr_prefix_index_options {
    uint64_t memory_bytes;           /* for everything; 0: 64 MiB; at least 2 MiB */
    uint32_t blocks_max;             /* 0: as many as the memory holds, at least 1 */
    uint32_t blocks_per_replica_max; /* 0: no cap; with one, a block takes 128 bytes */
    uint32_t replicas_max;           /* slots are below; 0: KVR_REPLICAS_MAX */
    uint64_t ttl_ns;                 /* 0: 120 s; UINT64_MAX: never */
    uint64_t seed;                   /* of the hash table, against chosen keys; never in results */
};

/* What happened to beliefs and blocks, ever. */
struct kvr_prefix_index_counters {
    uint64_t matches;          /* prompts looked up */
    uint64_t admissions;       /* prompts entered */
    uint64_t withdrawals;      /* prompts taken back */
    uint64_t purges;           /* replicas that were forgotten whole */
    uint64_t blocks_evicted;   /* at the cap, though somebody was still believed to hold them */
    uint64_t blocks_reclaimed; /* nobody was believed to hold them any more */
    uint64_t blocks_cut;       /* not admitted: deeper than a chain may be, or than a cap */
    uint64_t replica_evicted;  /* beliefs that fell to the cap of their replica */
    uint64_t sweeps;           /* passes over all blocks because lives of replicas ran out */
};

struct kvr_prefix_index_stats {
    struct kvr_prefix_index_counters counters;
    struct kvr_belief_counters beliefs;
    uint32_t blocks; /* in it now */
    uint32_t blocks_max;
    uint32_t blocks_per_replica_max; /* 0: no cap */
    uint64_t holders;  /* (block, replica) pairs, lapsed ones that nobody met included */
    uint32_t overflow; /* lines of nine in use */
    uint32_t overflow_max;
    uint64_t bytes;     /* reserved for everything; what is touched is less until the index fills */
    uint64_t bytes_max; /* it never exceeds this */
};

struct kvr_prefix_index {
    struct kvr_block_store store;
    struct kvr_beliefs beliefs;
    struct kvr_prefix_index_counters counters;
    uint32_t replicas_max;
    uint32_t blocks_per_replica_max; /* UINT32_MAX: no cap */
    uint32_t chain_max;              /* longest run of blocks one admission may claim */
    uint64_t bytes_max;
    uint32_t *found;     /* chain_max: the block of each key of the chain looked up last; 0 none */
    uint32_t found_len;  /* of them known; 0 after any change of the index */
    bool found_run;      /* the blocks among them lie in the order one right behind the other */
    uint64_t found_last; /* key at found_len - 1: as a key stands for its prefix, for all of them */
    uint16_t *alive;     /* replicas_max: scratch of match */
};

void kvr_prefix_index_init(struct kvr_prefix_index *index,
                           const struct kvr_prefix_index_options *options);
void kvr_prefix_index_deinit(struct kvr_prefix_index *index);

/* How many leading blocks of the chain each replica is believed to hold. `blocks_by_replica` is the
 * caller's, room for replicas_max, all zero; only replicas with at least one block are written.
 * Returns the longest. Changes no belief and no order. */
uint32_t kvr_prefix_index_match(struct kvr_prefix_index *index, uint64_t now_ns,
                                const uint64_t *chain, uint32_t len, uint32_t *blocks_by_replica);

/* The chain was sent to that replica. Returns the stamp of this admission, for withdraw. */
uint32_t kvr_prefix_index_admit(struct kvr_prefix_index *index, uint64_t now_ns,
                                const uint64_t *chain, uint32_t len, uint32_t replica);

/* The dispatch failed: takes back what that admission claimed and no later one has claimed again.
 * What the replica was believed to hold before it is not restored: it just failed. */
void kvr_prefix_index_withdraw(struct kvr_prefix_index *index, const uint64_t *chain, uint32_t len,
                               uint32_t replica, uint32_t stamp);

/* Nothing is believed of that replica any more. O(1): what is left of it is reclaimed when met.
 * Call it when a replica goes down, restarts or leaves, and when its slot gets another. */
void kvr_prefix_index_purge(struct kvr_prefix_index *index, uint32_t replica);

/* Blocks that replica is believed to hold: exact but for those whose TTL has passed and that nobody
 * has met since, which it includes. */
uint32_t kvr_prefix_index_believed(const struct kvr_prefix_index *index, uint32_t replica);

void kvr_prefix_index_read_stats(const struct kvr_prefix_index *index,
                                 struct kvr_prefix_index_stats *stats);

#endif
