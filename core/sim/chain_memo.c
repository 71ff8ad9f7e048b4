#include "chain_memo.h"

#include <string.h>

#include "check.h"
#include "memory.h"
#include "rng.h"

#define PLACES_MIN 1024u
#define PLACES_MAX (1u << 17) /* known at once */
#define WORDS_MIN  16384u
#define WORDS_MAX  (1u << 22) /* 32 MiB */

static void make_places(struct kvr_chain_memo *memo, uint32_t slots)
{
    memo->places = kvr_alloc_zero(slots, sizeof *memo->places);
    memo->places_mask = slots - 1;
}

void kvr_chain_memo_init(struct kvr_chain_memo *memo)
{
    *memo = (struct kvr_chain_memo){.words_capacity = WORDS_MIN};
    make_places(memo, PLACES_MIN);
    memo->words = kvr_alloc(memo->words_capacity * sizeof *memo->words);
}

void kvr_chain_memo_deinit(struct kvr_chain_memo *memo)
{
    kvr_free(memo->places);
    kvr_free(memo->words);
}

/* Where the key is, or the free slot where it belongs. */
static struct kvr_chain_place *slot_of(const struct kvr_chain_memo *memo, uint64_t key)
{
    uint32_t at = (uint32_t)(key >> 32) & memo->places_mask;
    while (memo->places[at].key && memo->places[at].key != key)
        at = (at + 1) & memo->places_mask;
    return &memo->places[at];
}

const struct kvr_chain_place *kvr_chain_memo_find(struct kvr_chain_memo *memo, uint64_t key)
{
    const struct kvr_chain_place *place = slot_of(memo, key);
    if (place->key == 0)
        return NULL;
    memo->found++;
    return place;
}

const uint64_t *kvr_chain_memo_blocks(const struct kvr_chain_memo *memo,
                                      const struct kvr_chain_place *place)
{
    return memo->words + place->words_at;
}

void kvr_chain_memo_tail(const struct kvr_chain_memo *memo, const struct kvr_chain_place *place,
                         struct kvr_prompt_tail *tail)
{
    tail->hash = place->hash;
    tail->block_at = place->block_at;
    tail->blocks = place->before;
    tail->rest_bytes = place->rest_bytes;
    memcpy(tail->rest, memo->words + place->words_at + place->blocks, place->rest_bytes);
}

static void grow_places(struct kvr_chain_memo *memo)
{
    struct kvr_chain_place *old = memo->places;
    uint32_t slots = memo->places_mask + 1;
    make_places(memo, slots * 2);
    for (uint32_t i = 0; i < slots; i++)
        if (old[i].key)
            *slot_of(memo, old[i].key) = old[i];
    kvr_free(old);
}

/* Room for one more place and so many words; forgets everything when that is too much. */
static void make_room(struct kvr_chain_memo *memo, uint32_t words)
{
    if (memo->places_len == PLACES_MAX || memo->words_len + words > WORDS_MAX) {
        memset(memo->places, 0, (memo->places_mask + 1) * sizeof *memo->places);
        memo->places_len = memo->words_len = 0;
        memo->forgotten++;
    }
    if (memo->places_len * 2 > memo->places_mask)
        grow_places(memo);
    if (memo->words_len + words <= memo->words_capacity)
        return;
    while (memo->words_len + words > memo->words_capacity)
        memo->words_capacity *= 2;
    memo->words = kvr_realloc(memo->words, memo->words_capacity * sizeof *memo->words);
}

void kvr_chain_memo_keep(struct kvr_chain_memo *memo, uint64_t key, const struct kvr_prompt *prompt)
{
    const struct kvr_prompt_tail *tail = &prompt->tail;
    uint32_t words = prompt->chain_len + (tail->rest_bytes + 7) / 8;
    memo->made++;
    if (words > WORDS_MAX / 8)
        return; /* it would drive out all others */
    make_room(memo, words);
    struct kvr_chain_place *place = slot_of(memo, key);
    KVR_CHECK(key != 0 && place->key == 0);
    *place = (struct kvr_chain_place){
        .key = key,
        .hash = tail->hash,
        .block_at = tail->block_at,
        .words_at = memo->words_len,
        .blocks = prompt->chain_len,
        .before = tail->blocks,
        .rest_bytes = tail->rest_bytes,
    };
    uint64_t *to = memo->words + memo->words_len;
    if (prompt->chain_len)
        memcpy(to, prompt->chain, prompt->chain_len * sizeof *to);
    memcpy(to + prompt->chain_len, tail->rest, tail->rest_bytes);
    memo->words_len += words;
    memo->places_len++;
}
