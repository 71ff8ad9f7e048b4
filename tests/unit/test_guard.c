/* Scripts that do not end are left behind, and nothing else suffers: the next calls answer, other
 * VMs answer right, and the caller's thread goes on. The limits of time here are generous, since
 * the machine may be busy, and ten times as long under valgrind. */
#include "script_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "guard.h"
#include "reason.h"
#include "script.h"

#define BUDGET_NS 20000000u

static atomic_bool watching;
static uint64_t slowdown = 1;

static void *watch(void *argument)
{
    (void)argument;
    while (atomic_load(&watching)) {
        struct timespec pause = {0, (long)kvr_guard_watch(BUDGET_NS * slowdown)};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static pthread_t watchdog;

static int start(void **state)
{
    (void)state;
    slowdown = getenv("KVR_UNDER_VALGRIND") ? 10 : 1;
    kvr_guard_start();
    atomic_store(&watching, true);
    return pthread_create(&watchdog, NULL, watch, NULL);
}

static int stop(void **state)
{
    (void)state;
    atomic_store(&watching, false);
    pthread_join(watchdog, NULL);
    kvr_guard_stop();
    return 0;
}

static double now_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Well-behaved in the check and until serial 1000; then as `body` says. */
#define LATER(body)                                                                                \
    "local keep = {}\n"                                                                            \
    "local function deeper(n) if n == 0 then return 0 end return 1 + deeper(n - 1) end\n"          \
    "local P = { api = 1, name = 'probe' }\n"                                                      \
    "function P.pick(request, view)\n"                                                             \
    "  if request.serial < 1000 or request.serial > 1e9 then return kvr.least(), 'good' end\n"     \
    "  " body "\nend\n"                                                                            \
    "return P\n"

static const char *const runaways[] = {
    LATER("while true do end"),
    LATER("local n = 0 while n >= 0 do n = n + 1 end"),
    LATER("for i = 1, 1e15 do end"),
    LATER("for i = 1, 1e15 do if view[i % view.count].in_flight > 1e9 then return 0 end end"),
    LATER("repeat local i = kvr.least() until not i"),
    LATER("repeat local i = kvr.hrw_order(request.serial) until not i"),
    LATER("repeat local i = kvr.ring_order(request.serial) until #i == 99"),
    LATER("repeat local i = kvr.least_by(function(row) return row.load end) until not i"),
    LATER("local function f() return f() end return f()"),
    LATER("while true do deeper(150) end"),
    LATER("while true do local s = '' for i = 1, 100 do s = s .. i end end"),
    LATER("while true do local s = 'x' for i = 1, 14 do s = s .. s end end"),
    LATER("while true do local t = {} for i = 1, 100 do t[i] = { i } end end"),
    LATER("while true do keep[#keep % 1000 + 1] = tostring(#keep) end"),
    LATER("while true do for i = 1, 500 do keep[i] = function() return i end end end"),
    LATER("local x = 1 while true do x = math.exp(math.log(x + 1)) end"),
    LATER("local x = 1 while true do x = math.fmod(x * 1.1, 1e9) end"),
    LATER("local x = 1 while true do x = (x + 0.5) ^ 1.01 % 1e6 end"),
    LATER("while true do math.random(1, 100) end"),
    LATER("while true do log('again') end"),
    LATER("while true do local a, b = view, request end"),
    LATER("while true do for _, v in ipairs({ 1, 2, 3 }) do keep[v] = v end end"),
    LATER("while true do tonumber('12.5') end"),
    LATER("while true do local t = type(view) == 'cdata' and request:block(0) end"),
};

/* Each in a slot of its own, while a good slot answers before and after. */
static void runaways_are_left_behind(void **state)
{
    (void)state;
    struct fixture good;
    struct kvr_block_key chain = {1, 2};
    fixture_init(&good, KVR_SCRIPT_POLICY, 8);
    fixture_load(&good, POLICY("local i = kvr.nth_available(request.serial)\n"
                               "if i then return i, view[i].available and 'fine' end"));
    for (size_t i = 0; i < sizeof runaways / sizeof runaways[0]; i++) {
        struct fixture f;
        struct kvr_decision decision;
        fixture_init(&f, KVR_SCRIPT_POLICY, 8);
        f.picture.request.chain = &chain;
        f.picture.request.chain_len = 1;
        fixture_load(&f, runaways[i]);
        for (uint32_t serial = 0; serial < 1000; serial++) {
            f.picture.request.serial = serial;
            assert_int_equal(kvr_slot_pick(f.slot, &decision), 0);
        }
        uint32_t before = kvr_guard_abandoned();
        double cpu = now_ms(CLOCK_THREAD_CPUTIME_ID);
        f.picture.request.serial = 1000;
        int rc = kvr_slot_pick(f.slot, &decision);
        cpu = now_ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
        if (rc != KVR_E_RUNAWAY)
            fail_msg("%zu: %d, %s", i, rc, kvr_slot_last_error(f.slot));
        if (slowdown == 1 && cpu > 200.0)
            fail_msg("%zu: took %.1f ms of CPU to be left", i, cpu);
        assert_int_equal(kvr_guard_abandoned(), before + 1);
        assert_true(kvr_slot_quarantined(f.slot));
        assert_int_equal(kvr_slot_counters(f.slot)->runaways, 1);
        assert_non_null(
            strstr(kvr_slot_last_error(f.slot), "probe.lua: pick did not return within "));
        assert_non_null(strstr(kvr_slot_last_error(f.slot), " ms of CPU time and was left behind"));
        assert_string_equal(kvr_slot_info(f.slot)->name, "probe");
        assert_int_equal(kvr_slot_pick(f.slot, &decision), KVR_E_STATE);

        for (uint32_t serial = 0; serial < 200; serial++) {
            good.picture.request.serial = serial;
            assert_int_equal(kvr_slot_pick(good.slot, &decision), 0);
            assert_int_equal(decision.index, serial % 8);
            assert_string_equal(kvr_reason_text(decision.reason), "fine");
        }
        fixture_load(&f, LATER("return 0, 'repaired'")); /* a good text lifts the quarantine */
        assert_int_equal(kvr_slot_pick(f.slot, &decision), 0);
        assert_string_equal(kvr_reason_text(decision.reason), "repaired");
        fixture_deinit(&f);
    }
    fixture_deinit(&good);
}

/* The check does not reach these: it never sees the order of VMs that makes them run away. */
static void runaways_outside_of_decisions_are_left_too(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_decision decision;
    struct kvr_error error;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, "local P = { api = 1, name = 'probe' } local stuck\n"
                     "function P.pick() return nil end\n"
                     "function P.observe(e) if e.replica == 1 then stuck = true end\n"
                     "  while e.replica == 3 do end end\n"
                     "function P.export() while stuck do end return { 1 } end\n"
                     "function P.import(s) end\n"
                     "return P\n");
    /* An export that does not end leaves the old VM; the new text comes into force all the same. */
    f.picture.observation.replica = 1;
    kvr_slot_observe(f.slot);
    uint32_t before = kvr_guard_abandoned();
    fixture_load(&f, "local P = { api = 1, name = 'probe' }\n"
                     "function P.pick() return nil end\n"
                     "function P.observe(e) while e.replica == 3 do end end\n"
                     "function P.import(s) end\n"
                     "return P\n");
    assert_int_equal(kvr_guard_abandoned(), before + 1);
    assert_int_equal(kvr_slot_info(f.slot)->generation, 2);
    /* An observation that does not end. */
    f.picture.observation.replica = 3;
    kvr_slot_observe(f.slot);
    assert_int_equal(kvr_guard_abandoned(), before + 2);
    assert_true(kvr_slot_quarantined(f.slot));
    kvr_slot_observe(f.slot);
    assert_int_equal(kvr_slot_pick(f.slot, &decision), KVR_E_STATE);
    /* An endless text never gets that far: the check ends it, within milliseconds. */
    double cpu = now_ms(CLOCK_THREAD_CPUTIME_ID);
    assert_int_equal(fixture_load_with(&f, "while true do end", NULL, 0, &error), KVR_E_SCRIPT);
    assert_true(now_ms(CLOCK_THREAD_CPUTIME_ID) - cpu < 150.0 * (double)slowdown);
    assert_non_null(strstr(error.text, "policies/probe.lua:1: does not end"));
    assert_int_equal(kvr_guard_abandoned(), before + 2);
    fixture_deinit(&f);
}

/* Evaluated without the check, as if it ran away in the live VM only. */
static void a_runaway_load_is_left(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "while true do end",
        "return { api = 1, name = 'x', pick = function() end, init = function() while true do end "
        "end }",
    };
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    for (int i = 0; i < 2; i++) {
        struct kvr_script_source source = {.kind = KVR_SCRIPT_POLICY,
                                           .text = kvr_slice_of(texts[i])};
        struct kvr_vm_options options = {.picture = &f.picture};
        struct kvr_error error = {0};
        assert_null(kvr_script_create(&source, &options, &error));
        assert_int_equal(error.code, KVR_E_RUNAWAY);
        char expected[128];
        snprintf(expected, sizeof expected,
                 "script: loading it did not return within %u ms of CPU time and was left behind",
                 (unsigned)(BUDGET_NS * slowdown / 1000000u));
        assert_string_equal(error.text, expected);
    }
    fixture_deinit(&f);
}

static void an_honest_slow_call_is_counted_not_left(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_decision decision;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, LATER("local x = 0\n"
                           "for i = 1, 8000000 do x = x + view[i % 4].load end\n"
                           "return x >= 0 and 0 or nil, 'slow'"));
    f.picture.request.serial = 1000;
    uint32_t before = kvr_guard_abandoned();
    uint32_t calls = 0;
    while (!kvr_slot_quarantined(f.slot) && calls < 50) {
        assert_int_equal(kvr_slot_pick(f.slot, &decision), 0);
        calls++;
    }
    assert_int_equal(kvr_guard_abandoned(), before);
    assert_int_equal(kvr_slot_counters(f.slot)->slow, KVR_FAILURES_MAX);
    assert_int_equal(calls, KVR_FAILURES_MAX + 1); /* the first one only makes it look closer */
    assert_non_null(strstr(kvr_slot_last_error(f.slot), "more than 1 ms of CPU"));
    fixture_deinit(&f);
}

static void *call_elsewhere(void *argument)
{
    struct fixture *f = argument;
    static struct kvr_decision decision;
    int rc = kvr_slot_pick(f->slot, &decision);
    return rc == 0 && !kvr_guard_active() ? &decision : NULL;
}

static void other_threads_run_unguarded(void **state)
{
    (void)state;
    struct fixture f;
    pthread_t thread;
    void *result;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, LATER("for i = 1, 2e8 do if view[i % 4].load > 1e9 then return nil end end\n"
                           "return 2"));
    f.picture.request.serial = 1000;
    assert_int_equal(pthread_create(&thread, NULL, call_elsewhere, &f), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    assert_int_equal(((struct kvr_decision *)result)->index, 2);
    fixture_deinit(&f);
}

/* The last test: it uses up what is left. */
static void lua_stays_off_after_too_many(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_decision decision;
    struct kvr_error error = {0};
    struct fixture good;
    fixture_init(&good, KVR_SCRIPT_POLICY, 4);
    fixture_load(&good, POLICY("return kvr.least()"));
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    char text[2000];
    for (int i = 0; !kvr_guard_exhausted(); i++) {
        assert_true(i <= KVR_ABANDONED_MAX);
        snprintf(text, sizeof text, "%s-- %d", LATER("while true do end"), i);
        fixture_load(&f, text);
        f.picture.request.serial = 1000;
        assert_int_equal(kvr_slot_pick(f.slot, &decision), KVR_E_RUNAWAY);
    }
    assert_int_equal(kvr_guard_abandoned(), KVR_ABANDONED_MAX);
    strcat(text, "-- again");
    assert_int_not_equal(fixture_load_with(&f, text, NULL, 0, &error), 0);
    assert_non_null(strstr(error.text, "Lua is off until a restart"));
    assert_int_equal(kvr_slot_pick(f.slot, &decision), KVR_E_STATE);
    assert_int_equal(kvr_slot_pick(good.slot, &decision), KVR_E_STATE);
    fixture_deinit(&f);
    fixture_deinit(&good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runaways_are_left_behind),
        cmocka_unit_test(runaways_outside_of_decisions_are_left_too),
        cmocka_unit_test(a_runaway_load_is_left),
        cmocka_unit_test(an_honest_slow_call_is_counted_not_left),
        cmocka_unit_test(other_threads_run_unguarded),
        cmocka_unit_test(lua_stays_off_after_too_many),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
