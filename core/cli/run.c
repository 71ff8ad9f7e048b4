/* kvroute run: the laboratory. A Lua state with all its libraries runs scripts/kvroute/main.lua,
 * which drives the simulator in this binary through FFI. What the command line says goes there as a
 * table, see kvr.Options in main.lua.
 *
 * Cells are run by further processes of this program, `kvroute run --worker`, so a script that
 * takes its process down fails its cell alone. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <lua.h>

#include "abi.h"
#include "command.h"
#include "home.h"
#include "kvr_build_id.h"
#include "options.h"
#include "run_lua.h"

static struct {
    struct kvr_option_list set;
    const char *policy, *against, *fleet;
    uint64_t jobs;
    uint64_t seed;  /* 0: as the experiment says */
    uint64_t seeds; /* 0: as the experiment says */
    const char *out, *results, *shard, *contamination, *engines;
    bool rows, fresh, list, watch, worker;
} s;

static const struct kvr_option options[] = {
    KVR_OPTION_LIST("set", "NAME=VALUE", &s.set,
                    "a setting of the experiment, may be repeated; --list shows them"),
    KVR_OPTION_TEXT("policy", "NAME|FILE", &s.policy, "the same as --set policy=NAME"),
    KVR_OPTION_TEXT("against", "NAME|FILE", &s.against, "the same as --set against=NAME"),
    KVR_OPTION_TEXT("fleet", "NAME", &s.fleet, "the same as --set fleet=NAME"),
    {"jobs", 'j', "N", "cells run at the same time (as many as there are cores)",
     KVR_OPTION_IS_COUNT, &s.jobs, 1, 4096, NULL},
    KVR_OPTION_COUNT("seed", "N", &s.seed, 1, 1e9,
                     "of the first repetition (the experiment's, or 1)"),
    KVR_OPTION_COUNT("seeds", "N", &s.seeds, 1, 1e5, "repetitions (the experiment's)"),
    KVR_OPTION_TEXT("out", "DIR", &s.out,
                    "keep finished cells there (.cells beside the experiment)"),
    KVR_OPTION_TEXT("results", "DIR", &s.results, "write NAME.txt, .csv and .json there"),
    KVR_OPTION_TEXT("shard", "I/N", &s.shard,
                    "run the I-th of N parts; a run without this collects"),
    KVR_OPTION_TEXT("contamination", "COMMAND", &s.contamination,
                    "live: prints a line for each thing beside us on the\nmachine (nvidia-smi)"),
    KVR_OPTION_TEXT("engines", "PID,...", &s.engines,
                    "live: the engines' processes: ours, and their children"),
    KVR_OPTION_FLAG("rows", &s.rows, "keep a JSON row a request, beside each cell"),
    KVR_OPTION_FLAG("fresh", &s.fresh, "run cells again that have been run"),
    KVR_OPTION_FLAG("list", &s.list, "show settings and cells, and run nothing"),
    KVR_OPTION_FLAG("watch", &s.watch, "run again when the experiment or a script of it is saved"),
    KVR_OPTION_FLAG("worker", &s.worker, "run the cells that come on stdin: for itself"),
    {0},
};

static void set_text(lua_State *L, const char *name, const char *value)
{
    if (!value)
        return;
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

static void set_number(lua_State *L, const char *name, uint64_t value)
{
    if (!value)
        return;
    lua_pushnumber(L, (lua_Number)value);
    lua_setfield(L, -2, name);
}

static void set_flag(lua_State *L, const char *name, bool value)
{
    lua_pushboolean(L, value);
    lua_setfield(L, -2, name);
}

static void push_settings(lua_State *L)
{
    const char *const named[][2] = {
        {"policy", s.policy}, {"against", s.against}, {"fleet", s.fleet}};
    int at = 0;
    lua_newtable(L);
    for (uint32_t i = 0; i < s.set.len; i++) {
        lua_pushstring(L, s.set.items[i]);
        lua_rawseti(L, -2, ++at);
    }
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        if (!named[i][1])
            continue;
        lua_pushfstring(L, "%s=%s", named[i][0], named[i][1]);
        lua_rawseti(L, -2, ++at);
    }
}

static void push_options(lua_State *L, const char *file, const struct kvr_home *home)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    lua_newtable(L);
    set_text(L, "file", file);
    set_text(L, "binary", home->binary);
    set_text(L, "policies", home->policies);
    set_text(L, "out", s.out);
    set_text(L, "results", s.results);
    set_text(L, "shard", s.shard);
    set_text(L, "contamination", s.contamination);
    set_text(L, "engines", s.engines);
    set_number(L, "jobs", s.jobs ? s.jobs : cores > 0 ? (uint64_t)cores : 1);
    set_number(L, "seed", s.seed);
    set_number(L, "seeds", s.seeds);
    set_flag(L, "rows", s.rows);
    set_flag(L, "fresh", s.fresh);
    set_flag(L, "list", s.list);
    set_flag(L, "watch", s.watch);
    push_settings(L);
    lua_setfield(L, -2, "set");
    lua_newtable(L);
    set_text(L, "simulated", KVR_BUILD_SIMULATED);
    set_text(L, "live", KVR_BUILD_LIVE);
    set_number(L, "abi", KVR_ABI_VERSION);
    lua_setfield(L, -2, "build");
}

/* Calls `run` or `work` of kvroute.main; its result is the exit status. */
static int enter(lua_State *L)
{
    const void *const *arguments = lua_touserdata(L, 1);
    const char *file = arguments[0];
    const struct kvr_home *home = arguments[1];
    lua_getglobal(L, "require");
    lua_pushliteral(L, "kvroute.main");
    lua_call(L, 1, 1); /* main */
    lua_getfield(L, -1, s.worker ? "work" : "run");
    push_options(L, file, home);
    lua_call(L, 1, 1); /* main status */
    return 1;
}

static int run(int argc, char **argv)
{
    const struct kvr_usage usage = {
        "run", "FILE [OPTION...]",
        "Runs an experiment: a Lua file that says which fleets, workloads and policies to try. "
        "Its\ncells run in parallel and are kept; a run that was stopped goes on where it was.",
        options};
    struct kvr_operands operands;
    int status = kvr_options_parse(&usage, argc, argv, &operands);
    if (status != KVR_OPTIONS_GO_ON)
        return status;
    if (operands.len != (s.worker ? 0 : 1))
        return kvr_usage_error(&usage, s.worker ? "--worker takes no file"
                                                : "one experiment, such as experiments/hello.lua");
    struct kvr_home *home = &(struct kvr_home){0};
    struct kvr_error error = {0};
    if (kvr_home_find(home, &error)) {
        fprintf(stderr, "kvroute run: %s\n", error.text);
        return KVR_EXIT_FAILED;
    }
    const void *arguments[] = {operands.items[0], home};
    return kvr_run_lua("run", home, enter, arguments);
}

const struct kvr_command kvr_command_run = {"run", "an experiment, in the simulator or live", run};
