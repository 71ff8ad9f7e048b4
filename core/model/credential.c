#include "credential.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct kvr_digest kvr_credential_digest(uint64_t seed, struct kvr_slice secret)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(secret.len ? secret.data : "", secret.len, seed);
    return (struct kvr_digest){hash.low64, hash.high64};
}

/* All ones where x is 0, else 0. */
static uint32_t mask_of_zero(uint64_t x)
{
    return (uint32_t)((x | (0 - x)) >> 63) - 1;
}

uint32_t kvr_credential_find(const struct kvr_digest *digests, uint32_t count,
                             struct kvr_digest given)
{
    uint32_t found = KVR_NO_CREDENTIAL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t mask = mask_of_zero((digests[i].low ^ given.low) | (digests[i].high ^ given.high));
        found = (found & ~mask) | (i & mask);
    }
    return found;
}

bool kvr_credential_equal(struct kvr_slice secret, struct kvr_slice given)
{
    size_t differ = secret.len ^ given.len;
    for (size_t i = 0; i < given.len; i++)
        differ |= (unsigned char)(given.data[i] ^ (secret.len ? secret.data[i % secret.len] : 0));
    return differ == 0;
}
