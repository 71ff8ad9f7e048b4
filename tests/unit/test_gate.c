/* The gate in force in a router: which answers count, as what, and in what that which acts differs
 * from what was judged. */
#include <math.h>

#include "unit.h"

#include "gate.h"
#include "memory.h"

#define MS     UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static const char candidate[] = "local P = { api = 1, name = 'candidate', params = { a = 1 } }\n"
                                "function P.pick() return kvr.least(), 'least' end\n"
                                "return P\n";
static const char other[] = "local P = { api = 1, name = 'other' }\n"
                            "function P.pick() return kvr.least(), 'least' end\n"
                            "return P\n";
static const char rule[] = "local P = { api = 1, name = 'rule', params = { b = 2 } }\n"
                           "function P.spill(request, view, preferred) return preferred end\n"
                           "return P\n";

static void load(struct kvr_router *router, enum kvr_script_role role, const char *text,
                 const char *key, const char *value)
{
    struct kvr_error error = {0};
    struct kvr_script_param param = {kvr_slice_of(key ? key : ""), kvr_slice_of(value)};
    if (kvr_slot_load(kvr_router_slot(router, role), kvr_slice_of(""), kvr_slice_of("test.lua"),
                      kvr_slice_of(text), &param, key != NULL, &error))
        fail_msg("%s", error.text);
    kvr_router_scripts_changed(router);
}

static void put_script(struct kvr_buffer *text, const char *key,
                       const struct kvr_script_record *record, const char *more)
{
    if (record)
        kvr_buffer_printf(text, "\"%s\":{\"name\":\"%s\",\"hash\":\"%016llx\"", key,
                          record->info.name, (unsigned long long)record->info.hash);
    if (record)
        kvr_buffer_printf(text, ",\"params_hash\":\"%016llx\"%s}",
                          (unsigned long long)record->info.params_hash, more);
    else
        kvr_buffer_printf(text, "\"%s\":null", key);
}

/* A gate that judged what acts in the router now: first tokens within 100 ms, 10 ms a token. */
static void install(struct kvr_router *router)
{
    struct kvr_buffer text = {0}, spill = {0};
    struct kvr_error error = {0};
    kvr_buffer_append_text(&spill, ",");
    put_script(&spill, "spill", router->records[KVR_ROLE_SPILL], "");
    kvr_buffer_append(&spill, "", 1);
    kvr_buffer_append_text(&text, "{\"format\":\"kvroute-gate-2\",\"verdict\":\"enable\",");
    put_script(&text, "candidate", router->records[KVR_ROLE_POLICY], spill.data);
    kvr_buffer_append_text(&text,
                           ",\"against\":{\"name\":\"other\"},\"bounds\":{\"active_share\":0,"
                           "\"ttft_p99_ms\":100,\"token_ms\":10},"
                           "\"keys\":[[\"0000000000000001\",1]]}");
    struct kvr_envelope *envelope = kvr_envelope_create(kvr_buffer_slice(&text), NULL, &error);
    if (!envelope)
        fail_msg("%s", error.text);
    kvr_envelope_destroy(kvr_router_install_envelope(router, envelope));
    kvr_buffer_deinit(&text);
    kvr_buffer_deinit(&spill);
}

static struct kvr_router *make_router(void)
{
    struct kvr_router *router = kvr_alloc(sizeof *router);
    struct kvr_router_options options = {
        .seed = 1, .replicas_max = 4, .requests_max = 16, .index.memory_bytes = 4 << 20};
    struct kvr_replica_spec spec = {.authority = kvr_slice_of("r:1"), .rank = -1};
    kvr_router_init(router, &options);
    assert_int_equal(kvr_router_add_replica(router, 0, &spec, NULL), 0);
    kvr_router_probed(router, 0, 0, KVR_PROBE_PASS, false);
    load(router, KVR_ROLE_POLICY, candidate, NULL, "");
    return router;
}

static void free_router(struct kvr_router *router)
{
    kvr_envelope_destroy(kvr_router_install_envelope(router, NULL));
    kvr_router_deinit(router);
    kvr_free(router);
}

/* One request at a time of `now`, that ends so after `took_ms`. */
struct ask {
    bool stream;
    double max_tokens; /* 0: not said */
    struct kvr_ending ending;
    uint64_t first_ms; /* 0: no first token */
    uint64_t took_ms;
};

static struct kvr_envelope_counts ask(struct kvr_router *router, const struct ask *ask)
{
    struct kvr_submission what = {.request_id = kvr_slice_of("id"),
                                  .endpoint = "chat",
                                  .session_source = "none",
                                  .routed = true,
                                  .stream = ask->stream,
                                  .prompt_bytes = 64,
                                  .prompt_tokens = (double)NAN,
                                  .max_tokens = ask->max_tokens > 0 ? ask->max_tokens : (double)NAN,
                                  .slo_ttft_ms = (double)NAN,
                                  .received_ns = SECOND};
    struct kvr_action action;
    uint64_t now = SECOND;
    kvr_router_submit(router, now, &what);
    assert_true(kvr_router_next_action(router, &action));
    kvr_router_settle(router);
    kvr_router_sent(router, now, action.request);
    if (ask->first_ms) {
        kvr_router_first_byte(router, now + ask->first_ms * MS, action.request, 200);
        kvr_router_first_token(router, now + ask->first_ms * MS, action.request);
    }
    kvr_router_finish(router, now + ask->took_ms * MS, action.request, &ask->ending);
    return kvr_envelope_window(router->envelope, now + ask->took_ms * MS);
}

static struct kvr_ending ending(enum kvr_outcome outcome, uint16_t status, int64_t tokens)
{
    struct kvr_ending out = kvr_ending_make(outcome, NULL, status);
    out.output_tokens = tokens;
    return out;
}

static void test_which_answers_count_and_as_what(void **state)
{
    (void)state;
    static const enum kvr_outcome good = KVR_OUTCOME_SUCCESS, left = KVR_OUTCOME_CANCELLED,
                                  failed = KVR_OUTCOME_FAILED, lost = KVR_OUTCOME_DROPPED;
    const struct {
        struct ask ask;
        int streams, late_streams, wholes, late_wholes;
    } cases[] = {
        {{true, 0, ending(good, 200, 50), 100, 900}, 1, 0, 0, 0},
        {{true, 0, ending(good, 200, 50), 101, 900}, 1, 1, 0, 0},
        {{true, 0, ending(left, 0, -1), 0, 100}, 0, 0, 0, 0},
        {{true, 0, ending(left, 0, -1), 0, 101}, 1, 1, 0, 0},
        {{true, 0, ending(lost, 502, -1), 0, 1}, 1, 1, 0, 0},
        /* Whole ones by their end, and by how much they brought. */
        {{false, 0, ending(good, 200, 50), 590, 590}, 0, 0, 1, 0},
        {{false, 0, ending(good, 200, 50), 591, 591}, 0, 0, 1, 1},
        {{false, 0, ending(good, 200, 0), 100, 100}, 0, 0, 1, 0}, /* embeddings */
        {{false, 0, ending(good, 200, 0), 101, 101}, 0, 0, 1, 1},
        {{false, 0, ending(good, 200, -1), 101, 101}, 0, 0, 1, 1}, /* nobody counted */
        {{false, 50, ending(good, 200, -1), 590, 590}, 0, 0, 1, 0},
        {{false, 50, ending(good, 200, -1), 591, 591}, 0, 0, 1, 1},
        {{false, 1e30, ending(good, 200, -1), 60000, 60000}, 0, 0, 1, 0},
        {{false, 0, ending(failed, 500, -1), 1, 1}, 0, 0, 1, 1},
        {{false, 0, ending(lost, 502, -1), 0, 1}, 0, 0, 1, 1},
        {{false, 50, ending(failed, 400, -1), 1, 1}, 0, 0, 0, 0}, /* the client's own fault */
        {{false, 50, ending(left, 0, -1), 0, 590}, 0, 0, 0, 0},
        {{false, 50, ending(left, 0, -1), 0, 591}, 0, 0, 1, 1},
        {{false, 0, ending(left, 0, -1), 0, 60000}, 0, 0, 0, 0}, /* it may have been long */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_router *router = make_router();
        install(router);
        struct kvr_envelope_counts saw = ask(router, &cases[i].ask);
        const struct kvr_envelope_answers *streams = &saw.answers[KVR_ENVELOPE_STREAMS];
        const struct kvr_envelope_answers *wholes = &saw.answers[KVR_ENVELOPE_WHOLES];
        if (streams->count != (uint64_t)cases[i].streams ||
            streams->late != (uint64_t)cases[i].late_streams ||
            wholes->count != (uint64_t)cases[i].wholes ||
            wholes->late != (uint64_t)cases[i].late_wholes)
            fail_msg("case %zu: streams %llu, %llu late; wholes %llu, %llu late", i,
                     (unsigned long long)streams->count, (unsigned long long)streams->late,
                     (unsigned long long)wholes->count, (unsigned long long)wholes->late);
        free_router(router);
    }
}

/* What the baseline would have decided alike is not on trial; with other params it is. */
static void test_the_baseline_itself_is_not_guarded(void **state)
{
    (void)state;
    static const struct ask one = {.stream = true, .first_ms = 1, .took_ms = 2};
    for (int changed = 0; changed < 2; changed++) {
        struct kvr_router *router = make_router();
        install(router);
        load(router, KVR_ROLE_BASELINE, candidate, changed ? "a" : NULL, "3");
        struct ask same = one;
        same.ending = ending(KVR_OUTCOME_SUCCESS, 200, 5);
        struct kvr_envelope_counts saw = ask(router, &same);
        assert_int_equal(saw.answers[KVR_ENVELOPE_STREAMS].count, changed);
        free_router(router);
    }
}

static void check_cover(struct kvr_router *router, bool covers, const char *expected)
{
    char words[KVR_GATE_WORDS_MAX];
    struct kvr_gate_cover cover = kvr_gate_cover(router);
    kvr_gate_cover_words(router, &cover, words);
    assert_string_equal(words, expected);
    assert_int_equal(cover.covers, covers);
    assert_int_equal(router->envelope->covers, covers);
}

static void test_what_acts_may_differ_in_each_part(void **state)
{
    (void)state;
    struct kvr_router *router = make_router();
    load(router, KVR_ROLE_SPILL, rule, NULL, "");
    install(router);
    check_cover(router, true, "");
    load(router, KVR_ROLE_POLICY, candidate, "a", "3");
    check_cover(router, false, "policy candidate: its params differ");
    load(router, KVR_ROLE_SPILL, rule, "b", "3");
    check_cover(router, false,
                "policy candidate: its params differ; spill rule rule: its params differ");
    kvr_slot_clear(kvr_router_slot(router, KVR_ROLE_SPILL));
    load(router, KVR_ROLE_POLICY, other, NULL, "");
    check_cover(router, false, "policy is other, not candidate; spill rule is none, not rule");
    /* A canary that is nearer to it is the one that is told of. */
    load(router, KVR_ROLE_CANARY, candidate, "a", "3");
    load(router, KVR_ROLE_SPILL, rule, NULL, "");
    check_cover(router, false, "canary candidate: its params differ");
    load(router, KVR_ROLE_CANARY, candidate, NULL, "");
    check_cover(router, true, "");
    free_router(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_answers_count_and_as_what),
        cmocka_unit_test(test_the_baseline_itself_is_not_guarded),
        cmocka_unit_test(test_what_acts_may_differ_in_each_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
