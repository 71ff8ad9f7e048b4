#include "hash_ring.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory.h"
#include "real.h"
#include "rng.h"

/* Keys and identities are spread apart from each other, so that a key which happens to be some
 * member's identity does not land on that member. */
#define GOLDEN   UINT64_C(0x9e3779b97f4a7c15)
#define KEY_SALT UINT64_C(0xd1b54a32d192ed03)

/* A bit set of members that an order has already named. */
struct seen {
    uint64_t words[KVR_RING_MEMBERS_MAX / 64];
};

void kvr_hash_ring_init(struct kvr_hash_ring *ring)
{
    memset(ring, 0, sizeof *ring);
}

void kvr_hash_ring_deinit(struct kvr_hash_ring *ring)
{
    kvr_free(ring->positions);
    kvr_free(ring->owners);
    kvr_free(ring->starts);
    memset(ring, 0, sizeof *ring);
}

static uint64_t key_position(uint64_t key)
{
    return kvr_mix64(key + KEY_SALT);
}

/* Point number v of a member: a function of its identity alone. */
static uint64_t point_position(uint64_t id, uint32_t v)
{
    return kvr_mix64(kvr_mix64(id + GOLDEN) + GOLDEN * (v + 1u));
}

static uint32_t points_of(double weight, uint32_t vnodes, double scale)
{
    double wanted = weight * (double)vnodes * scale;
    if (wanted < 1.0)
        return 1;
    if (wanted > (double)KVR_RING_POINTS_MAX)
        return KVR_RING_POINTS_MAX + 1;
    return (uint32_t)(wanted + 0.5);
}

/* The largest scale 1, 1/2, 1/4, ... under which all members' points fit. */
static double fitting_scale(const struct kvr_ring_member *members, uint32_t count, uint32_t vnodes,
                            uint32_t *total)
{
    for (double scale = 1.0;; scale *= 0.5) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < count; i++)
            sum += points_of(members[i].weight, vnodes, scale);
        if (sum <= KVR_RING_POINTS_MAX) {
            *total = (uint32_t)sum;
            return scale;
        }
    }
}

struct point {
    uint64_t position;
    uint64_t id; /* decides between equal positions, so that the members' order does not */
    uint16_t owner;
};

static int compare_points(const void *left, const void *right)
{
    const struct point *a = left, *b = right;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* At least as many slices as points, so that a lookup scans about one point. */
static void index_slices(struct kvr_hash_ring *ring)
{
    uint32_t bits = 1;
    while ((1u << bits) < ring->points)
        bits++;
    uint32_t slices = 1u << bits;
    ring->slice_shift = 64 - bits;
    ring->starts = kvr_realloc(ring->starts, (slices + 1u) * sizeof *ring->starts);
    uint32_t point = 0;
    for (uint32_t slice = 0; slice < slices; slice++) {
        while (point < ring->points && ring->positions[point] >> ring->slice_shift < slice)
            point++;
        ring->starts[slice] = point;
    }
    ring->starts[slices] = ring->points;
}

void kvr_hash_ring_build(struct kvr_hash_ring *ring, const struct kvr_ring_member *members,
                         uint32_t count, uint32_t vnodes)
{
    KVR_CHECK(count <= KVR_RING_MEMBERS_MAX);
    for (uint32_t i = 0; i < count; i++)
        KVR_CHECK(members[i].weight > 0.0 && isfinite(members[i].weight));
    if (vnodes == 0)
        vnodes = KVR_RING_VNODES_DEFAULT;
    uint32_t total;
    double scale = fitting_scale(members, count, vnodes, &total);
    struct point *points = kvr_alloc(total * sizeof *points);
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t own = points_of(members[i].weight, vnodes, scale);
        for (uint32_t v = 0; v < own; v++, n++)
            points[n] =
                (struct point){point_position(members[i].id, v), members[i].id, (uint16_t)i};
    }
    KVR_CHECK(n == total);
    qsort(points, total, sizeof *points, compare_points);
    ring->positions = kvr_realloc(ring->positions, total * sizeof *ring->positions);
    ring->owners = kvr_realloc(ring->owners, total * sizeof *ring->owners);
    for (uint32_t i = 0; i < total; i++) {
        ring->positions[i] = points[i].position;
        ring->owners[i] = points[i].owner;
    }
    kvr_free(points);
    ring->points = total;
    ring->members = count;
    index_slices(ring);
}

uint32_t kvr_hash_ring_order(const struct kvr_hash_ring *ring, uint64_t key, uint32_t limit,
                             uint32_t *order)
{
    if (ring->members == 0)
        return 0;
    if (limit == 0 || limit > ring->members)
        limit = ring->members;
    uint64_t position = key_position(key);
    uint32_t point = ring->starts[position >> ring->slice_shift];
    while (point < ring->points && ring->positions[point] < position)
        point++;
    if (point == ring->points)
        point = 0;
    if (limit == 1) {
        order[0] = ring->owners[point];
        return 1;
    }
    struct seen seen = {{0}};
    uint32_t found = 0;
    for (uint32_t walked = 0; walked < ring->points && found < limit; walked++) {
        uint32_t owner = ring->owners[point];
        uint64_t bit = UINT64_C(1) << (owner % 64);
        if (!(seen.words[owner / 64] & bit)) {
            seen.words[owner / 64] |= bit;
            order[found++] = owner;
        }
        point = point + 1 == ring->points ? 0 : point + 1;
    }
    KVR_CHECK(found == limit);
    return found;
}

/* Rendezvous. Every member draws a number u in (0, 1) for the key; the best has the smallest
 * -ln(u) / weight, which is the first of n exponential clocks whose rates are the weights, so that
 * a member wins with probability weight / sum of weights. With equal weights that is the largest u,
 * and no logarithm is needed. */

/* What a member scored for one key. */
struct score {
    double cost;   /* -ln(u) / weight; 0 when all weights are equal */
    uint64_t draw; /* the larger wins */
    uint32_t member;
};

static inline bool better(const struct score *a, const struct score *b)
{
    if (a->cost != b->cost)
        return a->cost < b->cost;
    if (a->draw != b->draw)
        return a->draw > b->draw;
    return a->member < b->member; /* only for twins: two members with one identity */
}

static inline uint64_t draw_of(uint64_t id, uint64_t salted_key)
{
    return kvr_mix64(salted_key ^ (id * GOLDEN));
}

static uint32_t first_of_equals(const uint64_t *ids, uint32_t count, uint64_t salted_key)
{
    uint32_t best = 0;
    uint64_t best_draw = draw_of(ids[0], salted_key);
    for (uint32_t i = 1; i < count; i++) {
        uint64_t draw = draw_of(ids[i], salted_key);
        if (draw > best_draw) {
            best = i;
            best_draw = draw;
        }
    }
    return best;
}

/* A heap with the best on top: building it is linear, and only what is asked for is sorted. */
static void sift_down(struct score *heap, uint32_t count, uint32_t at)
{
    struct score moving = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && better(&heap[child + 1], &heap[child]))
            child++;
        if (!better(&heap[child], &moving))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

static double cost_of(uint64_t draw, double weight)
{
    KVR_CHECK(weight > 0.0);
    double u = ((double)(draw >> 11) + 0.5) * 0x1.0p-53;
    return -kvr_real_log(u) / weight;
}

uint32_t kvr_hrw_order(const uint64_t *ids, const double *weights, uint32_t count, uint64_t key,
                       uint32_t limit, uint32_t *order)
{
    KVR_CHECK(count <= KVR_RING_MEMBERS_MAX);
    if (count == 0)
        return 0;
    if (limit == 0 || limit > count)
        limit = count;
    bool equal = true;
    for (uint32_t i = 1; weights && i < count && equal; i++)
        equal = weights[i] == weights[0];
    uint64_t salted_key = kvr_mix64(key + KEY_SALT);
    if (equal && limit == 1) {
        order[0] = first_of_equals(ids, count, salted_key);
        return 1;
    }
    struct score heap[KVR_RING_MEMBERS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t draw = draw_of(ids[i], salted_key);
        heap[i] = (struct score){equal ? 0.0 : cost_of(draw, weights[i]), draw, i};
    }
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(heap, count, i);
    for (uint32_t taken = 0; taken < limit; taken++) {
        order[taken] = heap[0].member;
        heap[0] = heap[count - 1 - taken];
        sift_down(heap, count - 1 - taken, 0);
    }
    return limit;
}
