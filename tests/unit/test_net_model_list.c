/* core/net/model_list and core/net/served_models: what is asked when, what is told, and the merged
 * list (case B67: nothing of the engines' objects is lost, nothing stale stays). */
#include "json_reader.h"
#include "model_list.h"
#include "net_fixture.h"
#include "rng.h"
#include "served_models.h"

#define MS    ((uint64_t)1000000)
#define NEVER (1000000000 * MS) /* 11 days: a replica's phase of it is not met by chance */

struct world {
    struct net_fixture net;
    struct kvr_replica_table table;
    struct kvr_model_list list;
    struct net_targets targets;
    struct net_replica replicas[3];
    int reports;
    int reports_of[8];
    char names[8][256]; /* by slot, joined by blanks */
    struct kvr_buffer merged;
    bool wakes; /* the list, from inside its report */
};

static void on_models(void *context, uint32_t slot, const struct kvr_slice *names, uint32_t count)
{
    struct world *world = context;
    world->reports++;
    world->reports_of[slot]++;
    world->names[slot][0] = '\0';
    for (uint32_t i = 0; i < count && i < 4; i++) {
        size_t len = strlen(world->names[slot]);
        snprintf(world->names[slot] + len, sizeof world->names[slot] - len, "%s%.*s", i ? " " : "",
                 (int)names[i].len, names[i].data);
    }
    kvr_replica_set_models(&world->table, slot, names, count);
    if (world->wakes)
        kvr_model_list_wake(&world->list);
}

static void begin(struct world *world)
{
    memset(world, 0, sizeof *world);
    net_fixture_init(&world->net);
    kvr_replica_table_init(&world->table, 8);
    for (size_t i = 0; i < 3; i++) {
        world->replicas[i].pages[0] = (struct net_page){.path = "/v1/models", .status = 200};
        net_replica_start(&world->replicas[i], &world->net.loop, NULL);
    }
}

static uint32_t add(struct world *world, int replica, const char *body, enum kvr_operational state)
{
    char name[16];
    snprintf(name, sizeof name, "r%d:1", replica);
    struct kvr_replica_spec spec = {.authority = kvr_slice_of(name), .rank = -1};
    int slot = kvr_replica_add(&world->table, &spec);
    assert_true(slot >= 0);
    world->replicas[replica].pages[0].body = body;
    net_targets_set(&world->targets, (uint32_t)slot, world->replicas[replica].listener.address);
    if (state != KVR_DOWN)
        kvr_replica_set_operational(&world->table, (uint32_t)slot, state, kvr_loop_now());
    return (uint32_t)slot;
}

static void list(struct world *world, uint64_t interval_ns, uint64_t timeout_ns)
{
    struct kvr_model_list_options options = {.interval_ns = interval_ns, .timeout_ns = timeout_ns};
    struct kvr_target_source source = {&world->targets, net_on_target};
    struct kvr_model_list_events events = {world, on_models};
    kvr_model_list_start(&world->list, &world->net.loop, &world->table, &options, &source, &events);
}

static void end(struct world *world)
{
    kvr_model_list_close(&world->list);
    for (size_t i = 0; i < 3; i++)
        net_replica_stop(&world->net, &world->replicas[i]);
    net_fixture_deinit(&world->net);
    kvr_replica_table_deinit(&world->table);
    kvr_buffer_deinit(&world->merged);
}

static const char *merged(struct world *world)
{
    world->merged.len = 0;
    kvr_model_list_merged(&world->list, &world->merged);
    kvr_buffer_append(&world->merged, "", 1);
    return world->merged.data;
}

static void set_state(struct world *world, uint32_t slot, enum kvr_operational state)
{
    kvr_replica_set_operational(&world->table, slot, state, kvr_loop_now());
    kvr_model_list_wake(&world->list);
}

#define MODEL_A(created, len)                                                                      \
    "{\"id\":\"m\",\"object\":\"model\",\"created\":" created                                      \
    ",\"owned_by\":\"vllm\",\"root\":\"m\",\"parent\":null,\"max_model_len\":" len                 \
    ",\"permission\":[{\"id\":\"p\",\"allow_view\":true}]}"
#define LIST(objects) "{\"object\":\"list\",\"data\":[" objects "]}"
#define LORA                                                                                       \
    "{\"id\":\"lora-1\",\"object\":\"model\",\"created\":7,\"root\":\"/adapters/1\",\"parent\":"   \
    "\"base\"}"
#define BASE "{\"id\":\"base\",\"object\":\"model\",\"created\":7,\"max_model_len\":4096}"

static void merges_what_engines_say(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    uint32_t a = add(&world, 0, LIST(MODEL_A("100", "8192")), KVR_UP);
    add(&world, 1, LIST(MODEL_A("200", "4096")), KVR_UP);
    uint32_t c = add(&world, 2, LIST(BASE "," LORA), KVR_UP);
    list(&world, 1000 * MS, 500 * MS);
    assert_string_equal(merged(&world), "{\"object\":\"list\",\"data\":[]}");
    assert_true(net_run_until(&world.net, &world.reports, 3, 1000));
    assert_string_equal(world.names[a], "m");
    assert_string_equal(world.names[c], "base lora-1");
    assert_true(kvr_replica_serves(&world.table.slots[c], kvr_name_hash(kvr_slice_of("lora-1"))));
    assert_false(kvr_replica_serves(&world.table.slots[c], kvr_name_hash(kvr_slice_of("m"))));
    /* The second engine's object, whole, with the `created` that was seen first: the order in which
     * the answers came. */
    merged(&world);
    const char *first = LIST(MODEL_A("100", "4096") "," BASE "," LORA);
    const char *second = LIST(MODEL_A("200", "4096") "," BASE "," LORA);
    if (strcmp(world.merged.data, first) != 0)
        assert_string_equal(world.merged.data, second);
    end(&world);
}

static void created_is_stable(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    add(&world, 0, LIST(MODEL_A("100", "8192")), KVR_UP);
    list(&world, 40 * MS, 30 * MS);
    assert_true(net_run_until(&world.net, &world.reports, 1, 1000));
    assert_string_equal(merged(&world), LIST(MODEL_A("100", "8192")));
    world.replicas[0].pages[0].body = LIST(MODEL_A("101", "8192"));
    assert_true(net_run_until(&world.net, &world.reports, 3, 1000));
    assert_string_equal(merged(&world), LIST(MODEL_A("100", "8192")));
    /* A second replica, and the first one gone: still the same. */
    add(&world, 1, LIST(MODEL_A("30000", "8192")), KVR_UP);
    kvr_model_list_wake(&world.list);
    assert_true(net_run_until(&world.net, &world.reports_of[1], 1, 1000));
    assert_string_equal(merged(&world), LIST(MODEL_A("100", "8192")));
    kvr_replica_remove(&world.table, 0);
    kvr_model_list_wake(&world.list);
    assert_true(net_run_until(&world.net, &world.reports_of[1], 4, 1000));
    assert_string_equal(merged(&world), LIST(MODEL_A("100", "8192")));
    end(&world);
}

static void slow_and_failing_replicas_delay_nobody(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    add(&world, 0, LIST(MODEL_A("1", "8192")), KVR_UP);
    uint32_t b = add(&world, 1, LIST(BASE), KVR_UP);
    uint32_t c = add(&world, 2, LIST(LORA), KVR_UP);
    world.replicas[1].pages[0].silent = true;
    world.replicas[2].pages[0].status = 500;
    list(&world, 60 * MS, 5000 * MS);
    assert_true(net_run_until(&world.net, &world.reports, 1, 1000));
    assert_string_equal(merged(&world), LIST(MODEL_A("1", "8192")));
    assert_int_equal(world.reports_of[b] + world.reports_of[c], 0);
    world.replicas[2].pages[0].status = 200;
    assert_true(net_run_until(&world.net, &world.reports_of[c], 1, 2000));
    /* What was known stays while its replica fails or says what is no list. */
    world.replicas[2].pages[0].status = 500;
    int asked = world.replicas[2].pages[0].asked;
    assert_true(net_run_until(&world.net, &world.replicas[2].pages[0].asked, asked + 2, 2000));
    assert_string_equal(merged(&world), LIST(MODEL_A("1", "8192") "," LORA));
    world.replicas[2].pages[0].status = 200;
    world.replicas[2].pages[0].body = "{\"object\":\"list\"}";
    asked = world.replicas[2].pages[0].asked;
    assert_true(net_run_until(&world.net, &world.replicas[2].pages[0].asked, asked + 2, 2000));
    assert_string_equal(merged(&world), LIST(MODEL_A("1", "8192") "," LORA));
    assert_true(world.list.malformed >= 1);
    assert_int_equal(world.reports_of[b], 0);
    end(&world);
}

static void models_of_the_gone_vanish(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    add(&world, 0, LIST(MODEL_A("1", "8192")), KVR_UP);
    uint32_t c = add(&world, 2, LIST(BASE), KVR_UP);
    list(&world, 5000 * MS, 500 * MS);
    assert_true(net_run_until(&world.net, &world.reports, 2, 1000));
    const char *both = LIST(MODEL_A("1", "8192") "," BASE);
    const char *one = LIST(MODEL_A("1", "8192"));
    assert_string_equal(merged(&world), both);
    kvr_replica_set_administrative(&world.table, c, KVR_DRAINING);
    assert_string_equal(merged(&world), both);
    kvr_replica_set_administrative(&world.table, c, KVR_OFF);
    assert_string_equal(merged(&world), one);
    kvr_replica_set_administrative(&world.table, c, KVR_READY);
    set_state(&world, c, KVR_DOWN);
    assert_string_equal(merged(&world), one);
    net_run_for(&world.net, 50);
    set_state(&world, c, KVR_UP);
    assert_string_equal(merged(&world), both);
    kvr_replica_remove(&world.table, c);
    assert_string_equal(merged(&world), one);
    kvr_model_list_wake(&world.list);
    assert_string_equal(merged(&world), one);
    end(&world);
}

static void asked_at_once_when_it_matters(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    list(&world, NEVER, NEVER);
    world.wakes = true;
    int *asked = &world.replicas[0].pages[0].asked;
    /* Added, before any probe has said that it is up. */
    uint32_t slot = add(&world, 0, LIST(BASE), KVR_DOWN);
    world.replicas[0].pages[0].status = 503;
    kvr_model_list_wake(&world.list);
    assert_true(net_run_until(&world.net, asked, 1, 1000));
    net_run_for(&world.net, 700);
    assert_int_equal(*asked, 1); /* down: left alone */
    world.replicas[0].pages[0].status = 200;
    set_state(&world, slot, KVR_UP);
    assert_true(net_run_until(&world.net, &world.reports, 1, 1000));
    net_run_for(&world.net, 50);
    assert_int_equal(*asked, 2);
    /* A restart may bring other models. */
    world.replicas[0].pages[0].body = LIST(LORA);
    kvr_replica_restarted(&world.table, slot);
    kvr_model_list_wake(&world.list);
    assert_true(net_run_until(&world.net, &world.reports, 2, 1000));
    assert_string_equal(world.names[slot], "lora-1");
    /* Nobody told, yet it is seen soon: another generation is asked, even while it is down. */
    kvr_replica_set_operational(&world.table, slot, KVR_DOWN, kvr_loop_now());
    assert_true(net_run_until(&world.net, &world.reports, 3, 600));
    end(&world);
}

static void fixed_names_are_the_operators(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    list(&world, 50 * MS, 40 * MS);
    uint32_t slot = add(&world, 0, LIST(BASE "," LORA), KVR_UP);
    struct kvr_slice names[] = {kvr_slice_of("lora-1"), kvr_slice_of("al\"ias")};
    kvr_model_list_fix(&world.list, slot, names, 2, 1234);
    const char *alias = "{\"id\":\"al\\\"ias\",\"object\":\"model\",\"created\":1234,"
                        "\"owned_by\":\"kvroute\"}";
    char expected[512];
    snprintf(
        expected, sizeof expected,
        "{\"object\":\"list\",\"data\":[{\"id\":\"lora-1\",\"object\":\"model\",\"created\":1234,"
        "\"owned_by\":\"kvroute\"},%s]}",
        alias);
    assert_string_equal(merged(&world), expected);
    kvr_model_list_wake(&world.list);
    assert_true(net_run_until(&world.net, &world.replicas[0].pages[0].asked, 3, 1000));
    snprintf(expected, sizeof expected, "{\"object\":\"list\",\"data\":[" LORA ",%s]}", alias);
    assert_string_equal(merged(&world), expected);
    assert_int_equal(world.reports, 0);
    /* Removed and added again without names: the engine's own count. */
    kvr_replica_remove(&world.table, slot);
    kvr_model_list_wake(&world.list);
    assert_int_equal(add(&world, 0, LIST(BASE "," LORA), KVR_UP), slot);
    kvr_model_list_wake(&world.list);
    assert_true(net_run_until(&world.net, &world.reports, 1, 1000));
    assert_string_equal(merged(&world), LIST(BASE "," LORA));
    end(&world);
}

static struct kvr_slice no_created(const void *context, struct kvr_slice id)
{
    (void)context;
    (void)id;
    return kvr_slice_make("", 0);
}

static const struct kvr_created_source own_created = {NULL, no_created};

static void answers_in_odd_forms(void **state)
{
    (void)state;
    struct kvr_served_models served = {0};
    const char *odd =
        "\n{ \"models\" : [ {\"id\":\"no\"} ], \"data\" : [ 1, null, {}, {\"id\":5},"
        " {\"id\":\"\"}, { \"created\" : 1.5e3 , \"id\" : \"caf\\u00e9\" },"
        " {\"id\":\"x\",\"nested\":{\"id\":\"y\",\"created\":1}}, {\"id\":\"x\"} ] }\n";
    assert_int_equal(kvr_served_models_read(&served, kvr_slice_of(odd), &own_created), 0);
    assert_int_equal(served.count, 2);
    assert_true(kvr_slice_is(kvr_served_id(&served, 0), "caf\xc3\xa9"));
    assert_true(kvr_slice_is(kvr_served_object(&served, 0),
                             "{ \"created\" : 1.5e3 , \"id\" : \"caf\\u00e9\" }"));
    assert_true(kvr_slice_is(kvr_served_created(&served, kvr_slice_of("caf\xc3\xa9")), "1.5e3"));
    assert_true(kvr_slice_is(kvr_served_id(&served, 1), "x"));
    assert_int_equal(kvr_served_created(&served, kvr_slice_of("x")).len, 0);

    static const char *const wrong[] = {"",
                                        "[]",
                                        "{}",
                                        "{\"data\":{}}",
                                        "{\"data\":[",
                                        "nonsense",
                                        "{\"data\":[]} x",
                                        "{\"data\":[{\"id\":\"a\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(kvr_served_models_read(&served, kvr_slice_of(wrong[i]), &own_created),
                         KVR_E_INVALID);
        assert_int_equal(served.count, 2);
    }
    assert_int_equal(kvr_served_models_read(&served, kvr_slice_of("{\"data\":[]}"), &own_created),
                     0);
    assert_int_equal(served.count, 0);
    kvr_served_models_deinit(&served);
}

static void models_over_the_limit_are_counted(void **state)
{
    (void)state;
    struct kvr_buffer answer = {0};
    kvr_buffer_append_text(&answer, "{\"data\":[");
    for (int i = 0; i < KVR_REPLICA_MODELS_MAX + 5; i++)
        kvr_buffer_printf(&answer, "{\"id\":\"model-%d\"},", i);
    kvr_buffer_append_text(&answer, "{\"id\":\"");
    for (int i = 0; i <= KVR_MODEL_NAME_MAX; i++)
        kvr_buffer_append_text(&answer, "n");
    kvr_buffer_append_text(&answer, "\"}]}");
    struct kvr_served_models served = {0};
    assert_int_equal(kvr_served_models_read(&served, kvr_buffer_slice(&answer), &own_created), 6);
    assert_int_equal(served.count, KVR_REPLICA_MODELS_MAX);
    kvr_served_models_deinit(&served);
    kvr_buffer_deinit(&answer);
}

/* Whatever an engine answers, the merged list is JSON. */
static void mangled_answers_are_harmless(void **state)
{
    (void)state;
    const char *good = LIST(MODEL_A("100", "8192") "," BASE "," LORA);
    struct world world;
    begin(&world);
    add(&world, 0, good, KVR_UP);
    list(&world, 60000 * MS, 300 * MS);
    assert_true(net_run_until(&world.net, &world.reports, 1, 1000));
    struct kvr_rng rng;
    kvr_rng_init(&rng, 11);
    size_t len = strlen(good);
    struct kvr_served_models served = {0};
    int taken = 0;
    for (int round = 0; round < 20000; round++) {
        char *copy = malloc(len);
        memcpy(copy, good, len);
        static const char bytes[] = "{}[]\"\\,:0 \x01\xff";
        for (int changes = 1 + round % 3; changes > 0; changes--)
            copy[kvr_rng_below(&rng, len)] = bytes[kvr_rng_below(&rng, sizeof bytes - 1)];
        taken += kvr_served_models_read(&served, kvr_slice_make(copy, len), &own_created) >= 0;
        free(copy);
        for (uint32_t i = 0; i < served.count; i++) {
            struct kvr_json_reader json;
            kvr_json_reader_init(&json, kvr_served_object(&served, i));
            kvr_json_skip(&json, NULL);
            assert_true(kvr_json_finish(&json));
        }
    }
    assert_in_range(taken, 1000, 19000);
    kvr_served_models_deinit(&served);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_what_engines_say),
        cmocka_unit_test(created_is_stable),
        cmocka_unit_test(slow_and_failing_replicas_delay_nobody),
        cmocka_unit_test(models_of_the_gone_vanish),
        cmocka_unit_test(asked_at_once_when_it_matters),
        cmocka_unit_test(fixed_names_are_the_operators),
        cmocka_unit_test(answers_in_odd_forms),
        cmocka_unit_test(models_over_the_limit_are_counted),
        cmocka_unit_test(mangled_answers_are_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
