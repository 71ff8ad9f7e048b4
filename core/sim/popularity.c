#include "popularity.h"

#include "check.h"
#include "memory.h"
#include "real.h"

/* From weights in `upto` to shares, and the guide. */
static void finish(struct kvr_popularity *popularity)
{
    double total = 0;
    for (uint32_t i = 0; i < popularity->count; i++) {
        KVR_CHECK(popularity->upto[i] >= 0);
        total += popularity->upto[i];
        popularity->upto[i] = total;
    }
    KVR_CHECK(total > 0);
    for (uint32_t i = 0; i < popularity->count; i++)
        popularity->upto[i] /= total;
    popularity->guide = kvr_alloc_zero(popularity->count, sizeof *popularity->guide);
    uint32_t thing = 0;
    for (uint32_t i = 0; i < popularity->count; i++) {
        while (popularity->upto[thing] <= (double)i / (double)popularity->count)
            thing++;
        popularity->guide[i] = thing;
    }
}

void kvr_popularity_init(struct kvr_popularity *popularity, const double *weights, uint32_t count)
{
    KVR_CHECK(count > 0);
    popularity->count = count;
    popularity->upto = kvr_alloc(count * sizeof *popularity->upto);
    for (uint32_t i = 0; i < count; i++)
        popularity->upto[i] = weights[i];
    finish(popularity);
}

void kvr_popularity_init_power(struct kvr_popularity *popularity, uint32_t count, double shift,
                               double power)
{
    KVR_CHECK(count > 0);
    popularity->count = count;
    popularity->upto = kvr_alloc(count * sizeof *popularity->upto);
    for (uint32_t i = 0; i < count; i++)
        popularity->upto[i] = kvr_real_pow(i + 1 + shift, -power);
    finish(popularity);
}

void kvr_popularity_deinit(struct kvr_popularity *popularity)
{
    kvr_free(popularity->upto);
    kvr_free(popularity->guide);
    *popularity = (struct kvr_popularity){0};
}

uint32_t kvr_popularity_draw(const struct kvr_popularity *popularity, double unit)
{
    uint32_t thing = popularity->guide[(uint32_t)(unit * popularity->count)];
    while (thing + 1 < popularity->count && popularity->upto[thing] <= unit)
        thing++;
    return thing;
}
