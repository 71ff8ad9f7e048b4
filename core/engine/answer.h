/* What an emulated engine says: text and length as pure functions of a seed, so that the same
 * prompt gets the same answer from every replica, today and tomorrow, and the next turn that quotes
 * it finds its blocks.
 *
 * The text is printable ASCII, so that any cut between tokens is a cut between characters. Token k
 * of an answer is the bytes [kvr_tokens_cut(k), kvr_tokens_cut(k + 1)) of its text. */
#ifndef KVR_ANSWER_H
#define KVR_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes bytes [offset, offset + len) of the answer of `seed`. */
void kvr_answer_bytes(uint64_t seed, size_t offset, size_t len, char *out);

/* How many tokens the model says before it stops by itself: with probability `early_share` uniform
 * in 1..max_tokens-1, otherwise max_tokens. */
struct kvr_answer_length {
    uint32_t tokens;
    bool stopped; /* by itself, before max_tokens: finish reason `stop`, otherwise `length` */
};

struct kvr_answer_length kvr_answer_length(uint64_t seed, uint32_t max_tokens, double early_share);

#endif
