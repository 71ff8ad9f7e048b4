/* A picture of a fleet, and scripts written as text, for the tests of core/script. */
#ifndef KVR_SCRIPT_FIXTURE_H
#define KVR_SCRIPT_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "slot.h"

#if defined(__SANITIZE_ADDRESS__)
#define FIXTURE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIXTURE_SANITIZED 1
#endif
#endif
#ifndef FIXTURE_SANITIZED
#define FIXTURE_SANITIZED 0
#endif

struct fixture {
    struct kvr_picture picture;
    struct kvr_hash_ring ring;
    struct kvr_slot *slot;
};

/* `count` equal, idle, available replicas. */
static inline void fixture_rows(struct fixture *f, uint32_t count)
{
    struct kvr_ring_member members[64];
    for (uint32_t i = 0; i < count; i++) {
        f->picture.ids[i] = 100 + i;
        f->picture.weights[i] = 1.0;
        members[i] = (struct kvr_ring_member){100 + i, 1.0};
        f->picture.rows[i] = (struct kvr_replica_view){.weight = 1.0,
                                                       .ramp = 1.0,
                                                       .capacity = (double)INFINITY,
                                                       .prefill_tokens_per_s = (double)NAN,
                                                       .id = i,
                                                       .operational = 3,
                                                       .administrative = 2,
                                                       .available = true};
    }
    kvr_hash_ring_build(&f->ring, members, count, 16);
    f->picture.ring = &f->ring;
    kvr_picture_summarise(&f->picture, count);
}

static inline void fixture_init(struct fixture *f, enum kvr_script_kind kind, uint32_t rows)
{
    memset(f, 0, sizeof *f);
    kvr_picture_init(&f->picture, 64);
    kvr_hash_ring_init(&f->ring);
    fixture_rows(f, rows);
    f->slot = kvr_slot_create(kind, &f->picture, 7);
}

static inline void fixture_deinit(struct fixture *f)
{
    kvr_slot_destroy(f->slot);
    kvr_hash_ring_deinit(&f->ring);
    kvr_picture_deinit(&f->picture);
}

static inline int fixture_load_with(struct fixture *f, const char *text,
                                    const struct kvr_script_param *params, uint32_t count,
                                    struct kvr_error *error)
{
    return kvr_slot_load(f->slot, kvr_slice_of("probe"), kvr_slice_of("policies/probe.lua"),
                         kvr_slice_of(text), params, count, error);
}

/* Loads and fails the test with the reason when that does not work. */
static inline void fixture_load(struct fixture *f, const char *text)
{
    struct kvr_error error = {0};
    if (fixture_load_with(f, text, NULL, 0, &error))
        fail_msg("does not load: %s", error.text);
}

/* A policy whose pick is `body`; more of the script may follow it. */
#define POLICY(body)                                                                               \
    "local P = { api = 1, name = 'probe' }\n"                                                      \
    "function P.pick(request, view)\n" body "\nend\n"                                              \
    "return P\n"

#define SPILL(body)                                                                                \
    "local P = { api = 1, name = 'probe' }\n"                                                      \
    "function P.spill(request, view, preferred)\n" body "\nend\n"                                  \
    "return P\n"

#endif
