#include "ranking.h"

#include <string.h>

#include "check.h"

#define DIGIT_BITS  8u
#define DIGITS      (64u / DIGIT_BITS)
#define VALUES      (1u << DIGIT_BITS)
#define SMALL_RUN   48u /* below, insertion is faster than counting */
#define SIGN        (UINT64_C(1) << 63)
#define DIGIT(r, d) ((uint32_t)((r) >> ((d)*DIGIT_BITS)) & (VALUES - 1))

static void insert_each(struct kvr_ranked *items, uint32_t len)
{
    for (uint32_t i = 1; i < len; i++) {
        struct kvr_ranked moved = items[i];
        uint32_t to = i;
        for (; to > 0 && items[to - 1].rank > moved.rank; to--)
            items[to] = items[to - 1];
        items[to] = moved;
    }
}

void kvr_ranking_sort(struct kvr_ranked *items, struct kvr_ranked *scratch, uint32_t len)
{
    if (len < SMALL_RUN) {
        insert_each(items, len);
        return;
    }
    uint32_t counts[DIGITS][VALUES];
    memset(counts, 0, sizeof counts);
    for (uint32_t i = 0; i < len; i++)
        for (uint32_t digit = 0; digit < DIGITS; digit++)
            counts[digit][DIGIT(items[i].rank, digit)]++;
    struct kvr_ranked *from = items, *to = scratch;
    for (uint32_t digit = 0; digit < DIGITS; digit++) {
        if (counts[digit][DIGIT(from[0].rank, digit)] == len)
            continue; /* all have the same */
        uint32_t start = 0;
        for (uint32_t value = 0; value < VALUES; value++) {
            uint32_t count = counts[digit][value];
            counts[digit][value] = start;
            start += count;
        }
        for (uint32_t i = 0; i < len; i++)
            to[counts[digit][DIGIT(from[i].rank, digit)]++] = from[i];
        struct kvr_ranked *swap = from;
        from = to;
        to = swap;
    }
    if (from != items)
        memcpy(items, from, len * sizeof *items);
}

uint64_t kvr_ranking_falling(double value)
{
    KVR_CHECK(value == value);
    double plain = value + 0.0; /* -0 is 0 */
    uint64_t bits;
    memcpy(&bits, &plain, sizeof bits);
    uint64_t rising = bits & SIGN ? ~bits : bits | SIGN; /* IEEE 754 orders as its bits do */
    return ~rising;
}
