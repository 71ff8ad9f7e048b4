/* Commands that are Lua altogether, options and help too: scripts/kvroute/command/NAME.lua returns
 * a function of {words, binary, policies, build} that returns the exit status. */
#include <stdio.h>

#include <lua.h>

#include "abi.h"
#include "command.h"
#include "home.h"
#include "kvr_build_id.h"
#include "run_lua.h"

struct call {
    const char *name;
    int argc;
    char **argv;
    const struct kvr_home *home;
};

static void set_text(lua_State *L, const char *name, const char *value)
{
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

static int enter(lua_State *L)
{
    const struct call *call = lua_touserdata(L, 1);
    lua_getglobal(L, "require");
    lua_pushfstring(L, "kvroute.command.%s", call->name);
    lua_call(L, 1, 1); /* command */
    lua_newtable(L);   /* command context */
    set_text(L, "binary", call->home->binary);
    set_text(L, "policies", call->home->policies);
    lua_newtable(L); /* command context words */
    for (int i = 1; i < call->argc; i++) {
        lua_pushstring(L, call->argv[i]);
        lua_rawseti(L, -2, i);
    }
    lua_setfield(L, -2, "words");
    lua_newtable(L); /* command context build */
    set_text(L, "simulated", KVR_BUILD_SIMULATED);
    set_text(L, "live", KVR_BUILD_LIVE);
    lua_pushinteger(L, KVR_ABI_VERSION);
    lua_setfield(L, -2, "abi");
    lua_setfield(L, -2, "build");
    lua_call(L, 1, 1); /* status */
    return 1;
}

static int run(const char *name, int argc, char **argv)
{
    struct kvr_home *home = &(struct kvr_home){0};
    struct kvr_error error = {0};
    if (kvr_home_find(home, &error)) {
        fprintf(stderr, "kvroute %s: %s\n", name, error.text);
        return KVR_EXIT_FAILED;
    }
    return kvr_run_lua(name, home, enter, &(struct call){name, argc, argv, home});
}

static int run_compare(int argc, char **argv)
{
    return run("compare", argc, argv);
}

static int run_floor(int argc, char **argv)
{
    return run("floor", argc, argv);
}

static int run_rescore(int argc, char **argv)
{
    return run("rescore", argc, argv);
}

static int run_import(int argc, char **argv)
{
    return run("import", argc, argv);
}

static int run_plan(int argc, char **argv)
{
    return run("plan", argc, argv);
}

static int run_gate(int argc, char **argv)
{
    return run("gate", argc, argv);
}

const struct kvr_command kvr_command_compare = {"compare", "recorded cells, policy against policy",
                                                run_compare};
const struct kvr_command kvr_command_floor = {
    "floor", "the least latency of engines, and limits from it", run_floor};
const struct kvr_command kvr_command_rescore = {
    "rescore", "judges recorded cells anew, from their rows", run_rescore};
const struct kvr_command kvr_command_import = {"import", "recorded traces, as rows to replay",
                                               run_import};
const struct kvr_command kvr_command_plan = {"plan", "which destinations keys of known rates go to",
                                             run_plan};
const struct kvr_command kvr_command_gate = {
    "gate", "recorded traffic through two policies: enable one or keep the other", run_gate};
