/* Explanations: what they say comes true, and saying it changes nothing. */
#include "router_fixture.h"

#include "explain.h"
#include "json_reader.h"

static const char matching[] =
    "local P = { api = 1, name = 'matching', needs = { 'match' }, params = { n = 3 } }\n"
    "function P.pick(request, view)\n"
    "  local best, blocks\n"
    "  for i = 0, view.count - 1 do\n"
    "    if view[i].available and view[i].match_blocks > (blocks or 0) then\n"
    "      best, blocks = i, view[i].match_blocks\n"
    "    end\n"
    "  end\n"
    "  if best then return best, 'prefix', true end\n"
    "  return kvr.nth_available(request.serial), 'cold'\n"
    "end\n"
    "return P\n";
static const char spill_when_busy[] =
    "return { api = 1, name = 'busy', spill = function(request, view, preferred)\n"
    "  if view[preferred].in_flight < 1 then return preferred end\n"
    "  return kvr.least_except(preferred), 'spill_busy' end }\n";
static const char failing[] = "return { api = 1, name = 'failing', pick = function(request)\n"
                              "  if request.turn == 12345 then error('no idea') end\n"
                              "  return nil end }\n";
static const char refusing[] =
    "return { api = 1, name = 'refusing', pick = function() return kvr.REJECT end }\n";
static const char holding[] =
    "return { api = 1, name = 'holding', pick = function() return kvr.HOLD end }\n";

static struct kvr_router router;
static struct kvr_buffer out;
static uint64_t chain[10];

static void start(uint32_t replicas)
{
    kvr_router_init(&router, &(struct kvr_router_options){.seed = 1,
                                                          .replicas_max = 8,
                                                          .requests_max = 16,
                                                          .index.memory_bytes = 4 << 20});
    add_replicas(&router, replicas);
    for (uint32_t i = 0; i < 10; i++)
        chain[i] = kvr_mix64(i + 1);
}

static void stop(void)
{
    kvr_router_verify(&router);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(router.replicas.slots[i].holds, 0);
    kvr_router_deinit(&router);
    kvr_buffer_deinit(&out);
}

static struct kvr_submission ask(void)
{
    struct kvr_submission what = submission(chain, 10);
    what.request_id = kvr_slice_of("id");
    what.tag = kvr_slice_of("tag");
    what.model = kvr_slice_of("m");
    what.session_source = "x-session-id";
    what.session = 0x1234;
    return what;
}

/* Decided at once, and not settled. */
static struct kvr_action decide(const struct kvr_submission *what)
{
    struct kvr_action action;
    assert_int_not_equal(kvr_router_submit(&router, S, what).generation, 0);
    assert_true(kvr_router_next_action(&router, &action));
    return action;
}

/* All that it could have changed and must not. */
struct snapshot {
    struct kvr_metrics metrics;
    struct kvr_ledger ledger;
    uint64_t sequence;
    uint32_t serials[KVR_MODELS_MAX + 1];
    uint32_t open, queued, actions;
    uint32_t in_flight[8], believed[8];
    struct kvr_shadow shadows[KVR_SHADOWS_MAX];
};

static void take(struct snapshot *snapshot)
{
    memset(snapshot, 0, sizeof *snapshot);
    memcpy(&snapshot->metrics, &router.metrics, sizeof router.metrics);
    memcpy(&snapshot->ledger, &router.ledger, sizeof router.ledger);
    memcpy(snapshot->shadows, router.shadows, sizeof router.shadows);
    snapshot->sequence = router.sequence;
    snapshot->open = router.requests.open;
    snapshot->queued = router.queue.count;
    snapshot->actions = router.actions_count;
    for (uint32_t i = 0; i <= KVR_MODELS_MAX; i++)
        snapshot->serials[i] = router.models.models[i].serial;
    for (uint32_t i = 0; i < 8; i++) {
        snapshot->in_flight[i] = router.loads[i].in_flight;
        snapshot->believed[i] = kvr_prefix_index_believed(&router.index, i);
    }
}

/* The explanation as text, after a look at what it changed. */
static const char *explain(const struct kvr_submission *what)
{
    static struct snapshot before, after;
    kvr_router_settle(&router);
    take(&before);
    out.len = 0;
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_router_explain(&router, S, what, &json);
    kvr_json_object_end(&json);
    take(&after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(router.rows.len, 0);
    struct kvr_json_reader reader;
    kvr_json_reader_init(&reader, kvr_buffer_slice(&out));
    kvr_json_skip(&reader, NULL);
    assert_true(kvr_json_finish(&reader));
    kvr_buffer_append(&out, "", 1);
    return out.data;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("%s is not in %s", part, text);
}

/* What would come of it: the members after those of the scripts. */
static void assert_outcome(const char *text, const char *outcome, const char *rejection)
{
    char expected[160];
    snprintf(expected, sizeof expected, "\"outcome\":\"%s\",\"rejection\":%s%s%s", outcome,
             rejection ? "\"" : "", rejection ? rejection : "null", rejection ? "\"" : "");
    assert_has(text, expected);
}

static void every_field_that_scripts_see_is_told(void **state)
{
    (void)state;
    static const char *const structs[] = {"struct kvr_request_view {", "struct kvr_replica_view {",
                                          "struct kvr_view {"};
    FILE *file = fopen(KVR_SOURCE_DIR "/core/model/abi.h", "r");
    assert_non_null(file);
    static char abi[32768];
    abi[fread(abi, 1, sizeof abi - 1, file)] = '\0';
    fclose(file);
    start(2);
    struct kvr_submission what = ask();
    const char *text = explain(&what);
    int told = 0;
    for (size_t i = 0; i < 3; i++) {
        char *at = strstr(abi, structs[i]);
        assert_non_null(at);
        char *end = strstr(at, "\n};");
        for (char *line = strchr(at, '\n') + 1; line < end; line = strchr(line, '\n') + 1) {
            char name[64], expected[80];
            if (sscanf(line, " KVR_RO %*[a-z0-9_] %63[a-z0-9_];", name) != 1)
                continue; /* a pointer */
            snprintf(expected, sizeof expected, "\"%s\":", name);
            assert_has(text, expected);
            told++;
        }
    }
    assert_int_equal(told, 16 + 35 + 12);
    assert_has(text, "\"ttft_ms\":null");
    assert_has(text, "\"capacity\":null");
    assert_has(text, "\"available\":true");
    stop();
}

/* An explanation and the request that follows it agree, whatever turns by serial. */
static void what_it_says_comes_true(void **state)
{
    (void)state;
    start(3);
    load(&router, KVR_ROLE_POLICY, matching);
    load(&router, KVR_ROLE_SPILL, spill_when_busy);
    struct kvr_request_ref open[12] = {0};
    uint32_t homes = 0;
    for (uint32_t i = 0; i < 300; i++) {
        struct kvr_request_ref *ref = &open[kvr_mix64(i) % 12];
        if (ref->generation)
            kvr_router_finish(&router, S, *ref, &success);
        struct kvr_submission what = ask();
        chain[0] = kvr_mix64(kvr_mix64(i + 500) % 15);
        what.chain_len = 1 + (uint32_t)kvr_mix64(i + 900) % 10;
        char *first = strdup(explain(&what));
        assert_string_equal(first, explain(&what)); /* asking twice is asking once */
        struct kvr_action action = decide(&what);
        const struct kvr_request_record *record = kvr_router_request(&router, action.request);
        char expected[200];
        snprintf(expected, sizeof expected,
                 "\"outcome\":\"dispatch\",\"rejection\":null,\"replica\":\"r:%u\","
                 "\"reason\":\"%s\",\"match_blocks\":%u",
                 action.replica + 1, kvr_reason_text(record->reason), record->match_blocks);
        assert_has(first, expected);
        snprintf(expected, sizeof expected, "\"asked\":%s", record->spill ? "true" : "false");
        assert_has(first, expected);
        free(first);
        homes |= 1u << action.replica;
        *ref = action.request;
    }
    assert_int_equal(homes, 7);
    assert_true(router.metrics.spills > 10);
    for (int i = 0; i < 12; i++)
        if (open[i].generation)
            kvr_router_finish(&router, S, open[i], &success);
    stop();
}

static void scripts_are_named_with_what_they_said(void **state)
{
    (void)state;
    start(2);
    load(&router, KVR_ROLE_POLICY, matching);
    load(&router, KVR_ROLE_SPILL, spill_when_busy);
    load(&router, kvr_role_shadow(1), refusing);
    load(&router, kvr_role_shadow(2), failing);
    struct kvr_submission what = ask();
    const char *text = explain(&what);
    assert_has(text, "\"endpoint\":\"chat\",\"routed\":true,\"model\":\"m\","
                     "\"session\":\"0000000000001234\",\"session_source\":\"x-session-id\","
                     "\"tenant\":null");
    assert_has(text, "\"policy\":{\"role\":\"policy\",\"name\":\"matching\",\"hash\":\"");
    assert_has(text, "\"generation\":1,\"params\":\"n=3\",\"verdict\":\"pick\",\"replica\":\"r:2\","
                     "\"reason\":\"cold\",\"match_blocks\":0,\"affine\":false,\"error\":null}");
    assert_has(text, "\"asked\":false,\"verdict\":null,\"replica\":null");
    assert_has(text, "\"shadow\":[{\"role\":\"shadow_2\",\"name\":\"refusing\"");
    assert_has(text, "\"verdict\":\"reject\",\"replica\":null");
    assert_has(text, "{\"role\":\"shadow_3\",\"name\":\"failing\"");
    assert_has(text, "\"reason\":\"fallback\",\"match_blocks\":0,\"spilled\":false,"
                     "\"fallback\":true,\"error\":null}]");
    struct kvr_action a = decide(&what);
    text = explain(&what); /* its home is busy */
    assert_has(text, "\"verdict\":\"pick\",\"replica\":\"r:2\",\"reason\":\"prefix\","
                     "\"match_blocks\":10,\"affine\":true");
    assert_has(text, "\"spill\":{\"role\":\"spill\",\"name\":\"busy\"");
    assert_has(text, "\"asked\":true,\"verdict\":\"move\",\"replica\":\"r:1\","
                     "\"reason\":\"spill_busy\",\"match_blocks\":0,\"error\":null}");
    assert_has(text, "\"fallback\":false,\"outcome\":\"dispatch\",\"rejection\":null,"
                     "\"replica\":\"r:1\",\"reason\":\"spill_busy\",\"match_blocks\":0");
    kvr_router_finish(&router, S, a.request, &success);
    text = explain(&what);
    assert_has(text, "\"asked\":true,\"verdict\":\"stay\",\"replica\":null");
    assert_has(text, "\"replica\":\"r:2\",\"reason\":\"prefix\",\"match_blocks\":10,\"shadow\"");
    what.turn = 12345;
    load(&router, KVR_ROLE_POLICY, failing);
    text = explain(&what);
    assert_has(text, "\"verdict\":\"none\",\"replica\":null,\"reason\":null,\"match_blocks\":0,"
                     "\"affine\":false,\"error\":\"test.lua:2: no idea\"}");
    assert_has(text, "\"fallback\":true,\"outcome\":\"dispatch\"");
    assert_has(text, "\"verdict\":\"failed\",\"replica\":null");
    /* Such calls count: in quarantine it is not asked any more, and its last error is shown. */
    for (int i = 0; i < KVR_FAILURES_MAX; i++)
        (void)explain(&what);
    assert_true(kvr_slot_quarantined(router.slots[KVR_ROLE_POLICY]));
    what.turn = 1;
    text = explain(&what);
    assert_has(text, "\"affine\":false,\"error\":\"test.lua:2: no idea\"}");
    assert_has(text, "\"fallback\":true,\"outcome\":\"dispatch\"");
    stop();
}

static void refusals_are_told_as_they_would_be(void **state)
{
    (void)state;
    start(0);
    struct kvr_submission what = ask();
    assert_outcome(explain(&what), "reject", "no_replicas");
    stop();
    start(2);
    struct kvr_slice served = kvr_slice_of("another");
    kvr_replica_set_models(&router.replicas, 0, &served, 1);
    kvr_replica_set_models(&router.replicas, 1, &served, 1);
    const char *text = explain(&what);
    assert_outcome(text, "reject", "model_not_found");
    assert_has(text, "\"candidates\":[]");
    served = kvr_slice_of("m");
    kvr_replica_set_models(&router.replicas, 0, &served, 1);
    load(&router, KVR_ROLE_POLICY, refusing);
    text = explain(&what);
    assert_outcome(text, "reject", "refused_by_policy");
    assert_has(text, "\"verdict\":\"reject\"");
    load(&router, KVR_ROLE_POLICY, holding);
    assert_has(explain(&what), "\"verdict\":\"hold\",\"replica\":null");
    assert_outcome(explain(&what), "dispatch", NULL); /* nobody can wait: no opinion */
    kvr_queue_init(&router.queue, &(struct kvr_queue_options){.max = 1});
    assert_outcome(explain(&what), "wait", NULL);
    struct kvr_request_ref waiting = kvr_router_submit(&router, S, &what);
    assert_outcome(explain(&what), "reject", "queue_full");
    kvr_router_finish(&router, S, waiting, &success);
    router.replicas.slots[0].capacity = 0;
    text = explain(&what);
    assert_outcome(text, "wait", NULL);
    assert_has(text, "\"policy\":null");
    assert_has(text, "\"available\":false");
    kvr_queue_init(&router.queue, &(struct kvr_queue_options){.max = 0});
    assert_outcome(explain(&what), "reject", "at_capacity");
    kvr_replica_set_administrative(&router.replicas, 0, KVR_DRAINING);
    assert_outcome(explain(&what), "reject", "draining");
    stop();
}

static void other_paths_and_canaries(void **state)
{
    (void)state;
    start(2);
    load(&router, KVR_ROLE_POLICY, matching);
    load(&router, KVR_ROLE_CANARY, failing);
    router.options.canary_share = 1;
    struct kvr_submission what = ask();
    const char *text = explain(&what);
    assert_has(text, "\"canary\":true");
    assert_has(text, "\"policy\":{\"role\":\"canary\",\"name\":\"failing\"");
    router.options.canary_share = 0.5;
    what.session = 0; /* it goes by the number of the request, then */
    uint32_t canaries = 0;
    for (int i = 0; i < 40; i++) {
        bool told = strstr(explain(&what), "\"canary\":true") != NULL;
        struct kvr_action action = decide(&what);
        assert_int_equal(kvr_router_request(&router, action.request)->canary, told);
        kvr_router_finish(&router, S, action.request, &success);
        canaries += told;
    }
    assert_true(canaries > 8 && canaries < 32);
    what.routed = false;
    text = explain(&what);
    assert_has(text, "\"canary\":false");
    assert_has(text, "\"policy\":null,\"spill\":null,\"fallback\":false,\"outcome\":\"dispatch\"");
    assert_has(text, "\"reason\":\"opaque\"");
    what.model = kvr_slice_of("invented \"name\"");
    kvr_replica_set_models(&router.replicas, 0, &(struct kvr_slice){"m", 1}, 1);
    kvr_replica_set_models(&router.replicas, 1, &(struct kvr_slice){"m", 1}, 1);
    assert_has(explain(&what), "\"model\":\"invented \\\"name\\\"\"");
    stop();
}

/* The decision before it is settled first: its belief is there, and it is looked at by shadows
 * with the view that was its own. */
static void what_came_before_is_settled(void **state)
{
    (void)state;
    start(2);
    load(&router, KVR_ROLE_POLICY, matching);
    load(&router, kvr_role_shadow(0), matching);
    struct kvr_submission what = ask();
    struct kvr_action action = decide(&what);
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_router_explain(&router, S, &what, &json);
    kvr_json_object_end(&json);
    kvr_buffer_append(&out, "", 1);
    assert_has(out.data, "\"match_blocks\":10");
    assert_int_equal(router.shadows[0].now.evaluated, 1);
    assert_int_equal(router.shadows[0].now.agreed, 1);
    assert_int_equal(router.shadows[0].now.match_tokens, 0);
    kvr_router_finish(&router, S, action.request, &success);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_that_scripts_see_is_told),
        cmocka_unit_test(what_it_says_comes_true),
        cmocka_unit_test(scripts_are_named_with_what_they_said),
        cmocka_unit_test(refusals_are_told_as_they_would_be),
        cmocka_unit_test(other_paths_and_canaries),
        cmocka_unit_test(what_came_before_is_settled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
