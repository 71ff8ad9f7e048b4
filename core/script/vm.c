#include "vm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>

#include "guard.h"
#include "kvr_abi_h.h"
#include "kvr_sandbox_lua.h"
#include "memory.h"
#include "real.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* Wraps LuaJIT's allocator, which wants to be the one it started with when the state is closed. */
static void *allocate_capped(void *state, void *block, size_t old_size, size_t new_size)
{
    struct kvr_vm *vm = state;
    if (new_size > old_size && vm->bytes + (new_size - old_size) > vm->bytes_max) {
        vm->memory_hit = true;
        return NULL;
    }
    void *result = vm->allocate(vm->allocate_state, block, old_size, new_size);
    if (result || new_size == 0)
        vm->bytes += new_size - old_size;
    return result;
}

static _Noreturn int on_panic(lua_State *L)
{
    fprintf(stderr, "kvroute: Lua error outside a protected call: %s\n", lua_tostring(L, -1));
    abort();
}

/* ---- instructions ---------------------------------------------------------------------------- */

#define COUNT_STEP 1000

static void on_count(lua_State *L, lua_Debug *frame)
{
    void *state;
    lua_getallocf(L, &state);
    struct kvr_vm *vm = state;
    vm->instructions -= COUNT_STEP;
    if (vm->instructions > 0)
        return;
    lua_getinfo(L, "Sl", frame);
    lua_pushfstring(L, "%s:%d: does not end: ran too many instructions", frame->short_src,
                    frame->currentline);
    lua_error(L);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Message handler: adds the script's line nearest to the failure, unless the message begins with it
 * already (an error inside a helper of the sandbox does not say who called it). */
static int on_error(lua_State *L)
{
    const char *message = lua_tostring(L, 1); /* message */
    if (!message)
        message =
            lua_pushfstring(L, "error object is a %s", luaL_typename(L, 1)); /* message text */
    lua_Debug frame;
    for (int level = 0; level < 200 && lua_getstack(L, level, &frame); level++) {
        lua_getinfo(L, "Sl", &frame);
        if (frame.currentline <= 0 || frame.source[0] != '@')
            continue;
        const char *where = lua_pushfstring(L, "%s:%d:", frame.short_src, frame.currentline);
        if (strncmp(message, where, strlen(where)) == 0)
            break;
        lua_pushfstring(L, "%s (called from %s:%d)", message, frame.short_src, frame.currentline);
        return 1;
    }
    lua_pushstring(L, message);
    return 1;
}

static int failed(struct kvr_vm *vm, int status)
{
    lua_State *L = vm->L;
    const char *message = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "error in error";
    if (status == LUA_ERRMEM || vm->memory_hit)
        message = "not enough memory: the script's heap hit its cap";
    snprintf(vm->error, sizeof vm->error, "%s", message);
    lua_pop(L, 1); /* ... message -> ... */
    return status == LUA_ERRMEM || vm->memory_hit ? KVR_E_LIMIT : KVR_E_SCRIPT;
}

static int left_behind(struct kvr_vm *vm)
{
    vm->left = true;
    kvr_guard_bury(vm);
    snprintf(vm->error, sizeof vm->error, "did not return in time and was left behind");
    return KVR_E_RUNAWAY;
}

/* ---- guarded calls --------------------------------------------------------------------------- */

struct call {
    lua_State *L;
    int args;
    int results;
};

static int run_call(void *argument)
{
    const struct call *call = argument;
    return lua_pcall(call->L, call->args, call->results, KVR_VM_HANDLER);
}

int kvr_vm_call(struct kvr_vm *vm, int args, int results)
{
    struct call call = {vm->L, args, results};
    int status;
    vm->memory_hit = false;
    if (!kvr_guard_run(run_call, &call, &status))
        return left_behind(vm);
    return status == 0 ? 0 : failed(vm, status);
}

struct protect {
    lua_State *L;
    lua_CFunction function;
    void *argument;
};

static int run_protect(void *argument)
{
    const struct protect *protect = argument;
    return lua_cpcall(protect->L, protect->function, protect->argument);
}

int kvr_vm_protect(struct kvr_vm *vm, lua_CFunction function, void *argument)
{
    struct protect protect = {vm->L, function, argument};
    int status;
    vm->memory_hit = false;
    if (!kvr_guard_run(run_protect, &protect, &status))
        return left_behind(vm);
    return status == 0 ? 0 : failed(vm, status);
}

/* ---- what the sandbox calls: leaves, see guard.h --------------------------------------------- */

#define LEAF(type, call)                                                                           \
    kvr_guard_enter_leaf();                                                                        \
    type result = call;                                                                            \
    kvr_guard_exit_leaf();                                                                         \
    return result

static uint32_t ring_order(struct kvr_picture *picture, uint32_t key, uint32_t salt, uint32_t limit)
{
    LEAF(uint32_t, kvr_picture_ring_order(picture, key, salt, limit));
}

static uint32_t hrw_order(struct kvr_picture *picture, uint32_t key, uint32_t salt, uint32_t limit)
{
    LEAF(uint32_t, kvr_picture_hrw_order(picture, key, salt, limit));
}

static int32_t least(const struct kvr_picture *picture, uint32_t offset, uint32_t blocks,
                     uint32_t except)
{
    LEAF(int32_t, kvr_picture_least(picture, offset, blocks, except));
}

static int32_t nth_available(const struct kvr_picture *picture, uint32_t n)
{
    LEAF(int32_t, kvr_picture_nth_available(picture, n));
}

static int32_t first_available(const struct kvr_picture *picture)
{
    LEAF(int32_t, kvr_picture_first_available(picture));
}

static double share(const struct kvr_picture *picture, uint32_t key)
{
    LEAF(double, kvr_picture_share(picture, key));
}

static double exponential(double x)
{
    LEAF(double, kvr_real_exp(x));
}

static double logarithm(double x)
{
    LEAF(double, kvr_real_log(x));
}

static double power(double x, double y)
{
    LEAF(double, kvr_real_pow(x, y));
}

static double random_unit(struct kvr_vm *vm)
{
    LEAF(double, kvr_rng_double(&vm->rng));
}

/* Uniform in 0..bound-1. The sandbox has checked 1 <= bound <= 2^53. */
static double random_below(struct kvr_vm *vm, double bound)
{
    LEAF(double, (double)kvr_rng_below(&vm->rng, (uint64_t)bound));
}

/* Only remembers: no I/O happens while the guard is armed. */
static void log_line(struct kvr_vm *vm, const char *text, size_t len)
{
    if (len >= sizeof vm->log_text)
        len = sizeof vm->log_text - 1;
    memcpy(vm->log_text, text, len);
    vm->log_text[len] = '\0';
    vm->log_lines++;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* abi.h as ffi.cdef wants it: no preprocessor lines, KVR_RO as const, KVR_PTR(T) opaque. */
static void push_cdef(lua_State *L, const char *text)
{
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    bool line_start = true;
    while (*text) {
        if (line_start && *text == '#') {
            text += strcspn(text, "\n");
        } else if (strncmp(text, "KVR_RO", 6) == 0) {
            luaL_addstring(&out, "const");
            text += 6;
        } else if (strncmp(text, "KVR_PTR(", 8) == 0) {
            luaL_addstring(&out, "const void *");
            text += strcspn(text, ")") + 1;
        } else {
            line_start = *text == '\n';
            luaL_addchar(&out, *text++);
        }
    }
    luaL_pushresult(&out); /* cdef text */
}

static void push_sizes(lua_State *L)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {
        {"kvr_block_key", sizeof(struct kvr_block_key)},
        {"kvr_request_view", sizeof(struct kvr_request_view)},
        {"kvr_replica_view", sizeof(struct kvr_replica_view)},
        {"kvr_view", sizeof(struct kvr_view)},
        {"kvr_order", sizeof(struct kvr_order)},
        {"kvr_observation", sizeof(struct kvr_observation)},
    };
    lua_createtable(L, 0, 8); /* sizes */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        lua_pushinteger(L, (lua_Integer)sizes[i].size);
        lua_setfield(L, -2, sizes[i].name); /* sizes */
    }
}

static void set_pointer(lua_State *L, const char *name, const void *pointer)
{
    lua_pushlightuserdata(L, (void *)(uintptr_t)pointer);
    lua_setfield(L, -2, name);
}

static void set_function(lua_State *L, const char *name, void (*function)(void))
{
    set_pointer(L, name, (const void *)(uintptr_t)function);
}

#define SET_FUNCTION(L, name, function) set_function(L, name, (void (*)(void))(function))

static void push_pointers(lua_State *L, struct kvr_vm *vm)
{
    lua_createtable(L, 0, 32); /* pointers */
    set_pointer(L, "vm", vm);
    set_pointer(L, "picture", vm->picture);
    set_pointer(L, "request", &vm->picture->request);
    set_pointer(L, "view", &vm->picture->view);
    set_pointer(L, "order", &vm->picture->order);
    set_pointer(L, "observation", &vm->picture->observation);
    SET_FUNCTION(L, "ring_order", ring_order);
    SET_FUNCTION(L, "hrw_order", hrw_order);
    SET_FUNCTION(L, "least", least);
    SET_FUNCTION(L, "nth_available", nth_available);
    SET_FUNCTION(L, "first_available", first_available);
    SET_FUNCTION(L, "share", share);
    SET_FUNCTION(L, "random_unit", random_unit);
    SET_FUNCTION(L, "random_below", random_below);
    SET_FUNCTION(L, "log_line", log_line);
    SET_FUNCTION(L, "exp", exponential);
    SET_FUNCTION(L, "log", logarithm);
    SET_FUNCTION(L, "pow", power);
}

static void open_library(lua_State *L, const char *name, lua_CFunction open)
{
    lua_pushcfunction(L, open);
    lua_pushstring(L, name);
    lua_call(L, 1, 1); /* library; ffi is the one that does not name itself */
    lua_setfield(L, LUA_GLOBALSINDEX, *name ? name : "_G");
}

struct start {
    struct kvr_vm *vm;
    const struct kvr_vm_options *options;
};

static int on_start(lua_State *L)
{
    const struct start *start = lua_touserdata(L, 1);
    open_library(L, "", luaopen_base);
    open_library(L, LUA_MATHLIBNAME, luaopen_math);
    open_library(L, LUA_STRLIBNAME, luaopen_string);
    open_library(L, LUA_TABLIBNAME, luaopen_table);
    open_library(L, LUA_BITLIBNAME, luaopen_bit);
    open_library(L, LUA_FFILIBNAME, luaopen_ffi);
    if (!start->options->counted) /* what turns the compiler on */
        open_library(L, LUA_JITLIBNAME, luaopen_jit);
    if (luaL_loadbuffer(L, kvr_sandbox_lua, sizeof kvr_sandbox_lua - 1, "=sandbox"))
        lua_error(L);
    push_cdef(L, start->options->abi ? start->options->abi : kvr_abi_h);
    push_sizes(L);
    push_pointers(L, start->vm); /* argument, sandbox, cdef, sizes, pointers */
    lua_call(L, 3, 1);           /* argument, adopt */
    lua_rawseti(L, LUA_REGISTRYINDEX, KVR_VM_ADOPT);
    lua_pushcfunction(L, on_error);
    lua_rawseti(L, LUA_REGISTRYINDEX, KVR_VM_HANDLER);
    return 0;
}

struct kvr_vm *kvr_vm_create(const struct kvr_vm_options *options, struct kvr_error *error)
{
    if (kvr_guard_exhausted()) {
        kvr_error_set(error, KVR_E_STATE, "%d scripts were left behind: Lua is off until a restart",
                      KVR_ABANDONED_MAX);
        return NULL;
    }
    struct kvr_vm *vm = kvr_alloc_zero(1, sizeof *vm);
    vm->picture = options->picture;
    vm->bytes_max = SIZE_MAX; /* a state that ran out of memory half made cannot be closed */
    kvr_rng_init(&vm->rng, options->seed);
    vm->L = luaL_newstate();
    if (!vm->L) {
        kvr_error_set(error, KVR_E_LIMIT, "no memory for a Lua state");
        kvr_free(vm);
        return NULL;
    }
    lua_atpanic(vm->L, on_panic);
    vm->allocate = lua_getallocf(vm->L, &vm->allocate_state);
    lua_setallocf(vm->L, allocate_capped, vm);

    struct start start = {vm, options};
    if (kvr_vm_protect(vm, on_start, &start)) {
        kvr_error_set(error, KVR_E_STATE, "%s", vm->error);
        kvr_vm_destroy(vm);
        return NULL;
    }
    vm->bytes_max = options->memory_bytes ? options->memory_bytes : KVR_VM_MEMORY_DEFAULT;
    if (vm->bytes > vm->bytes_max) {
        kvr_error_set(error, KVR_E_LIMIT, "a VM alone takes %zu bytes of the %zu allowed",
                      vm->bytes, vm->bytes_max);
        kvr_vm_destroy(vm);
        return NULL;
    }
    lua_rawgeti(vm->L, LUA_REGISTRYINDEX, KVR_VM_HANDLER); /* handler */
    lua_rawgeti(vm->L, LUA_REGISTRYINDEX, KVR_VM_ADOPT);   /* handler, adopt */
    KVR_CHECK(lua_gettop(vm->L) == KVR_VM_BASE);
    vm->instructions = options->instructions;
    if (options->counted)
        lua_sethook(vm->L, on_count, LUA_MASKCOUNT, COUNT_STEP);
    return vm;
}

void kvr_vm_destroy(struct kvr_vm *vm)
{
    if (!vm || vm->left)
        return;
    lua_setallocf(vm->L, vm->allocate, vm->allocate_state); /* it frees its arena when closed */
    lua_close(vm->L);
    kvr_free(vm);
}
