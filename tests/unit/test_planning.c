/* core/router: a plan in force, what of it a decision sees, and what a plan is made from. */
#include "unit.h"

#include "decide.h"
#include "memory.h"
#include "planning.h"
#include "rng.h"

#define S 1000000000u

/* The plan's destination of a planned key; nil for others. */
static const char planned_policy[] = "local P = { api = 1, name = 'planned', needs = { 'plan' } }\n"
                                     "function P.pick(request, view)\n"
                                     "  for i = 0, view.count - 1 do\n"
                                     "    if view[i].assigned == 1 and view[i].available then\n"
                                     "      return i, 'planned'\n"
                                     "    end\n"
                                     "  end\n"
                                     "end\n"
                                     "return P\n";

static const struct kvr_ending success = {.outcome = KVR_OUTCOME_SUCCESS,
                                          .status = 200,
                                          .prompt_tokens = -1,
                                          .output_tokens = -1,
                                          .cached_tokens = -1};

static void load(struct kvr_router *router, const char *text)
{
    struct kvr_error error = {0};
    if (kvr_slot_load(kvr_router_slot(router, KVR_ROLE_POLICY), kvr_slice_of(""),
                      kvr_slice_of("test.lua"), kvr_slice_of(text), NULL, 0, &error))
        fail_msg("%s", error.text);
    kvr_router_scripts_changed(router);
}

static uint32_t add(struct kvr_router *router, const char *name, double weight)
{
    struct kvr_replica_spec spec = {.authority = kvr_slice_of(name), .rank = -1, .weight = weight};
    int slot = kvr_router_add_replica(router, 0, &spec, NULL);
    assert_true(slot >= 0);
    kvr_router_probed(router, 0, (uint32_t)slot, KVR_PROBE_PASS, false);
    return (uint32_t)slot;
}

/* Replicas a, b and c in slots 0, 1 and 2, and the policy above. */
static struct kvr_router *make_router(void)
{
    struct kvr_router *router = kvr_alloc(sizeof *router);
    kvr_router_init(router, &(struct kvr_router_options){.seed = 1, .replicas_max = 8});
    assert_int_equal(add(router, "a:1", 1), 0);
    assert_int_equal(add(router, "b:1", 2), 1);
    assert_int_equal(add(router, "c:1", 1), 2);
    load(router, planned_policy);
    return router;
}

static void free_router(struct kvr_router *router)
{
    kvr_router_verify(router);
    kvr_router_deinit(router);
    kvr_free(router);
}

/* One request about the key, from beginning to end; its replica. `planned` is what the view said.
 */
static uint32_t send_as(struct kvr_router *router, uint64_t now, const char *model,
                        uint64_t routing_key, bool planned, const struct kvr_ending *ending)
{
    struct kvr_submission what = {.request_id = kvr_slice_of("id"),
                                  .model = kvr_slice_of(model),
                                  .endpoint = "chat",
                                  .session_source = "none",
                                  .routing_key = routing_key,
                                  .routed = true,
                                  .prompt_tokens = (double)NAN,
                                  .max_tokens = (double)NAN,
                                  .slo_ttft_ms = (double)NAN};
    struct kvr_action action;
    struct kvr_request_ref ref = kvr_router_submit(router, now, &what);
    assert_true(kvr_router_next_action(router, &action));
    assert_int_equal(action.kind, KVR_ACTION_DISPATCH);
    assert_int_equal(router->picture.view.planned, planned);
    kvr_router_settle(router);
    kvr_router_finish(router, now, ref, ending);
    return action.replica;
}

static uint32_t send_with(struct kvr_router *router, uint64_t now, uint64_t routing_key,
                          bool planned, const struct kvr_ending *ending)
{
    return send_as(router, now, "", routing_key, planned, ending);
}

static uint32_t send(struct kvr_router *router, uint64_t now, uint64_t routing_key, bool planned)
{
    return send_with(router, now, routing_key, planned, &success);
}

/* Each key, in the order of its rate, as planned for these destinations. */
static void install(struct kvr_router *router, const struct kvr_plan_key *keys, uint32_t len,
                    const uint32_t *slots, uint32_t destinations, double q_cap)
{
    uint64_t ids[8];
    for (uint32_t i = 0; i < destinations; i++)
        ids[i] = router->replicas.slots[slots[i]].id;
    struct kvr_plan *plan = kvr_plan_create(&(struct kvr_plan_options){.q_cap = q_cap}, keys, len,
                                            NULL, destinations, NULL);
    assert_non_null(plan);
    kvr_plan_destroy(kvr_router_install_plan(router, plan, ids));
}

static struct kvr_plan_key key_of(uint64_t routing_key, double rate)
{
    return (struct kvr_plan_key){kvr_hash32(routing_key), rate};
}

static void test_a_planned_key_is_assigned(void **state)
{
    (void)state;
    struct kvr_router *router = make_router();
    const uint64_t hot = kvr_mix64(1), cool = kvr_mix64(2), other = kvr_mix64(3);
    send(router, S, hot, false); /* no plan yet */
    const struct kvr_plan_key keys[] = {key_of(hot, 5), key_of(cool, 3)};
    /* Destinations stand in another order than replicas. */
    install(router, keys, 2, (const uint32_t[]){2, 0, 1}, 3, 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(send(router, S, hot, true), 2);
        assert_int_equal(send(router, S, cool, true), 0);
    }
    send(router, S, other, false);
    send(router, S, 0, false); /* no key at all */
    /* It outlives a reload, and the next one replaces it whole. */
    load(router, planned_policy);
    assert_int_equal(send(router, S, hot, true), 2);
    install(router, keys, 1, (const uint32_t[]){1}, 1, 0);
    assert_int_equal(send(router, S, hot, true), 1);
    send(router, S, cool, false);
    kvr_plan_destroy(kvr_router_install_plan(router, NULL, NULL));
    send(router, S, hot, false);
    free_router(router);
}

static void test_copies_are_all_assigned(void **state)
{
    (void)state;
    struct kvr_router *router = make_router();
    const struct kvr_plan_key key = key_of(77, 5);
    install(router, &key, 1, (const uint32_t[]){0, 2}, 2, 3);
    send(router, S, 77, true);
    const struct kvr_replica_view *rows = router->picture.rows;
    assert_int_equal(rows[0].assigned, 1);
    assert_int_equal(rows[1].assigned, 0);
    assert_int_equal(rows[2].assigned, 1);
    free_router(router);
}

static void test_only_those_who_need_it_see_it(void **state)
{
    (void)state;
    struct kvr_router *router = make_router();
    const struct kvr_plan_key key = key_of(77, 5);
    install(router, &key, 1, (const uint32_t[]){1}, 1, 0);
    load(router, "local P = { api = 1, name = 'plain' }\n"
                 "function P.pick() return kvr.least('load'), 'plain' end\n"
                 "return P\n");
    send(router, S, 77, false);
    assert_int_equal(router->picture.rows[1].assigned, 0);
    free_router(router);
}

static void test_a_replica_is_known_by_its_name(void **state)
{
    (void)state;
    struct kvr_router *router = make_router();
    const struct kvr_plan_key key = key_of(77, 5);
    install(router, &key, 1, (const uint32_t[]){0}, 1, 0);
    /* Another one has its slot: the key is planned, and nowhere. */
    kvr_router_remove_replica(router, 0);
    assert_int_equal(add(router, "d:1", 1), 0);
    send(router, S, 77, true);
    for (uint32_t i = 0; i < router->picture.view.count; i++)
        assert_int_equal(router->picture.rows[i].assigned, 0);
    /* It is back, in another slot. */
    uint32_t slot = add(router, "a:1", 1);
    assert_int_not_equal(slot, 0);
    assert_int_equal(send(router, S, 77, true), slot);
    free_router(router);
}

static void test_what_a_plan_is_made_from(void **state)
{
    (void)state;
    struct kvr_router *router = make_router();
    struct kvr_planning planning;
    kvr_planning_init(&planning, router, S);
    assert_int_equal(planning.keys_len, 0);
    assert_int_equal(planning.destinations, 3);
    kvr_planning_deinit(&planning);
    /* Keys are counted for a policy that needs a plan: 30 and 10 requests within ten seconds. */
    for (uint32_t i = 0; i < 40; i++)
        send(router, S + i * UINT64_C(250000000), i % 4 ? 77 : 88, false);
    send(router, S + 10 * (uint64_t)S, 0, false);
    kvr_replica_set_administrative(&router->replicas, 0, KVR_DRAINING);
    kvr_planning_init(&planning, router, 11 * (uint64_t)S);
    assert_int_equal(planning.destinations, 2);
    assert_true(planning.replicas[0] == router->replicas.slots[1].id);
    assert_true(planning.weights[0] == 2 && planning.weights[1] == 1);
    assert_int_equal(planning.keys_len, 2);
    const struct kvr_plan_key *keys = planning.keys;
    uint32_t hot = keys[0].key == kvr_hash32(77) ? 0 : 1;
    assert_int_equal(keys[hot].key, kvr_hash32(77));
    assert_int_equal(keys[1 - hot].key, kvr_hash32(88));
    assert_float_equal(keys[hot].rate, 3, 1e-9);
    assert_float_equal(keys[1 - hot].rate, 1, 1e-9);
    kvr_planning_deinit(&planning);
    free_router(router);
}

/* In pieces between which a key goes and comes back: it is there once, the others as at once. */
static void test_what_is_read_in_pieces(void **state)
{
    (void)state;
    struct kvr_router *router = kvr_alloc(sizeof *router);
    kvr_router_init(router,
                    &(struct kvr_router_options){.replicas_max = 2, .keys = {.cells_max = 8}});
    struct kvr_window *window = &router->keys;
    for (uint64_t key = 1; key <= 4; key++)
        kvr_window_add(window, S, key, 0, (uint32_t)key); /* two cells each: it is full */
    struct kvr_planning planning;
    kvr_planning_begin(&planning, router, 2 * (uint64_t)S);
    assert_true(kvr_planning_read(&planning, router, 4)); /* 1 and 2 */
    kvr_window_add(window, 2 * (uint64_t)S, 5, 0, 1);     /* 1 goes ... */
    kvr_window_add(window, 2 * (uint64_t)S, 4, 0, 1);
    kvr_window_add(window, 2 * (uint64_t)S, 6, 0, 1); /* ... and 2 ... */
    kvr_window_add(window, 2 * (uint64_t)S, 1, 0, 1); /* and 1 is back where 3 was */
    assert_false(kvr_planning_read(&planning, router, 100));
    uint32_t read = planning.counts_len, ones = 0, fours = 0;
    for (uint32_t i = 0; i < read; i++)
        ones += planning.counts[i].key == 1;
    assert_int_equal(ones, 2);
    kvr_planning_finish(&planning);
    assert_int_equal(planning.keys_len, read - 1);
    for (uint32_t i = ones = 0; i < planning.keys_len; i++) {
        ones += planning.keys[i].key == 1;
        fours += planning.keys[i].key == 4 && planning.keys[i].rate == 5;
    }
    assert_int_equal(ones, 1);
    assert_int_equal(fours, 1);
    kvr_planning_deinit(&planning);
    free_router(router);
}

static void serve(struct kvr_router *router, uint32_t slot, const char *one, const char *other)
{
    const struct kvr_slice names[] = {kvr_slice_of(one), kvr_slice_of(other ? other : "")};
    kvr_replica_set_models(&router->replicas, slot, names, other ? 2 : 1);
}

static struct kvr_next_plan plan_now(struct kvr_router *router, uint64_t now,
                                     struct kvr_planning *planning,
                                     const struct kvr_planning_options *options)
{
    struct kvr_next_plan next;
    kvr_planning_init(planning, router, now);
    assert_int_equal(kvr_planning_make(planning, options, &next, NULL), KVR_OK);
    kvr_planning_install(router, now, planning, &next);
    return next;
}

static void end_planning(struct kvr_planning *planning, struct kvr_next_plan *next)
{
    kvr_next_plan_deinit(next);
    kvr_planning_deinit(planning);
}

/* a serves red, b both, c blue: one routing key is two keys, each where its model is. */
static void test_models_have_keys_of_their_own(void **state)
{
    (void)state;
    struct kvr_router *router = make_router();
    serve(router, 0, "red", NULL);
    serve(router, 1, "red", "blue");
    serve(router, 2, "blue", NULL);
    for (uint32_t i = 0; i < 12; i++) {
        send_as(router, S, "red", 77, false, &success);
        if (i < 8)
            send_as(router, S, "blue", 77, false, &success);
        if (i < 2)
            send_as(router, S, "blue", 88, false, &success);
    }
    struct kvr_planning planning;
    struct kvr_next_plan next =
        plan_now(router, 5 * (uint64_t)S, &planning, &(struct kvr_planning_options){0});
    assert_int_equal(router->plan->admitted, 3);
    /* Rates 3, 2, 0.5 on weights 1, 2, 1: red to b, blue to c, which is 2, and 0.5 to b. */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(send_as(router, 6 * (uint64_t)S, "red", 77, true, &success), 1);
        assert_int_equal(send_as(router, 6 * (uint64_t)S, "blue", 77, true, &success), 2);
        assert_int_equal(send_as(router, 6 * (uint64_t)S, "blue", 88, true, &success), 1);
    }
    send_as(router, 6 * (uint64_t)S, "red", 88, false, &success);
    send_as(router, 6 * (uint64_t)S, "", 77, false, &success);
    end_planning(&planning, &next);
    /* Nobody serves red any more: its keys are in no plan, and load none. */
    serve(router, 0, "blue", NULL);
    serve(router, 1, "blue", NULL);
    next = plan_now(router, 7 * (uint64_t)S, &planning, &(struct kvr_planning_options){0});
    assert_int_equal(router->plan->keys - router->plan->admitted, 2); /* 77 and 88 */
    assert_true(router->plan->tail_rate > 0);
    send_as(router, 7 * (uint64_t)S, "blue", 77, true, &success);
    end_planning(&planning, &next);
    free_router(router);
}

/* A plan of a file without models is of all of them, and the one after it goes on from it. */
static void test_a_file_without_models(void **state)
{
    (void)state;
    static const char text[] = "# kvroute plan 2, 1 key\nkey,rate,destinations\n"
                               "000000000000004d,1,c:1\n"; /* 77 */
    struct kvr_router *router = make_router();
    const struct kvr_planning_options options = {.plan = {.keep = 1}, .handover = {.every = 2}};
    send_as(router, S, "red", 77, false, &success);
    struct kvr_planning planning;
    struct kvr_next_plan next = plan_now(router, 2 * (uint64_t)S, &planning, &options);
    assert_int_equal(send_as(router, 2 * (uint64_t)S, "red", 77, true, &success), 1);
    end_planning(&planning, &next);
    kvr_planning_begin(&planning, router, 3 * (uint64_t)S);
    assert_int_equal(kvr_planning_load(&planning, &options, kvr_slice_of(text), &next, NULL), 0);
    assert_int_equal(next.change.keys_both, 1); /* the last plan names red */
    assert_int_equal(next.change.keys_moved, 1);
    kvr_planning_install(router, 3 * (uint64_t)S, &planning, &next);
    assert_int_equal(router->handover->moving, 1);
    uint32_t counts[3] = {0};
    for (uint32_t i = 0; i < 32; i++)
        counts[send_as(router, 3 * (uint64_t)S, "red", 77, true, &success)]++;
    assert_true(counts[0] == 0 && counts[1] > 0 && counts[2] > 0);
    assert_int_equal(send_as(router, 90 * (uint64_t)S, "blue", 77, true, &success), 2);
    end_planning(&planning, &next);
    next = plan_now(router, 91 * (uint64_t)S, &planning, &options);
    assert_int_equal(next.change.keys_both, 2); /* under red and under blue */
    assert_int_equal(next.change.kept, 2);
    assert_int_equal(next.change.removed, 0);
    assert_int_equal(send_as(router, 91 * (uint64_t)S, "blue", 77, true, &success), 2);
    end_planning(&planning, &next);
    free_router(router);
}

/* A few requests within a moment are no rate to split by. */
static void test_a_young_window_splits_nothing(void **state)
{
    (void)state;
    struct kvr_router *router = make_router();
    const struct kvr_planning_options options = {.plan = {.q_cap = 2}};
    struct kvr_planning planning;
    for (uint32_t i = 0; i < 20; i++)
        send(router, S + i * 1000000, 77, false);
    struct kvr_next_plan next = plan_now(router, S + 20000000, &planning, &options);
    assert_true(planning.window_s == KVR_PLANNING_COUNTED_MIN_S && planning.keys[0].rate == 20);
    assert_int_equal(router->plan->copies, 1);
    end_planning(&planning, &next);
    /* Four a second over a quarter of a minute are believed. */
    for (uint32_t i = 0; i < 40; i++)
        send(router, 2 * (uint64_t)S + i * UINT64_C(350000000), 77, true);
    next = plan_now(router, 16 * (uint64_t)S, &planning, &options);
    assert_int_equal(router->plan->copies, 2);
    end_planning(&planning, &next);
    free_router(router);
}

/* Key 77 goes from replica 0 to 1, which has twice its weight. */
static void plan_anew(struct kvr_router *router, uint64_t now, uint32_t every)
{
    const struct kvr_plan_key key = key_of(77, 5);
    install(router, &key, 1, (const uint32_t[]){0}, 1, 0);
    struct kvr_planning planning;
    struct kvr_next_plan next;
    kvr_planning_init(&planning, router, now);
    assert_int_equal(planning.keys_len, 1);
    const struct kvr_planning_options options = {.handover = {.every = every}};
    assert_int_equal(kvr_planning_make(&planning, &options, &next, NULL), KVR_OK);
    assert_int_equal(next.change.verdict, KVR_PLAN_INSTALL);
    assert_int_equal(next.change.keys_moved, 1);
    struct kvr_plan *made = next.plan;
    kvr_planning_install(router, now, &planning, &next);
    assert_ptr_equal(router->plan, made);
    assert_ptr_not_equal(next.plan, made);
    kvr_next_plan_deinit(&next);
    kvr_planning_deinit(&planning);
}

static void test_a_key_is_handed_over(void **state)
{
    (void)state;
    struct kvr_router *router = make_router();
    struct kvr_ending ending = success;
    ending.prompt_tokens = 100;
    send(router, S, 77, false);
    plan_anew(router, 2 * (uint64_t)S, 0);
    assert_int_equal(send(router, 3 * (uint64_t)S, 77, true), 1); /* at once */
    plan_anew(router, 4 * (uint64_t)S, 2);
    uint32_t counts[3] = {0};
    for (uint32_t i = 0; i < 64; i++) { /* half of them; none is told to be warm */
        ending.cached_tokens = i % 2 ? 90 : -1;
        counts[send_with(router, 5 * (uint64_t)S, 77, true, i % 2 ? &success : &ending)]++;
    }
    assert_true(counts[0] > 16 && counts[1] > 16 && counts[2] == 0);
    ending.cached_tokens = 90;
    for (uint32_t i = 0; i < 64; i++)
        send_with(router, 6 * (uint64_t)S, 77, true, &ending);
    assert_int_equal(router->handover->moving, 0);
    for (uint32_t i = 0; i < 16; i++)
        assert_int_equal(send(router, 7 * (uint64_t)S, 77, true), 1);
    /* Another one ends by itself. */
    plan_anew(router, 8 * (uint64_t)S, 2);
    for (uint32_t i = 0; i < 16; i++)
        assert_int_equal(send(router, 68 * (uint64_t)S, 77, true), 1);
    free_router(router);
}

static void test_sizes_are_the_mean_of_prompts(void **state)
{
    (void)state;
    struct kvr_router *router = kvr_alloc(sizeof *router);
    kvr_router_init(router, &(struct kvr_router_options){.replicas_max = 8, .key_tokens = true});
    add(router, "a:1", 1);
    load(router, planned_policy);
    for (uint32_t i = 0; i < 4; i++) {
        struct kvr_submission what = {.request_id = kvr_slice_of("id"),
                                      .endpoint = "chat",
                                      .session_source = "none",
                                      .routing_key = 77,
                                      .routed = true,
                                      .prompt_tokens = 100.0 * (i + 1),
                                      .max_tokens = (double)NAN,
                                      .slo_ttft_ms = (double)NAN};
        struct kvr_action action;
        struct kvr_request_ref ref = kvr_router_submit(router, S, &what);
        assert_true(kvr_router_next_action(router, &action));
        kvr_router_settle(router);
        kvr_router_finish(router, S, ref, &success);
    }
    struct kvr_planning planning;
    kvr_planning_init(&planning, router, 2 * (uint64_t)S);
    assert_int_equal(planning.keys_len, 1);
    assert_true(planning.sizes[0].tokens == 250 && planning.sizes[0].saved == 250);
    kvr_planning_deinit(&planning);
    free_router(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_planned_key_is_assigned),
        cmocka_unit_test(test_copies_are_all_assigned),
        cmocka_unit_test(test_only_those_who_need_it_see_it),
        cmocka_unit_test(test_a_replica_is_known_by_its_name),
        cmocka_unit_test(test_what_a_plan_is_made_from),
        cmocka_unit_test(test_what_is_read_in_pieces),
        cmocka_unit_test(test_models_have_keys_of_their_own),
        cmocka_unit_test(test_a_file_without_models),
        cmocka_unit_test(test_a_young_window_splits_nothing),
        cmocka_unit_test(test_a_key_is_handed_over),
        cmocka_unit_test(test_sizes_are_the_mean_of_prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
