/* What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput; clang links it
 * with libFuzzer as fuzz_NAME, and every test run links it with replay_main.c as replay_NAME, which
 * shows it the files of corpus/NAME and regressions/NAME. So a finding, once fixed, stays fixed.
 *
 * Targets that read a stream begin their input with a plan of cuts: the first byte, modulo 8, is
 * how many bytes of lengths follow, each the length of one piece; what is left is the last piece.
 * They read the same bytes whole and byte by byte too, and what they understood must be the same.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "slice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A promise of the code under test that does not hold. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The input, taken from its front. Past its end there are only zeros. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

static inline uint8_t fuzz_byte(struct fuzz_input *input)
{
    if (input->left == 0)
        return 0;
    input->left--;
    return *input->at++;
}

static inline uint64_t fuzz_number(struct fuzz_input *input, unsigned bytes)
{
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | fuzz_byte(input);
    return value;
}

/* What is left, in memory of exactly its size: one byte read too far is seen. The caller frees. */
static inline char *fuzz_rest(const struct fuzz_input *input)
{
    char *copy = malloc(input->left ? input->left : 1);
    FUZZ_CHECK(copy);
    if (input->left)
        memcpy(copy, input->at, input->left);
    return copy;
}

/* ---- cuts ---- */

#define FUZZ_CUTS_MAX 7

struct fuzz_cuts {
    size_t lengths[FUZZ_CUTS_MAX];
    unsigned count;
    bool bytewise;
    unsigned next;
};

static const struct fuzz_cuts fuzz_whole = {.bytewise = false};
static const struct fuzz_cuts fuzz_bytewise = {.bytewise = true};

static inline struct fuzz_cuts fuzz_take_cuts(struct fuzz_input *input)
{
    struct fuzz_cuts cuts = {.count = fuzz_byte(input) % (FUZZ_CUTS_MAX + 1)};
    for (unsigned i = 0; i < cuts.count; i++)
        cuts.lengths[i] = fuzz_byte(input);
    return cuts;
}

/* Length of the next piece of the `left` bytes there are; at least one. */
static inline size_t fuzz_piece(struct fuzz_cuts *cuts, size_t left)
{
    size_t length = cuts->bytewise ? 1 : left;
    if (!cuts->bytewise && cuts->next < cuts->count)
        length = cuts->lengths[cuts->next++];
    if (length == 0)
        length = 1;
    return length < left ? length : left;
}

/* ---- what was understood, as text, to be compared ---- */

static inline void fuzz_same(const struct kvr_buffer *a, const struct kvr_buffer *b)
{
    if (kvr_slice_equal(kvr_buffer_slice(a), kvr_buffer_slice(b)))
        return;
    fprintf(stderr, "understood differently:\n--- one\n%.*s\n--- the other\n%.*s\n", (int)a->len,
            a->data ? a->data : "", (int)b->len, b->data ? b->data : "");
    abort();
}

static inline void fuzz_note_slice(struct kvr_buffer *log, const char *name, struct kvr_slice slice)
{
    kvr_buffer_printf(log, "%s[%zu]=", name, slice.len);
    if (slice.len)
        kvr_buffer_append_slice(log, slice);
    kvr_buffer_append_text(log, "\n");
}

#endif
