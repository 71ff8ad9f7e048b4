#include "rng.h"

#include "check.h"

static inline uint64_t rotate_left(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

void kvr_rng_init(struct kvr_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += 0x9e3779b97f4a7c15u;
        rng->state[i] = kvr_mix64(seed);
    }
}

uint64_t kvr_rng_next(struct kvr_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t kvr_rng_below(struct kvr_rng *rng, uint64_t bound)
{
    KVR_CHECK(bound > 0);
    uint64_t low_limit = -bound % bound;
    for (;;) {
        unsigned __int128 product = (unsigned __int128)kvr_rng_next(rng) * bound;
        if ((uint64_t)product >= low_limit)
            return (uint64_t)(product >> 64);
    }
}

double kvr_rng_double(struct kvr_rng *rng)
{
    return (double)(kvr_rng_next(rng) >> 11) * 0x1.0p-53;
}
