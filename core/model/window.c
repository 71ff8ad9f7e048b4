#include "window.h"

#include <string.h>

#include "check.h"
#include "memory.h"
#include "replica.h"
#include "rng.h"

#define ALL_REPLICAS UINT16_MAX
#define NO_REPLICA   (UINT16_MAX - 1)
#define GOLDEN       UINT64_C(0x9e3779b97f4a7c15)

void kvr_window_init(struct kvr_window *window, const struct kvr_window_options *options)
{
    memset(window, 0, sizeof *window);
    uint64_t span_ns = options->span_ns ? options->span_ns : KVR_WINDOW_SPAN_DEFAULT_NS;
    window->cells_max = options->cells_max ? options->cells_max : KVR_WINDOW_CELLS_DEFAULT;
    window->replicas_max = options->replicas_max ? options->replicas_max : KVR_REPLICAS_MAX;
    KVR_CHECK(window->cells_max >= 2 && window->cells_max <= KVR_WINDOW_CELLS_MAX);
    KVR_CHECK(window->replicas_max <= KVR_REPLICAS_MAX);
    window->slice_ns = span_ns / KVR_WINDOW_SLICES + (span_ns % KVR_WINDOW_SLICES != 0);
    window->first_ns = KVR_WINDOW_NEVER;
    window->end = 1;
    uint32_t heads = 1;
    while (heads < window->cells_max)
        heads *= 2;
    window->hash_mask = heads - 1;
    kvr_pages_init(&window->cell_pages, (window->cells_max + (size_t)1) * sizeof *window->cells);
    kvr_pages_init(&window->head_pages, heads * sizeof *window->heads);
    window->cells = window->cell_pages.memory;
    window->heads = window->head_pages.memory;
    window->replica_totals = kvr_alloc_zero(window->replicas_max, sizeof *window->replica_totals);
    window->lives = kvr_alloc_zero(window->replicas_max, sizeof *window->lives);
}

void kvr_window_deinit(struct kvr_window *window)
{
    kvr_pages_deinit(&window->cell_pages);
    kvr_pages_deinit(&window->head_pages);
    kvr_free(window->replica_totals);
    kvr_free(window->lives);
    memset(window, 0, sizeof *window);
}

uint64_t kvr_window_bytes(const struct kvr_window *window)
{
    return sizeof *window + window->cell_pages.bytes + window->head_pages.bytes +
           window->replicas_max * (sizeof *window->replica_totals + sizeof *window->lives);
}

/* Slices. A ring of counts is of the 16 slices that end with the last one added to; those that are
 * no longer in the span, and those that have passed since without an addition, count as 0. */

static uint64_t slice_of(const struct kvr_window *window, uint64_t now_ns)
{
    return (now_ns > window->last_ns ? now_ns : window->last_ns) / window->slice_ns;
}

/* How many of the slices that end with `last` are in the span that ends with `now`. */
static uint32_t slices_left(uint64_t last, uint64_t now)
{
    uint64_t passed = now - last;
    return passed < KVR_WINDOW_SLICES ? KVR_WINDOW_SLICES - (uint32_t)passed : 0;
}

static uint64_t sum_cell(const struct kvr_window *window, const struct kvr_window_cell *cell,
                         uint64_t now)
{
    uint64_t last = cell->last_ns / window->slice_ns;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < slices_left(last, now); i++)
        sum += cell->counts[(last - i) % KVR_WINDOW_SLICES];
    return sum;
}

static uint64_t sum_total(const struct kvr_window_total *total, uint64_t now)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < slices_left(total->last_slice, now); i++)
        sum += total->counts[(total->last_slice - i) % KVR_WINDOW_SLICES];
    return sum;
}

static void add_to_total(struct kvr_window_total *total, uint64_t now, uint32_t amount)
{
    uint32_t left = slices_left(total->last_slice, now);
    for (uint32_t i = left; i < KVR_WINDOW_SLICES; i++)
        total->counts[(now - (i - left)) % KVR_WINDOW_SLICES] = 0;
    total->last_slice = now;
    total->counts[now % KVR_WINDOW_SLICES] += amount;
}

static void add_to_cell(struct kvr_window *window, struct kvr_window_cell *cell, uint64_t now,
                        uint32_t amount)
{
    uint32_t left = slices_left(cell->last_ns / window->slice_ns, now);
    for (uint32_t i = left; i < KVR_WINDOW_SLICES; i++)
        cell->counts[(now - (i - left)) % KVR_WINDOW_SLICES] = 0;
    cell->last_ns = window->last_ns;
    uint32_t *count = &cell->counts[now % KVR_WINDOW_SLICES];
    if (amount > UINT32_MAX - *count) {
        *count = UINT32_MAX;
        window->saturated++;
    } else {
        *count += amount;
    }
}

/* Cells. */

static uint32_t *head_of(const struct kvr_window *window, uint64_t key, uint16_t replica,
                         uint32_t life)
{
    uint64_t who = (uint64_t)life << 16 | replica;
    return &window->heads[kvr_mix64(key + GOLDEN * (who + 1)) & window->hash_mask];
}

static uint32_t life_of(const struct kvr_window *window, uint16_t replica)
{
    return replica == ALL_REPLICAS ? 0 : window->lives[replica];
}

static uint32_t find_cell(const struct kvr_window *window, uint64_t key, uint16_t replica)
{
    uint32_t life = life_of(window, replica);
    uint32_t number = *head_of(window, key, replica, life);
    for (; number; number = window->cells[number].next) {
        const struct kvr_window_cell *cell = &window->cells[number];
        if (cell->key == key && cell->replica == replica && cell->life == life)
            return number;
    }
    return 0;
}

static void unlink_from_ring(struct kvr_window *window, uint32_t number)
{
    struct kvr_window_cell *cell = &window->cells[number];
    window->cells[cell->newer].older = cell->older;
    window->cells[cell->older].newer = cell->newer;
}

static void link_newest(struct kvr_window *window, uint32_t number)
{
    struct kvr_window_cell *cell = &window->cells[number];
    cell->newer = 0;
    cell->older = window->cells[0].older;
    window->cells[cell->older].newer = number;
    window->cells[0].older = number;
}

/* The cell that was added to longest ago. A key's own cell is newer than those of its replicas, so
 * when it goes they have gone. */
static void evict_oldest(struct kvr_window *window)
{
    uint32_t number = window->cells[0].newer;
    struct kvr_window_cell *cell = &window->cells[number];
    if (cell->replica == ALL_REPLICAS) {
        KVR_CHECK(cell->right == 0);
        window->keys_evicted++;
    } else {
        window->cells[cell->left].right = cell->right;
        if (cell->right)
            window->cells[cell->right].left = cell->left;
        window->pairs_evicted++;
    }
    uint32_t *link = head_of(window, cell->key, cell->replica, cell->life);
    while (*link != number)
        link = &window->cells[*link].next;
    *link = cell->next;
    unlink_from_ring(window, number);
    cell->replica = NO_REPLICA;
    cell->next = window->free;
    window->free = number;
    window->used--;
}

static uint32_t take_cell(struct kvr_window *window, uint64_t key, uint16_t replica)
{
    if (window->used == window->cells_max)
        evict_oldest(window);
    uint32_t number = window->free;
    if (number)
        window->free = window->cells[number].next;
    else
        number = window->end++;
    window->used++;
    uint32_t life = life_of(window, replica);
    uint32_t *head = head_of(window, key, replica, life);
    window->cells[number] = (struct kvr_window_cell){
        .key = key,
        .last_ns = window->last_ns,
        .next = *head,
        .life = life,
        .replica = replica,
    };
    *head = number;
    link_newest(window, number);
    return number;
}

static void touch_cell(struct kvr_window *window, uint32_t number)
{
    unlink_from_ring(window, number);
    link_newest(window, number);
}

void kvr_window_add(struct kvr_window *window, uint64_t now_ns, uint64_t key, uint32_t replica,
                    uint32_t amount)
{
    KVR_CHECK(replica < window->replicas_max);
    if (now_ns > window->last_ns)
        window->last_ns = now_ns;
    if (window->first_ns == KVR_WINDOW_NEVER)
        window->first_ns = window->last_ns;
    uint64_t now = slice_of(window, window->last_ns);
    add_to_total(&window->total, now, amount);
    add_to_total(&window->replica_totals[replica], now, amount);
    uint32_t own = find_cell(window, key, ALL_REPLICAS);
    if (own)
        touch_cell(window, own); /* so that making room below does not meet it */
    else
        own = take_cell(window, key, ALL_REPLICAS);
    uint32_t pair = find_cell(window, key, (uint16_t)replica);
    if (pair) {
        touch_cell(window, pair);
    } else {
        pair = take_cell(window, key, (uint16_t)replica);
        uint32_t first = window->cells[own].right;
        window->cells[pair].left = own;
        window->cells[pair].right = first;
        if (first)
            window->cells[first].left = pair;
        window->cells[own].right = pair;
    }
    touch_cell(window, own);
    add_to_cell(window, &window->cells[own], now, amount);
    add_to_cell(window, &window->cells[pair], now, amount);
}

void kvr_window_forget(struct kvr_window *window, uint32_t replica)
{
    KVR_CHECK(replica < window->replicas_max);
    window->lives[replica]++;
    memset(&window->replica_totals[replica], 0, sizeof window->replica_totals[replica]);
}

/* Readings. */

uint64_t kvr_window_count(const struct kvr_window *window, uint64_t now_ns, uint64_t key)
{
    uint32_t cell = find_cell(window, key, ALL_REPLICAS);
    return cell ? sum_cell(window, &window->cells[cell], slice_of(window, now_ns)) : 0;
}

uint64_t kvr_window_count_at(const struct kvr_window *window, uint64_t now_ns, uint64_t key,
                             uint32_t replica)
{
    KVR_CHECK(replica < window->replicas_max);
    uint32_t cell = find_cell(window, key, (uint16_t)replica);
    return cell ? sum_cell(window, &window->cells[cell], slice_of(window, now_ns)) : 0;
}

uint64_t kvr_window_total(const struct kvr_window *window, uint64_t now_ns)
{
    return sum_total(&window->total, slice_of(window, now_ns));
}

uint64_t kvr_window_total_at(const struct kvr_window *window, uint64_t now_ns, uint32_t replica)
{
    KVR_CHECK(replica < window->replicas_max);
    return sum_total(&window->replica_totals[replica], slice_of(window, now_ns));
}

double kvr_window_share(const struct kvr_window *window, uint64_t now_ns, uint64_t key)
{
    uint64_t total = kvr_window_total(window, now_ns);
    return total ? (double)kvr_window_count(window, now_ns, key) / (double)total : 0.0;
}

uint64_t kvr_window_covered_ns(const struct kvr_window *window, uint64_t now_ns)
{
    if (window->first_ns == KVR_WINDOW_NEVER)
        return 0;
    uint64_t now = slice_of(window, now_ns);
    uint64_t oldest = now >= KVR_WINDOW_SLICES - 1 ? now - (KVR_WINDOW_SLICES - 1) : 0;
    uint64_t start_ns = oldest * window->slice_ns;
    if (start_ns < window->first_ns)
        start_ns = window->first_ns;
    return (now_ns > window->last_ns ? now_ns : window->last_ns) - start_ns;
}

uint64_t kvr_window_last_ns(const struct kvr_window *window, uint64_t key, uint32_t replica)
{
    KVR_CHECK(replica < window->replicas_max);
    uint32_t cell = find_cell(window, key, (uint16_t)replica);
    return cell ? window->cells[cell].last_ns : KVR_WINDOW_NEVER;
}

uint32_t kvr_window_pairs(const struct kvr_window *window, uint64_t now_ns, uint64_t key,
                          struct kvr_window_pair *pairs, uint32_t max)
{
    uint32_t own = find_cell(window, key, ALL_REPLICAS);
    if (!own)
        return 0;
    uint64_t now = slice_of(window, now_ns);
    uint32_t count = 0;
    for (uint32_t number = window->cells[own].right; number && count < max;
         number = window->cells[number].right) {
        const struct kvr_window_cell *cell = &window->cells[number];
        if (cell->life == window->lives[cell->replica])
            pairs[count++] =
                (struct kvr_window_pair){sum_cell(window, cell, now), cell->last_ns, cell->replica};
    }
    return count;
}

uint32_t kvr_window_keys(const struct kvr_window *window, uint64_t now_ns, uint32_t *cursor,
                         struct kvr_window_key *keys, uint32_t max)
{
    uint64_t now = slice_of(window, now_ns);
    uint32_t count = 0;
    uint32_t number = *cursor ? *cursor : 1;
    uint32_t until = max < window->end - number ? number + max : window->end;
    for (; number < until; number++) {
        const struct kvr_window_cell *cell = &window->cells[number];
        uint64_t sum = cell->replica == ALL_REPLICAS ? sum_cell(window, cell, now) : 0;
        if (sum)
            keys[count++] = (struct kvr_window_key){cell->key, sum};
    }
    *cursor = number < window->end ? number : 0;
    return count;
}
