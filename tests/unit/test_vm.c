/* The Lua boundary: what a script can reach, what it cannot, and what a VM refuses to start with.
 */
#include "script_fixture.h"

#include <lauxlib.h>
#include <lualib.h>

#include "memory.h"
#include "vm.h"

/* ---- sandbox --------------------------------------------------------------------------------- */

struct attempt {
    const char *body;   /* of a pick that tries it */
    const char *answer; /* what the refusal must say */
};

static void refused(const struct attempt *attempts, size_t count)
{
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    for (size_t i = 0; i < count; i++) {
        char text[2000];
        struct kvr_error error = {0};
        snprintf(text, sizeof text, POLICY("%s"), attempts[i].body);
        int rc = fixture_load_with(&f, text, NULL, 0, &error);
        if (rc != KVR_E_SCRIPT)
            fail_msg("%s: loaded, or failed with %d", attempts[i].body, rc);
        if (!strstr(error.text, attempts[i].answer))
            fail_msg("%s: says %s, not %s", attempts[i].body, error.text, attempts[i].answer);
        if (!strstr(error.text, "policies/probe.lua:3"))
            fail_msg("%s: does not name file and line: %s", attempts[i].body, error.text);
    }
    fixture_deinit(&f);
}

static void what_is_absent_is_named(void **state)
{
    (void)state;
    static const char *const absent[] = {
        "pairs",   "next",         "string",         "table",        "os",       "io",
        "ffi",     "debug",        "load",           "loadstring",   "loadfile", "dofile",
        "require", "pcall",        "xpcall",         "coroutine",    "getfenv",  "setfenv",
        "rawget",  "rawset",       "rawequal",       "jit",          "_G",       "package",
        "select",  "unpack",       "print",          "gcinfo",       "module",   "newproxy",
        "rawlen",  "getmetatable", "collectgarbage", "setmetatable",
    };
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        char body[100];
        char answer[100];
        snprintf(body, sizeof body, "return %s ~= nil and 0", absent[i]);
        snprintf(answer, sizeof answer, "no global named %s", absent[i]);
        refused(&(struct attempt){body, answer}, 1);
    }
}

static void escapes_are_refused(void **state)
{
    (void)state;
    static const struct attempt attempts[] = {
        {"return ('x'):rep(100000000)", "attempt to index a string value"},
        {"local s = 'x' return s.format", "attempt to index local 's'"},
        {"return math.randomseed(1)", "attempt to call field 'randomseed'"},
        {"return math.sin(1)", "attempt to call field 'sin'"},
        {"counter = 1", "global counter is assigned"},
        {"view.count = 9", "attempt to write to constant location"},
        {"view[0] = nil", "attempt to"},
        {"if view.count > 0 then view[0].in_flight = 0 end", "attempt to write to constant"},
        {"request.serial = 1", "attempt to write to constant location"},
        {"request.block = 1", "attempt to"},
        {"kvr.ring_order(1).count = 3", "attempt to write to constant location"},
        {"kvr.ring_order(1)[0] = 3", "attempt to"},
        {"return view.rows[0]", "size of C type is unknown"},
        {"return request.chain[0]", "size of C type is unknown"},
        {"return view.rows + 1", "attempt to perform arithmetic"},
        {"local row = view[view.count]", "out of range"},
        {"local row = view[-1]", "view[-1] is out of range"},
        {"local row = view[0/0]", "out of range"},
        {"local row = view.first", "view has no field first"},
        {"return request.sesion", "request has no field sesion"},
        {"if view.count > 0 then return view[0].inflight end",
         "a row of view has no field inflight"},
        {"request:block(request.chain_len)", "out of range"},
        {"request:block(-1)", "request:block(-1) is out of range"},
        {"return #kvr.hrw_order(1) + kvr.hrw_order(1)[view.count]", "out of range"},
        {"for k in ipairs(view) do end", "ipairs"},
        {"local t = {} t[view] = 1 return tostring(view) == 'cdata' and #t + view.nothing",
         "nothing"},
        {"error({})", "error object is a table (called from policies/probe.lua:3)"},
        {"local i = math.random(0)", "math.random: empty or too wide"},
    };
    refused(attempts, sizeof attempts / sizeof attempts[0]);
}

/* What C would take as some number or other: the helper, the argument and the value are named, and
 * where the policy says it. */
static void wrong_arguments_are_refused(void **state)
{
    (void)state;
#define AT "policies/probe.lua:3: "
    static const struct attempt attempts[] = {
        {"kvr.least_except(0/0)",
         AT "kvr.least_except: index must be a whole number from 0 on, got"},
        {"kvr.least_except(1.7)", AT "kvr.least_except: index must be a whole number from 0 on, "
                                     "got 1.7"},
        {"kvr.least_except(-1)", "got -1"},
        {"kvr.least_except()", "kvr.least_except: index must be a whole number from 0 on, got nil"},
        {"kvr.least_except('load')", "got load"},
        {"kvr.least_matching(0.5)", AT "kvr.least_matching: blocks must be a whole number from 0"},
        {"kvr.nth_available(0/0)", AT "kvr.nth_available: n must be a whole number from 0 on, got"},
        {"kvr.nth_available(2.5)", "got 2.5"},
        {"kvr.nth_available(1/0)", AT "kvr.nth_available: n must be a whole number from 0 on"},
        {"kvr.nth_available(view)", "got cdata"},
        {"kvr.ring_order(0/0)", AT "kvr.ring_order: key must be a whole number, got"},
        {"kvr.ring_order(nil)", AT "kvr.ring_order: key must be a whole number, got nil"},
        {"kvr.ring_order(2^32)", "kvr.ring_order: key must be a whole number, got 4294967296"},
        {"kvr.ring_order(1, 0.5)", AT "kvr.ring_order: salt must be a whole number, got 0.5"},
        {"kvr.ring_order(1, 0, -1)", AT "kvr.ring_order: limit must be a whole number from 0 on"},
        {"kvr.hrw_order({})", AT "kvr.hrw_order: key must be a whole number, got table"},
        {"kvr.hrw_order(1, 1, 1.5)", AT "kvr.hrw_order: limit must be a whole number from 0 on"},
        {"kvr.share()", AT "kvr.share: key must be a whole number, got nil"},
        {"kvr.opening_share(6)",
         AT "kvr.opening_share: blocks must be 1, 2, 4, 8, 16 or a multiple of 32 up to 512, "
            "got 6"},
        {"kvr.opening_share(0)", "got 0"},
        {"kvr.opening_share(48)", "got 48"},
        {"kvr.opening_share(544)", "got 544"},
        {"kvr.opening_share()",
         AT "kvr.opening_share: blocks must be a whole number from 0 on, got"},
        {"kvr.rare_opening('x')", AT "kvr.rare_opening: a number is expected, got x"},
        {"kvr.rare_opening(1, 1.5)",
         AT "kvr.rare_opening: least must be a whole number from 0 on, got 1.5"},
        {"kvr.least_by('load')", AT "kvr.least_by: a function is expected, got load"},
        {"kvr.first_available()", AT "kvr.first_available: an order is expected, got nil"},
        {"kvr.first_available(kvr.ring_order(1), -1)",
         AT "kvr.first_available: index must be a whole number from 0 on, got -1"},
        {"math.exp('x')", AT "math.exp: a number is expected, got x"},
        {"math.pow(2)", AT "math.pow: a number is expected, got nil"},
        {"math.random('x')", AT "math.random: a number is expected, got x"},
    };
#undef AT
    refused(attempts, sizeof attempts / sizeof attempts[0]);
}

static void bytecode_is_refused(void **state)
{
    (void)state;
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    assert_int_equal(luaL_dostring(L, "return string.dump(loadstring('return {}'))"), 0);
    size_t len;
    const char *bytes = lua_tolstring(L, -1, &len);
    struct fixture f;
    struct kvr_error error = {0};
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    int rc = kvr_slot_load(f.slot, kvr_slice_of("probe"), kvr_slice_of(""),
                           kvr_slice_make(bytes, len), NULL, 0, &error);
    assert_int_equal(rc, KVR_E_SCRIPT);
    assert_non_null(strstr(error.text, "attempt to load chunk with wrong mode"));
    fixture_deinit(&f);
    lua_close(L);
}

static void what_is_present_works(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_decision decision;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, POLICY("assert(math.floor(2.7) == 2 and math.sqrt(9) == 3)\n"
                            "assert(bit.band(6, 3) == 2 and tonumber('12') == 12)\n"
                            "assert(math.abs(math.log(math.exp(2)) - 2) < 1e-12)\n"
                            "assert(math.pow(2, 10) > 1023 and math.random() < 1)\n"
                            "local n = 0\n"
                            "for _, v in ipairs({ 1, 2, 3 }) do n = n + v end\n"
                            "assert(n == 6 and type(view) == 'cdata' and tostring(1.5) == '1.5')\n"
                            "assert(tostring({}) == 'table')\n"
                            "local d = math.random(6)\n"
                            "assert(d >= 1 and d <= 6 and d % 1 == 0)\n"
                            "assert(math.random(0, 0) == 0)\n"
                            "assert(kvr.share(1) ~= kvr.share(1))\n"
                            "assert(kvr.ring_order(bit.bnot(0)).count == view.count)\n"
                            "assert(kvr.nth_available(2^40) or view.available == 0)\n"
                            "return kvr.least(), 'all_there'"));
    assert_int_equal(kvr_slot_pick(f.slot, &decision), 0);
    assert_int_equal(decision.verdict, KVR_VERDICT_PICK);
    fixture_deinit(&f);
}

static void random_numbers_follow_the_seed(void **state)
{
    (void)state;
    uint32_t picks[2][64];
    for (int round = 0; round < 2; round++) {
        struct fixture f;
        struct kvr_decision decision;
        fixture_init(&f, KVR_SCRIPT_POLICY, 64);
        fixture_load(&f, POLICY("local i = math.random(0, view.count) - 1\n"
                                "if i >= 0 and view[i].available then return i end"));
        for (int i = 0; i < 64; i++) {
            assert_int_equal(kvr_slot_pick(f.slot, &decision), 0);
            picks[round][i] = decision.verdict == KVR_VERDICT_PICK ? decision.index : 99;
        }
        fixture_deinit(&f);
    }
    assert_memory_equal(picks[0], picks[1], sizeof picks[0]);
    assert_int_not_equal(picks[0][0] * 64 + picks[0][1], picks[0][2] * 64 + picks[0][3]);
}

/* ---- helpers --------------------------------------------------------------------------------- */

static uint32_t pick(struct fixture *f)
{
    struct kvr_decision decision;
    if (kvr_slot_pick(f->slot, &decision))
        fail_msg("%s", kvr_slot_last_error(f->slot));
    return decision.verdict == KVR_VERDICT_PICK ? decision.index : UINT32_MAX;
}

/* Loads 2 0 1 0 1 1, matches 0 3 3 3 1 0, row 3 away. */
static void set_scene(struct fixture *f)
{
    static const double loads[] = {2, 0, 1, 0, 1, 1};
    static const uint32_t matches[] = {0, 3, 3, 3, 1, 0};
    fixture_rows(f, 6);
    for (uint32_t i = 0; i < 6; i++) {
        f->picture.rows[i].load = f->picture.rows[i].in_flight = loads[i];
        f->picture.rows[i].match_blocks = matches[i];
    }
    f->picture.rows[3].available = false;
    kvr_picture_summarise(&f->picture, 6);
}

static void helpers_find_the_least_and_rotate_ties(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint32_t picks[4]; /* at serial 0, 1, 2, 3 */
    } cases[] = {
        {"return kvr.least()", {1, 1, 1, 1}},
        {"return kvr.least('in_flight')", {1, 1, 1, 1}},
        {"return view.count == 6 and kvr.least_except(1) or nil", {2, 4, 5, 2}},
        {"return kvr.least_matching(2)", {1, 1, 1, 1}},
        {"return kvr.least('weight')", {0, 1, 2, 4}},
        {"return kvr.least_by(function(row) return -row.load end)", {0, 0, 0, 0}},
        {"return kvr.least_by(function(row) return row.load == 1 and 5 or nil end)", {2, 4, 5, 2}},
        {"return kvr.nth_available(request.serial)", {0, 1, 2, 4}},
        {"return kvr.least_matching(9)", {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct fixture f;
        fixture_init(&f, KVR_SCRIPT_POLICY, 6);
        fixture_load(&f, POLICY("return nil"));
        char text[500];
        snprintf(text, sizeof text, POLICY("%s"), cases[c].body);
        /* Warm and hot answers must be the same: the compiler takes over in between. */
        fixture_load(&f, text);
        set_scene(&f);
        for (uint32_t round = 0; round < 300; round++) {
            f.picture.request.serial = round % 4;
            if (pick(&f) != cases[c].picks[round % 4])
                fail_msg("%s: serial %u: %u", cases[c].body, round % 4, pick(&f));
        }
        fixture_deinit(&f);
    }
}

static void orders_name_every_row_once(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, KVR_SCRIPT_POLICY, 6);
    fixture_load(
        &f, POLICY("local seen = 0\n"
                   "local order = request.serial % 2 == 0 and kvr.ring_order(5, 1)\n"
                   "  or kvr.hrw_order(5, 1)\n"
                   "for i = 0, #order - 1 do seen = bit.bor(seen, bit.lshift(1, order[i])) end\n"
                   "assert(order.count ~= 6 or seen == 63)\n"
                   "assert(#kvr.hrw_order(5, 0, 2) <= 2)\n"
                   "return (kvr.first_available(kvr.hrw_order(9)))"));
    set_scene(&f);
    for (uint32_t serial = 0; serial < 100; serial++) {
        f.picture.request.serial = serial;
        assert_true(pick(&f) < 6);
    }
    uint32_t chosen = pick(&f);
    f.picture.rows[chosen].available = false;
    kvr_picture_summarise(&f.picture, 6);
    assert_int_not_equal(pick(&f), chosen);
    fixture_deinit(&f);
}

static void block_keys_are_read_through_the_request(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_block_key chain[3] = {{4000000000u, 1}, {5, 2}, {2, 3}};
    fixture_init(&f, KVR_SCRIPT_POLICY, 6);
    fixture_load(&f, POLICY("if request.chain_len ~= 3 then return nil end\n"
                            "local key, high = request:block(0)\n"
                            "assert(key == 4000000000 and high == 1)\n"
                            "return (request:block(2))"));
    f.picture.request.chain = chain;
    f.picture.request.chain_len = 3;
    for (int i = 0; i < 200; i++)
        assert_int_equal(pick(&f), 2);
    fixture_deinit(&f);
}

/* ---- start ----------------------------------------------------------------------------------- */

static void a_drifted_abi_is_refused(void **state)
{
    (void)state;
    struct kvr_picture picture;
    struct kvr_error error = {0};
    kvr_picture_init(&picture, 4);
    struct kvr_vm_options options = {.picture = &picture};
    struct kvr_vm *vm = kvr_vm_create(&options, &error);
    assert_non_null(vm);
    kvr_vm_destroy(vm);

    options.abi = "struct kvr_block_key { KVR_RO uint32_t key; };\n"
                  "struct kvr_request_view { KVR_RO double now_ms; };\n"
                  "struct kvr_replica_view { KVR_RO double weight; };\n"
                  "struct kvr_view { KVR_PTR(int) KVR_RO rows; KVR_RO uint32_t count; };\n"
                  "struct kvr_order { KVR_PTR(int) KVR_RO rows; KVR_RO uint32_t count; };\n"
                  "struct kvr_observation { KVR_RO double now_ms; };\n";
    assert_null(kvr_vm_create(&options, &error));
    assert_int_equal(error.code, KVR_E_STATE);
    assert_non_null(strstr(error.text, "ABI drift: struct kvr_"));
    options.abi = "struct {";
    assert_null(kvr_vm_create(&options, &error));
    kvr_picture_deinit(&picture);
}

static void memory_is_capped_and_given_back(void **state)
{
    (void)state;
    struct kvr_picture picture;
    struct kvr_error error = {0};
    kvr_picture_init(&picture, 4);
    struct kvr_vm_options options = {.picture = &picture, .memory_bytes = 20000};
    assert_null(kvr_vm_create(&options, &error));
    assert_non_null(strstr(error.text, "a VM alone takes"));
    options.memory_bytes = 1u << 20;
    struct kvr_vm *vm = kvr_vm_create(&options, &error);
    assert_non_null(vm);
    assert_true(vm->heap.bytes > 30000 && vm->heap.bytes < 200000);
    kvr_vm_destroy(vm);
    kvr_picture_deinit(&picture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_absent_is_named),
        cmocka_unit_test(escapes_are_refused),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(bytecode_is_refused),
        cmocka_unit_test(what_is_present_works),
        cmocka_unit_test(random_numbers_follow_the_seed),
        cmocka_unit_test(helpers_find_the_least_and_rotate_ties),
        cmocka_unit_test(orders_name_every_row_once),
        cmocka_unit_test(block_keys_are_read_through_the_request),
        cmocka_unit_test(a_drifted_abi_is_refused),
        cmocka_unit_test(memory_is_capped_and_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
