#include "run_lua.h"

#include <stdio.h>

#include <lauxlib.h>
#include <lualib.h>

#include "command.h"

struct call {
    const struct kvr_home *home;
    lua_CFunction body;
    void *argument;
};

static void set_path(lua_State *L, const struct kvr_home *home)
{
    lua_getglobal(L, "package"); /* package */
    lua_getfield(L, -1, "path"); /* package path */
    lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;%s", home->library, home->library,
                    lua_tostring(L, -1));
    lua_setfield(L, -3, "path");
    lua_pop(L, 2); /* empty */
}

/* Debian 12's LuaJIT counts wrongly in compiled loops that make a table of constants each time
 * round, as `for _, name in ipairs({"a", "b"})` within another loop does: it forwards loads from
 * that table that it must not. Without forwarding cells run no slower. */
static void set_jit(lua_State *L)
{
    if (luaL_dostring(L, "require('jit.opt').start('-fwd')"))
        lua_error(L);
}

static int enter(lua_State *L)
{
    const struct call *call = lua_touserdata(L, 1);
    luaL_openlibs(L);
    set_jit(L);
    set_path(L, call->home);
    lua_settop(L, 0);
    lua_pushcfunction(L, call->body);
    lua_pushlightuserdata(L, call->argument);
    lua_call(L, 1, 1); /* status */
    return 1;
}

int kvr_run_lua(const char *command, const struct kvr_home *home, lua_CFunction body,
                void *argument)
{
    struct call call = {home, body, argument};
    lua_State *L = luaL_newstate();
    if (!L) {
        fprintf(stderr, "kvroute %s: no memory for Lua\n", command);
        return KVR_EXIT_FAILED;
    }
    int code = KVR_EXIT_FAILED;
    lua_pushcfunction(L, enter);
    lua_pushlightuserdata(L, &call);
    if (lua_pcall(L, 1, 1, 0)) /* status or what was raised */
        fprintf(stderr, "kvroute %s: %s\n", command, lua_tostring(L, -1));
    else
        code = (int)lua_tointeger(L, -1);
    lua_close(L);
    return code;
}
