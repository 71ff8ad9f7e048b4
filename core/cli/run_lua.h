/* Commands that are written in Lua: a state of their own, with all of Lua's libraries and with the
 * one that comes with the binary (scripts/kvroute) before what Lua would find elsewhere. */
#ifndef KVR_RUN_LUA_H
#define KVR_RUN_LUA_H

#include <lua.h>

#include "home.h"

/* Runs `body` with `argument` as its only value, a light userdata; the integer it returns is the
 * exit status. What it raises is told on stderr, after the command's name. */
int kvr_run_lua(const char *command, const struct kvr_home *home, lua_CFunction body,
                void *argument);

#endif
