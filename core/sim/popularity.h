/* Draws one of n things, each with its weight: an exact cumulative table and a guide into it, so
 * that a draw takes a step or two. */
#ifndef KVR_POPULARITY_H
#define KVR_POPULARITY_H

#include <stdint.h>

struct kvr_popularity {
    double *upto;    /* share of things 0..i */
    uint32_t *guide; /* first thing whose share reaches i / count */
    uint32_t count;
};

/* `weights` are >= 0, with a sum > 0; copied. count > 0. */
void kvr_popularity_init(struct kvr_popularity *popularity, const double *weights, uint32_t count);
/* The i-th weighs (i + 1 + shift)^-power. */
void kvr_popularity_init_power(struct kvr_popularity *popularity, uint32_t count, double shift,
                               double power);
/* The `count` most frequent of `population` things whose rates are lognormal of deviation `sigma`:
 * its quantiles at (i - 1/2) / population, so that no draw of rates stands for the distribution,
 * and none more than `cap` of their sum. 0 < count <= population, sigma >= 0, cap >= 1 /
 * population. */
void kvr_popularity_init_lognormal(struct kvr_popularity *popularity, uint32_t count,
                                   uint32_t population, double sigma, double cap);
void kvr_popularity_deinit(struct kvr_popularity *popularity);
/* `unit` in [0, 1). */
uint32_t kvr_popularity_draw(const struct kvr_popularity *popularity, double unit);

#endif
