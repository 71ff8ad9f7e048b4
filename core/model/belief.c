#include "belief.h"

#include <string.h>

#include "check.h"
#include "lanes.h"

/* A run of pairs to look through: the places of a block, or one line. */
struct pairs {
    uint16_t *tenancies;
    uint32_t *stamps;
    uint32_t base; /* place of the first */
    uint32_t count;
};

void kvr_beliefs_init(struct kvr_beliefs *beliefs, const struct kvr_beliefs_options *options)
{
    KVR_CHECK(options->lines_max <= KVR_BLOCKS_MAX);
    memset(beliefs, 0, sizeof *beliefs);
    kvr_tenancies_init(&beliefs->tenancies, options->replicas_max);
    kvr_stamp_clock_init(&beliefs->clock, options->ttl_ns);
    beliefs->blocks = options->blocks;
    beliefs->lines_max = options->lines_max;
    beliefs->lines_end = 1;
    uint64_t lines = options->lines_max ? options->lines_max + UINT64_C(1) : 0;
    kvr_pages_init(&beliefs->line_pages, lines * sizeof *beliefs->lines);
    beliefs->lines = beliefs->line_pages.memory;
    if (options->ordered)
        kvr_belief_order_init(&beliefs->order, options->blocks_max + UINT64_C(1), lines);
}

void kvr_beliefs_deinit(struct kvr_beliefs *beliefs)
{
    kvr_belief_order_deinit(&beliefs->order);
    kvr_pages_deinit(&beliefs->line_pages);
    kvr_stamp_clock_deinit(&beliefs->clock);
    kvr_tenancies_deinit(&beliefs->tenancies);
    memset(beliefs, 0, sizeof *beliefs);
}

uint64_t kvr_beliefs_bytes(const struct kvr_beliefs *beliefs)
{
    return beliefs->line_pages.bytes + kvr_belief_order_bytes(&beliefs->order) +
           (KVR_STAMP_TICKS + 1) * sizeof(struct kvr_stamp_tick) +
           beliefs->tenancies.capacity * sizeof(struct kvr_tenancy) +
           beliefs->tenancies.replicas_max * sizeof(uint16_t);
}

static inline struct pairs pairs_of_block(const struct kvr_beliefs *beliefs, uint32_t number)
{
    struct kvr_block *block = &beliefs->blocks[number];
    uint32_t empty = kvr_lanes_naming(block->tenancies, KVR_TENANCY_NONE);
    uint32_t count = (uint32_t)__builtin_ctz(empty | 1u << KVR_BLOCK_HOLDERS);
    if (kvr_block_overflow(block))
        count--;
    return (struct pairs){block->tenancies, block->stamps, number * KVR_BLOCK_HOLDERS, count};
}

static inline struct pairs pairs_of_line(const struct kvr_beliefs *beliefs, uint32_t number)
{
    struct kvr_overflow_line *line = &beliefs->lines[number];
    uint32_t count = 0;
    while (count < KVR_LINE_HOLDERS && line->tenancies[count] != KVR_TENANCY_NONE)
        count++;
    return (struct pairs){line->tenancies, line->stamps, KVR_LINE_PLACE | number * 16, count};
}

static inline uint16_t *tenancy_at(const struct kvr_beliefs *beliefs, uint32_t place)
{
    if (place & KVR_LINE_PLACE)
        return &beliefs->lines[(place & ~KVR_LINE_PLACE) / 16].tenancies[place % 16];
    return &beliefs->blocks[place / KVR_BLOCK_HOLDERS].tenancies[place % KVR_BLOCK_HOLDERS];
}

static inline uint32_t *stamp_at(const struct kvr_beliefs *beliefs, uint32_t place)
{
    if (place & KVR_LINE_PLACE)
        return &beliefs->lines[(place & ~KVR_LINE_PLACE) / 16].stamps[place % 16];
    return &beliefs->blocks[place / KVR_BLOCK_HOLDERS].stamps[place % KVR_BLOCK_HOLDERS];
}

uint32_t kvr_belief_stamp(const struct kvr_beliefs *beliefs, uint32_t place)
{
    return *stamp_at(beliefs, place);
}

uint32_t kvr_belief_block(const struct kvr_beliefs *beliefs, uint32_t place)
{
    if (place & KVR_LINE_PLACE)
        return beliefs->lines[(place & ~KVR_LINE_PLACE) / 16].block;
    return place / KVR_BLOCK_HOLDERS;
}

static inline struct kvr_tenancy *tenancy_of_pair(const struct kvr_beliefs *beliefs, uint32_t place)
{
    return &beliefs->tenancies.items[*tenancy_at(beliefs, place)];
}

/* Moves a pair to an unused place, together with its rank in the order. */
static void move_pair(struct kvr_beliefs *beliefs, uint32_t to, uint32_t from)
{
    *tenancy_at(beliefs, to) = *tenancy_at(beliefs, from);
    *stamp_at(beliefs, to) = *stamp_at(beliefs, from);
    if (kvr_belief_order_kept(&beliefs->order))
        kvr_belief_order_move(&beliefs->order, tenancy_of_pair(beliefs, to), to, from);
    *tenancy_at(beliefs, from) = KVR_TENANCY_NONE;
}

/* Overflow lines. */

static uint32_t take_line(struct kvr_beliefs *beliefs, uint32_t block, uint32_t next)
{
    uint32_t number = beliefs->lines_free;
    if (number)
        beliefs->lines_free = beliefs->lines[number].next;
    else if (beliefs->lines_end <= beliefs->lines_max)
        number = beliefs->lines_end++;
    else
        return 0;
    beliefs->lines_used++;
    beliefs->lines[number] = (struct kvr_overflow_line){.next = next, .block = block};
    return number;
}

static void set_head_line(struct kvr_beliefs *beliefs, uint32_t block, uint32_t line)
{
    struct kvr_block *b = &beliefs->blocks[block];
    b->tenancies[KVR_BLOCK_HOLDERS - 1] = line ? KVR_HOLDER_OVERFLOW : KVR_TENANCY_NONE;
    b->stamps[KVR_BLOCK_HOLDERS - 1] = line;
}

/* The head line of the block has become empty. */
static void free_head_line(struct kvr_beliefs *beliefs, uint32_t block)
{
    uint32_t number = kvr_block_overflow(&beliefs->blocks[block]);
    set_head_line(beliefs, block, beliefs->lines[number].next);
    beliefs->lines[number].next = beliefs->lines_free;
    beliefs->lines_free = number;
    beliefs->lines_used--;
}

void kvr_belief_remove(struct kvr_beliefs *beliefs, uint32_t place)
{
    uint32_t block = kvr_belief_block(beliefs, place);
    uint16_t tenancy = *tenancy_at(beliefs, place);
    if (kvr_belief_order_kept(&beliefs->order))
        kvr_belief_order_remove(&beliefs->order, tenancy_of_pair(beliefs, place), place);
    beliefs->pairs--;
    /* The last pair fills the hole, so that pairs stay dense. */
    uint32_t line = kvr_block_overflow(&beliefs->blocks[block]);
    struct pairs last = line ? pairs_of_line(beliefs, line) : pairs_of_block(beliefs, block);
    uint32_t last_place = last.base + last.count - 1;
    if (last_place != place)
        move_pair(beliefs, place, last_place);
    else
        *tenancy_at(beliefs, place) = KVR_TENANCY_NONE;
    if (line && last.count == 1)
        free_head_line(beliefs, block);
    kvr_tenancy_release(&beliefs->tenancies, tenancy);
}

/* A place for one more pair of the block; KVR_NO_PLACE when the overflow is used up. */
static uint32_t new_place(struct kvr_beliefs *beliefs, uint32_t block)
{
    uint32_t line = kvr_block_overflow(&beliefs->blocks[block]);
    struct pairs pairs = line ? pairs_of_line(beliefs, line) : pairs_of_block(beliefs, block);
    if (pairs.count < (line ? KVR_LINE_HOLDERS : KVR_BLOCK_HOLDERS))
        return pairs.base + pairs.count;
    uint32_t fresh = take_line(beliefs, block, line);
    if (!fresh)
        return KVR_NO_PLACE;
    uint32_t base = KVR_LINE_PLACE | fresh * 16;
    if (line) {
        set_head_line(beliefs, block, fresh);
        return base;
    }
    /* The link to the first line takes the place of the block's last pair. */
    move_pair(beliefs, base, pairs.base + KVR_BLOCK_HOLDERS - 1);
    set_head_line(beliefs, block, fresh);
    return base + 1;
}

/* Place of the stalest pair of a block. */
static uint32_t stalest(const struct kvr_beliefs *beliefs, uint32_t block)
{
    uint32_t best = KVR_NO_PLACE, best_age = 0;
    struct pairs pairs = pairs_of_block(beliefs, block);
    for (uint32_t line = kvr_block_overflow(&beliefs->blocks[block]);;
         line = beliefs->lines[line].next) {
        for (uint32_t i = 0; i < pairs.count; i++) {
            uint32_t age = beliefs->clock.next - pairs.stamps[i];
            if (age > best_age) {
                best_age = age;
                best = pairs.base + i;
            }
        }
        if (!line)
            return best;
        pairs = pairs_of_line(beliefs, line);
    }
}

static void add_pair(struct kvr_beliefs *beliefs, uint32_t block, uint16_t tenancy, uint32_t stamp)
{
    uint32_t place = new_place(beliefs, block);
    if (!place) {
        kvr_belief_remove(beliefs, stalest(beliefs, block));
        beliefs->counters.displaced++;
        place = new_place(beliefs, block);
        KVR_CHECK(place);
    }
    *tenancy_at(beliefs, place) = tenancy;
    *stamp_at(beliefs, place) = stamp;
    beliefs->pairs++;
    kvr_tenancy_retain(&beliefs->tenancies, tenancy);
    if (kvr_belief_order_kept(&beliefs->order))
        kvr_belief_order_push(&beliefs->order, tenancy_of_pair(beliefs, place), place);
}

static void count_lapsed(struct kvr_beliefs *beliefs, uint16_t tenancy)
{
    if (beliefs->tenancies.items[tenancy].replica == KVR_TENANCY_ENDED)
        beliefs->counters.voided++;
    else
        beliefs->counters.expired++;
}

/* Drops lapsed pairs of one run, and gives the pair of `tenancy` the new stamp. From the last to
 * the first: what fills a hole then has been looked at. Returns whether that pair was there. */
static bool prune_pairs(struct kvr_beliefs *beliefs, struct pairs pairs, uint16_t tenancy,
                        uint32_t stamp)
{
    bool found = false;
    for (uint32_t i = pairs.count; i-- > 0;) {
        uint16_t holder = pairs.tenancies[i];
        if (holder == tenancy) {
            pairs.stamps[i] = stamp;
            found = true;
        } else if (!kvr_belief_live(beliefs, holder, pairs.stamps[i])) {
            count_lapsed(beliefs, holder);
            kvr_belief_remove(beliefs, pairs.base + i);
        }
    }
    return found;
}

static bool prune_and_refresh(struct kvr_beliefs *beliefs, uint32_t block, uint16_t tenancy,
                              uint32_t stamp)
{
    bool found = false;
    for (uint32_t line = kvr_block_overflow(&beliefs->blocks[block]); line;) {
        uint32_t next = beliefs->lines[line].next; /* the line may be freed */
        found |= prune_pairs(beliefs, pairs_of_line(beliefs, line), tenancy, stamp);
        line = next;
    }
    return found | prune_pairs(beliefs, pairs_of_block(beliefs, block), tenancy, stamp);
}

void kvr_belief_put(struct kvr_beliefs *beliefs, uint32_t block, uint16_t tenancy, uint32_t stamp)
{
    KVR_CHECK(tenancy != KVR_TENANCY_NONE);
    bool found = prune_and_refresh(beliefs, block, tenancy, stamp);
    KVR_CHECK(!(found && kvr_belief_order_kept(&beliefs->order)));
    if (!found)
        add_pair(beliefs, block, tenancy, stamp);
}

void kvr_belief_prune(struct kvr_beliefs *beliefs, uint32_t block)
{
    (void)prune_and_refresh(beliefs, block, KVR_TENANCY_NONE, 0);
}

uint32_t kvr_belief_find(const struct kvr_beliefs *beliefs, uint32_t block, uint16_t tenancy)
{
    if (tenancy == KVR_TENANCY_NONE)
        return KVR_NO_PLACE;
    struct pairs pairs = pairs_of_block(beliefs, block);
    for (uint32_t line = kvr_block_overflow(&beliefs->blocks[block]);;
         line = beliefs->lines[line].next) {
        for (uint32_t i = 0; i < pairs.count; i++) {
            if (pairs.tenancies[i] == tenancy)
                return pairs.base + i;
        }
        if (!line)
            return KVR_NO_PLACE;
        pairs = pairs_of_line(beliefs, line);
    }
}

bool kvr_belief_alike(const struct kvr_beliefs *beliefs, uint32_t block, uint32_t other)
{
    const struct kvr_block *a = &beliefs->blocks[block], *b = &beliefs->blocks[other];
    if (!kvr_lanes_alike(a->tenancies, b->tenancies))
        return false;
    uint32_t left = kvr_block_overflow(a), right = kvr_block_overflow(b);
    while (left && right) {
        const struct kvr_overflow_line *l = &beliefs->lines[left], *r = &beliefs->lines[right];
        if (memcmp(l->tenancies, r->tenancies, sizeof l->tenancies) != 0)
            return false;
        left = l->next;
        right = r->next;
    }
    return left == right; /* both have ended */
}

bool kvr_belief_any(const struct kvr_beliefs *beliefs, uint32_t block)
{
    struct pairs pairs = pairs_of_block(beliefs, block);
    for (uint32_t line = kvr_block_overflow(&beliefs->blocks[block]);;
         line = beliefs->lines[line].next) {
        for (uint32_t i = 0; i < pairs.count; i++) {
            if (kvr_belief_live(beliefs, pairs.tenancies[i], pairs.stamps[i]))
                return true;
        }
        if (!line)
            return false;
        pairs = pairs_of_line(beliefs, line);
    }
}

/* The pair ends with its block. Returns whether it was live. */
static inline bool count_end(struct kvr_beliefs *beliefs, uint16_t tenancy, uint32_t stamp)
{
    bool live = kvr_belief_live(beliefs, tenancy, stamp);
    if (live)
        beliefs->counters.evicted++;
    else
        count_lapsed(beliefs, tenancy);
    return live;
}

/* With an overflow, or an order: pair by pair from the last, as pairs must stay dense. */
static bool clear_last(struct kvr_beliefs *beliefs, uint32_t block)
{
    uint32_t line = kvr_block_overflow(&beliefs->blocks[block]);
    struct pairs pairs = line ? pairs_of_line(beliefs, line) : pairs_of_block(beliefs, block);
    uint32_t last = pairs.count - 1;
    bool live = count_end(beliefs, pairs.tenancies[last], pairs.stamps[last]);
    kvr_belief_remove(beliefs, pairs.base + last);
    return live;
}

bool kvr_belief_clear(struct kvr_beliefs *beliefs, uint32_t number)
{
    struct kvr_block *block = &beliefs->blocks[number];
    bool any = false;
    while (kvr_block_overflow(block) ||
           (kvr_belief_order_kept(&beliefs->order) && block->tenancies[0] != KVR_TENANCY_NONE))
        any |= clear_last(beliefs, number);
    /* What only the block knows of goes as it lies. */
    for (uint32_t i = 0; i < KVR_BLOCK_HOLDERS && block->tenancies[i] != KVR_TENANCY_NONE; i++) {
        any |= count_end(beliefs, block->tenancies[i], block->stamps[i]);
        kvr_tenancy_release(&beliefs->tenancies, block->tenancies[i]);
        block->tenancies[i] = KVR_TENANCY_NONE;
        beliefs->pairs--;
    }
    return any;
}
