#include "config_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct kvr_config_entry *)a)->name,
                  ((const struct kvr_config_entry *)b)->name);
}

void kvr_config_table_destroy(struct kvr_config_table *table)
{
    while (table) {
        struct kvr_config_table *older = table->older;
        for (uint32_t i = 0; i < table->count; i++) {
            kvr_free(table->entries[i].name);
            kvr_free(table->entries[i].text);
        }
        kvr_free(table->entries);
        kvr_free(table);
        table = older;
    }
}

static char *copy_text(lua_State *L, int at)
{
    size_t len;
    const char *text = lua_tolstring(L, at, &len);
    return kvr_strndup(text, len);
}

static enum kvr_config_kind kind_of(char initial)
{
    switch (initial) {
    case 't':
        return KVR_CONFIG_TEXT;
    case 'n':
        return KVR_CONFIG_NUMBER;
    case 'b':
        return KVR_CONFIG_BOOLEAN;
    default:
        return KVR_CONFIG_LIST;
    }
}

struct kvr_config_table *kvr_config_table_take(lua_State *L)
{
    struct kvr_config_table *table = kvr_alloc_zero(1, sizeof *table);
    uint32_t count = (uint32_t)lua_objlen(L, -1);
    table->entries = kvr_alloc_zero(count, sizeof *table->entries);
    table->count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct kvr_config_entry *entry = &table->entries[i];
        lua_rawgeti(L, -1, (int)i + 1); /* entries entry */
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        lua_rawgeti(L, -3, 3); /* entries entry name kind value */
        const char *kind = lua_tostring(L, -2);
        entry->name = copy_text(L, -3);
        entry->kind = kind_of(*kind);
        if (entry->kind == KVR_CONFIG_TEXT)
            entry->text = copy_text(L, -1);
        else
            entry->number =
                entry->kind == KVR_CONFIG_BOOLEAN ? lua_toboolean(L, -1) : lua_tonumber(L, -1);
        lua_pop(L, 4); /* entries */
    }
    qsort(table->entries, count, sizeof *table->entries, by_name);
    return table;
}

const struct kvr_config_entry *kvr_config_table_find(const struct kvr_config_table *table,
                                                     const char *name)
{
    struct kvr_config_entry key = {.name = (char *)(uintptr_t)name};
    const struct kvr_config_entry *entry =
        bsearch(&key, table->entries, table->count, sizeof *table->entries, by_name);
    if (!entry)
        fprintf(stderr, "kvroute: no setting named %s\n", name);
    KVR_CHECK(entry);
    return entry;
}
