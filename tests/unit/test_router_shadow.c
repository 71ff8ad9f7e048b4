/* Shadows: what they say of each request, and that nothing but their counters and rows tells. */
#include "router_fixture.h"

#include "json_reader.h"
#include "metrics_text.h"

static const char matching[] =
    "local P = { api = 1, name = 'matching', needs = { 'match' }, params = { spill = '' } }\n"
    "function P.pick(request, view)\n"
    "  local best, blocks\n"
    "  for i = 0, view.count - 1 do\n"
    "    if view[i].available and view[i].match_blocks > (blocks or 0) then\n"
    "      best, blocks = i, view[i].match_blocks\n"
    "    end\n"
    "  end\n"
    "  if best then return best, 'prefix', true end\n"
    "  return kvr.least(), 'cold'\n"
    "end\n"
    "return P\n";
/* Row n, where there is one. */
#define ROW(n)                                                                                     \
    "return { api = 1, name = 'row_" #n "', pick = function(request, view)\n"                      \
    "  if view.count > " #n " and view[" #n "].available then return " #n ", 'row_" #n "' end\n"   \
    "end }\n"
static const char random_row[] =
    "return { api = 1, name = 'random', needs = { 'match', 'keys' },\n"
    "  pick = function(request, view)\n"
    "    return kvr.nth_available(math.random(0, 99)), 'random', true end }\n";
static const char spill_to_last[] =
    "return { api = 1, name = 'last', spill = function(request, view, preferred)\n"
    "  for i = view.count - 1, 0, -1 do\n"
    "    if view[i].available then return i, 'spill_last' end\n"
    "  end\n"
    "  return preferred end }\n";
static const char failing[] = "return { api = 1, name = 'failing', pick = function(request, view)\n"
                              "  if request.turn ~= 12345 then return kvr.least(), 'fine' end\n"
                              "  error('no idea') end }\n";

static void load_shadow(struct kvr_router *router, uint32_t i, const char *text)
{
    load(router, kvr_role_shadow(i), text);
}

/* From its arrival to its row, which is what is returned; valid until the next one. */
static const char *serve(struct kvr_router *router, const struct kvr_submission *what)
{
    struct kvr_action action = submit(router, S, what);
    router->rows.len = 0;
    kvr_router_finish(router, S, action.request, &success);
    kvr_buffer_append(&router->rows, "", 1);
    return router->rows.data;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in %s", part, text);
}

static const struct kvr_shadow_counters *now(const struct kvr_router *router, uint32_t i)
{
    return &router->shadows[i].now;
}

static void what_it_says_is_counted_and_told(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(3);
    load(router, KVR_ROLE_POLICY, ROW(0));
    load_shadow(router, 0, ROW(1));
    load_shadow(router, 3, ROW(0));
    struct kvr_submission what = submission(NULL, 0);
    what.prompt_bytes = 400;
    const char *row = NULL;
    for (int i = 0; i < 3; i++)
        row = serve(router, &what);
    assert_has(row, "\"replica\":\"r:1\",\"reason\":\"row_0\"");
    assert_has(row, ",\"shadow\":[{\"name\":\"row_1\",\"hash\":\"");
    assert_has(row, "},{\"name\":\"row_0\",\"hash\":\"");
    assert_has(row,
               ",\"replica\":\"r:2\",\"reason\":\"row_1\",\"match_blocks\":0,\"spilled\":false}");
    const struct kvr_shadow *other = &router->shadows[0], *same = &router->shadows[3];
    assert_int_equal(other->now.evaluated, 3);
    assert_int_equal(other->now.agreed, 0);
    assert_int_equal(other->now.prompt_tokens, 300);
    assert_int_equal(other->replicas[0].acting, 3);
    assert_int_equal(other->replicas[0].shadow, 0);
    assert_int_equal(other->replicas[1].acting, 0);
    assert_int_equal(other->replicas[1].shadow, 3);
    assert_int_equal(other->pairs_count, 1);
    assert_string_equal(kvr_reason_text(other->pairs[0].acting_reason), "row_0");
    assert_string_equal(kvr_reason_text(other->pairs[0].reason), "row_1");
    assert_int_equal(other->pairs[0].count, 3);
    assert_int_equal(same->now.agreed, 3);
    assert_int_equal(same->replicas[0].agreed, 3);
    assert_int_equal(same->pairs_count, 0);
    what.routed = false; /* by load: no script is asked */
    assert_null(strstr(serve(router, &what), "shadow"));
    assert_int_equal(other->now.evaluated, 3);
    free_router(router);
}

static void each_side_has_its_match(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(3);
    load(router, KVR_ROLE_POLICY, ROW(2));
    load_shadow(router, 0, matching);
    load_shadow(router, 1, ROW(0));
    uint64_t chain[20];
    make_chain(chain, 20, 5);
    struct kvr_submission what = submission(chain, 20);
    what.prompt_tokens = 400;
    serve(router, &what);
    const char *row = serve(router, &what);
    assert_has(row, "\"replica\":\"r:3\",\"reason\":\"prefix\",\"match_blocks\":20,");
    assert_has(row, "\"replica\":\"r:1\",\"reason\":\"row_0\",\"match_blocks\":0,");
    assert_int_equal(now(router, 0)->prompt_tokens, 800);
    assert_int_equal(now(router, 0)->match_tokens, 320); /* 1,280 bytes at 4 a token */
    assert_int_equal(now(router, 0)->acting_match_tokens, 320);
    assert_int_equal(now(router, 1)->match_tokens, 0);
    assert_int_equal(now(router, 1)->acting_match_tokens, 320);
    assert_int_equal(router->shadows[1].pairs[0].acting_match_tokens, 320);
    free_router(router);
}

/* The same text says the same, though the request has left and is counted: what it would see a
 * moment later is another fleet, other beliefs and another share of its key. */
static void it_sees_what_the_acting_policy_saw(void **state)
{
    (void)state;
    static const char everything[] =
        "return { api = 1, name = 'everything', needs = { 'match', 'keys' },\n"
        "  pick = function(request, view)\n"
        "    local n = request.serial + view.total_in_flight * 3 + view.max_match_blocks\n"
        "    if kvr.share(request.routing_key) > 0 then n = n + 1 end\n"
        "    for i = 0, view.count - 1 do\n"
        "      if view[i].key_age_ms >= 0 then n = n + i end\n"
        "    end\n"
        "    return kvr.nth_available(n), 'everything' end }\n";
    struct kvr_router *router = make_router(5);
    load(router, KVR_ROLE_POLICY, everything);
    load_shadow(router, 0, everything);
    struct kvr_request_ref open[8] = {0};
    uint64_t chain[30];
    for (uint32_t i = 0; i < 400; i++) {
        struct kvr_request_ref *ref = &open[kvr_mix64(i) % 8];
        if (ref->generation)
            kvr_router_finish(router, S, *ref, &success);
        make_chain(chain, 30, kvr_mix64(i + 1000) % 20);
        struct kvr_submission what = submission(chain, 30);
        what.session = 1 + kvr_mix64(i + 2000) % 10;
        *ref = submit(router, S, &what).request;
    }
    assert_int_equal(now(router, 0)->evaluated, 400);
    assert_int_equal(now(router, 0)->agreed, 400);
    uint64_t replicas = 0;
    for (int i = 0; i < 5; i++)
        replicas += router->shadows[0].replicas[i].agreed > 40;
    assert_int_equal(replicas, 5);
    for (int i = 0; i < 8; i++)
        kvr_router_finish(router, S, open[i], &success);
    free_router(router);
}

/* Two routers live the same life, one of them with shadows: they never differ. */
static void it_changes_nothing(void **state)
{
    (void)state;
    struct kvr_router *routers[2] = {make_router(6), make_router(6)};
    for (int r = 0; r < 2; r++) {
        load(routers[r], KVR_ROLE_POLICY, random_row);
        load(routers[r], KVR_ROLE_SPILL, spill_to_last);
    }
    load_shadow(routers[1], 0, random_row);
    load(routers[1], kvr_role_shadow_spill(0), spill_to_last);
    load_shadow(routers[1], 1, failing);
    load_shadow(routers[1], 2, matching);
    struct kvr_request_ref open[2][64] = {0};
    uint64_t chain[20];
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t at = (uint32_t)(kvr_mix64(i) % 64);
        bool fails = kvr_mix64(i + 7) % 5 == 0;
        make_chain(chain, 20, kvr_mix64(i + 9) % 30);
        struct kvr_submission what = submission(chain, 20);
        what.session = 1 + i % 17;
        what.turn = i % 3 ? 12345 : 0;
        struct kvr_action actions[2];
        for (int r = 0; r < 2; r++) {
            if (open[r][at].generation)
                kvr_router_finish(routers[r], S + i, open[r][at], &success);
            open[r][at] = kvr_router_submit(routers[r], S + i, &what);
            assert_true(kvr_router_next_action(routers[r], &actions[r]));
            if (fails) {
                kvr_router_failed(routers[r], S + i, open[r][at], false, &what);
                assert_true(kvr_router_next_action(routers[r], &actions[r]));
            }
            kvr_router_settle(routers[r]);
            kvr_router_verify(routers[r]);
        }
        assert_int_equal(actions[0].replica, actions[1].replica);
        const struct kvr_request_record *a = kvr_router_request(routers[0], open[0][at]);
        const struct kvr_request_record *b = kvr_router_request(routers[1], open[1][at]);
        assert_int_equal(a->match_blocks, b->match_blocks);
        assert_int_equal(a->preferred, b->preferred);
        assert_int_equal(a->model->serial, b->model->serial);
        for (uint32_t slot = 0; slot < 6; slot++) {
            assert_memory_equal(&routers[0]->loads[slot].in_flight,
                                &routers[1]->loads[slot].in_flight, sizeof(uint32_t));
            assert_int_equal(kvr_prefix_index_believed(&routers[0]->index, slot),
                             kvr_prefix_index_believed(&routers[1]->index, slot));
        }
    }
    assert_int_equal(routers[0]->metrics.fallbacks, routers[1]->metrics.fallbacks);
    assert_int_equal(routers[0]->metrics.spills, routers[1]->metrics.spills);
    assert_true(now(routers[1], 0)->evaluated > 3500 && now(routers[1], 1)->failed > 1000);
    assert_memory_equal(routers[0]->metrics.decisions, routers[1]->metrics.decisions,
                        sizeof routers[0]->metrics.decisions);
    for (int r = 0; r < 2; r++) {
        for (uint32_t i = 0; i < 64; i++)
            if (open[r][i].generation)
                kvr_router_finish(routers[r], 2 * (uint64_t)S, open[r][i], &success);
        free_router(routers[r]);
    }
}

static void a_failing_one_is_counted_and_left_out(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    load(router, KVR_ROLE_POLICY, ROW(0));
    load_shadow(router, 0, failing);
    struct kvr_submission what = submission(NULL, 0);
    what.turn = 12345;
    for (int i = 0; i < KVR_FAILURES_MAX + 5; i++) {
        const char *row = serve(router, &what);
        assert_has(row, "\"replica\":\"r:1\",\"reason\":\"row_0\"");
        assert_has(row, ",\"shadow\":[{\"name\":\"failing\"");
        assert_has(row, ",\"verdict\":\"failed\"}]");
    }
    const struct kvr_slot *slot = kvr_router_slot(router, kvr_role_shadow(0));
    assert_true(kvr_slot_quarantined(slot));
    assert_int_equal(kvr_slot_counters(slot)->errors, KVR_FAILURES_MAX);
    assert_false(kvr_slot_quarantined(kvr_router_slot(router, KVR_ROLE_POLICY)));
    assert_int_equal(now(router, 0)->failed, KVR_FAILURES_MAX + 5);
    assert_int_equal(now(router, 0)->evaluated, 0);
    assert_int_equal(router->metrics.fallbacks, 0);
    load_shadow(router, 0, ROW(0));
    serve(router, &what);
    assert_int_equal(now(router, 0)->agreed, 1);
    free_router(router);
}

static void its_spill_rule_is_its_own(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(3);
    load(router, KVR_ROLE_POLICY, matching);
    load_shadow(router, 0, matching);
    load(router, kvr_role_shadow_spill(0), spill_to_last);
    load_shadow(router, 1, matching);
    uint64_t chain[10];
    make_chain(chain, 10, 1);
    struct kvr_submission what = submission(chain, 10);
    const char *row = serve(router, &what); /* cold: nobody spills */
    assert_has(row, "\"reason\":\"cold\",\"match_blocks\":0,\"spilled\":false}");
    assert_null(strstr(row, "spill_last"));
    char home[32];
    uint32_t at = 0;
    while (kvr_prefix_index_believed(&router->index, at) == 0)
        at++;
    assert_int_not_equal(at, 2);
    snprintf(home, sizeof home, "\"preferred\":\"r:%u\"", at + 1);
    row = serve(router, &what);
    assert_has(
        row, "\"replica\":\"r:3\",\"reason\":\"spill_last\",\"match_blocks\":0,\"spilled\":true,");
    assert_has(row, home);
    assert_has(row, ",\"spill\":{\"name\":\"last\",");
    assert_int_equal(now(router, 0)->spilled, 1);
    assert_int_equal(now(router, 0)->agreed, 1);
    assert_int_equal(now(router, 1)->agreed, 2);
    assert_int_equal(router->metrics.spills, 0);
    free_router(router);
}

static void refusals_and_waits_are_disagreements(void **state)
{
    (void)state;
    static const char refusing[] =
        "return { api = 1, name = 'refusing', pick = function() return kvr.REJECT end }\n";
    static const char holding[] =
        "return { api = 1, name = 'holding', pick = function() return kvr.HOLD end }\n";
    struct kvr_router *router = make_router(2);
    load(router, KVR_ROLE_POLICY, ROW(1));
    load_shadow(router, 0, refusing);
    load_shadow(router, 1, holding);
    struct kvr_submission what = submission(NULL, 0);
    const char *row = serve(router, &what);
    assert_has(row, "\"verdict\":\"reject\"}");
    assert_has(row, "\"reason\":\"fallback\""); /* nobody can wait: no opinion */
    assert_int_equal(now(router, 1)->fallbacks, 1);
    kvr_queue_init(&router->queue, &(struct kvr_queue_options){.max = 3});
    row = serve(router, &what);
    assert_has(row, "\"verdict\":\"hold\"}");
    load(router, KVR_ROLE_POLICY, refusing);
    row = serve(router, &what);
    assert_has(row, "\"verdict\":\"reject\"}");
    assert_null(strstr(row, "\"replica\":"));
    assert_int_equal(now(router, 0)->agreed, 1);
    assert_int_equal(now(router, 1)->agreed, 0);
    assert_string_equal(kvr_reason_text(router->shadows[1].pairs[0].acting_reason), "refused");
    assert_string_equal(kvr_reason_text(router->shadows[1].pairs[0].reason), "held");
    free_router(router);
}

/* What acts is asked again and again while a request waits; a shadow when it goes. */
static void one_that_waited_is_looked_at_once(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(1);
    router->replicas.slots[0].capacity = 1;
    kvr_queue_init(&router->queue, &(struct kvr_queue_options){.max = 3});
    load(router, KVR_ROLE_POLICY, ROW(0));
    load_shadow(router, 0, ROW(0));
    uint64_t chain[4];
    make_chain(chain, 4, 1);
    struct kvr_submission what = submission(chain, 4);
    struct kvr_action a = submit(router, S, &what), b;
    struct kvr_request_ref waiting = kvr_router_submit(router, S, &what);
    assert_false(kvr_router_next_action(router, &b));
    kvr_router_tick(router, 2 * (uint64_t)S);
    assert_false(kvr_router_next_action(router, &b));
    assert_int_equal(now(router, 0)->evaluated, 1);
    memset(chain, 0xee, sizeof chain);
    kvr_router_finish(router, 2 * (uint64_t)S, a.request, &success);
    assert_true(kvr_router_next_action(router, &b));
    router->rows.len = 0;
    kvr_router_finish(router, 3 * (uint64_t)S, waiting, &success); /* nobody settled */
    assert_int_equal(now(router, 0)->agreed, 2);
    kvr_buffer_append(&router->rows, "", 1);
    assert_has(router->rows.data, ",\"shadow\":[{\"name\":\"row_0\"");
    free_router(router);
}

/* Who serves the model changes after the decision: the shadow sees the ring of before. */
static void the_view_stands_until_it_is_settled(void **state)
{
    (void)state;
    static const char ring[] = "return { api = 1, name = 'ring', pick = function(request, view)\n"
                               "  local order = kvr.ring_order(request.routing_key)\n"
                               "  for i = 0, order.count - 1 do\n"
                               "    if view[order[i]].available then return order[i], 'ring' end\n"
                               "  end end }\n";
    struct kvr_router *router = make_router(3);
    load(router, KVR_ROLE_POLICY, ring);
    load_shadow(router, 0, ring);
    kvr_queue_init(&router->queue, &(struct kvr_queue_options){.max = 4});
    struct kvr_submission what = submission(NULL, 0);
    what.model = kvr_slice_of("m");
    struct kvr_request_ref open[5];
    struct kvr_action action;
    for (uint32_t i = 0; i < 5; i++) {
        if (i < 3)
            router->replicas.slots[i].capacity = 1;
        what.session = 1 + i;
        open[i] = kvr_router_submit(router, S, &what);
        assert_int_equal(kvr_router_next_action(router, &action), i < 3);
    }
    uint32_t last = 0;
    while (kvr_router_request(router, open[last])->replica != 2)
        last++;
    kvr_router_finish(router, S, open[last], &success);
    assert_true(kvr_router_next_action(router, &action)); /* one of those that waited, to r:3 */
    assert_int_equal(action.replica, 2);
    struct kvr_slice other = kvr_slice_of("other");
    kvr_replica_set_models(&router->replicas, 0, &other, 1);
    assert_false(kvr_router_next_action(router, &action));
    assert_int_equal(now(router, 0)->evaluated, 4);
    assert_int_equal(now(router, 0)->agreed, 4);
    assert_int_equal(now(router, 0)->fallbacks, 0);
    for (uint32_t i = 0; i < 5; i++)
        if (i != last)
            kvr_router_finish(router, S, open[i], &success);
    free_router(router);
}

static void a_comparison_is_of_two_texts(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    load(router, KVR_ROLE_POLICY, ROW(0));
    load_shadow(router, 0, ROW(1));
    load_shadow(router, 1, ROW(0));
    struct kvr_submission what = submission(NULL, 0);
    serve(router, &what);
    load(router, KVR_ROLE_POLICY, ROW(0)); /* the same text: nothing changes */
    serve(router, &what);
    assert_int_equal(now(router, 0)->evaluated, 2);
    load_shadow(router, 0, ROW(0)); /* a saved file */
    assert_int_equal(now(router, 0)->evaluated, 0);
    assert_int_equal(router->shadows[0].pairs_count, 0);
    assert_null(router->shadows[0].replicas);
    assert_int_equal(now(router, 1)->evaluated, 2);
    serve(router, &what);
    assert_int_equal(now(router, 0)->agreed, 1);
    load(router, KVR_ROLE_POLICY, ROW(1)); /* what acts is another */
    assert_int_equal(now(router, 1)->evaluated, 0);
    load_shadow(router, 0, "");
    assert_true(router->shadowing);
    load_shadow(router, 1, "");
    assert_false(router->shadowing);
    assert_null(strstr(serve(router, &what), "shadow"));
    assert_int_equal(router->shadows[0].totals.evaluated, 3); /* these stay */
    assert_int_equal(router->shadows[0].totals.agreed, 1);
    assert_int_equal(router->shadows[1].totals.evaluated, 3);
    free_router(router);
}

/* The view was filled for what was in force; this one would miss its matches. */
static void one_loaded_after_the_decision_waits_for_the_next(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    load(router, KVR_ROLE_POLICY, ROW(0));
    load_shadow(router, 0, ROW(0));
    struct kvr_submission what = submission(NULL, 0);
    struct kvr_request_ref ref = kvr_router_submit(router, S, &what);
    struct kvr_action action;
    assert_true(kvr_router_next_action(router, &action));
    load_shadow(router, 1, matching);
    kvr_router_settle(router);
    assert_int_equal(now(router, 0)->evaluated, 1);
    assert_int_equal(now(router, 1)->evaluated, 0);
    kvr_router_finish(router, S, ref, &success);
    serve(router, &what);
    assert_int_equal(now(router, 1)->evaluated, 1);
    free_router(router);
}

static void a_replica_that_left_keeps_its_name(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    load(router, KVR_ROLE_POLICY, ROW(0));
    load_shadow(router, 0, ROW(1));
    struct kvr_submission what = submission(NULL, 0);
    struct kvr_action action = submit(router, S, &what);
    assert_int_equal(router->replicas.slots[1].holds, 1);
    kvr_router_remove_replica(router, 1);
    struct kvr_replica_spec spec = {.authority = kvr_slice_of("n:1"), .rank = -1};
    assert_int_equal(kvr_router_add_replica(router, S, &spec, NULL), 2);
    kvr_router_finish(router, S, action.request, &success);
    kvr_buffer_append(&router->rows, "", 1);
    assert_has(router->rows.data, "\"replica\":\"r:2\",\"reason\":\"row_1\"");
    assert_int_equal(router->replicas.slots[1].holds, 0);
    assert_int_equal(router->shadows[0].replicas[1].shadow, 1);
    spec.authority = kvr_slice_of("n:2"); /* its slot, not its counts */
    assert_int_equal(kvr_router_add_replica(router, S, &spec, NULL), 1);
    assert_int_equal(router->shadows[0].replicas[1].shadow, 0);
    free_router(router);
}

static void a_move_is_another_decision(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(3);
    static const char least[] =
        "return { api = 1, name = 'least', pick = function() return kvr.least(), 'least' end }\n";
    load(router, KVR_ROLE_POLICY, least);
    load_shadow(router, 0, least);
    struct kvr_submission what = submission(NULL, 0);
    struct kvr_action a = submit(router, S, &what), b;
    kvr_router_failed(router, S, a.request, false, &what);
    assert_true(kvr_router_next_action(router, &b));
    kvr_router_settle(router);
    assert_int_equal(now(router, 0)->agreed, 2);
    const struct kvr_request_record *record = kvr_router_request(router, b.request);
    assert_int_equal(record->shadows->count, 1);
    assert_int_equal(record->shadows->items[0].replica, b.replica);
    kvr_router_finish(router, S, b.request, &success);
    free_router(router);
}

static void kinds_of_disagreement_are_bounded(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    char text[8000];
    size_t len = (size_t)snprintf(
        text, sizeof text,
        "return { api = 1, name = 'many',\n"
        "  pick = function(request, view)\n    if view.count < 2 then return nil end\n");
    for (int i = 0; i < 50; i++)
        len += (size_t)snprintf(
            text + len, sizeof text - len,
            "    if request.turn == %d and view[1].available then return 1, 'kind_%d' end\n", i, i);
    snprintf(text + len, sizeof text - len, "    return kvr.least(), 'kind' end }\n");
    load(router, KVR_ROLE_POLICY, ROW(0));
    load_shadow(router, 0, text);
    struct kvr_submission what = submission(NULL, 0);
    for (uint32_t i = 0; i < 100; i++) {
        what.turn = i % 50;
        serve(router, &what);
    }
    assert_int_equal(router->shadows[0].pairs_count, KVR_SHADOW_PAIRS_MAX);
    assert_int_equal(router->shadows[0].pairs[0].count, 2);
    assert_int_equal(router->shadows[0].pairs_other, 100 - 2 * KVR_SHADOW_PAIRS_MAX);
    free_router(router);
}

static void the_page_has_its_series(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    struct kvr_buffer page = {0};
    load(router, KVR_ROLE_POLICY, ROW(0));
    kvr_metrics_text_write(router, S, &page);
    kvr_buffer_append(&page, "", 1);
    assert_null(strstr(page.data, "role=\"shadow"));
    load_shadow(router, 1, ROW(1));
    load_shadow(router, 2, ROW(0));
    struct kvr_submission what = submission(NULL, 0);
    what.prompt_bytes = 400;
    serve(router, &what);
    page.len = 0;
    kvr_metrics_text_write(router, S, &page);
    kvr_buffer_append(&page, "", 1);
    assert_has(page.data,
               "\nkvroute_shadow_decisions_total{role=\"shadow_2\",verdict=\"disagreed\"} 1\n");
    assert_has(page.data,
               "\nkvroute_shadow_decisions_total{role=\"shadow_3\",verdict=\"agreed\"} 1\n");
    assert_has(page.data, "\nkvroute_shadow_prompt_tokens_total{role=\"shadow_2\"} 100\n");
    assert_has(page.data, "\nkvroute_script_calls_total{role=\"shadow_2\"} 1\n");
    assert_null(strstr(page.data, "role=\"shadow_1\""));
    kvr_buffer_deinit(&page);
    free_router(router);
}

static void assert_rows_are_json(struct kvr_slice rows)
{
    while (rows.len) {
        size_t len = (size_t)((const char *)memchr(rows.data, '\n', rows.len) - rows.data);
        struct kvr_json_reader json;
        kvr_json_reader_init(&json, kvr_slice_make(rows.data, len));
        kvr_json_skip(&json, NULL);
        if (!kvr_json_finish(&json))
            fail_msg("%s: %.*s", json.reason, (int)len, rows.data);
        rows = kvr_slice_make(rows.data + len + 1, rows.len - len - 1);
    }
}

/* Requests that end before they are settled, replicas that come and go, shadows and acting policies
 * that are replaced in between: nothing is held at the end, and every row can be read. */
static void random_lives(void **state)
{
    (void)state;
    static const char *const texts[] = {matching, random_row, failing, ROW(0), "", ""};
    struct kvr_router *router = make_router(6);
    struct kvr_request_ref open[100];
    uint32_t count = 0;
    uint64_t submitted = 0, at = S, chain[16];
    struct kvr_rng rng;
    kvr_rng_init(&rng, 99);
    kvr_queue_init(&router->queue, &(struct kvr_queue_options){.max = 8});
    load(router, KVR_ROLE_POLICY, random_row);
    load(router, KVR_ROLE_SPILL, spill_to_last);
    for (int step = 0; step < 6000; step++) {
        at += kvr_rng_below(&rng, 3 * MS);
        uint64_t dice = kvr_rng_below(&rng, 100);
        make_chain(chain, 16, kvr_rng_below(&rng, 20));
        struct kvr_submission what = submission(chain, 16);
        what.turn = kvr_rng_below(&rng, 2) ? 12345 : 0;
        uint32_t slot = (uint32_t)kvr_rng_below(&rng, 6);
        uint32_t which = count ? (uint32_t)kvr_rng_below(&rng, count) : 0;
        if (dice < 45 && count < 100) {
            open[count++] = kvr_router_submit(router, at, &what);
            submitted++;
        } else if (dice < 80 && count) {
            kvr_router_finish(router, at, open[which], &success);
            open[which] = open[--count];
        } else if (dice < 90) {
            uint32_t role = KVR_ROLE_SHADOW + (uint32_t)kvr_rng_below(&rng, 4);
            load(router, (enum kvr_script_role)role, texts[kvr_rng_below(&rng, 6)]);
            load(router, kvr_role_shadow_spill(role - KVR_ROLE_SHADOW),
                 dice % 2 ? spill_to_last : "");
        } else if (dice < 92) {
            load(router, KVR_ROLE_POLICY, texts[kvr_rng_below(&rng, 3)]);
        } else if (router->replicas.slots[slot].member) {
            if (dice < 94)
                kvr_router_remove_replica(router, slot);
            else
                kvr_router_probed(router, at, slot, dice < 96 ? KVR_PROBE_FAIL : KVR_PROBE_PASS,
                                  false);
        } else {
            char name[16];
            snprintf(name, sizeof name, "n:%d", step + 1);
            struct kvr_replica_spec spec = {.authority = kvr_slice_of(name), .rank = -1};
            (void)kvr_router_add_replica(router, at, &spec, NULL);
        }
        struct kvr_action action;
        while (kvr_router_next_action(router, &action)) {
            if (action.kind == KVR_ACTION_DISPATCH)
                continue;
            for (uint32_t i = 0; i < count; i++)
                if (open[i].slot == action.request.slot)
                    open[i] = open[--count];
            kvr_router_finish(router, at, action.request, &success);
        }
        if (dice % 3)
            kvr_router_settle(router);
        kvr_router_verify(router);
    }
    while (count)
        kvr_router_finish(router, at, open[--count], &success);
    assert_rows_are_json(kvr_buffer_slice(&router->rows));
    uint64_t evaluated = 0, failed = 0;
    for (int i = 0; i < KVR_SHADOWS_MAX; i++) {
        evaluated += router->shadows[i].totals.evaluated;
        failed += router->shadows[i].totals.failed;
    }
    assert_true(submitted > 1500 && evaluated > submitted && failed > 30);
    free_router(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_says_is_counted_and_told),
        cmocka_unit_test(each_side_has_its_match),
        cmocka_unit_test(it_sees_what_the_acting_policy_saw),
        cmocka_unit_test(it_changes_nothing),
        cmocka_unit_test(a_failing_one_is_counted_and_left_out),
        cmocka_unit_test(its_spill_rule_is_its_own),
        cmocka_unit_test(refusals_and_waits_are_disagreements),
        cmocka_unit_test(one_that_waited_is_looked_at_once),
        cmocka_unit_test(the_view_stands_until_it_is_settled),
        cmocka_unit_test(a_comparison_is_of_two_texts),
        cmocka_unit_test(one_loaded_after_the_decision_waits_for_the_next),
        cmocka_unit_test(a_replica_that_left_keeps_its_name),
        cmocka_unit_test(a_move_is_another_decision),
        cmocka_unit_test(kinds_of_disagreement_are_bounded),
        cmocka_unit_test(the_page_has_its_series),
        cmocka_unit_test(random_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
