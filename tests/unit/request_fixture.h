/* Scans a body as the router does, from memory that ends where the body ends, and checks the chain
 * against its definition every time. */
#ifndef REQUEST_FIXTURE_H
#define REQUEST_FIXTURE_H

#include <xxhash.h>

#include "api_request.h"
#include "memory.h"

struct scanned {
    int code;
    struct kvr_api_request request;
    struct kvr_prompt prompt;
    struct kvr_error error;
    struct kvr_buffer text; /* the canonical prompt in one piece, terminated */
    char *body;             /* what the slices of the request point into */
};

static inline void scanned_close(struct scanned *scanned)
{
    kvr_prompt_deinit(&scanned->prompt);
    kvr_buffer_deinit(&scanned->text);
    kvr_free(scanned->body);
}

/* The chain is what the definition says of the canonical text. The seed is not checked here. */
static inline void scanned_check(struct scanned *scanned, uint64_t seed)
{
    const struct kvr_prompt *prompt = &scanned->prompt;
    uint32_t block_bytes = prompt->options.block_bytes;
    uint64_t hash = seed;
    KVR_CHECK(prompt->chain_len == scanned->text.len / block_bytes);
    for (uint32_t i = 0; i < prompt->chain_len; i++) {
        hash =
            XXH3_64bits_withSeed(scanned->text.data + (size_t)i * block_bytes, block_bytes, hash);
        KVR_CHECK(prompt->chain[i] == hash);
    }
}

static inline void scan_body(struct scanned *scanned, enum kvr_api api, struct kvr_slice body,
                             const struct kvr_api_options *options, uint32_t block_bytes)
{
    *scanned = (struct scanned){.body = kvr_alloc(body.len)};
    if (body.len)
        memcpy(scanned->body, body.data, body.len);
    kvr_prompt_init(&scanned->prompt, &(struct kvr_prompt_options){.block_bytes = block_bytes});
    scanned->code =
        kvr_api_request_scan(&scanned->request, api, kvr_slice_make(scanned->body, body.len),
                             options, &scanned->prompt, &scanned->error);
    for (size_t i = 0; i < 3; i++)
        kvr_buffer_append_slice(&scanned->text, scanned->request.canonical[i]);
    *kvr_buffer_reserve(&scanned->text, 1) = '\0';
}

/* Number of leading blocks that two chains have in common. */
static inline uint32_t shared_blocks(const struct scanned *a, const struct scanned *b)
{
    uint32_t n = 0;
    while (n < a->prompt.chain_len && n < b->prompt.chain_len &&
           a->prompt.chain[n] == b->prompt.chain[n])
        n++;
    return n;
}

/* Number of leading bytes that two canonical prompts have in common. */
static inline size_t shared_bytes(const struct scanned *a, const struct scanned *b)
{
    size_t n = 0;
    while (n < a->text.len && n < b->text.len && a->text.data[n] == b->text.data[n])
        n++;
    return n;
}

#endif
