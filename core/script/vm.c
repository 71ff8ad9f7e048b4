#include "vm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>

#include "guard.h"
#include "helpers.h"
#include "kvr_abi_h.h"
#include "kvr_contract_lua.h"
#include "kvr_sandbox_lua.h"
#include "memory.h"

/* ---- instructions ---------------------------------------------------------------------------- */

#define COUNT_STEP 1000

static void on_count(lua_State *L, lua_Debug *frame)
{
    void *heap;
    lua_getallocf(L, &heap);
    struct kvr_vm *vm = (struct kvr_vm *)((char *)heap - offsetof(struct kvr_vm, heap));
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

void kvr_vm_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
}

static int failed(struct kvr_vm *vm, int status)
{
    lua_State *L = vm->L;
    const char *message = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "error in error";
    if (status == LUA_ERRMEM || vm->heap.hit)
        message = "not enough memory: the script's heap hit its cap";
    snprintf(vm->error, sizeof vm->error, "%s", message);
    kvr_vm_one_line(vm->error);
    lua_pop(L, 1); /* ... message -> ... */
    return status == LUA_ERRMEM || vm->heap.hit ? KVR_E_LIMIT : KVR_E_SCRIPT;
}

static int left_behind(struct kvr_vm *vm)
{
    vm->left = true;
    kvr_guard_bury(vm);
    snprintf(vm->error, sizeof vm->error,
             "did not return within %u ms of CPU time and was left behind", kvr_guard_budget_ms());
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
    vm->heap.hit = false;
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
    vm->heap.hit = false;
    if (!kvr_guard_run(run_protect, &protect, &status))
        return left_behind(vm);
    return status == 0 ? 0 : failed(vm, status);
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

static void open_library(lua_State *L, const char *name, lua_CFunction open)
{
    lua_pushcfunction(L, open);
    lua_pushstring(L, name);
    lua_call(L, 1, 1); /* library; ffi is the one that does not name itself */
    lua_setfield(L, LUA_GLOBALSINDEX, *name ? name : "_G");
}

static _Noreturn int on_panic(lua_State *L)
{
    fprintf(stderr, "kvroute: Lua error outside a protected call: %s\n", lua_tostring(L, -1));
    abort();
}

static void load(lua_State *L, const char *text, size_t len, const char *name)
{
    if (luaL_loadbuffer(L, text, len, name))
        lua_error(L);
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
    load(L, kvr_contract_lua, sizeof kvr_contract_lua - 1, "=contract");
    load(L, kvr_sandbox_lua, sizeof kvr_sandbox_lua - 1, "=sandbox");
    push_cdef(L, start->options->abi ? start->options->abi : kvr_abi_h);
    push_sizes(L);
    kvr_helpers_push(L, start->vm); /* argument contract sandbox cdef sizes pointers */
    lua_call(L, 3, 4);              /* argument contract env request view observation */
    lua_call(L, 4, 1);              /* argument adopt */
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
    kvr_rng_init(&vm->rng, options->seed);
    vm->L = luaL_newstate();
    if (!vm->L) {
        kvr_error_set(error, KVR_E_LIMIT, "no memory for a Lua state");
        kvr_free(vm);
        return NULL;
    }
    lua_atpanic(vm->L, on_panic);
    kvr_heap_attach(&vm->heap, vm->L, SIZE_MAX);

    struct start start = {vm, options};
    if (kvr_vm_protect(vm, on_start, &start)) {
        kvr_error_set(error, KVR_E_STATE, "%s", vm->error);
        kvr_vm_destroy(vm);
        return NULL;
    }
    vm->heap.bytes_max = options->memory_bytes ? options->memory_bytes : KVR_VM_MEMORY_DEFAULT;
    if (vm->heap.bytes > vm->heap.bytes_max) {
        kvr_error_set(error, KVR_E_LIMIT, "a VM alone takes %zu bytes of the %zu allowed",
                      vm->heap.bytes, vm->heap.bytes_max);
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
    kvr_heap_close(&vm->heap, vm->L);
    kvr_free(vm);
}
