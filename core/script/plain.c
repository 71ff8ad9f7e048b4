#include "plain.h"

#include <stdint.h>
#include <string.h>

#include <lauxlib.h>

#include "check.h"

/* value := 'N' | 'T' | 'F' | 'n' double | 's' u32 bytes | '{' (key value)* '}' */

static void put(lua_State *L, struct kvr_buffer *out, const void *data, size_t len)
{
    if (out->len + len > KVR_PLAIN_BYTES_MAX)
        luaL_error(L, "export: more than %d bytes", KVR_PLAIN_BYTES_MAX);
    kvr_buffer_append(out, data, len);
}

static void write_value(lua_State *L, int at, struct kvr_buffer *out, int depth);

static void write_table(lua_State *L, int at, struct kvr_buffer *out, int depth)
{
    if (depth == KVR_PLAIN_DEPTH_MAX)
        luaL_error(L, "export: tables nested deeper than %d", KVR_PLAIN_DEPTH_MAX);
    luaL_checkstack(L, 4, "export");
    put(L, out, "{", 1);
    lua_pushnil(L); /* key */
    while (lua_next(L, at)) {
        int top = lua_gettop(L); /* key value */
        int kind = lua_type(L, top - 1);
        if (kind != LUA_TSTRING && kind != LUA_TNUMBER)
            luaL_error(L, "export: a key is a %s", lua_typename(L, kind));
        write_value(L, top - 1, out, depth + 1);
        write_value(L, top, out, depth + 1);
        lua_pop(L, 1); /* key */
    }
    put(L, out, "}", 1);
}

static void write_value(lua_State *L, int at, struct kvr_buffer *out, int depth)
{
    switch (lua_type(L, at)) {
    case LUA_TNIL:
        put(L, out, "N", 1);
        break;
    case LUA_TBOOLEAN:
        put(L, out, lua_toboolean(L, at) ? "T" : "F", 1);
        break;
    case LUA_TNUMBER: {
        double number = lua_tonumber(L, at);
        put(L, out, "n", 1);
        put(L, out, &number, sizeof number);
        break;
    }
    case LUA_TSTRING: {
        size_t len;
        const char *text = lua_tolstring(L, at, &len);
        if (len > KVR_PLAIN_BYTES_MAX)
            luaL_error(L, "export: more than %d bytes", KVR_PLAIN_BYTES_MAX);
        uint32_t len32 = (uint32_t)len;
        put(L, out, "s", 1);
        put(L, out, &len32, sizeof len32);
        put(L, out, text, len);
        break;
    }
    case LUA_TTABLE:
        write_table(L, at, out, depth);
        break;
    default:
        luaL_error(L, "export: a %s is not plain data", luaL_typename(L, at));
    }
}

void kvr_plain_write(lua_State *L, int at, struct kvr_buffer *out)
{
    KVR_CHECK(at > 0);
    write_value(L, at, out, 0);
}

struct reader {
    const char *next;
    const char *end;
};

static void take(struct reader *reader, void *out, size_t len)
{
    KVR_CHECK(len <= (size_t)(reader->end - reader->next)); /* we wrote it ourselves */
    memcpy(out, reader->next, len);
    reader->next += len;
}

static void push_value(lua_State *L, struct reader *reader)
{
    char tag;
    take(reader, &tag, 1);
    luaL_checkstack(L, 4, "import");
    if (tag == 'N') {
        lua_pushnil(L);
    } else if (tag == 'T' || tag == 'F') {
        lua_pushboolean(L, tag == 'T');
    } else if (tag == 'n') {
        double number;
        take(reader, &number, sizeof number);
        lua_pushnumber(L, number);
    } else if (tag == 's') {
        uint32_t len;
        take(reader, &len, sizeof len);
        KVR_CHECK(len <= (size_t)(reader->end - reader->next));
        lua_pushlstring(L, reader->next, len);
        reader->next += len;
    } else {
        KVR_CHECK(tag == '{');
        lua_newtable(L); /* table */
        while (*reader->next != '}') {
            push_value(L, reader);
            push_value(L, reader); /* table key value */
            lua_rawset(L, -3);     /* table */
        }
        reader->next++;
    }
}

void kvr_plain_push(lua_State *L, struct kvr_slice bytes)
{
    struct reader reader = {bytes.data, bytes.data + bytes.len};
    push_value(L, &reader); /* value */
    KVR_CHECK(reader.next == reader.end);
}
