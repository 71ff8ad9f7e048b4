/* The settings of a configuration as C holds them: flat, by dotted name, each with its value. Made
 * from the list that config.lua returns, and never changed. Private to config.c, which answers. */
#ifndef KVR_CONFIG_TABLE_H
#define KVR_CONFIG_TABLE_H

#include <stdint.h>

#include <lua.h>

enum kvr_config_kind { KVR_CONFIG_TEXT, KVR_CONFIG_NUMBER, KVR_CONFIG_BOOLEAN, KVR_CONFIG_LIST };

struct kvr_config_entry {
    char *name; /* owned */
    enum kvr_config_kind kind;
    char *text;    /* owned; NULL: not a text */
    double number; /* of a boolean: 0 or 1; of a list: its items */
};

/* All entries after one read or set, ascending by name. Older ones stay for those who hold texts.
 */
struct kvr_config_table {
    struct kvr_config_table *older;   /* owned; NULL: the first */
    struct kvr_config_entry *entries; /* owned */
    uint32_t count;
};

/* Of the list of { name, kind, value } on top of the stack, which stays there. It is plain tables
 * of config.lua: nothing here throws. */
struct kvr_config_table *kvr_config_table_take(lua_State *L);
/* With all older ones. NULL is allowed. */
void kvr_config_table_destroy(struct kvr_config_table *table);

/* The name must be there: asking for another is a bug, which ends the process. */
const struct kvr_config_entry *kvr_config_table_find(const struct kvr_config_table *table,
                                                     const char *name);

#endif
