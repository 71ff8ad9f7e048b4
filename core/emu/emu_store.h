/* The responses that an emulated replica remembers, so that `previous_response_id` goes on from
 * one: the conversation so far as the text of a JSON list, which is put before the new input. As in
 * vLLM it lives in the memory of one replica only; the oldest is forgotten first. */
#ifndef KVR_EMU_STORE_H
#define KVR_EMU_STORE_H

#include <stdint.h>

#include "buffer.h"
#include "emu_ask.h"
#include "slice.h"

#define KVR_EMU_STORED_BYTES_MAX (1u << 20) /* of one conversation; a longer one is not kept */

struct kvr_emu_stored; /* one response */

struct kvr_emu_store {
    struct kvr_emu_stored *items; /* owned; ring */
    uint32_t capacity;            /* 0: nothing is remembered */
    uint32_t len;
    uint32_t next; /* where the next one goes */
};

void kvr_emu_store_init(struct kvr_emu_store *store, uint32_t capacity);
void kvr_emu_store_deinit(struct kvr_emu_store *store);

/* The conversation behind an id, a JSON list; empty when it is not known. */
struct kvr_slice kvr_emu_store_find(const struct kvr_emu_store *store, const char *id);
void kvr_emu_store_add(struct kvr_emu_store *store, const char *id, struct kvr_slice conversation);

/* Writes the list `before`, then the items of `input` (a string or a list), then an answer if there
 * is one, as one list. */
void kvr_emu_store_join(struct kvr_slice before, struct kvr_slice input, struct kvr_slice answer,
                        struct kvr_buffer *out);

#endif
