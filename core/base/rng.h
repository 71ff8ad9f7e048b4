/* Seeded pseudo-random numbers: xoshiro256** (Blackman and Vigna, 2018), seeded by splitmix64.
 * Same seed, same numbers, on any machine. The seed is always an input; nothing here reads one. */
#ifndef KVR_RNG_H
#define KVR_RNG_H

#include <stdint.h>

struct kvr_rng {
    uint64_t state[4];
};

void kvr_rng_init(struct kvr_rng *rng, uint64_t seed);
uint64_t kvr_rng_next(struct kvr_rng *rng);
/* Uniform in [0, bound), without bias (Lemire, 2019). bound > 0. */
uint64_t kvr_rng_below(struct kvr_rng *rng, uint64_t bound);
/* Uniform in [0, 1) with 53 bits. */
double kvr_rng_double(struct kvr_rng *rng);

/* The finaliser of splitmix64: a bijection of 64 bits that spreads every input bit. */
static inline uint64_t kvr_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
