/* Tenancies: lives of replicas, as beliefs name them. A belief must say of whom it is and be void
 * at once when that replica goes down; so it names not the slot but a tenancy of the slot, a small
 * number that is given up at a purge and used again only when no belief names it any more.
 *
 *     slot 3 --> tenancy 17        purge(3)       slot 3 --> none; the next belief opens 29
 *     beliefs name 17                             beliefs that name 17 are void, counted down as
 *                                                 they are met, and at 0 the number 17 is free
 *
 * It counts the beliefs of each, and holds the ends of their order, which belief.c keeps. */
#ifndef KVR_TENANCY_H
#define KVR_TENANCY_H

#include <stdbool.h>
#include <stdint.h>

#include "check.h"

#define KVR_TENANCIES_MAX 16384u
#define KVR_TENANCY_NONE  0u
#define KVR_TENANCY_ENDED UINT16_MAX /* in place of a slot */
#define KVR_TENANCY_FREE  (UINT16_MAX - 1)

struct kvr_tenancy {
    uint32_t beliefs; /* that name it; next free number while it is free */
    uint32_t reach;   /* scratch of match: blocks this replica holds so far; else 0 */
    uint32_t newest;  /* ends of its order of beliefs; 0: empty or not kept */
    uint32_t oldest;
    uint16_t replica; /* slot, KVR_TENANCY_ENDED or KVR_TENANCY_FREE */
};

struct kvr_tenancies {
    struct kvr_tenancy *items; /* `capacity`, grown up to KVR_TENANCIES_MAX; item 0 is nobody */
    uint16_t *current;         /* by slot; KVR_TENANCY_NONE until its first belief */
    uint32_t capacity;
    uint32_t end;  /* numbers below have been used */
    uint32_t free; /* head of the free ones; 0 none */
    uint32_t replicas_max;
};

void kvr_tenancies_init(struct kvr_tenancies *tenancies, uint32_t replicas_max);
void kvr_tenancies_deinit(struct kvr_tenancies *tenancies);

/* The slot's tenancy, opened when it has none. KVR_TENANCY_NONE when all numbers are named by
 * beliefs: the caller must find and release void ones first. */
uint16_t kvr_tenancy_open(struct kvr_tenancies *tenancies, uint32_t replica);
void kvr_tenancy_end(struct kvr_tenancies *tenancies, uint32_t replica);

/* Nothing names that ended tenancy any more. */
void kvr_tenancy_free_number(struct kvr_tenancies *tenancies, uint16_t tenancy);

/* A belief that names it is gone. Frees the number of an ended tenancy with the last. */
static inline void kvr_tenancy_release(struct kvr_tenancies *tenancies, uint16_t tenancy)
{
    struct kvr_tenancy *item = &tenancies->items[tenancy];
    KVR_CHECK(tenancy != KVR_TENANCY_NONE && item->replica != KVR_TENANCY_FREE);
    KVR_CHECK(item->beliefs > 0);
    if (--item->beliefs == 0 && item->replica == KVR_TENANCY_ENDED)
        kvr_tenancy_free_number(tenancies, tenancy);
}

static inline void kvr_tenancy_retain(struct kvr_tenancies *tenancies, uint16_t tenancy)
{
    tenancies->items[tenancy].beliefs++;
}

static inline uint16_t kvr_tenancy_of(const struct kvr_tenancies *tenancies, uint32_t replica)
{
    KVR_CHECK(replica < tenancies->replicas_max);
    return tenancies->current[replica];
}

#endif
