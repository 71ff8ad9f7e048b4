/* core/sim: whole runs. That they are the same however they are cut into slices, that policies
 * change nothing of what is asked, that nothing is lost on the way (every invariant after every
 * event), what becomes of requests when a replica dies, and that records, rows and summary tell one
 * story. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim_fixture.h"

static struct kvr_sim_options small(void)
{
    struct kvr_sim_options options;
    kvr_sim_defaults(&options);
    options.warmup_ms = 5000;
    options.duration_ms = 20000;
    options.index_ttl_ms = 57000;
    options.index_nodes = 16311;
    options.records = 1;
    return options;
}

static struct kvr_sim *make(const struct kvr_sim_options *options, const char *policy,
                            const char *spill)
{
    struct kvr_error error = {0};
    struct kvr_sim *sim = kvr_sim_create(options, &error);
    if (!sim)
        fail_msg("%s", error.text);
    if (policy)
        load_script(sim, "policy", "", policy);
    if (spill)
        load_script(sim, "spill", "spill/", spill);
    return sim;
}

static struct kvr_sim_result finish(struct kvr_sim *sim)
{
    struct kvr_sim_result result;
    while (kvr_sim_run(sim, UINT64_MAX, 0))
        continue;
    kvr_sim_result(sim, &result);
    return result;
}

static struct kvr_sim_result run(const struct kvr_sim_options *options, const char *policy,
                                 const char *spill)
{
    struct kvr_sim *sim = make(options, policy, spill);
    struct kvr_sim_result result = finish(sim);
    kvr_sim_destroy(sim);
    return result;
}

/* ---- one run is one sequence of events ---- */

static void test_equal_seed_equal_hash(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    struct kvr_sim_result whole = run(&options, "prefix_affinity", "load_min");
    assert_true(whole.hash != 0 && whole.requests > 100);
    for (int way = 0; way < 3; way++) {
        struct kvr_sim *sim = make(&options, "prefix_affinity", "load_min");
        struct kvr_sim_result result;
        uint64_t until = 0;
        double before = 0;
        do {
            assert_true(kvr_sim_progress(sim) >= before);
            before = kvr_sim_progress(sim);
            until += 700000000;
        } while (kvr_sim_run(sim, way == 1 ? UINT64_MAX : until, way == 0 ? 0 : 17));
        assert_true(kvr_sim_progress(sim) == 1);
        kvr_sim_result(sim, &result);
        assert_memory_equal(&result, &whole, sizeof result);
        kvr_sim_destroy(sim);
    }
    options.seed = 2;
    assert_true(run(&options, "prefix_affinity", "load_min").hash != whole.hash);
    options.seed = 1;
    assert_true(run(&options, "prefix_affinity", "off").hash != whole.hash);
    options.ring_seed = 9;
    assert_true(run(&options, "prefix_affinity", "load_min").hash == whole.hash);
    assert_true(run(&options, "session_affinity", NULL).hash != whole.hash);
}

/* On any machine, by any compiler. A change of the engine, the router, a policy or the workload may
 * well change these: then the new ones, which a failure prints, belong here, and the commit says
 * what has changed the course of things. */
static void test_known_hashes(void **state)
{
    (void)state;
    static const uint64_t known[] = {0xd171edc99694f351, 0x39ecdda2bedfc09f};
    for (int i = 0; i < 2; i++) {
        struct kvr_sim_options options = small();
        if (i == 1) {
            options.workload.kind = KVR_WORKLOAD_KEYS;
            options.workload.arrivals = KVR_ARRIVALS_RATE;
            options.workload.rate = 3;
            options.workload.gap_cv = 1.9;
            options.workload.output_cv = 1.2;
            options.workload.template_tokens = 300;
            options.workload.variant_tokens = 900;
            options.decision_ms = 26;
            options.decision_sigma = 0.3;
        }
        uint64_t hash = run(&options, "prefix_affinity", "load_min").hash;
        if (hash != known[i])
            fail_msg("run %d has the hash 0x%016llx", i, (unsigned long long)hash);
    }
}

static const struct kvr_sim_record *record_at(const struct kvr_sim *sim, uint64_t i)
{
    uint32_t len;
    const struct kvr_sim_record *record = kvr_sim_records(sim, i, &len);
    assert_true(len > 0 || !record);
    return record;
}

/* The n-th turn of a user is the same request, whoever decides and whenever it is sent. */
static void test_policies_change_nothing_of_what_is_asked(void **state)
{
    (void)state;
    const char *const policies[] = {"round_robin", "session_affinity", "least_outstanding"};
    struct kvr_sim_options options = small();
    enum { USERS = 32, TURNS = 20 };
    static struct kvr_sim_record seen[USERS][TURNS];
    memset(seen, 0, sizeof seen);
    uint32_t compared = 0;
    for (int i = 0; i < 3; i++) {
        struct kvr_sim *sim = make(&options, policies[i], NULL);
        finish(sim);
        const struct kvr_sim_record *r;
        for (uint64_t k = 0; (r = record_at(sim, k)); k++) {
            if (r->turn >= TURNS)
                continue;
            struct kvr_sim_record *before = &seen[r->user][r->turn];
            if (before->tag) {
                assert_true(before->tag == r->tag && before->session == r->session);
                assert_int_equal(before->prompt_bytes, r->prompt_bytes);
                assert_int_equal(before->prompt_tokens, r->prompt_tokens);
                assert_int_equal(before->output_tokens, r->output_tokens);
                compared++;
            }
            *before = *r;
        }
        kvr_sim_destroy(sim);
    }
    assert_true(compared > 100);
}

/* ---- nothing is lost ---- */

static void check_story(struct kvr_sim *sim, const struct kvr_sim_result *result)
{
    const struct kvr_sim_record *r;
    double measured = 0, success = 0, good = 0, spilled = 0, prompt = 0, cached = 0, moved = 0;
    uint64_t n = 0;
    for (; (r = record_at(sim, n)); n++) {
        measured += r->measured;
        if (!r->measured)
            continue;
        success += r->outcome == 0;
        good += r->good;
        spilled += r->declined != UINT16_MAX;
        moved += r->moves > 0;
        if (r->outcome == 0) {
            assert_true(r->ttft_ms > 0 && r->e2el_ms >= r->ttft_ms);
            assert_true(r->cached_tokens < r->prompt_tokens && r->output_tokens > 0);
            assert_true(r->good == (r->ttft_ms <= 990 && r->itl_p50_ms <= 24));
            prompt += r->prompt_tokens;
            cached += r->cached_tokens;
        }
    }
    assert_true(result->ended == result->sent && (double)n == result->ended);
    assert_true(measured == result->requests && success == result->success);
    assert_true(good == result->good && spilled == result->spilled && moved == result->moved);
    assert_true(prompt == result->prompt_tokens && cached == result->cached_tokens);
    assert_true(result->success + result->failed + result->dropped + result->unfinished ==
                result->requests);
    double by_replica = 0, by_reason = 0;
    struct kvr_sim_replica replica;
    for (uint32_t i = 0; kvr_sim_replica(sim, i, &replica) == 0; i++)
        by_replica += replica.requests;
    for (uint32_t i = 0; kvr_sim_reason_name(sim, i); i++)
        by_reason += kvr_sim_reason_count(sim, i);
    assert_true(by_replica == by_reason);
}

static void verify(struct kvr_sim_options *options, const char *policy, const char *spill)
{
    options->verify = 1;
    struct kvr_sim *sim = make(options, policy, spill);
    struct kvr_sim_result result = finish(sim);
    assert_true(result.requests > 20);
    check_story(sim, &result);
    kvr_sim_destroy(sim);
}

static void test_closed_loop(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    options.duration_ms = 9000;
    options.warmup_ms = 2000;
    verify(&options, "prefix_affinity", "load_min");
    options.workload.think_ms = 300;
    options.workload.think_cv = 1;
    options.workload.start_ms = 3000;
    options.network_ms = 2;
    options.router_ms = 0.3;
    options.decision_ms = 26;
    options.decision_sigma = 0.3;
    options.index_replies = 1;
    verify(&options, "prefix_affinity", "load_min");
}

static void test_open_loop(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    options.workload.arrivals = KVR_ARRIVALS_RATE;
    options.workload.rate = 7;
    options.workload.gap_cv = 1;
    options.duration_ms = 12000;
    options.requests_max = 200;
    verify(&options, "prefix_affinity", "load_mean");
    /* As many as one may have at once, and a queue before them. */
    options.capacity = 1;
    verify(&options, "least_outstanding", NULL);
    options.queue_max = 4;
    options.queue_deadline_ms = 700;
    verify(&options, "least_outstanding", NULL);
    options.queue_max = 100;
    options.queue_shortest = 1;
    verify(&options, "least_outstanding", NULL);
    /* More than the router keeps open. */
    options.requests_max = 3;
    options.capacity = 0;
    options.queue_max = 0;
    verify(&options, "round_robin", NULL);
    /* An engine whose own queue is full. */
    options.requests_max = 0;
    options.max_waiting = 1;
    options.workload.rate = 30;
    options.duration_ms = 8000;
    options.replicas = 2;
    verify(&options, "round_robin", NULL);
}

static void test_two_policies_and_a_shadow(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    options.canary_share = 0.4;
    options.verify = 1;
    options.duration_ms = 8000;
    struct kvr_sim *sim = make(&options, "prefix_affinity", "load_min");
    load_script(sim, "canary", "", "round_robin");
    load_script(sim, "shadow_1", "", "session_affinity");
    struct kvr_sim_result result = finish(sim);
    check_story(sim, &result);
    double rotated = 0;
    for (uint32_t i = 0; kvr_sim_reason_name(sim, i); i++)
        if (strcmp(kvr_sim_reason_name(sim, i), "round_robin") == 0)
            rotated = kvr_sim_reason_count(sim, i);
    assert_true(rotated > 0.1 * result.requests && rotated < 0.8 * result.requests);
    kvr_sim_destroy(sim);
}

/* ---- what happens to replicas ---- */

static void test_restart(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    struct kvr_sim_change change = {.kind = KVR_SIM_RESTART, .at_ms = 8000, .replica = 2};
    options.changes = &change;
    options.changes_len = 1;
    options.profile.startup_ms = 5000;
    options.verify = 1;
    struct kvr_sim *sim = make(&options, "prefix_affinity", "load_min");
    struct kvr_sim_result result = finish(sim);
    check_story(sim, &result);
    const struct kvr_sim_record *r;
    const struct kvr_sim_record *first = NULL;
    double moved = 0, lost = 0, during = 0, after = 0, before = 0;
    for (uint64_t i = 0; (r = record_at(sim, i)); i++) {
        double sent_ms = (double)r->sent_ns / 1e6;
        moved += r->moves > 0;
        lost += r->outcome == 2;
        before += r->replica == 2 && sent_ms < 7000;
        during += r->replica == 2 && sent_ms > 8001 && sent_ms < 12900;
        after += r->replica == 2 && sent_ms > 15500;
        if (r->replica == 2 && sent_ms > 8001 && (!first || r->sent_ns < first->sent_ns))
            first = r;
    }
    /* It came back empty, and the router knows. */
    assert_true(first && first->match_blocks == 0 && first->cached_tokens == 0);
    assert_true(moved > 0 && lost > 0 && lost + moved < 20); /* what was on it */
    assert_true(before > 10 && during == 0 && after > 5);
    assert_true(result.failed == 0);
    kvr_sim_destroy(sim);
}

static void test_drain_and_slowdown(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    const struct kvr_sim_change changes[] = {
        {.kind = KVR_SIM_DRAIN, .at_ms = 6000, .replica = 1},
        {.kind = KVR_SIM_RESTORE, .at_ms = 12000, .replica = 1},
    };
    const double slowdowns[] = {1, 1, 1, 3, 1};
    options.changes = changes;
    options.changes_len = 2;
    options.slowdowns = slowdowns;
    struct kvr_sim *sim = make(&options, "least_outstanding", NULL);
    struct kvr_sim_result result = finish(sim);
    check_story(sim, &result);
    const struct kvr_sim_record *r;
    double drained = 0, counts[5] = {0};
    for (uint64_t i = 0; (r = record_at(sim, i)); i++) {
        drained += r->replica == 1 && r->sent_ns > 6000000000u && r->sent_ns < 12000000000u;
        counts[r->replica]++;
        assert_true(r->outcome == 0);
    }
    assert_true(drained == 0 && counts[1] > 10);
    assert_true(counts[3] * 1.5 < counts[0]);
    kvr_sim_destroy(sim);
}

/* ---- what comes out ---- */

static void test_rows(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    options.rows = 1;
    options.row_blocks = 1;
    options.duration_ms = 8000;
    struct kvr_sim *sim = make(&options, "prefix_affinity", "load_min");
    struct kvr_sim_result result = finish(sim);
    size_t len;
    const char *rows = kvr_sim_rows(sim, &len);
    double lines = 0;
    for (size_t i = 0; i < len; i++)
        lines += rows[i] == '\n';
    assert_true(lines == result.ended);
    assert_true(memcmp(rows, "{\"started_ms\":", 14) == 0 && rows[len - 1] == '\n');
    kvr_sim_take_rows(sim, len);
    kvr_sim_rows(sim, &len);
    assert_int_equal(len, 0);
    kvr_sim_destroy(sim);
}

static void test_forgotten_records(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    options.duration_ms = 1000000;
    options.requests = 15000;
    options.workload.skew = 1.4;
    struct kvr_sim *sim = make(&options, "least_outstanding", NULL);
    uint64_t taken = 0, last_ns = 0;
    int more = 1;
    while (more) {
        more = kvr_sim_run(sim, UINT64_MAX, 5000);
        uint32_t len;
        const struct kvr_sim_record *records;
        while ((records = kvr_sim_records(sim, taken, &len))) {
            for (uint32_t i = 0; i < len; i++) {
                uint64_t end_ns = records[i].sent_ns + (uint64_t)(records[i].e2el_ms * 1e6);
                assert_true(end_ns + 10 >= last_ns); /* in the order in which they ended */
                last_ns = end_ns;
            }
            taken += len;
        }
        kvr_sim_forget_records(sim, taken);
        assert_null(kvr_sim_records(sim, taken - 1, &len));
    }
    struct kvr_sim_result result;
    kvr_sim_result(sim, &result);
    assert_true((double)taken == result.ended && taken >= 15000);
    kvr_sim_destroy(sim);
}

static void test_h100_keys_by_count(void **state)
{
    (void)state;
    struct kvr_sim_options options;
    kvr_sim_defaults(&options);
    assert_int_equal(kvr_sim_use_profile(&options, "no-such-card"), KVR_E_NOT_FOUND);
    assert_int_equal(kvr_sim_use_profile(&options, "h100x2-70b-fp8"), 0);
    options.workload.kind = KVR_WORKLOAD_KEYS;
    options.workload.arrivals = KVR_ARRIVALS_RATE;
    options.workload.rate = 40;
    options.workload.gap_cv = 1;
    options.duration_ms = options.warmup_ms = 0;
    options.warmup_requests = 3000;
    options.requests = 1000;
    struct kvr_sim_result flat = run(&options, "p2c", NULL);
    assert_true(flat.requests == 1000 && flat.sent == 4000 && flat.success == 1000);
    assert_true(fabs(flat.window_s - 25) < 3);
    assert_true(fabs(flat.prompt_tokens / 1000 - 7400) < 100);
    assert_true(flat.hit_rate > 0.55 && flat.hit_rate < 0.68); /* the template, everywhere warm */
    assert_true(flat.ttft.p99 < 2000 && flat.ttft_p99_all == flat.ttft.p99);
    struct kvr_sim_result sticky = run(&options, "session_affinity", NULL);
    assert_true(sticky.hit_rate > flat.hit_rate + 0.1 && sticky.imbalance > flat.imbalance);
    /* The same ring of keys, one each: what does not end in time never does. */
    options.workload.rate = 200;
    options.drain_ms = 2000;
    struct kvr_sim_result late = run(&options, "session_affinity", NULL);
    assert_true(late.unfinished > 0 && isinf(late.ttft_p99_all) && late.ttft.p99 < 1e9);
    assert_true(late.success + late.unfinished == late.requests);
}

/* Clients that wait only so long: engines stop for them, users go on. */
static void test_timeout(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    options.replicas = 1;
    options.verify = 1;
    options.workload.users = 10;
    options.timeout_ms = 4000;
    options.network_ms = 1;
    struct kvr_sim *sim = make(&options, "round_robin", NULL);
    struct kvr_sim_result result = finish(sim);
    check_story(sim, &result);
    assert_true(result.timed_out > 5 && result.success > 5);
    assert_true(result.timed_out == result.unfinished && isinf(result.ttft_p99_all));
    const struct kvr_sim_record *r;
    for (uint64_t i = 0; (r = record_at(sim, i)); i++)
        assert_true(r->e2el_ms <= 4002.001 && (r->outcome == 3) == (r->e2el_ms > 4001.9));
    struct kvr_sim_replica replica;
    assert_int_equal(kvr_sim_replica(sim, 0, &replica), 0);
    assert_true(replica.running + replica.waiting == 0 && replica.in_flight == 0);
    kvr_sim_destroy(sim);
}

/* A list runs to its end by itself, open and closed. */
static void test_list(void **state)
{
    (void)state;
    for (uint32_t arrivals = KVR_ARRIVALS_CLOSED; arrivals <= KVR_ARRIVALS_TIMES; arrivals += 2) {
        struct kvr_sim_options options = small();
        options.workload.kind = KVR_WORKLOAD_LIST;
        options.workload.arrivals = arrivals;
        options.duration_ms = options.warmup_ms = 0;
        struct kvr_sim *sim = make(&options, "session_affinity", NULL);
        for (uint64_t i = 0; i < 60; i++) {
            struct kvr_piece pieces[3] = {
                {.id = 7, .bytes = 900, .speaker = KVR_SYSTEM},
                {.id = 100 + i % 6, .bytes = 1000, .speaker = KVR_USER},
                {.id = i, .bytes = 200, .speaker = KVR_USER, .continues = 1},
            };
            struct kvr_list_request request = {
                .session = 1 + i % 6,
                .key = 1 + i % 2,
                .due_ms = 40.0 * (double)i,
                .think_ms = 20,
                .pieces = pieces,
                .pieces_len = 3,
                .output_tokens = 12,
            };
            assert_int_equal(kvr_workload_add(kvr_sim_workload(sim), &request), 0);
        }
        struct kvr_sim_result result = finish(sim);
        assert_true(result.sent == 60 && result.success == 60 && result.requests == 60);
        assert_true(result.hit_rate > 0.5 && result.output_tokens == 720);
        check_story(sim, &result);
        kvr_sim_destroy(sim);
    }
}

/* ---- refusals ---- */

static void refused(struct kvr_sim_options options, const char *word)
{
    struct kvr_error error = {0};
    assert_null(kvr_sim_create(&options, &error));
    if (!strstr(error.text, word))
        fail_msg("\"%s\" does not name %s", error.text, word);
}

static void test_refusals(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    options.network_ms = -1;
    refused(options, "network_ms");
    options = small();
    options.duration_ms = 0;
    refused(options, "duration_ms");
    options = small();
    options.profile.blocks = 0;
    refused(options, "blocks");
    options = small();
    options.workload.users = 0;
    refused(options, "users");
    options = small();
    options.authorities = "a:1 b:2 a:1 c:3 d:4";
    refused(options, "a:1");
    struct kvr_sim_change change = {.replica = 5};
    options = small();
    options.changes = &change;
    options.changes_len = 1;
    refused(options, "change 0");
    options = small();
    struct kvr_sim *sim = make(&options, NULL, NULL);
    struct kvr_error error = {0};
    assert_int_equal(kvr_sim_load(sim, "juggler", "x", "", NULL, 0, &error), KVR_E_NOT_FOUND);
    assert_true(kvr_sim_load(sim, "policy", "x", "return 7", NULL, 0, &error) != 0);
    assert_true(error.text[0] != '\0');
    assert_int_equal(kvr_sim_script_hash(sim, "policy"), 0);
    struct kvr_sim_param param = {"by", "load"};
    char *text = read_script("", "prefix_affinity");
    assert_int_equal(kvr_sim_load(sim, "policy", "prefix_affinity", text, &param, 1, &error), 0);
    assert_string_equal(kvr_sim_default_spill(sim), "load_min");
    uint64_t hash = kvr_sim_script_hash(sim, "policy");
    param.value = "in_flight";
    assert_int_equal(kvr_sim_load(sim, "policy", "prefix_affinity", text, &param, 1, &error), 0);
    assert_true(hash != 0 && hash != kvr_sim_script_hash(sim, "policy"));
    free(text);
    kvr_sim_destroy(sim);
}

/* Without a script C decides, and the run goes on. */
static void test_no_script(void **state)
{
    (void)state;
    struct kvr_sim_options options = small();
    struct kvr_sim_result result = run(&options, NULL, NULL);
    assert_true(result.fallbacks == result.requests && result.success == result.requests);
    assert_true(result.busiest_share < 0.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_seed_equal_hash),
        cmocka_unit_test(test_known_hashes),
        cmocka_unit_test(test_policies_change_nothing_of_what_is_asked),
        cmocka_unit_test(test_closed_loop),
        cmocka_unit_test(test_open_loop),
        cmocka_unit_test(test_two_policies_and_a_shadow),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_drain_and_slowdown),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_forgotten_records),
        cmocka_unit_test(test_h100_keys_by_count),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_script),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
