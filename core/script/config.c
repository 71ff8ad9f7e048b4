#include "config.h"

#include <stdio.h>
#include <time.h>

#include <lauxlib.h>
#include <lualib.h>

#include "config_table.h"
#include "heap.h"
#include "kvr_client_schema_lua.h"
#include "kvr_config_file_lua.h"
#include "kvr_config_kinds_lua.h"
#include "kvr_config_lines_lua.h"
#include "kvr_config_lua.h"
#include "kvr_config_schema_lua.h"
#include "kvr_profile_schema_lua.h"
#include "memory.h"

#define MEMORY_MAX       (64u << 20)
#define INSTRUCTIONS_MAX 20000000 /* of a file; about 0.1 s */
/* CPU time of a file. Few instructions can take long, where each works on a long text or table: so
 * the time is looked at often. */
#define CPU_NS_MAX 1000000000u
#define COUNT_STEP 100

struct kvr_config {
    lua_State *L; /* config.lua in it, with the values as the file gave them */
    struct kvr_heap heap;
    int64_t instructions;           /* left to run */
    uint64_t cpu_end_ns;            /* of this thread's CPU time, when it must be over */
    struct kvr_config_table *table; /* owned, with all older ones */
};

/* Registry key of what config.lua returned. */
#define AT_MODULE 1

/* ---- running Lua ----------------------------------------------------------------------------- */

static uint64_t cpu_ns(void)
{
    struct timespec time;
    KVR_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void on_count(lua_State *L, lua_Debug *frame)
{
    void *heap;
    lua_getallocf(L, &heap);
    struct kvr_config *config =
        (struct kvr_config *)((char *)heap - offsetof(struct kvr_config, heap));
    config->instructions -= COUNT_STEP;
    if (config->instructions > 0 && cpu_ns() < config->cpu_end_ns)
        return;
    lua_getinfo(L, "Sl", frame);
    lua_Debug caller = *frame; /* the file's own line, where one of its helpers was interrupted */
    for (int level = 1; caller.source[0] != '@' && lua_getstack(L, level, &caller); level++)
        lua_getinfo(L, "Sl", &caller);
    if (caller.source[0] == '@')
        frame = &caller;
    lua_pushfstring(L, "%s:%d: does not end", frame->short_src, frame->currentline);
    lua_error(L);
}

static int run(struct kvr_config *config, lua_CFunction function, void *argument,
               struct kvr_error *error)
{
    lua_State *L = config->L;
    config->instructions = INSTRUCTIONS_MAX;
    config->cpu_end_ns = cpu_ns() + CPU_NS_MAX;
    config->heap.hit = false;
    int status = lua_cpcall(L, function, argument);
    if (status == 0)
        return 0;
    const char *message = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "failed";
    if (status == LUA_ERRMEM || config->heap.hit)
        message = "the file takes too much memory";
    kvr_error_set(error, KVR_E_INVALID, "%s", message);
    lua_settop(L, 0);
    return KVR_E_INVALID;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* A text that is compiled in, under the name that its errors have. */
struct part {
    const char *text;
    size_t len;
    const char *name;
};

#define PART(symbol, name)                                                                         \
    {                                                                                              \
        symbol, sizeof symbol - 1, name                                                            \
    }

static const struct part reader = PART(kvr_config_lua, "=config");
static const struct part kinds = PART(kvr_config_kinds_lua, "=config_kinds");
static const struct part file = PART(kvr_config_file_lua, "=config_file");
static const struct part lines = PART(kvr_config_lines_lua, "=config_lines");
static const struct part router_schema = PART(kvr_config_schema_lua, "=config_schema");
static const struct part client_schema = PART(kvr_client_schema_lua, "=client_schema");
static const struct part profile_schema = PART(kvr_profile_schema_lua, "=profile_schema");

static void push_part(lua_State *L, const struct part *part)
{
    if (luaL_loadbuffer(L, part->text, part->len, part->name))
        lua_error(L);
}

static int on_start(lua_State *L)
{
    const struct part *schema = lua_touserdata(L, 1);
    luaL_openlibs(L);
    lua_getglobal(L, "jit");
    lua_getfield(L, -1, "off");
    lua_call(L, 0, 0); /* its loops run no hooks */
    push_part(L, &reader);
    push_part(L, schema);
    lua_call(L, 0, 1); /* ... reader schema */
    push_part(L, &kinds);
    push_part(L, &file);
    push_part(L, &lines);
    lua_call(L, 0, 1); /* ... reader schema load_kinds file find_lines */
    lua_call(L, 1, 1); /* ... reader schema load_kinds evaluate */
    lua_call(L, 3, 1); /* ... module */
    lua_rawseti(L, LUA_REGISTRYINDEX, AT_MODULE);
    return 0;
}

static struct kvr_config *create(const struct part *schema, struct kvr_error *error)
{
    struct kvr_config *config = kvr_alloc_zero(1, sizeof *config);
    config->L = luaL_newstate();
    KVR_CHECK(config->L);
    kvr_heap_attach(&config->heap, config->L, SIZE_MAX);
    if (run(config, on_start, (void *)(uintptr_t)schema, error)) {
        kvr_config_destroy(config);
        return NULL;
    }
    config->heap.bytes_max = MEMORY_MAX;
    lua_sethook(config->L, on_count, LUA_MASKCOUNT, COUNT_STEP);
    return config;
}

void kvr_config_destroy(struct kvr_config *config)
{
    if (!config)
        return;
    kvr_config_table_destroy(config->table);
    kvr_heap_close(&config->heap, config->L);
    kvr_free(config);
}

/* ---- reading and setting --------------------------------------------------------------------- */

struct job {
    struct kvr_config *config;
    const char *name; /* of the file, or of a setting */
    struct kvr_slice text;
};

static void push_function(lua_State *L, const char *name)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, AT_MODULE);
    lua_getfield(L, -1, name);
    lua_remove(L, -2); /* ... function */
}

static void take_result(lua_State *L, struct kvr_config *config)
{
    struct kvr_config_table *table = kvr_config_table_take(L);
    table->older = config->table;
    config->table = table;
}

static int on_read(lua_State *L)
{
    const struct job *job = lua_touserdata(L, 1);
    push_function(L, "read");
    if (job->text.data) {
        const char *chunk = lua_pushfstring(L, "@%s", job->name);
        if (luaL_loadbufferx(L, job->text.data, job->text.len, chunk, "t"))
            lua_error(L);
        lua_remove(L, -2);
        lua_pushstring(L, job->name);
        lua_pushlstring(L, job->text.data, job->text.len); /* job read chunk name source */
        lua_call(L, 3, 1);
    } else {
        lua_call(L, 0, 1);
    }
    take_result(L, job->config); /* job entries */
    return 0;
}

static int on_set(lua_State *L)
{
    const struct job *job = lua_touserdata(L, 1);
    push_function(L, "set");
    lua_pushstring(L, job->name);
    lua_pushlstring(L, job->text.data ? job->text.data : "", job->text.len);
    lua_call(L, 2, 1);
    take_result(L, job->config); /* job entries */
    return 0;
}

static struct kvr_config *read(const struct part *schema, const char *path, struct kvr_slice text,
                               struct kvr_error *error)
{
    struct kvr_config *config = create(schema, error);
    if (!config)
        return NULL;
    struct job job = {config, path, text};
    if (run(config, on_read, &job, error)) {
        kvr_config_destroy(config);
        return NULL;
    }
    return config;
}

struct kvr_config *kvr_config_read(const char *path, struct kvr_slice text, struct kvr_error *error)
{
    return read(&router_schema, path, text, error);
}

struct kvr_config *kvr_config_read_clients(const char *path, struct kvr_slice text,
                                           struct kvr_error *error)
{
    return read(&client_schema, path, text, error);
}

struct kvr_config *kvr_config_read_profile(const char *path, struct kvr_slice text,
                                           struct kvr_error *error)
{
    return read(&profile_schema, path, text, error);
}

int kvr_config_set(struct kvr_config *config, const char *name, struct kvr_slice value,
                   struct kvr_error *error)
{
    struct job job = {config, name, value};
    return run(config, on_set, &job, error);
}

static int on_describe(lua_State *L)
{
    struct kvr_buffer *out = lua_touserdata(L, 1);
    push_function(L, "describe");
    lua_call(L, 0, 1);
    size_t len;
    const char *text = lua_tolstring(L, -1, &len);
    kvr_buffer_append(out, text, len);
    return 0;
}

void kvr_config_describe(struct kvr_buffer *out)
{
    struct kvr_config *config = create(&router_schema, NULL);
    KVR_CHECK(config && run(config, on_describe, out, NULL) == 0);
    kvr_config_destroy(config);
}

/* ---- answers --------------------------------------------------------------------------------- */

const char *kvr_config_text(const struct kvr_config *config, const char *name)
{
    const struct kvr_config_entry *entry = kvr_config_table_find(config->table, name);
    if (entry->kind == KVR_CONFIG_LIST) {
        char first[128];
        if (entry->number == 0.0)
            return NULL;
        KVR_CHECK((size_t)snprintf(first, sizeof first, "%s.1", name) < sizeof first);
        entry = kvr_config_table_find(config->table, first);
    }
    KVR_CHECK(entry->kind == KVR_CONFIG_TEXT);
    return *entry->text ? entry->text : NULL;
}

double kvr_config_number(const struct kvr_config *config, const char *name)
{
    const struct kvr_config_entry *entry = kvr_config_table_find(config->table, name);
    KVR_CHECK(entry->kind == KVR_CONFIG_NUMBER);
    return entry->number;
}

bool kvr_config_bool(const struct kvr_config *config, const char *name)
{
    const struct kvr_config_entry *entry = kvr_config_table_find(config->table, name);
    KVR_CHECK(entry->kind == KVR_CONFIG_BOOLEAN);
    return entry->number != 0.0;
}

uint32_t kvr_config_count(const struct kvr_config *config, const char *name)
{
    const struct kvr_config_entry *entry = kvr_config_table_find(config->table, name);
    KVR_CHECK(entry->kind == KVR_CONFIG_LIST);
    return (uint32_t)entry->number;
}

/* The entries "NAME.KEY" follow one another, though not NAME at once: "params" < "params-x". */
const char *kvr_config_key(const struct kvr_config *config, const char *name, uint32_t i)
{
    if (i >= kvr_config_count(config, name))
        return NULL;
    size_t len = strlen(name);
    const struct kvr_config_table *table = config->table;
    for (const struct kvr_config_entry *entry = kvr_config_table_find(config->table, name);
         entry < table->entries + table->count; entry++)
        if (strncmp(entry->name, name, len) == 0 && entry->name[len] == '.' && i-- == 0)
            return entry->name + len + 1;
    return NULL;
}
