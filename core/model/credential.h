/* Finding which of many secrets was given, in a time that tells nothing about any of them: digests
 * under a seed that only this process knows are compared, all of them and without a branch, and the
 * one that is equal is compared once more byte by byte. */
#ifndef KVR_CREDENTIAL_H
#define KVR_CREDENTIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

#define KVR_NO_CREDENTIAL UINT32_MAX

struct kvr_digest {
    uint64_t low, high;
};

struct kvr_digest kvr_credential_digest(uint64_t seed, struct kvr_slice secret);
/* Index of the digest that is equal, or KVR_NO_CREDENTIAL. */
uint32_t kvr_credential_find(const struct kvr_digest *digests, uint32_t count,
                             struct kvr_digest given);
/* The time depends on the length of `given` only. */
bool kvr_credential_equal(struct kvr_slice secret, struct kvr_slice given);

#endif
