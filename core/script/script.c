#include "script.h"

#include <stdio.h>
#include <string.h>

#include <lauxlib.h>
#include <xxhash.h>

#include "memory.h"
#include "plain.h"
#include "reason.h"

/* The Lua stack of a VM with a script, for ever; registry keys of the same numbers carry the values
 * out of the protected call that makes them. */
enum {
    AT_CALL = KVR_VM_BASE + 1,
    AT_OBSERVE,
    AT_EXPORT,
    AT_IMPORT,
    AT_ANCHORS, /* list of the reason strings whose addresses are remembered */
    TOP = AT_ANCHORS,
};

/* Results that stand for no index, as in sandbox.lua. */
#define RESULT_HOLD   (-1001.0)
#define RESULT_REJECT (-1002.0)

/* ---- loading --------------------------------------------------------------------------------- */

struct load {
    struct kvr_script *script;
    const struct kvr_script_source *source;
};

/* What messages call the script: the end of its path, whole, within the 60 bytes that LuaJIT shows
 * of a chunk's name. */
static void set_shown(struct kvr_script *script, const struct kvr_script_source *source)
{
    struct kvr_slice path = source->path;
    size_t start = path.len;
    for (int slashes = 0; start > 0; start--)
        if (path.data[start - 1] == '/' && (++slashes == 2 || path.len - start > 40))
            break;
    struct kvr_slice name = source->name.len ? source->name : kvr_slice_of("script");
    if (path.len)
        name = kvr_slice_make(path.data + start, path.len - start);
    int len = name.len < 56 ? (int)name.len : 56;
    snprintf(script->shown, sizeof script->shown, "%.*s", len, name.data);
}

/* A message that does not name the script, because the helper that raised it was called last, gets
 * its name in front; one of a call that was left behind, whose line nobody knows, `what` it was. */
static int failed(struct kvr_script *script, int rc, const char *what)
{
    struct kvr_vm *vm = script->vm;
    if (strncmp(vm->error, script->shown, strlen(script->shown)) == 0)
        return rc;
    char text[KVR_VM_ERROR_MAX];
    memcpy(text, vm->error, sizeof text);
    bool left = rc == KVR_E_RUNAWAY;
    int at = snprintf(vm->error, sizeof vm->error, "%s: %s%s", script->shown, left ? what : "",
                      left ? " " : "");
    snprintf(vm->error + at, sizeof vm->error - (size_t)at, "%s", text);
    return rc;
}

static void copy_result(lua_State *L, int at, char *out, size_t size, const char *what)
{
    size_t len;
    const char *text = lua_tolstring(L, at, &len);
    if (len >= size)
        luaL_error(L, "%s: longer than %d bytes", what, (int)size - 1);
    memcpy(out, text, len + 1);
}

static int on_load(lua_State *L)
{
    const struct load *load = lua_touserdata(L, 1); /* load */
    const struct kvr_script_source *source = load->source;
    struct kvr_script_info *info = &load->script->info;
    lua_rawgeti(L, LUA_REGISTRYINDEX, KVR_VM_HANDLER);
    lua_rawgeti(L, LUA_REGISTRYINDEX, KVR_VM_ADOPT);
    const char *chunk =
        lua_pushfstring(L, "@%s", load->script->shown); /* load handler adopt chunk */
    if (luaL_loadbufferx(L, source->text.data, source->text.len, chunk, "t"))
        lua_error(L);
    lua_remove(L, -2); /* load handler adopt chunk */
    lua_pushstring(L, source->kind == KVR_SCRIPT_POLICY ? "pick" : "spill");
    lua_createtable(L, 0, (int)source->params_count);
    for (uint32_t i = 0; i < source->params_count; i++) {
        lua_pushlstring(L, source->params[i].key.data, source->params[i].key.len);
        lua_pushlstring(L, source->params[i].value.data, source->params[i].value.len);
        lua_rawset(L, -3);
    } /* load handler adopt chunk main overrides */
    lua_pushlstring(L, source->path.len ? source->name.data : "",
                    source->path.len ? source->name.len : 0);
    /* load handler adopt chunk main overrides file */
    if (lua_pcall(L, 4, 8, 2))
        lua_error(L);
    /* 3 call, 4 observe, 5 export, 6 import, 7 name, 8 needs, 9 params, 10 spill */
    if (source->name.len == 0)
        copy_result(L, 7, info->name, sizeof info->name, "name");
    info->needs = (uint32_t)lua_tointeger(L, 8);
    copy_result(L, 9, info->params, sizeof info->params, "params");
    copy_result(L, 10, info->default_spill, sizeof info->default_spill, "params.spill");
    info->observes = !lua_isnil(L, 4);
    load->script->exports = !lua_isnil(L, 5);
    load->script->imports = !lua_isnil(L, 6);
    for (int at = AT_CALL; at <= AT_IMPORT; at++) {
        lua_pushvalue(L, 3 + at - AT_CALL);
        lua_rawseti(L, LUA_REGISTRYINDEX, at);
    }
    lua_createtable(L, KVR_SCRIPT_REASONS, 0);
    lua_rawseti(L, LUA_REGISTRYINDEX, AT_ANCHORS);
    return 0;
}

static int copy_slice(struct kvr_slice from, char *out, size_t size, const char *what,
                      struct kvr_error *error)
{
    if (from.len >= size)
        return kvr_error_set(error, KVR_E_LIMIT, "%s: longer than %zu bytes", what, size - 1);
    if (from.len)
        memcpy(out, from.data, from.len);
    out[from.len] = '\0';
    return 0;
}

struct kvr_script *kvr_script_create(const struct kvr_script_source *source,
                                     const struct kvr_vm_options *options, struct kvr_error *error)
{
    struct kvr_script *script = kvr_alloc_zero(1, sizeof *script);
    struct kvr_script_info *info = &script->info;
    script->kind = source->kind;
    if (copy_slice(source->name, info->name, sizeof info->name, "name", error) ||
        copy_slice(source->path, info->path, sizeof info->path, "path", error))
        goto fail_after_alloc;
    set_shown(script, source);
    script->vm = kvr_vm_create(options, error);
    if (!script->vm)
        goto fail_after_alloc;
    struct load load = {script, source};
    int rc = kvr_vm_protect(script->vm, on_load, &load);
    if (rc) {
        kvr_error_set(error, failed(script, rc, "loading it"), "%s", script->vm->error);
        goto fail_after_vm;
    }
    for (int at = AT_CALL; at <= AT_ANCHORS; at++)
        lua_rawgeti(script->vm->L, LUA_REGISTRYINDEX, at);
    KVR_CHECK(lua_gettop(script->vm->L) == TOP);
    info->hash = XXH3_64bits(source->text.data, source->text.len);
    info->params_hash = XXH3_64bits(info->params, strlen(info->params));
    return script;

fail_after_vm:
    kvr_vm_destroy(script->vm);
fail_after_alloc:
    kvr_free(script);
    return NULL;
}

void kvr_script_destroy(struct kvr_script *script)
{
    if (!script)
        return;
    kvr_vm_destroy(script->vm);
    kvr_free(script);
}

/* ---- deciding -------------------------------------------------------------------------------- */

/* The reason of the string at the top of the stack. Hot: one probe by address, since the string's
 * anchor keeps its address from being anybody else's. */
static uint16_t reason_of(struct kvr_script *script, lua_State *L, int at)
{
    if (lua_isnil(L, at))
        return 0;
    size_t len;
    const char *text = lua_tolstring(L, at, &len);
    uint32_t mask = 2 * KVR_SCRIPT_REASONS - 1;
    uint32_t i = (uint32_t)((uintptr_t)text >> 4) & mask;
    for (; script->reasons[i].text; i = (i + 1) & mask)
        if (script->reasons[i].text == text)
            return script->reasons[i].reason;
    uint16_t reason = kvr_reason_intern(kvr_slice_make(text, len));
    if (script->reasons_count < KVR_SCRIPT_REASONS) {
        script->reasons[i] = (struct kvr_script_reason){text, reason};
        lua_pushvalue(L, at);
        /* Inside the list's preallocated part: this cannot throw. */
        lua_rawseti(L, AT_ANCHORS, (int)++script->reasons_count);
    }
    return reason;
}

/* `got` is a number or the name of a type. */
static int bad_result(struct kvr_script *script, const char *got, const char *wanted)
{
    struct kvr_vm *vm = script->vm;
    snprintf(vm->error, sizeof vm->error, "%s: %s returned %s, %s", script->shown,
             script->kind == KVR_SCRIPT_POLICY ? "pick" : "spill", got, wanted);
    return KVR_E_INVALID;
}

static int bad_type(struct kvr_script *script, lua_State *L, int type, const char *wanted)
{
    char got[32];
    snprintf(got, sizeof got, "a %s", lua_typename(L, type));
    return bad_result(script, got, wanted);
}

static int bad_number(struct kvr_script *script, double number, const char *wanted)
{
    char got[32];
    snprintf(got, sizeof got, "%.14g", number);
    return bad_result(script, got, wanted);
}

static int read_verdict(struct kvr_script *script, lua_State *L, int at,
                        struct kvr_decision *decision)
{
    const struct kvr_picture *picture = script->vm->picture;
    int kind = lua_type(L, at);
    if (kind == LUA_TNIL) {
        decision->verdict = KVR_VERDICT_NONE;
        return 0;
    }
    if (kind != LUA_TNUMBER)
        return bad_type(script, L, kind, "not an index");
    double index = lua_tonumber(L, at);
    if (index >= 0 && index < picture->view.count && index == (double)(uint32_t)index) {
        decision->verdict = KVR_VERDICT_PICK;
        decision->index = (uint32_t)index;
        if (!picture->rows[decision->index].available)
            return bad_number(script, index, "which is not available");
        return 0;
    }
    if (script->kind == KVR_SCRIPT_POLICY && (index == RESULT_HOLD || index == RESULT_REJECT)) {
        decision->verdict = index == RESULT_HOLD ? KVR_VERDICT_HOLD : KVR_VERDICT_REJECT;
        return 0;
    }
    if (picture->view.count == 0)
        return bad_number(script, index, "an empty fleet must give nil");
    char wanted[48];
    snprintf(wanted, sizeof wanted, "not an index below %u", picture->view.count);
    return bad_number(script, index, wanted);
}

static int read_results(struct kvr_script *script, lua_State *L, struct kvr_decision *decision)
{
    *decision = (struct kvr_decision){.verdict = KVR_VERDICT_NONE};
    int rc = read_verdict(script, L, TOP + 1, decision);
    if (rc)
        return rc;
    int reason = lua_type(L, TOP + 2);
    if (reason != LUA_TSTRING && reason != LUA_TNIL)
        return bad_type(script, L, reason, "which is no reason: it must be a string");
    int affine = lua_type(L, TOP + 3);
    if (affine != LUA_TBOOLEAN && affine != LUA_TNIL)
        return bad_type(script, L, affine, "which is not affine: it must be a boolean");
    decision->reason = reason_of(script, L, TOP + 2);
    decision->affine = decision->verdict == KVR_VERDICT_PICK && lua_toboolean(L, TOP + 3);
    return 0;
}

int kvr_script_decide(struct kvr_script *script, uint32_t preferred, struct kvr_decision *decision)
{
    struct kvr_vm *vm = script->vm;
    lua_State *L = vm->L;
    int args = 0;
    lua_pushvalue(L, AT_CALL); /* vm: call */
    if (script->kind == KVR_SCRIPT_SPILL) {
        lua_pushnumber(L, preferred); /* vm: call preferred */
        args = 1;
    }
    int rc = kvr_vm_call(vm, args, 3);
    if (rc)
        return failed(script, rc, script->kind == KVR_SCRIPT_POLICY ? "pick" : "spill");
    /* vm: index reason affine */
    rc = read_results(script, L, decision);
    lua_settop(L, TOP); /* vm: */
    return rc;
}

int kvr_script_observe(struct kvr_script *script)
{
    if (!script->info.observes)
        return 0;
    lua_pushvalue(script->vm->L, AT_OBSERVE); /* vm: observe */
    int rc = kvr_vm_call(script->vm, 0, 0);
    return rc ? failed(script, rc, "observe") : 0;
}

/* ---- handing over ---------------------------------------------------------------------------- */

static int on_export(lua_State *L)
{
    struct kvr_buffer *out = lua_touserdata(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, KVR_VM_HANDLER);
    lua_rawgeti(L, LUA_REGISTRYINDEX, AT_EXPORT); /* out handler export */
    if (lua_pcall(L, 0, 1, 2))
        lua_error(L);
    kvr_plain_write(L, lua_gettop(L), out);
    return 0;
}

int kvr_script_export(struct kvr_script *script, struct kvr_buffer *out)
{
    int rc = script->exports ? kvr_vm_protect(script->vm, on_export, out) : 0;
    return rc ? failed(script, rc, "export") : 0;
}

static int on_import(lua_State *L)
{
    const struct kvr_slice *state = lua_touserdata(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, KVR_VM_HANDLER);
    lua_rawgeti(L, LUA_REGISTRYINDEX, AT_IMPORT); /* state handler import */
    kvr_plain_push(L, *state);                    /* state handler import value */
    if (lua_pcall(L, 1, 0, 2))
        lua_error(L);
    return 0;
}

int kvr_script_import(struct kvr_script *script, struct kvr_slice state)
{
    if (!script->imports || state.len == 0)
        return 0;
    int rc = kvr_vm_protect(script->vm, on_import, &state);
    return rc ? failed(script, rc, "import") : 0;
}
