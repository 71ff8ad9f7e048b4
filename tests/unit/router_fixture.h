/* A router without a network, its scripts as text, for the tests of core/router. */
#ifndef KVR_ROUTER_FIXTURE_H
#define KVR_ROUTER_FIXTURE_H

#include "unit.h"

#include <math.h>

#include "memory.h"
#include "rng.h"
#include "router.h"

#define MS 1000000u
#define S  1000000000u

/* "r:1", "r:2" and so on, all up. */
static inline void add_replicas(struct kvr_router *router, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "r:%u", i + 1);
        struct kvr_replica_spec spec = {.authority = kvr_slice_of(name), .rank = -1};
        assert_int_equal(kvr_router_add_replica(router, 0, &spec, NULL), i);
        kvr_router_probed(router, 0, i, KVR_PROBE_PASS, false);
    }
}

static inline struct kvr_router *make_router(uint32_t replicas)
{
    struct kvr_router *router = kvr_alloc(sizeof *router);
    kvr_router_init(router, &(struct kvr_router_options){.seed = 1,
                                                         .replicas_max = 16,
                                                         .requests_max = 128,
                                                         .moves = 2,
                                                         .rows = true,
                                                         .index.memory_bytes = 4 << 20});
    add_replicas(router, replicas);
    return router;
}

/* Nothing is in flight any more, by any account. */
static inline void assert_idle(const struct kvr_router *router)
{
    kvr_router_verify(router);
    for (uint32_t i = 0; i < router->options.replicas_max; i++) {
        assert_int_equal(router->loads[i].in_flight, 0);
        assert_int_equal(router->loads[i].uncached_tokens, 0);
        assert_int_equal(router->loads[i].prompt_tokens, 0);
        assert_int_equal(router->replicas.slots[i].holds, 0);
    }
    assert_int_equal(router->active.used, 0);
}

static inline void free_router(struct kvr_router *router)
{
    assert_idle(router);
    kvr_router_deinit(router);
    kvr_free(router);
}

/* An empty text: the slot is cleared. */
static inline void load(struct kvr_router *router, enum kvr_script_role role, const char *text)
{
    struct kvr_error error = {0};
    struct kvr_slot *slot = kvr_router_slot(router, role);
    if (*text == '\0')
        kvr_slot_clear(slot);
    else if (kvr_slot_load(slot, kvr_slice_of(""), kvr_slice_of("test.lua"), kvr_slice_of(text),
                           NULL, 0, &error))
        fail_msg("%s", error.text);
    kvr_router_scripts_changed(router);
}

/* A prompt is a seed and a length: equal seeds share blocks. */
static inline void make_chain(uint64_t *chain, uint32_t len, uint64_t seed)
{
    for (uint32_t i = 0; i < len; i++)
        chain[i] = kvr_mix64(seed * 1000 + i + 1);
}

static inline struct kvr_submission submission(const uint64_t *chain, uint32_t len)
{
    return (struct kvr_submission){.request_id = kvr_slice_of("id-1"),
                                   .endpoint = "chat",
                                   .session_source = "none",
                                   .chain = chain,
                                   .chain_len = len,
                                   .routed = true,
                                   .prompt_bytes = len * 64.0,
                                   .prompt_tokens = (double)NAN,
                                   .max_tokens = (double)NAN,
                                   .slo_ttft_ms = (double)NAN};
}

/* Counts that the engine did not tell. */
static const struct kvr_ending success = {.outcome = KVR_OUTCOME_SUCCESS,
                                          .status = 200,
                                          .upstream_status = 200,
                                          .prompt_tokens = -1,
                                          .output_tokens = -1,
                                          .cached_tokens = -1};

/* Submitted, decided at once, and settled. */
static inline struct kvr_action submit(struct kvr_router *router, uint64_t now_ns,
                                       const struct kvr_submission *what)
{
    struct kvr_action action;
    struct kvr_request_ref ref = kvr_router_submit(router, now_ns, what);
    assert_int_not_equal(ref.generation, 0);
    assert_true(kvr_router_next_action(router, &action));
    assert_int_equal(action.request.slot, ref.slot);
    kvr_router_settle(router);
    return action;
}

#endif
