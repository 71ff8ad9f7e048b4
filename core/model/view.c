#include "view.h"

#include <math.h>
#include <string.h>

#include "memory.h"
#include "model_key.h"
#include "rng.h"

void kvr_picture_init(struct kvr_picture *picture, uint32_t capacity)
{
    KVR_CHECK(capacity > 0 && capacity <= KVR_RING_MEMBERS_MAX);
    *picture = (struct kvr_picture){.capacity = capacity};
    picture->rows = kvr_alloc_zero(capacity, sizeof *picture->rows);
    picture->order_rows = kvr_alloc_zero(capacity, sizeof *picture->order_rows);
    picture->ids = kvr_alloc_zero(capacity, sizeof *picture->ids);
    picture->weights = kvr_alloc_zero(capacity, sizeof *picture->weights);
    picture->view.rows = picture->rows;
    picture->order.rows = picture->order_rows;
    kvr_picture_summarise(picture, 0);
}

void kvr_picture_deinit(struct kvr_picture *picture)
{
    kvr_free(picture->rows);
    kvr_free(picture->order_rows);
    kvr_free(picture->ids);
    kvr_free(picture->weights);
    *picture = (struct kvr_picture){0};
}

/* The larger of two, of which either may be NaN (unread). */
static inline double larger(double a, double b)
{
    return b > a || isnan(a) ? b : a;
}

void kvr_picture_summarise(struct kvr_picture *picture, uint32_t count)
{
    KVR_CHECK(count <= picture->capacity);
    uint32_t available = 0;
    uint32_t max_match_blocks = 0;
    double total_in_flight = 0.0;
    double total_load = 0.0;
    double total_weight = 0.0;
    double min_in_flight = (double)INFINITY;
    double max_in_flight = 0.0;
    double min_load = (double)INFINITY;
    double max_prefill = (double)NAN;
    for (uint32_t i = 0; i < count; i++) {
        const struct kvr_replica_view *row = &picture->rows[i];
        if (!row->available)
            continue;
        available++;
        total_in_flight += row->in_flight;
        total_load += row->load;
        total_weight += row->weight * row->ramp;
        if (row->in_flight < min_in_flight)
            min_in_flight = row->in_flight;
        if (row->in_flight > max_in_flight)
            max_in_flight = row->in_flight;
        if (row->load < min_load)
            min_load = row->load;
        if (row->match_blocks > max_match_blocks)
            max_match_blocks = row->match_blocks;
        max_prefill = larger(max_prefill, row->prefill_tokens_per_s);
    }
    struct kvr_view *view = &picture->view;
    view->count = count;
    view->available = available;
    view->max_match_blocks = max_match_blocks;
    view->total_in_flight = total_in_flight;
    view->min_in_flight = available ? min_in_flight : (double)NAN;
    view->max_in_flight = max_in_flight;
    view->mean_in_flight = available ? total_in_flight / available : (double)NAN;
    view->min_load = available ? min_load : (double)NAN;
    view->mean_load = available ? total_load / available : (double)NAN;
    view->total_weight = total_weight;
    view->max_prefill_tokens_per_s = max_prefill;
}

/* Consecutive keys and small salts must land far apart, and no salt may undo a key. */
static uint64_t position(uint32_t key, uint32_t salt)
{
    return kvr_mix64(((uint64_t)salt << 32 | key) + 0x9e3779b97f4a7c15u);
}

uint32_t kvr_picture_ring_order(struct kvr_picture *picture, uint32_t key, uint32_t salt,
                                uint32_t limit)
{
    const struct kvr_hash_ring *ring = picture->ring;
    picture->order.count = 0;
    if (!ring)
        return 0;
    KVR_CHECK(ring->members == picture->view.count);
    picture->order.count =
        kvr_hash_ring_order(ring, position(key, salt), limit, picture->order_rows);
    return picture->order.count;
}

uint32_t kvr_picture_hrw_order(struct kvr_picture *picture, uint32_t key, uint32_t salt,
                               uint32_t limit)
{
    picture->order.count = kvr_hrw_order(picture->ids, picture->weights, picture->view.count,
                                         position(key, salt), limit, picture->order_rows);
    return picture->order.count;
}

static inline double number_at(const struct kvr_replica_view *row, uint32_t offset)
{
    double number;
    memcpy(&number, (const char *)row + offset, sizeof number);
    return number;
}

/* What a row must be to be compared. */
struct wanted {
    uint32_t blocks;
    uint32_t except;
    uint32_t assigned;
    bool ever; /* whenever the key came; it may never have, and its age is NaN then */
    double recent_ms;
};

static inline bool is_wanted(const struct kvr_replica_view *row, uint32_t index,
                             const struct wanted *wanted)
{
    return row->assigned >= wanted->assigned && row->available &&
           row->match_blocks >= wanted->blocks && index != wanted->except &&
           (wanted->ever || row->key_age_ms <= wanted->recent_ms);
}

int32_t kvr_picture_least(const struct kvr_picture *picture, uint32_t offset, uint32_t blocks,
                          uint32_t except, uint32_t assigned, double recent_ms)
{
    KVR_CHECK(offset + sizeof(double) <= sizeof(struct kvr_replica_view));
    const struct kvr_replica_view *rows = picture->rows;
    uint32_t count = picture->view.count;
    const struct wanted wanted = {blocks, except, assigned, isinf(recent_ms), recent_ms};
    double best = (double)INFINITY;
    uint32_t ties = 0, first = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_wanted(&rows[i], i, &wanted))
            continue;
        double number = number_at(&rows[i], offset);
        if (number < best) {
            best = number;
            ties = 1;
            first = i;
        } else if (number == best) {
            first = ties ? first : i;
            ties++;
        }
    }
    if (ties == 0)
        return -1;
    uint32_t skip = ties > 1 ? picture->request.serial % ties : 0;
    for (uint32_t i = first; i < count; i++)
        if (is_wanted(&rows[i], i, &wanted) && number_at(&rows[i], offset) == best && skip-- == 0)
            return (int32_t)i;
    return -1; /* not reached: the second pass sees what the first saw */
}

int32_t kvr_picture_nth_available(const struct kvr_picture *picture, uint32_t n)
{
    if (picture->view.available == 0)
        return -1;
    n %= picture->view.available;
    for (uint32_t i = 0; i < picture->view.count; i++)
        if (picture->rows[i].available && n-- == 0)
            return (int32_t)i;
    return -1; /* not reached: `available` counts these rows */
}

int32_t kvr_picture_first_available(const struct kvr_picture *picture, uint32_t except)
{
    for (uint32_t place = 0; place < picture->order.count; place++)
        if (picture->rows[picture->order_rows[place]].available &&
            picture->order_rows[place] != except)
            return (int32_t)place;
    return -1;
}

double kvr_picture_share(const struct kvr_picture *picture, uint32_t key)
{
    if (!picture->keys)
        return (double)NAN;
    return kvr_window_share(picture->keys, picture->now_ns,
                            kvr_model_key(picture->request.model, key));
}

/* Every request is counted under this too, so that shares are of requests. */
#define ANY_OPENING 0

static inline uint32_t next_depth(uint32_t blocks)
{
    return blocks < KVR_OPENING_STRIDE ? 2 * blocks : blocks + KVR_OPENING_STRIDE;
}

void kvr_picture_count_opening(struct kvr_window *openings, uint64_t now_ns, const uint64_t *chain,
                               uint32_t len)
{
    kvr_window_add(openings, now_ns, ANY_OPENING, 0, 1);
    for (uint32_t blocks = 1; blocks <= len && blocks <= KVR_OPENING_MAX;
         blocks = next_depth(blocks))
        kvr_window_add(openings, now_ns, chain[blocks - 1], 0, 1);
}

double kvr_picture_opening_share(const struct kvr_picture *picture, uint32_t blocks)
{
    const struct kvr_request_view *request = &picture->request;
    bool counted = blocks > 0 && blocks <= KVR_OPENING_MAX &&
                   (KVR_OPENING_STRIDE % blocks == 0 || blocks % KVR_OPENING_STRIDE == 0);
    if (!picture->openings || !counted || blocks > request->chain_len)
        return (double)NAN;
    const struct kvr_block_key *last = &request->chain[blocks - 1];
    uint64_t all = kvr_window_count(picture->openings, picture->now_ns, ANY_OPENING);
    uint64_t same = kvr_window_count(picture->openings, picture->now_ns,
                                     (uint64_t)last->high << 32 | last->key);
    return all ? (double)same / (double)all : 0.0;
}

uint32_t kvr_picture_rare_opening(const struct kvr_picture *picture, double share, uint32_t least)
{
    for (uint32_t blocks = 1; blocks <= KVR_OPENING_MAX; blocks = next_depth(blocks))
        if (blocks >= least && kvr_picture_opening_share(picture, blocks) <= share)
            return blocks;
    return 0;
}
