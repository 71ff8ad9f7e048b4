/* kvroute import: traces of other projects as rows. The whole command is
 * scripts/kvroute/import.lua, its options and help too. */
#include <stdio.h>

#include <lua.h>

#include "command.h"
#include "home.h"
#include "run_lua.h"

struct words {
    int argc;
    char **argv;
};

static int enter(lua_State *L)
{
    const struct words *words = lua_touserdata(L, 1);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "kvroute.import");
    lua_call(L, 1, 1);           /* import */
    lua_getfield(L, -1, "main"); /* import main */
    lua_newtable(L);
    for (int i = 1; i < words->argc; i++) {
        lua_pushstring(L, words->argv[i]);
        lua_rawseti(L, -2, i);
    } /* import main argv */
    lua_pushliteral(L, "kvroute import");
    lua_call(L, 2, 1); /* import status */
    return 1;
}

static int run(int argc, char **argv)
{
    struct kvr_home *home = &(struct kvr_home){0};
    struct kvr_error error = {0};
    if (kvr_home_find(home, &error)) {
        fprintf(stderr, "kvroute import: %s\n", error.text);
        return KVR_EXIT_FAILED;
    }
    return kvr_run_lua("import", home, enter, &(struct words){argc, argv});
}

const struct kvr_command kvr_command_import = {"import", "recorded traces, as rows to replay", run};
