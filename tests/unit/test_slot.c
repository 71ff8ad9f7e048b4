/* A slot over its life: what it loads, keeps, refuses, decides, and hands to the next generation.
 */
#include "script_fixture.h"

#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "reason.h"

static struct kvr_decision pick_well(struct fixture *f)
{
    struct kvr_decision decision;
    if (kvr_slot_pick(f->slot, &decision))
        fail_msg("%s", kvr_slot_last_error(f->slot));
    return decision;
}

static const char *reason_of(struct fixture *f)
{
    return kvr_reason_text(pick_well(f).reason);
}

/* ---- deciding -------------------------------------------------------------------------------- */

static void picks_and_names_its_reason(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, POLICY("local i = kvr.nth_available(request.serial)\n"
                            "if i then return i, 'nth', i == 2 end"));
    for (uint32_t serial = 0; serial < 300; serial++) {
        f.picture.request.serial = serial;
        struct kvr_decision decision = pick_well(&f);
        assert_int_equal(decision.verdict, KVR_VERDICT_PICK);
        assert_int_equal(decision.index, serial % 4);
        assert_int_equal(decision.affine, serial % 4 == 2);
        assert_string_equal(kvr_reason_text(decision.reason), "nth");
    }
    assert_int_equal(kvr_slot_counters(f.slot)->calls, 300);
    assert_int_equal(kvr_slot_info(f.slot)->generation, 1);
    assert_string_equal(kvr_slot_last_error(f.slot), "");
    fixture_deinit(&f);
}

static void an_empty_slot_has_no_opinion(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    assert_null(kvr_slot_info(f.slot));
    assert_int_equal(pick_well(&f).verdict, KVR_VERDICT_NONE);
    fixture_load(&f, POLICY("return kvr.least()"));
    assert_int_equal(pick_well(&f).verdict, KVR_VERDICT_PICK);
    kvr_slot_clear(f.slot);
    assert_int_equal(pick_well(&f).verdict, KVR_VERDICT_NONE);
    assert_int_equal(kvr_slot_set_params(f.slot, NULL, 0, NULL), KVR_E_STATE);
    fixture_deinit(&f);
}

static void reserved_results_are_no_index(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, POLICY("return kvr.HOLD, 'wait', true"));
    struct kvr_decision decision = pick_well(&f);
    assert_int_equal(decision.verdict, KVR_VERDICT_HOLD);
    assert_false(decision.affine);
    fixture_load(&f, POLICY("return kvr.REJECT, 'no'"));
    decision = pick_well(&f);
    assert_int_equal(decision.verdict, KVR_VERDICT_REJECT);
    assert_string_equal(kvr_reason_text(decision.reason), "no");
    fixture_load(&f, POLICY("return nil"));
    assert_int_equal(pick_well(&f).verdict, KVR_VERDICT_NONE);
    fixture_deinit(&f);
}

static void a_spill_rule_gets_the_preferred_row(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_decision decision;
    fixture_init(&f, KVR_SCRIPT_SPILL, 4);
    fixture_load(&f, SPILL("if view[preferred].in_flight > 2 then\n"
                           "  return kvr.least_except(preferred) or preferred, 'spill_load'\n"
                           "end\n"
                           "return preferred"));
    for (int i = 0; i < 200; i++) {
        f.picture.rows[1].in_flight = f.picture.rows[1].load = i % 2 ? 5 : 1;
        kvr_picture_summarise(&f.picture, 4);
        assert_int_equal(kvr_slot_spill(f.slot, 1, &decision), 0);
        assert_int_equal(decision.verdict, KVR_VERDICT_PICK);
        assert_int_equal(decision.index == 1, i % 2 == 0);
    }
    struct kvr_error error;
    int rc = fixture_load_with(&f, SPILL("return kvr.HOLD"), NULL, 0, &error);
    assert_int_equal(rc, KVR_E_SCRIPT);
    assert_non_null(strstr(error.text, "spill returned -1001, not an index"));
    fixture_deinit(&f);
}

static void many_reasons_are_safe_though_not_cached(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    /* Constant in the check, which shows serials 0 to 2; one string after another in traffic. */
    fixture_load(&f,
                 POLICY("if view.available == 0 then return nil end\n"
                        "local name = request.serial < 10 and 'few' or 'r' .. request.serial % 90\n"
                        "return kvr.least(), name"));
    for (uint32_t serial = 10; serial < 2000; serial++) {
        char expected[16];
        f.picture.request.serial = serial;
        snprintf(expected, sizeof expected, "r%u", serial % 90);
        assert_string_equal(reason_of(&f), expected);
    }
    fixture_deinit(&f);
}

/* ---- refusing -------------------------------------------------------------------------------- */

static void what_breaks_the_contract_is_refused_with_its_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *answer;
    } cases[] = {
        {"return {", "policies/probe.lua:1: unexpected symbol near '<eof>'"},
        {"x = = 1", "policies/probe.lua:1: unexpected symbol near '='"},
        {"return 5", "policies/probe.lua: must return a table, returned a number"},
        {"", "must return a table, returned nothing"},
        {"return { name = 'probe', pick = function() end }", "api: must be 1, is nil"},
        {"return { api = 2, name = 'probe', pick = function() end }", "api: must be 1, is 2"},
        {"return { api = '1', name = 'probe', pick = function() end }",
         "api: must be a number, is a string"},
        {"return { api = 1, pick = function() end }", "name: missing"},
        {"return { api = 1, name = 'A b', pick = function() end }", "name: must be at most 63 of"},
        {"return { api = 1, name = 'probe' }", "pick: missing"},
        {"return { api = 1, name = 'probe', pick = 5 }", "pick: must be a function, is a number"},
        {"return { api = 1, name = 'probe', spill = function() end }",
         "unknown key spill; known: api"},
        {"return { api = 1, name = 'probe', pick = function() end, picks = 1 }",
         "unknown key picks;"},
        {"return { api = 1, name = 'probe', pick = function() end, needs = { 'matches' } }",
         "needs: unknown \"matches\"; known: match, plan, residency, keys, openings, work, active"},
        {"return { api = 1, name = 'probe', pick = function() end, params = { a = {} } }",
         "params.a: must be a boolean, a number or a string, is a table"},
        {"return { api = 1, name = 'probe', pick = function() end, params = { 5 } }",
         "a key of number type where names are expected"},
        {"error('broken')", "policies/probe.lua:1: broken"},
        {"error('two\\nlines')", "policies/probe.lua:1: two lines"},
        {"return { api = 1, name = 'probe', pick = function() end,\n"
         "  init = function(p)\n error('no luck') end }",
         "policies/probe.lua:3: no luck"},
        {"while true do end", "policies/probe.lua:1: does not end"},
        {"local t = {} for i = 1, 1e9 do t[1] = {} end", "does not end"},
        {"local s = 'x' for i = 1, 60 do s = s .. s end", "not enough memory"},
        {"local function f() return 1 + f() end f()", "stack overflow"},
    };
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, POLICY("return kvr.least(), 'good'"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_error error = {0};
        int rc = fixture_load_with(&f, cases[i].text, NULL, 0, &error);
        if (rc != KVR_E_SCRIPT || !strstr(error.text, cases[i].answer))
            fail_msg("%s: %d, %s, not %s", cases[i].text, rc, error.text, cases[i].answer);
        assert_string_equal(kvr_slot_last_error(f.slot), error.text);
        assert_int_equal(kvr_slot_info(f.slot)->generation, 1);
        assert_string_equal(reason_of(&f), "good");
    }
    assert_int_equal(kvr_slot_counters(f.slot)->refusals, sizeof cases / sizeof cases[0]);
    fixture_deinit(&f);
}

static void what_the_canned_pictures_bring_to_light_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        const char *answer;
    } cases[] = {
        {"return 0", "pick returned 0, an empty fleet must give nil (checked with no replica)"},
        {"return view.count - 1", "pick returned -1, an empty fleet must give nil"},
        {"return 99", "pick returned 99, not an index below 1 (checked with one replica)"},
        {"return -1", "pick returned -1, not an index below 1 (checked with one replica)"},
        {"return 1.5", "pick returned 1.5, not an index below 1 (checked with one replica)"},
        {"return view[0].available and 0 or nil",
         "view[0] is out of range: there is none (checked with no replica)"},
        {"if request.chain_len == 0 then return request:block(0) end",
         "request:block(0) is out of range: there is none"},
        {"return view[0].inflight", "a row of view has no field inflight (checked with one"},
        {"if view.count > 0 then return 0 end",
         "pick returned 0, which is not available (checked with one replica, not available)"},
        {"if view.available > 0 then return 0.5 end", "pick returned 0.5, not an index below 1"},
        {"return 'first'", "pick returned a string, not an index"},
        {"return 0 / 0", "nan, not an index"},
        {"return kvr.least(), 5",
         "pick returned a number, which is no reason: it must be a string"},
        {"return kvr.least(), 'x', 1",
         "pick returned a number, which is not affine: it must be a boolean"},
        {"local i = kvr.least() while view.count == 64 do end return i",
         "does not end: ran too many instructions (checked with 64 busy replicas)"},
        {"if view.available == 0 then return nil end\n"
         "return kvr.least(), 'r' .. math.random(1, 1000000)",
         "more than 12 reasons: they must be constant"},
        {"local best for i = 0, view.count - 1 do\n"
         "  local t = view[i].running if t > (best or -1) then best = t end end\n"
         "if view.count == 10 then local x = {} return x.y.z end",
         "(checked with ten replicas with extreme numbers)"},
        {"return kvr.least({})", "policies/probe.lua: no number named table"},
    };
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_error error = {0};
        char text[1000];
        snprintf(text, sizeof text, POLICY("%s"), cases[i].body);
        int rc = fixture_load_with(&f, text, NULL, 0, &error);
        if (rc != KVR_E_SCRIPT || !strstr(error.text, cases[i].answer))
            fail_msg("%s: %d, %s, not %s", cases[i].body, rc, error.text, cases[i].answer);
    }
    fixture_deinit(&f);
}

static void a_script_is_named_as_its_file(void **state)
{
    (void)state;
    static const struct {
        const char *file; /* its name; "": none */
        const char *answer;
    } cases[] = {
        {"probe", NULL},
        {"", NULL},
        {"other", "name: must be \"other\", as its file's, is \"probe\""},
        {"Two-Words", "name: must be \"two_words\", as its file's, is \"probe\""},
        {"Probe", NULL},
    };
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_error error = {0};
        int rc = kvr_slot_load(f.slot, kvr_slice_of(cases[i].file), kvr_slice_of("policies/x.lua"),
                               kvr_slice_of(POLICY("return nil")), NULL, 0, &error);
        assert_int_equal(rc, cases[i].answer ? KVR_E_SCRIPT : 0);
        if (cases[i].answer && !strstr(error.text, cases[i].answer))
            fail_msg("%s: %s", cases[i].file, error.text);
    }
    fixture_deinit(&f);
}

static void observing_and_handing_over_are_tried_too(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_error error = {0};
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    const char *text = "local P = { api = 1, name = 'probe' }\n"
                       "function P.export() return { 1 } end\n"
                       "function P.import(s) assert(s.count, 'no count') end\n"
                       "function P.pick() return nil end\n"
                       "return P\n";
    assert_int_equal(fixture_load_with(&f, text, NULL, 0, &error), KVR_E_SCRIPT);
    assert_non_null(strstr(error.text, "no count"));
    assert_non_null(strstr(error.text, "P.import of what P.export gave"));
    text = "local P = { api = 1, name = 'probe' }\n"
           "function P.observe(event) return event.replika end\n"
           "function P.pick() return nil end\n"
           "return P\n";
    assert_int_equal(fixture_load_with(&f, text, NULL, 0, &error), KVR_E_SCRIPT);
    assert_non_null(strstr(error.text, "probe.lua:2:"));
    assert_non_null(strstr(error.text, "an observation"));
    assert_non_null(strstr(error.text, "observation has no field replika"));
    fixture_deinit(&f);
}

/* ---- params ---------------------------------------------------------------------------------- */

#define WITH_PARAMS                                                                                \
    "local P = { api = 1, name = 'probe', needs = { 'match', 'keys' },\n"                          \
    "  params = { factor = 2, spill = 'load_min', strict = false } }\n"                            \
    "local factor\n"                                                                               \
    "function P.init(params) factor = params.factor end\n"                                         \
    "function P.pick(request, view)\n"                                                             \
    "  if view.available == 0 then return nil end\n"                                               \
    "  return kvr.least(), factor == 2 and 'two' or P.params.strict and 'strict' or 'other'\n"     \
    "end\n"                                                                                        \
    "return P\n"

static struct kvr_script_param param(const char *key, const char *value)
{
    return (struct kvr_script_param){kvr_slice_of(key), kvr_slice_of(value)};
}

static void params_override_defaults_by_type(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, WITH_PARAMS);
    const struct kvr_script_info *info = kvr_slot_info(f.slot);
    assert_string_equal(info->params, "factor=2 spill=load_min strict=false");
    assert_string_equal(info->default_spill, "load_min");
    assert_int_equal(info->needs, KVR_NEEDS_MATCH | KVR_NEEDS_KEYS);
    assert_string_equal(info->name, "probe");
    assert_string_equal(info->path, "policies/probe.lua");
    uint64_t hash = info->hash;
    uint64_t params_hash = info->params_hash;
    assert_string_equal(reason_of(&f), "two");

    struct kvr_script_param change[] = {param("factor", "2.5"), param("strict", "true")};
    assert_int_equal(kvr_slot_set_params(f.slot, change, 2, NULL), 0);
    info = kvr_slot_info(f.slot);
    assert_string_equal(info->params, "factor=2.5 spill=load_min strict=true");
    assert_int_equal(info->generation, 2);
    assert_true(info->hash == hash && info->params_hash != params_hash);
    assert_string_equal(reason_of(&f), "strict");

    struct kvr_script_param more = param("spill", "no rule");
    assert_int_equal(kvr_slot_set_params(f.slot, &more, 1, NULL), 0);
    assert_string_equal(kvr_slot_info(f.slot)->params, "factor=2.5 spill=\"no rule\" strict=true");
    /* A saved file keeps what was set at run time. */
    assert_int_equal(kvr_slot_reload(f.slot, kvr_slice_of(WITH_PARAMS "-- edited"), NULL), 0);
    assert_string_equal(kvr_slot_info(f.slot)->params, "factor=2.5 spill=\"no rule\" strict=true");
    assert_int_equal(kvr_slot_info(f.slot)->generation, 4);
    /* A load says all there is to say. */
    fixture_load(&f, WITH_PARAMS);
    assert_string_equal(kvr_slot_info(f.slot)->params, "factor=2 spill=load_min strict=false");
    fixture_deinit(&f);
}

static void params_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        const char *value;
        const char *answer;
    } cases[] = {
        {"factr", "3", "no param named factr; known: factor, spill, strict"},
        {"factor", "fast", "param factor: must be a number, got \"fast\""},
        {"factor", "", "param factor: must be a number, got \"\""},
        {"factor", "nan", "param factor: must be a number, got \"nan\""},
        {"strict", "yes", "param strict: must be true or false, got \"yes\""},
    };
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, WITH_PARAMS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_script_param change = param(cases[i].key, cases[i].value);
        struct kvr_error error = {0};
        assert_int_equal(kvr_slot_set_params(f.slot, &change, 1, &error), KVR_E_SCRIPT);
        if (!strstr(error.text, cases[i].answer))
            fail_msg("%s", error.text);
        assert_int_equal(kvr_slot_info(f.slot)->generation, 1);
        assert_string_equal(reason_of(&f), "two");
    }
    struct kvr_script_param many[40];
    char names[40][16];
    for (int i = 0; i < 40; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        many[i] = param(names[i], "1");
    }
    assert_int_equal(kvr_slot_set_params(f.slot, many, 40, NULL), KVR_E_LIMIT);
    fixture_deinit(&f);
}

/* ---- generations ----------------------------------------------------------------------------- */

static void a_reload_goes_by_content(void **state)
{
    (void)state;
    const char *good = POLICY("return kvr.least(), 'good'");
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, good);
    uint64_t hash = kvr_slot_info(f.slot)->hash;
    assert_int_equal(fixture_load_with(&f, "return {", NULL, 0, NULL), KVR_E_SCRIPT);
    assert_string_not_equal(kvr_slot_last_error(f.slot), "");
    assert_string_equal(reason_of(&f), "good");

    fixture_load(&f, good); /* the original comes back: in force already, and the error is gone */
    assert_int_equal(kvr_slot_info(f.slot)->generation, 1);
    assert_string_equal(kvr_slot_last_error(f.slot), "");

    fixture_load(&f, POLICY("return kvr.least(), 'better'"));
    assert_int_equal(kvr_slot_info(f.slot)->generation, 2);
    assert_true(kvr_slot_info(f.slot)->hash != hash);
    assert_string_equal(reason_of(&f), "better");

    fixture_load(&f, good);
    assert_int_equal(kvr_slot_info(f.slot)->generation, 3);
    assert_true(kvr_slot_info(f.slot)->hash == hash);

    /* The same text under another name is another script. */
    assert_int_equal(kvr_slot_load(f.slot, kvr_slice_of("renamed"), kvr_slice_of(""),
                                   kvr_slice_of(good), NULL, 0, NULL),
                     0);
    assert_int_equal(kvr_slot_info(f.slot)->generation, 4);
    assert_string_equal(kvr_slot_info(f.slot)->name, "renamed");
    /* Without a name, the text's own counts. */
    assert_int_equal(kvr_slot_load(f.slot, kvr_slice_of(""), kvr_slice_of(""),
                                   kvr_slice_of("return { api = 1, name = 'inner', pick = "
                                                "function() end }"),
                                   NULL, 0, NULL),
                     0);
    assert_string_equal(kvr_slot_info(f.slot)->name, "inner");
    assert_int_equal(kvr_slot_counters(f.slot)->loads, 5);
    fixture_deinit(&f);
}

#define LEARNER(extra)                                                                             \
    "local P = { api = 1, name = 'probe' }\n"                                                      \
    "local seen = { total = 0, by = {} }\n"                                                        \
    "function P.observe(e)\n"                                                                      \
    "  seen.total = seen.total + 1\n"                                                              \
    "  seen.by[e.replica + 1] = (seen.by[e.replica + 1] or 0) + 1\n"                               \
    "end\n"                                                                                        \
    "function P.pick(request, view)\n"                                                             \
    "  return seen.total < view.count and seen.total or nil\n"                                     \
    "end\n" extra "return P\n"

#define HANDS_OVER                                                                                 \
    "function P.export() return seen end\n"                                                        \
    "function P.import(s) seen = s end\n"

static void what_was_learned_is_handed_over(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    const char *first = LEARNER(HANDS_OVER);
    /* The check's all-away scene must not get an index. */
    assert_int_equal(fixture_load_with(&f, first, NULL, 0, NULL), KVR_E_SCRIPT);
#define AWARE(extra)                                                                               \
    "local none = {}\n" LEARNER("local pick = P.pick\n"                                            \
                                "function P.pick(r, v)\n"                                          \
                                "  if v.available < v.count then return nil end\n"                 \
                                "  return pick(r, v)\n"                                            \
                                "end\n" extra)
    fixture_load(&f, AWARE(HANDS_OVER));
    assert_true(kvr_slot_info(f.slot)->observes);
    for (int i = 0; i < 3; i++)
        kvr_slot_observe(f.slot);
    assert_int_equal(pick_well(&f).index, 3);
    fixture_load(&f, AWARE(HANDS_OVER) "-- edited");
    assert_int_equal(kvr_slot_info(f.slot)->generation, 2);
    assert_int_equal(pick_well(&f).index, 3);
    fixture_load(&f, AWARE("") "-- forgets");
    assert_int_equal(pick_well(&f).index, 0);
    fixture_deinit(&f);
}

static void an_export_is_capped_and_its_failure_keeps_nobody_out(void **state)
{
    (void)state;
    static const char *const exports[] = {
        "return function() end",
        "local t = {} t.t = t return t",
        "local t = {} for i = 1, 30 do t = { t } end return t",
        "local s = 'xxxxxxxxxxxxxxxx' for i = 1, 17 do s = s .. s end return s",
        "local t = {} for i = 1, 200000 do t[i] = i end return t",
        "error('cannot')",
        "return { [true] = 1 }",
    };
    kvr_log_set_level(KVR_LOG_ERROR);
    for (size_t i = 0; i < sizeof exports / sizeof exports[0]; i++) {
        struct fixture f;
        char text[1000];
        fixture_init(&f, KVR_SCRIPT_POLICY, 4);
        /* Well-behaved in the check, where nothing is observed on replica 1. */
        snprintf(text, sizeof text,
                 "local P = { api = 1, name = 'probe' } local bad\n"
                 "function P.observe(e) bad = bad or e.replica == 1 end\n"
                 "function P.pick() return nil end\n"
                 "function P.export() if not bad then return { 1 } end\n %s\n end\n"
                 "function P.import(s) assert(s[1] == 1) end\n"
                 "return P\n",
                 exports[i]);
        fixture_load(&f, text);
        f.picture.observation.replica = 1;
        kvr_slot_observe(f.slot);
        strcat(text, "-- edited");
        fixture_load(&f, text);
        assert_int_equal(kvr_slot_info(f.slot)->generation, 2);
        fixture_deinit(&f);
    }
    kvr_log_set_level(KVR_LOG_INFO);
}

static void an_import_that_fails_refuses_the_load(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_error error;
    const char *text =
        "local P = { api = 1, name = 'probe' } local seen = 0\n"
        "function P.observe(e) if e.replica == 1 then seen = seen + 1 end end\n"
        "function P.pick() return nil end\n"
        "function P.export() return { seen = seen, [3] = true } end\n"
        "function P.import(s) assert(s.seen == 0, 'no more room') seen = s.seen end\n"
        "return P\n";
    char edited[1000];
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, text);
    f.picture.observation.replica = 1;
    kvr_slot_observe(f.slot);
    snprintf(edited, sizeof edited, "%s-- edited", text);
    assert_int_equal(fixture_load_with(&f, edited, NULL, 0, &error), KVR_E_SCRIPT);
    assert_non_null(strstr(error.text, "no more room"));
    assert_int_equal(kvr_slot_info(f.slot)->generation, 1);
    fixture_deinit(&f);
}

/* ---- guards ---------------------------------------------------------------------------------- */

/* Well-behaved in the check, whose serials are 0 to 2 or the largest; then as `body` says. */
#define LATER(body)                                                                                \
    POLICY("if request.serial < 10 or request.serial > 1e9 then return kvr.least() end\n" body)

static void failures_fall_back_and_use_up_a_budget(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        const char *answer;
    } cases[] = {
        {LATER("local x = nil\nreturn x.y"), KVR_E_SCRIPT,
         "policies/probe.lua:5: attempt to index"},
        {LATER("return 4"), KVR_E_INVALID, "pick returned 4, not an index below 4"},
        {LATER("return 1"), KVR_E_INVALID, "pick returned 1, which is not available"},
        {LATER("return {}"), KVR_E_INVALID, "pick returned a table, not an index"},
        {LATER("return -1001.5"), KVR_E_INVALID, "not an index"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct fixture f;
        struct kvr_decision decision;
        fixture_init(&f, KVR_SCRIPT_POLICY, 4);
        f.picture.rows[1].available = false;
        kvr_picture_summarise(&f.picture, 4);
        fixture_load(&f, cases[c].text);
        for (uint32_t i = 0; i < 9; i++) {
            f.picture.request.serial = 50;
            assert_int_equal(kvr_slot_pick(f.slot, &decision), cases[c].rc);
            if (!strstr(kvr_slot_last_error(f.slot), cases[c].answer))
                fail_msg("%s, not %s", kvr_slot_last_error(f.slot), cases[c].answer);
            f.picture.request.serial = 1; /* a good one in between changes nothing */
            assert_int_equal(kvr_slot_pick(f.slot, &decision), 0);
        }
        assert_false(kvr_slot_quarantined(f.slot));
        f.picture.request.serial = 50;
        assert_int_equal(kvr_slot_pick(f.slot, &decision), cases[c].rc);
        assert_true(kvr_slot_quarantined(f.slot));
        f.picture.request.serial = 1;
        assert_int_equal(kvr_slot_pick(f.slot, &decision), KVR_E_STATE);
        const struct kvr_script_counters *counters = kvr_slot_counters(f.slot);
        assert_int_equal(counters->errors + counters->bad_results, 10);
        assert_int_equal(counters->quarantines, 1);

        fixture_load(&f, cases[c].text); /* the same text: a second chance, a new generation */
        assert_false(kvr_slot_quarantined(f.slot));
        assert_int_equal(kvr_slot_info(f.slot)->generation, 2);
        assert_int_equal(kvr_slot_pick(f.slot, &decision), 0);
        fixture_deinit(&f);
    }
    kvr_log_set_level(KVR_LOG_INFO);
}

static void rare_failures_do_not_quarantine(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_decision decision;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, LATER("error('rare')"));
    for (uint32_t call = 1; call <= 20000; call++) {
        f.picture.request.serial = call % 120 == 0 ? 50 : 1; /* 8 or 9 in any 1,000 calls */
        kvr_slot_pick(f.slot, &decision);
    }
    assert_false(kvr_slot_quarantined(f.slot));
    assert_int_equal(kvr_slot_counters(f.slot)->errors, 166);
    fixture_deinit(&f);
}

static void a_memory_hog_starts_afresh(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_decision decision;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    kvr_slot_limit_memory(f.slot, 2u << 20);
    fixture_load(&f, "local P = { api = 1, name = 'probe' } local calls, hoard = 0, {}\n"
                     "function P.pick(request, view)\n"
                     "  if view.available < view.count or view.count == 0 then return nil end\n"
                     "  calls = calls + 1\n"
                     "  if request.serial == 50 then\n"
                     "    for i = 1, 1e9 do hoard[i] = { i } end\n"
                     "  end\n"
                     "  return calls < view.count and calls or 0\n"
                     "end\n"
                     "return P\n");
    for (int i = 0; i < 9; i++) {
        assert_int_equal(pick_well(&f).index, 1);
        assert_int_equal(pick_well(&f).index, 2);
        f.picture.request.serial = 50;
        assert_int_equal(kvr_slot_pick(f.slot, &decision), KVR_E_LIMIT);
        assert_non_null(strstr(kvr_slot_last_error(f.slot), "not enough memory"));
        assert_true(kvr_slot_memory(f.slot) < 1u << 20);
        f.picture.request.serial = 1;
    }
    assert_int_equal(kvr_slot_info(f.slot)->generation, 1);
    assert_int_equal(kvr_slot_counters(f.slot)->memory, 9);
    f.picture.request.serial = 50;
    kvr_slot_pick(f.slot, &decision);
    assert_true(kvr_slot_quarantined(f.slot));
    fixture_deinit(&f);
    kvr_log_set_level(KVR_LOG_INFO);
}

/* "2026-01-31T09:05:00.123Z ", and now. */
static bool is_time(const char *line)
{
    struct tm utc = {0};
    int ms;
    char zone[2];
    bool good = sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3d%1s", &utc.tm_year, &utc.tm_mon,
                       &utc.tm_mday, &utc.tm_hour, &utc.tm_min, &utc.tm_sec, &ms, zone) == 8;
    utc.tm_year -= 1900;
    utc.tm_mon -= 1;
    return good && zone[0] == 'Z' && line[24] == ' ' &&
           labs((long)(timegm(&utc) - time(NULL))) < 60;
}

static void a_script_may_log_but_not_flood(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, LATER("log('serial\\n', request.serial, nil, true, {}, view)\n"
                           "return kvr.least(), 'logged'"));
    FILE *file = tmpfile();
    int saved = dup(2);
    dup2(fileno(file), 2);
    f.picture.request.serial = 50;
    for (int i = 0; i < 3000; i++)
        pick_well(&f);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    rewind(file);
    char line[256];
    int lines = 0;
    while (fgets(line, sizeof line, file)) {
        assert_true(is_time(line));
        assert_string_equal(line + 25, "info policy probe: serial  50 nil true table cdata\n");
        lines++;
    }
    fclose(file);
    assert_in_range(lines, 20, 24);
    fixture_deinit(&f);
}

/* ---- costs ----------------------------------------------------------------------------------- */

static size_t rss_pages(void)
{
    size_t total = 0;
    size_t resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &total, &resident), 2);
    fclose(file);
    return resident;
}

static void reloads_leave_nothing_behind(void **state)
{
    (void)state;
    struct fixture f;
    size_t before = 0;
    fixture_init(&f, KVR_SCRIPT_POLICY, 8);
    for (int i = 0; i < 1000; i++) {
        char text[500];
        snprintf(text, sizeof text, POLICY("return kvr.least(), 'number_%d'") "-- %d\n", i % 3, i);
        fixture_load(&f, text);
        for (int k = 0; k < 60; k++) /* enough for it to be compiled */
            pick_well(&f);
        if (i == 199)
            before = rss_pages();
    }
    assert_int_equal(kvr_slot_info(f.slot)->generation, 1000);
    size_t after = rss_pages();
    /* Sanitizers and valgrind keep freed memory on purpose. */
    if (!FIXTURE_SANITIZED && !getenv("KVR_UNDER_VALGRIND") &&
        after > before + 128) /* half a MiB */
        fail_msg("%zu pages after 200 reloads, %zu after 1,000", before, after);
    fixture_deinit(&f);
}

static void a_decision_allocates_nothing(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 8);
    fixture_load(&f, POLICY("local i = kvr.least()\n"
                            "if not i then return nil end\n"
                            "return i, view[i].in_flight > 3 and 'busy' or 'idle', i == 3"));
    for (uint32_t i = 0; i < 1000; i++) {
        f.picture.request.serial = i;
        pick_well(&f);
    }
    struct mallinfo2 c_before = mallinfo2();
    size_t lua_before = kvr_slot_memory(f.slot);
    for (uint32_t i = 0; i < 100000; i++) {
        f.picture.request.serial = i;
        pick_well(&f);
    }
    assert_int_equal(mallinfo2().uordblks, c_before.uordblks);
    assert_int_equal(kvr_slot_memory(f.slot), lua_before);
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picks_and_names_its_reason),
        cmocka_unit_test(an_empty_slot_has_no_opinion),
        cmocka_unit_test(reserved_results_are_no_index),
        cmocka_unit_test(a_spill_rule_gets_the_preferred_row),
        cmocka_unit_test(many_reasons_are_safe_though_not_cached),
        cmocka_unit_test(what_breaks_the_contract_is_refused_with_its_reason),
        cmocka_unit_test(what_the_canned_pictures_bring_to_light_is_refused),
        cmocka_unit_test(a_script_is_named_as_its_file),
        cmocka_unit_test(observing_and_handing_over_are_tried_too),
        cmocka_unit_test(params_override_defaults_by_type),
        cmocka_unit_test(params_that_do_not_fit_are_refused),
        cmocka_unit_test(a_reload_goes_by_content),
        cmocka_unit_test(what_was_learned_is_handed_over),
        cmocka_unit_test(an_export_is_capped_and_its_failure_keeps_nobody_out),
        cmocka_unit_test(an_import_that_fails_refuses_the_load),
        cmocka_unit_test(failures_fall_back_and_use_up_a_budget),
        cmocka_unit_test(rare_failures_do_not_quarantine),
        cmocka_unit_test(a_memory_hog_starts_afresh),
        cmocka_unit_test(a_script_may_log_but_not_flood),
        cmocka_unit_test(reloads_leave_nothing_behind),
        cmocka_unit_test(a_decision_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
