/* The router as its drivers see it: events in, actions out, accounts that agree at every step. */
#include "router_fixture.h"

/* Sends a prompt where most of it is believed to be; else to the least loaded. */
static const char matching_policy[] =
    "local P = { api = 1, name = 'matching', needs = { 'match' } }\n"
    "function P.pick(request, view)\n"
    "  local best, blocks\n"
    "  for i = 0, view.count - 1 do\n"
    "    local row = view[i]\n"
    "    if row.available and row.match_blocks > (blocks or 0) then best, blocks = i, "
    "row.match_blocks end\n"
    "  end\n"
    "  if best then return best, 'prefix', true end\n"
    "  return nil\n"
    "end\n"
    "return P\n";
static const char spill_to_other[] =
    "local P = { api = 1, name = 'other', params = { most = 1 } }\n"
    "function P.spill(request, view, preferred)\n"
    "  if view[preferred].in_flight < P.params.most then return preferred end\n"
    "  for i = 0, view.count - 1 do\n"
    "    if i ~= preferred and view[i].available then return i, 'spill_other' end\n"
    "  end\n"
    "  return preferred\n"
    "end\n"
    "return P\n";
static const char refusing_policy[] = "local P = { api = 1, name = 'refusing' }\n"
                                      "function P.pick() return kvr.REJECT end\n"
                                      "return P\n";

static void test_rows_say_what_is_ahead_of_a_first_token(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    load(router, KVR_ROLE_POLICY, matching_policy);
    uint64_t chain[30];
    make_chain(chain, 30, 5);
    struct kvr_submission first = submission(chain, 20), longer = submission(chain, 30);
    struct kvr_action a = submit(router, S, &first);
    struct kvr_action b = submit(router, S, &longer);
    assert_int_equal(a.replica, b.replica);
    const struct kvr_replica_view *rows =
        router->picture.rows; /* as the second decision saw them */
    const struct kvr_replica_view *home = &rows[a.replica], *other = &rows[1 - a.replica];
    assert_true(home->active_tokens == 320 && home->prefill_tokens == 320 + 160);
    assert_true(other->active_tokens == 0 && other->prefill_tokens == 480);
    kvr_router_sent(router, S, a.request);
    kvr_router_first_byte(router, S + MS, a.request, 200);
    kvr_router_first_token(router, S + MS, a.request);
    struct kvr_action c = submit(router, S + MS, &first); /* prompts count until the end */
    assert_true(home->active_tokens == 320 + 480 && home->prefill_tokens == 160);
    kvr_router_finish(router, 2 * (uint64_t)S, a.request, &success);
    kvr_router_finish(router, 2 * (uint64_t)S, b.request, &success);
    kvr_router_finish(router, 2 * (uint64_t)S, c.request, &success);
    free_router(router);
}

static void end_answer(struct kvr_router *router, uint64_t sent_ns, uint64_t first_ns,
                       uint64_t last_ns, struct kvr_request_ref request, int64_t tokens)
{
    struct kvr_ending ending = success;
    ending.output_tokens = tokens;
    kvr_router_sent(router, sent_ns, request);
    kvr_router_first_byte(router, first_ns, request, 200);
    kvr_router_first_token(router, first_ns, request);
    kvr_router_finish(router, last_ns, request, &ending);
}

static void test_rows_say_how_long_answers_are_and_take(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(1);
    load(router, KVR_ROLE_POLICY, matching_policy);
    const struct kvr_replica_view *row = &router->picture.rows[0];
    const uint64_t s = S;
    struct kvr_submission stream = submission(NULL, 0);
    stream.stream = true;
    struct kvr_action action = submit(router, s, &stream);
    assert_true(isnan(row->output_tokens) && isnan(row->token_ms));
    end_answer(router, s, s + 500 * MS, s + 1400 * MS, action.request, 10); /* 9 gaps of 100 ms */
    action = submit(router, 3 * s, &stream);
    assert_true(row->output_tokens == 10 && row->token_ms == 100);
    end_answer(router, 3 * s, 4 * s, 5 * s, action.request, 1); /* has no gap */
    action = submit(router, 6 * s, &stream);
    assert_true(fabs(row->output_tokens - 9.1) < 1e-9 && row->token_ms == 100);
    end_answer(router, 6 * s, 7 * s, 7 * s + 10 * MS, action.request, 11); /* of 1 ms */
    struct kvr_submission whole = submission(NULL, 0);
    action = submit(router, 8 * s, &whole);
    assert_true(fabs(row->token_ms - 90.1) < 1e-9);
    end_answer(router, 8 * s, 9 * s, 9 * s, action.request, 500); /* its tokens came at once */
    whole.choices = 2;
    action = submit(router, 10 * s, &whole);
    double tokens = row->output_tokens;
    assert_true(tokens > 50 && fabs(row->token_ms - 90.1) < 1e-9);
    end_answer(router, 10 * s, 11 * s, 11 * s, action.request, 5); /* of two answers */
    action = submit(router, 12 * s, &stream);
    assert_true(row->output_tokens == tokens);
    kvr_router_finish(router, 12 * s, action.request, &success); /* does not say */
    action = submit(router, 13 * s, &stream);
    assert_true(row->output_tokens == tokens);
    kvr_router_finish(router, 13 * s, action.request, &success);
    free_router(router);
}

static void test_recent_work_is_counted_for_who_asks(void **state)
{
    (void)state;
    static const char with[] =
        "return { api = 1, name = 'with', needs = { 'work', 'match' },\n"
        "  pick = function(request, view)\n"
        "    local i = request.turn\n"
        "    if i < view.count and view[i].available then return i, 'w' end\n"
        "  end }\n";
    struct kvr_router *router = make_router(2);
    const struct kvr_replica_view *rows = router->picture.rows;
    const uint64_t s = S;
    uint64_t chain[20];
    make_chain(chain, 20, 9);
    struct kvr_submission first = submission(chain, 10), longer = submission(chain, 20);
    load(router, KVR_ROLE_POLICY, matching_policy);
    struct kvr_action a = submit(router, s, &first); /* counted by nobody */
    kvr_router_finish(router, s, a.request, &success);
    assert_true(isnan(rows[0].recent_uncached_tokens));
    load(router, KVR_ROLE_POLICY, with);
    first.turn = longer.turn = 1 - a.replica; /* the other one */
    uint32_t home = first.turn;
    static const double seen[] = {0, 160, 160, 320, 320};
    for (uint32_t i = 0; i < 5; i++) { /* 160 tokens, none of them new, 160 more, ... */
        struct kvr_action b = submit(router, 2 * s, i < 2 ? &first : &longer);
        assert_true(rows[home].recent_uncached_tokens == seen[i]);
        assert_true(rows[1 - home].recent_uncached_tokens == 0);
        kvr_router_finish(router, 2 * s, b.request, &success);
    }
    a = submit(router, 150 * s, &first); /* believed no more */
    assert_true(rows[home].recent_uncached_tokens == 320);
    kvr_router_finish(router, 150 * s, a.request, &success);
    a = submit(router, 200 * s, &first);
    assert_true(rows[home].recent_uncached_tokens == 160);
    kvr_router_finish(router, 200 * s, a.request, &success);
    kvr_router_remove_replica(router, home); /* what comes in its slot has done nothing */
    struct kvr_replica_spec spec = {.authority = kvr_slice_of("r:9"), .rank = -1};
    assert_int_equal(kvr_router_add_replica(router, 201 * s, &spec, NULL), home);
    kvr_router_probed(router, 201 * s, home, KVR_PROBE_PASS, false);
    a = submit(router, 201 * s, &first);
    assert_true(rows[home].recent_uncached_tokens == 0);
    kvr_router_finish(router, 201 * s, a.request, &success);
    free_router(router);
}

static void test_active_blocks_are_those_of_prompts_in_flight(void **state)
{
    (void)state;
    static const char to_first[] = "return { api = 1, name = 'to_first', needs = { 'active' },\n"
                                   "  pick = function() return kvr.nth_available(0), 'x' end }\n";
    struct kvr_router *router = make_router(2);
    load(router, KVR_ROLE_POLICY, to_first);
    uint64_t chain[2][30];
    make_chain(chain[0], 30, 5);
    make_chain(chain[1], 30, 6);
    memcpy(chain[1], chain[0], 10 * sizeof chain[0][0]);
    struct kvr_submission whole = submission(chain[0], 30), part = submission(chain[0], 20),
                          other = submission(chain[1], 30);
    const struct kvr_replica_view *rows = router->picture.rows; /* as the last decision saw them */
    struct kvr_action a = submit(router, S, &part), b = submit(router, S, &other);
    assert_int_equal(rows[0].active_blocks, 20);
    assert_int_equal(rows[0].active_match_blocks, 10);
    struct kvr_action c = submit(router, S, &whole);
    assert_int_equal(rows[0].active_blocks, 40);
    assert_int_equal(rows[0].active_match_blocks, 20);
    assert_int_equal(rows[1].active_blocks, 0);
    assert_int_equal(rows[1].active_match_blocks, 0);
    memset(chain, 0, sizeof chain); /* its memory is the driver's */
    make_chain(chain[1], 30, 6);
    make_chain(chain[0], 30, 5);
    kvr_router_finish(router, S, a.request, &success);
    kvr_router_sent(router, S, c.request);
    kvr_router_failed(router, S, c.request, true, &whole); /* moves to the other */
    struct kvr_action moved;
    assert_true(kvr_router_next_action(router, &moved));
    assert_int_equal(moved.replica, 1);
    a = submit(router, S, &part);
    assert_int_equal(rows[0].active_blocks, 30);
    assert_int_equal(rows[0].active_match_blocks, 10);
    assert_int_equal(rows[1].active_blocks, 30);
    assert_int_equal(rows[1].active_match_blocks, 20);
    kvr_router_finish(router, S, a.request, &success);
    kvr_router_finish(router, S, b.request, &success);
    kvr_router_finish(router, S, c.request, &success);
    free_router(router);
}

static void test_openings_are_counted_for_who_asks(void **state)
{
    (void)state;
    static const char with[] =
        "return { api = 1, name = 'with', needs = { 'openings' },\n"
        "  pick = function(request, view)\n"
        "    if view.available == 0 or request.chain_len < 4 then return end\n"
        "    return kvr.least(), 's' .. 100 * kvr.opening_share(4)\n"
        "  end }\n";
    static const char without[] = "return { api = 1, name = 'without',\n"
                                  "  pick = function()\n"
                                  "    local share = kvr.opening_share(4)\n"
                                  "    return kvr.least(), share ~= share and 'unread' or 'read'\n"
                                  "  end }\n";
    struct kvr_router *router = make_router(2);
    uint64_t chains[2][8];
    make_chain(chains[0], 8, 1);
    make_chain(chains[1], 8, 2);
    struct kvr_submission prompts[] = {submission(chains[0], 8), submission(chains[1], 4)};
    static const struct {
        const char *policy;
        int prompt;
        const char *reason;
    } steps[] = {
        {without, 0, "unread"},        {with, 0, "s0"},  {with, 0, "s100"},     {with, 1, "s0"},
        {with, 1, "s33_333333333333"}, {with, 0, "s50"}, {without, 0, "unread"}};
    const char *policy = NULL;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (steps[i].policy != policy)
            load(router, KVR_ROLE_POLICY, policy = steps[i].policy);
        struct kvr_action action = submit(router, S, &prompts[steps[i].prompt]);
        uint16_t reason = kvr_router_request(router, action.request)->reason;
        assert_string_equal(kvr_reason_text(reason), steps[i].reason);
        kvr_router_finish(router, S, action.request, &success);
    }
    free_router(router);
}

static void test_a_prompt_comes_back_to_its_replica(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(4);
    load(router, KVR_ROLE_POLICY, matching_policy);
    uint64_t chain[20];
    make_chain(chain, 20, 5);
    struct kvr_submission first = submission(chain, 20);
    struct kvr_action action = submit(router, S, &first);
    assert_int_equal(action.kind, KVR_ACTION_DISPATCH);
    uint32_t home = action.replica;
    assert_true(kvr_router_request(router, action.request)->fallback); /* nil: no opinion */
    assert_int_equal(router->loads[home].uncached_tokens, 320); /* 1,280 bytes at 4 a token */
    kvr_router_sent(router, S + MS, action.request);
    kvr_router_first_byte(router, S + 2 * MS, action.request, 200);
    kvr_router_first_token(router, S + 2 * MS, action.request);
    assert_int_equal(router->loads[home].uncached_tokens, 0);
    kvr_router_finish(router, S + 3 * MS, action.request, &success);
    for (int i = 0; i < 8; i++) {
        action = submit(router, 2 * (uint64_t)S, &first);
        assert_int_equal(action.replica, home);
        const struct kvr_request_record *record = kvr_router_request(router, action.request);
        assert_int_equal(record->match_blocks, 20);
        assert_string_equal(kvr_reason_text(record->reason), "prefix");
        kvr_router_finish(router, 2 * (uint64_t)S, action.request, &success);
    }
    free_router(router);
}

static void test_spill_declines_a_busy_preferred(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    load(router, KVR_ROLE_POLICY, matching_policy);
    load(router, KVR_ROLE_SPILL, spill_to_other);
    uint64_t chain[10];
    make_chain(chain, 10, 1);
    struct kvr_submission what = submission(chain, 10);
    struct kvr_action a = submit(router, S, &what);
    assert_null(kvr_router_request(router, a.request)->spill); /* not affine: not asked */
    struct kvr_action b = submit(router, S, &what);
    const struct kvr_request_record *record = kvr_router_request(router, b.request);
    assert_int_not_equal(a.replica, b.replica);
    assert_int_equal(record->preferred, a.replica);
    assert_int_equal(record->declined_match_blocks, 10);
    assert_int_equal(record->match_blocks, 0);
    assert_string_equal(kvr_reason_text(record->reason), "spill_other");
    assert_string_equal(kvr_reason_text(record->preferred_reason), "prefix");
    assert_int_equal(router->metrics.spills, 1);
    kvr_router_finish(router, S, a.request, &success);
    kvr_router_finish(router, S, b.request, &success);
    struct kvr_action c = submit(router, S, &what); /* idle: stays, and both hold it now */
    assert_int_equal(kvr_router_request(router, c.request)->match_blocks, 10);
    kvr_router_finish(router, S, c.request, &success);
    free_router(router);
}

static void test_a_failed_dispatch_moves_and_takes_its_belief_back(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(3);
    load(router, KVR_ROLE_POLICY, matching_policy);
    uint64_t chain[10];
    make_chain(chain, 10, 1);
    struct kvr_submission what = submission(chain, 10);
    struct kvr_action a = submit(router, S, &what);
    uint32_t first = a.replica;
    kvr_router_failed(router, S, a.request, false, &what);
    kvr_router_settle(router);
    assert_int_equal(kvr_prefix_index_believed(&router->index, first), 0);
    struct kvr_action b;
    assert_true(kvr_router_next_action(router, &b));
    assert_int_equal(b.kind, KVR_ACTION_DISPATCH);
    assert_int_not_equal(b.replica, first);
    assert_int_equal(router->replicas.slots[first].operational, KVR_UP);
    kvr_router_failed(router, S, b.request, true, &what);
    assert_int_equal(router->replicas.slots[b.replica].operational, KVR_DOWN);
    struct kvr_action c;
    assert_true(kvr_router_next_action(router, &c));
    assert_true(c.replica != first && c.replica != b.replica);
    kvr_router_failed(router, S, c.request, true, &what);
    struct kvr_action d;
    assert_true(kvr_router_next_action(router, &d));
    assert_int_equal(d.kind, KVR_ACTION_REJECT);
    assert_int_equal(d.rejection, KVR_REJECT_ALL_FAILED);
    struct kvr_ending ending = success;
    ending.outcome = KVR_OUTCOME_DROPPED;
    kvr_router_finish(router, S, d.request, &ending);
    assert_int_equal(router->metrics.moves, 2);
    free_router(router);
}

static void test_going_down_voids_beliefs(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    load(router, KVR_ROLE_POLICY, matching_policy);
    uint64_t chain[10];
    make_chain(chain, 10, 1);
    struct kvr_submission what = submission(chain, 10);
    struct kvr_action a = submit(router, S, &what);
    kvr_router_finish(router, S, a.request, &success);
    kvr_router_probed(router, S, a.replica, KVR_PROBE_FAIL, true);
    assert_int_equal(router->replicas.slots[a.replica].operational, KVR_DOWN);
    struct kvr_action b = submit(router, S, &what);
    assert_int_not_equal(b.replica, a.replica);
    assert_int_equal(kvr_router_request(router, b.request)->match_blocks, 0);
    kvr_router_finish(router, S, b.request, &success);
    free_router(router);
}

static void test_rejections_tell_why(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    struct kvr_submission what = submission(NULL, 0);
    struct kvr_ending ending = success;
    ending.outcome = KVR_OUTCOME_DROPPED;
#define EXPECT(why)                                                                                \
    do {                                                                                           \
        struct kvr_action action_ = submit(router, S, &what);                                      \
        assert_int_equal(action_.kind, KVR_ACTION_REJECT);                                         \
        assert_int_equal(action_.rejection, why);                                                  \
        kvr_router_finish(router, S, action_.request, &ending);                                    \
    } while (0)
    struct kvr_slice served[] = {kvr_slice_of("m")};
    kvr_replica_set_models(&router->replicas, 0, served, 1);
    kvr_replica_set_models(&router->replicas, 1, served, 1);
    what.model = kvr_slice_of("unknown");
    EXPECT(KVR_REJECT_MODEL_NOT_FOUND);
    what.model = kvr_slice_of("m");
    load(router, KVR_ROLE_POLICY, refusing_policy);
    EXPECT(KVR_REJECT_BY_POLICY);
    router->replicas.slots[0].capacity = router->replicas.slots[1].capacity = 0;
    EXPECT(KVR_REJECT_AT_CAPACITY);
    kvr_replica_set_administrative(&router->replicas, 0, KVR_DRAINING);
    kvr_replica_set_administrative(&router->replicas, 1, KVR_DRAINING);
    EXPECT(KVR_REJECT_DRAINING);
    kvr_router_probed(router, S, 0, KVR_PROBE_FAIL, true);
    kvr_router_probed(router, S, 1, KVR_PROBE_FAIL, true);
    EXPECT(KVR_REJECT_NO_REPLICAS);
    assert_int_equal(router->metrics.outcomes[KVR_OUTCOME_DROPPED], 5);
    free_router(router);
}

static void test_the_table_of_requests_is_bounded(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    struct kvr_submission what = submission(NULL, 0);
    struct kvr_request_ref open[128];
    for (int i = 0; i < 128; i++)
        open[i] = submit(router, S, &what).request;
    assert_int_equal(kvr_router_submit(router, S, &what).generation, 0);
    assert_int_equal(router->metrics.rejections[KVR_REJECT_REQUESTS_MAX], 1);
    assert_int_equal(router->metrics.submitted, 128);
    assert_int_equal(router->loads[0].in_flight, 64); /* the fallback spreads evenly */
    for (int i = 0; i < 128; i++)
        kvr_router_finish(router, S, open[i], &success);
    free_router(router);
}

static void test_what_the_driver_refuses_is_counted_and_has_a_row(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(2);
    struct kvr_submission what = submission(NULL, 0);
    what.client = "team-a";
    what.tag = kvr_slice_of("t");
    struct kvr_ending ending = success;
    ending.outcome = KVR_OUTCOME_DROPPED;
    ending.error = "body_too_large";
    ending.status = 413;
    kvr_router_refused(router, S, &what, &ending);
    assert_int_equal(router->metrics.submitted, 1);
    assert_int_equal(router->metrics.outcomes[KVR_OUTCOME_DROPPED], 1);
    assert_int_equal(router->requests.open, 0);
    kvr_buffer_append(&router->rows, "", 1);
    assert_non_null(strstr(router->rows.data, "\"client\":\"team-a\""));
    assert_non_null(strstr(router->rows.data, "\"error\":\"body_too_large\",\"status\":413"));
    assert_null(strstr(router->rows.data, "\"replica\""));
    free_router(router);
}

static struct kvr_router *make_queueing_router(enum kvr_queue_order order)
{
    struct kvr_router *router = make_router(2);
    kvr_queue_init(&router->queue,
                   &(struct kvr_queue_options){.max = 3, .deadline_ns = 10ull * S, .order = order});
    router->replicas.slots[0].capacity = router->replicas.slots[1].capacity = 1;
    return router;
}

static void expect_waiting(struct kvr_router *router, uint64_t now,
                           const struct kvr_submission *what, struct kvr_request_ref *ref)
{
    struct kvr_action action;
    *ref = kvr_router_submit(router, now, what);
    assert_false(kvr_router_next_action(router, &action));
}

static void test_the_queue_goes_in_order(void **state)
{
    (void)state;
    struct kvr_router *router = make_queueing_router(KVR_QUEUE_FIFO);
    struct kvr_submission what = submission(NULL, 0);
    struct kvr_action a = submit(router, S, &what), b = submit(router, S, &what), next;
    struct kvr_request_ref c, d, e;
    what.prompt_bytes = 4000;
    expect_waiting(router, S, &what, &c);
    what.prompt_bytes = 40;
    expect_waiting(router, S, &what, &d);
    expect_waiting(router, S, &what, &e);
    next = submit(router, S, &what);
    assert_int_equal(next.rejection, KVR_REJECT_QUEUE_FULL);
    kvr_router_finish(router, S, next.request, &success);
    kvr_router_verify(router);
    kvr_router_finish(router, 2ull * S, a.request, &success);
    assert_true(kvr_router_next_action(router, &next));
    assert_int_equal(next.request.slot, c.slot);
    assert_int_equal(next.replica, a.replica);
    assert_int_equal(kvr_router_request(router, c)->waited_ns, S);
    assert_false(kvr_router_next_action(router, &next));
    kvr_router_finish(router, 2ull * S, d, &success); /* its client went away */
    kvr_router_finish(router, 3ull * S, b.request, &success);
    assert_true(kvr_router_next_action(router, &next));
    assert_int_equal(next.request.slot, e.slot);
    kvr_router_finish(router, 3ull * S, c, &success);
    kvr_router_finish(router, 3ull * S, e, &success);
    assert_int_equal(router->queue.count, 0);
    free_router(router);
}

static void test_the_queue_may_take_the_shortest(void **state)
{
    (void)state;
    struct kvr_router *router = make_queueing_router(KVR_QUEUE_SHORTEST);
    struct kvr_submission what = submission(NULL, 0);
    struct kvr_action a = submit(router, S, &what), b = submit(router, S, &what), next;
    struct kvr_request_ref long_one, short_one;
    what.prompt_bytes = 4000;
    expect_waiting(router, S, &what, &long_one);
    what.prompt_bytes = 40;
    expect_waiting(router, S, &what, &short_one);
    kvr_router_finish(router, S, a.request, &success);
    assert_true(kvr_router_next_action(router, &next));
    assert_int_equal(next.request.slot, short_one.slot);
    kvr_router_finish(router, S, b.request, &success);
    assert_true(kvr_router_next_action(router, &next));
    assert_int_equal(next.request.slot, long_one.slot);
    kvr_router_finish(router, S, short_one, &success);
    kvr_router_finish(router, S, long_one, &success);
    free_router(router);
}

static void test_waiting_has_a_deadline_and_a_chain(void **state)
{
    (void)state;
    struct kvr_router *router = make_queueing_router(KVR_QUEUE_FIFO);
    load(router, KVR_ROLE_POLICY, matching_policy);
    uint64_t chain[10];
    make_chain(chain, 10, 1);
    struct kvr_submission what = submission(chain, 10);
    struct kvr_action a = submit(router, S, &what), b = submit(router, S, &what), next;
    struct kvr_request_ref c, d;
    expect_waiting(router, S, &what, &c);
    memset(chain, 0xee, sizeof chain); /* the driver scans another request */
    expect_waiting(router, 5ull * S, &what, &d);
    kvr_router_finish(router, 6ull * S, a.request, &success);
    assert_true(kvr_router_next_action(router, &next));
    assert_int_equal(next.request.slot, c.slot);
    assert_int_equal(kvr_router_request(router, c)->match_blocks, 10);
    kvr_router_tick(router, 14ull * S);
    assert_false(kvr_router_next_action(router, &next));
    kvr_router_tick(router, 15ull * S);
    assert_true(kvr_router_next_action(router, &next));
    assert_int_equal(next.request.slot, d.slot);
    assert_int_equal(next.rejection, KVR_REJECT_QUEUE_DEADLINE);
    kvr_router_finish(router, 15ull * S, d, &success);
    kvr_router_finish(router, 15ull * S, b.request, &success);
    kvr_router_finish(router, 15ull * S, c, &success);
    assert_int_equal(router->queue.expired, 1);
    free_router(router);
}

static void test_the_shortest_is_what_is_left_to_prefill(void **state)
{
    (void)state;
    struct kvr_router *router = make_queueing_router(KVR_QUEUE_SHORTEST);
    load(router, KVR_ROLE_POLICY, matching_policy);
    uint64_t known[40], other[10];
    make_chain(known, 40, 1);
    make_chain(other, 10, 2);
    struct kvr_submission long_known = submission(known, 40), short_new = submission(other, 10);
    struct kvr_submission none = submission(NULL, 0);
    struct kvr_action a = submit(router, S, &long_known), next;
    struct kvr_action b = submit(router, S, &none);
    struct kvr_request_ref c, d;
    expect_waiting(router, S, &short_new, &c);
    expect_waiting(router, S, &long_known, &d);
    assert_int_equal(kvr_router_request(router, c)->uncached_tokens, 160);
    assert_int_equal(kvr_router_request(router, d)->uncached_tokens, 0);
    kvr_router_finish(router, S, a.request, &success);
    assert_true(kvr_router_next_action(router, &next));
    assert_int_equal(next.request.slot, d.slot);
    kvr_router_finish(router, S, b.request, &success);
    kvr_router_finish(router, S, c, &success);
    kvr_router_finish(router, S, d, &success);
    free_router(router);
}

/* Its chain is the record's own: it must be in the index before the record goes. */
static void test_one_that_waited_may_end_before_it_is_settled(void **state)
{
    (void)state;
    struct kvr_router *router = make_queueing_router(KVR_QUEUE_FIFO);
    load(router, KVR_ROLE_POLICY, matching_policy);
    uint64_t chain[10];
    make_chain(chain, 10, 1);
    struct kvr_submission what = submission(chain, 10), none = submission(NULL, 0);
    struct kvr_action a = submit(router, S, &none), b = submit(router, S, &none), next;
    struct kvr_request_ref c;
    expect_waiting(router, S, &what, &c);
    kvr_router_finish(router, S, a.request, &success);
    assert_true(kvr_router_next_action(router, &next));
    assert_int_equal(next.request.slot, c.slot);
    kvr_router_finish(router, S, c, &success);
    assert_null(router->pending.chain);
    kvr_router_settle(router);
    assert_int_equal(kvr_prefix_index_believed(&router->index, next.replica), 10);
    kvr_router_finish(router, S, b.request, &success);
    free_router(router);
}

static void test_one_that_failed_may_wait_and_go_away(void **state)
{
    (void)state;
    struct kvr_router *router = make_queueing_router(KVR_QUEUE_FIFO);
    struct kvr_submission what = submission(NULL, 0);
    struct kvr_action a = submit(router, S, &what), b = submit(router, S, &what), next;
    kvr_router_failed(router, S, a.request, false, &what);
    assert_false(kvr_router_next_action(router, &next)); /* the other one is full */
    assert_int_equal(router->queue.count, 1);
    assert_int_equal(kvr_router_request(router, a.request)->replica, KVR_NO_REPLICA);
    kvr_router_finish(router, S, a.request, &success);
    kvr_router_finish(router, S, b.request, &success);
    free_router(router);
}

static void test_hold_waits_for_a_change(void **state)
{
    (void)state;
    static const char holding[] = "local P = { api = 1, name = 'holding' }\n"
                                  "function P.pick(request, view)\n"
                                  "  if view.total_in_flight > 0 then return kvr.HOLD end\n"
                                  "  return kvr.least(), 'free'\n"
                                  "end\n"
                                  "return P\n";
    struct kvr_router *router = make_router(2);
    kvr_queue_init(&router->queue, &(struct kvr_queue_options){.max = 3});
    load(router, KVR_ROLE_POLICY, holding);
    struct kvr_submission what = submission(NULL, 0);
    struct kvr_action a = submit(router, S, &what), next;
    struct kvr_request_ref b;
    expect_waiting(router, S, &what, &b);
    kvr_router_tick(router, 2ull * S); /* something may have changed: asked again, and held again */
    assert_false(kvr_router_next_action(router, &next));
    assert_int_equal(router->queue.count, 1);
    kvr_router_finish(router, 3ull * S, a.request, &success);
    assert_true(kvr_router_next_action(router, &next));
    assert_int_equal(next.request.slot, b.slot);
    kvr_router_finish(router, 3ull * S, b, &success);
    free_router(router);
}

/* Asked again and again it is held again and again: its time goes on, and others have their turn.
 */
static void test_hold_ends_at_the_deadline(void **state)
{
    (void)state;
    static const char picky[] = "local P = { api = 1, name = 'picky' }\n"
                                "function P.pick(request, view)\n"
                                "  if request.prompt_bytes > 100 then return kvr.HOLD end\n"
                                "  if view.count > 0 and view.total_in_flight == 0 then\n"
                                "    return kvr.least(), 'free'\n"
                                "  end\n"
                                "  return kvr.HOLD\n"
                                "end\n"
                                "return P\n";
    struct kvr_router *router = make_router(2);
    kvr_queue_init(&router->queue, &(struct kvr_queue_options){.max = 3, .deadline_ns = 10ull * S});
    load(router, KVR_ROLE_POLICY, picky);
    struct kvr_submission large = submission(NULL, 0), small = submission(NULL, 0);
    large.prompt_bytes = 4000;
    small.prompt_bytes = 40;
    struct kvr_action a = submit(router, S, &small), next;
    struct kvr_request_ref held, again, other;
    expect_waiting(router, S, &large, &held);
    expect_waiting(router, 2ull * S, &large, &again);
    expect_waiting(router, 3ull * S, &small, &other);
    for (uint64_t now = 3ull * S; now < 11ull * S; now += S / 10) {
        kvr_router_tick(router, now);
        assert_false(kvr_router_next_action(router, &next));
    }
    assert_int_equal(router->queue.queued, 3);
    kvr_router_finish(router, 11ull * S - 1, a.request, &success);
    assert_true(kvr_router_next_action(router, &next)); /* behind two that stay */
    assert_int_equal(next.request.slot, other.slot);
    assert_int_equal(kvr_router_request(router, other)->waited_ns, 8ull * S - 1);
    const struct kvr_request_ref late[] = {held, again};
    for (uint32_t i = 0; i < 2; i++) {
        kvr_router_tick(router, (11ull + i) * S);
        assert_true(kvr_router_next_action(router, &next));
        assert_int_equal(next.request.slot, late[i].slot);
        assert_int_equal(next.rejection, KVR_REJECT_QUEUE_DEADLINE);
        assert_int_equal(kvr_router_request(router, late[i])->waited_ns, 10ull * S);
        kvr_router_finish(router, (11ull + i) * S, late[i], &success);
        assert_false(kvr_router_next_action(router, &next));
    }
    kvr_router_finish(router, 12ull * S, other, &success);
    free_router(router);
}

static void test_bytes_of_wide_blocks(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(1);
    assert_float_equal(kvr_router_block_bytes(router, 100), 6400, 0);
    router->options.wide_after = 1000; /* the 17th block starts behind it */
    assert_float_equal(kvr_router_block_bytes(router, 15), 960, 0);
    assert_float_equal(kvr_router_block_bytes(router, 16), 1024, 0);
    assert_float_equal(kvr_router_block_bytes(router, 18), 1024 + 2 * 256, 0);
    free_router(router);
}

static size_t count_lines(const struct kvr_buffer *rows)
{
    size_t lines = 0;
    for (size_t i = 0; i < rows->len; i++)
        lines += rows->data[i] == '\n';
    return lines;
}

/* Random requests, failures, probes, drains, removals and reloads. Accounts agree at every step, no
 * dispatch goes to a replica that is not available, and each request leaves exactly one row. */
static void test_random_lives(void **state)
{
    (void)state;
    struct kvr_router *router = make_router(8);
    load(router, KVR_ROLE_POLICY, matching_policy);
    load(router, KVR_ROLE_SPILL, spill_to_other);
    struct {
        struct kvr_request_ref ref;
        uint64_t seed;
        bool got_byte;
    } open[128];
    uint32_t count = 0;
    uint64_t now = S, submitted = 0;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 42);
    for (int step = 0; step < 40000; step++) {
        now += kvr_rng_below(&rng, 5 * MS);
        uint64_t what = kvr_rng_below(&rng, 100);
        uint64_t chain[32];
        struct kvr_submission it = submission(chain, 32);
        if (what < 35 && count < 128) {
            open[count].seed = kvr_rng_below(&rng, 50);
            open[count].got_byte = false;
            make_chain(chain, 32, open[count].seed);
            open[count++].ref = kvr_router_submit(router, now, &it);
            submitted++;
        } else if (what < 85 && count) {
            uint32_t at = (uint32_t)kvr_rng_below(&rng, count);
            struct kvr_request_ref ref = open[at].ref;
            if (what < 45 && !open[at].got_byte) {
                make_chain(chain, 32, open[at].seed);
                kvr_router_failed(router, now, ref, kvr_rng_below(&rng, 10) == 0, &it);
            } else if (what < 60) {
                if (!open[at].got_byte)
                    kvr_router_first_byte(router, now, ref, 200);
                open[at].got_byte = true;
                kvr_router_first_token(router, now, ref);
            } else {
                struct kvr_ending ending = success;
                ending.outcome = (enum kvr_outcome)kvr_rng_below(&rng, 4);
                ending.replica_fault = ending.outcome == KVR_OUTCOME_DROPPED;
                kvr_router_finish(router, now, ref, &ending);
                open[at] = open[--count];
            }
        } else {
            uint32_t slot = (uint32_t)kvr_rng_below(&rng, 8);
            if (router->replicas.slots[slot].member) {
                if (what < 95)
                    kvr_router_probed(router, now, slot,
                                      kvr_rng_below(&rng, 5) ? KVR_PROBE_PASS : KVR_PROBE_FAIL,
                                      false);
                else if (what < 97)
                    kvr_replica_set_administrative(&router->replicas, slot,
                                                   (enum kvr_administrative)kvr_rng_below(&rng, 3));
                else if (what < 98)
                    kvr_router_remove_replica(router, slot);
            } else {
                char name[16];
                snprintf(name, sizeof name, "n:%d", step + 1);
                struct kvr_replica_spec spec = {.authority = kvr_slice_of(name), .rank = -1};
                (void)kvr_router_add_replica(router, now, &spec, NULL);
            }
            if (what == 99)
                load(router, KVR_ROLE_POLICY,
                     kvr_rng_below(&rng, 2) ? matching_policy : refusing_policy);
            kvr_router_tick(router, now);
        }
        struct kvr_action action;
        while (kvr_router_next_action(router, &action)) {
            if (action.kind == KVR_ACTION_DISPATCH) {
                assert_true(kvr_replica_in_rotation(&router->replicas.slots[action.replica]));
                continue;
            }
            struct kvr_ending ending = success;
            ending.outcome = KVR_OUTCOME_DROPPED;
            kvr_router_finish(router, now, action.request, &ending);
            for (uint32_t i = 0; i < count; i++)
                if (open[i].ref.slot == action.request.slot)
                    open[i] = open[--count];
        }
        kvr_router_settle(router);
        kvr_router_verify(router);
        assert_int_equal(router->requests.open, count);
    }
    while (count)
        kvr_router_finish(router, now, open[--count].ref, &success);
    assert_int_equal(count_lines(&router->rows), submitted);
    uint64_t ended = 0;
    for (int i = 0; i < KVR_OUTCOMES; i++)
        ended += router->metrics.outcomes[i];
    assert_int_equal(ended, submitted);
    assert_true(router->metrics.spills > 100 && router->metrics.moves > 100);
    free_router(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_say_what_is_ahead_of_a_first_token),
        cmocka_unit_test(test_rows_say_how_long_answers_are_and_take),
        cmocka_unit_test(test_recent_work_is_counted_for_who_asks),
        cmocka_unit_test(test_active_blocks_are_those_of_prompts_in_flight),
        cmocka_unit_test(test_openings_are_counted_for_who_asks),
        cmocka_unit_test(test_a_prompt_comes_back_to_its_replica),
        cmocka_unit_test(test_spill_declines_a_busy_preferred),
        cmocka_unit_test(test_a_failed_dispatch_moves_and_takes_its_belief_back),
        cmocka_unit_test(test_going_down_voids_beliefs),
        cmocka_unit_test(test_rejections_tell_why),
        cmocka_unit_test(test_the_table_of_requests_is_bounded),
        cmocka_unit_test(test_what_the_driver_refuses_is_counted_and_has_a_row),
        cmocka_unit_test(test_the_queue_goes_in_order),
        cmocka_unit_test(test_the_queue_may_take_the_shortest),
        cmocka_unit_test(test_the_shortest_is_what_is_left_to_prefill),
        cmocka_unit_test(test_one_that_waited_may_end_before_it_is_settled),
        cmocka_unit_test(test_one_that_failed_may_wait_and_go_away),
        cmocka_unit_test(test_waiting_has_a_deadline_and_a_chain),
        cmocka_unit_test(test_hold_waits_for_a_change),
        cmocka_unit_test(test_hold_ends_at_the_deadline),
        cmocka_unit_test(test_bytes_of_wide_blocks),
        cmocka_unit_test(test_random_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
