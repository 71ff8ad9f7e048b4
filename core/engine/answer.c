#include "answer.h"

#include "check.h"
#include "rng.h"

/* 32 letters and spaces, roughly as often as in English. */
static const char alphabet[] = "etaoinshrdlucmfwypvbgk  e t a o ";
_Static_assert(sizeof alphabet == 33, "five bits choose a letter");

void kvr_answer_bytes(uint64_t seed, size_t offset, size_t len, char *out)
{
    /* One mix gives the 8 bytes of a word, so that any range can be written alone. */
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++) {
        size_t at = offset + i;
        if (i == 0 || at % 8 == 0)
            word = kvr_mix64(seed + (at / 8 + 1) * 0x9e3779b97f4a7c15u);
        out[i] = alphabet[(word >> (at % 8 * 8)) & 31];
    }
}

struct kvr_answer_length kvr_answer_length(uint64_t seed, uint32_t max_tokens, double early_share)
{
    KVR_CHECK(max_tokens > 0);
    struct kvr_rng rng;
    kvr_rng_init(&rng, seed ^ 0x6c656e6774680000u);
    if (max_tokens == 1 || kvr_rng_double(&rng) >= early_share)
        return (struct kvr_answer_length){max_tokens, false};
    return (struct kvr_answer_length){1 + (uint32_t)kvr_rng_below(&rng, max_tokens - 1), true};
}
