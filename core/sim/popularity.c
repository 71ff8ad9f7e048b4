#include "popularity.h"

#include <math.h>

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

/* What the largest rates are cut to, so that none is more than `cap` of the sum of all: with the
 * first k of them at x, the others at rest, x = cap (k x + rest). `rates` fall; cap x count >= 1.
 */
static double cut_at(const double *rates, uint32_t count, double cap)
{
    double rest = 0;
    for (uint32_t i = 0; i < count; i++)
        rest += rates[i];
    uint32_t k = 0;
    double limit = cap * rest;
    while (limit < rates[k]) {
        rest -= rates[k++];
        limit = cap * rest / (1 - cap * k);
    }
    return limit;
}

void kvr_popularity_init_lognormal(struct kvr_popularity *popularity, uint32_t count,
                                   uint32_t population, double sigma, double cap)
{
    KVR_CHECK(count > 0 && count <= population && sigma >= 0 && cap * population >= 1);
    double *rates = kvr_alloc(population * sizeof *rates);
    for (uint32_t i = 0; i < population; i++)
        rates[i] = kvr_real_exp(-sigma * kvr_real_normal_quantile((i + 0.5) / population));
    double limit = cut_at(rates, population, cap);
    popularity->count = count;
    popularity->upto = kvr_alloc(count * sizeof *popularity->upto);
    for (uint32_t i = 0; i < count; i++)
        popularity->upto[i] = fmin(rates[i], limit);
    kvr_free(rates);
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
