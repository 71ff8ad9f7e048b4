#include "emu_store.h"

#include <stdio.h>
#include <string.h>

#include "json_writer.h"
#include "memory.h"

struct kvr_emu_stored {
    char id[KVR_EMU_NAME_MAX];
    struct kvr_buffer conversation;
};

void kvr_emu_store_init(struct kvr_emu_store *store, uint32_t capacity)
{
    *store = (struct kvr_emu_store){.capacity = capacity};
    if (capacity)
        store->items = kvr_alloc_zero(capacity, sizeof *store->items);
}

void kvr_emu_store_deinit(struct kvr_emu_store *store)
{
    for (uint32_t i = 0; i < store->len; i++)
        kvr_buffer_deinit(&store->items[i].conversation);
    kvr_free(store->items);
    *store = (struct kvr_emu_store){0};
}

struct kvr_slice kvr_emu_store_find(const struct kvr_emu_store *store, const char *id)
{
    for (uint32_t i = 0; i < store->len; i++)
        if (strcmp(store->items[i].id, id) == 0)
            return kvr_buffer_slice(&store->items[i].conversation);
    return (struct kvr_slice){0};
}

void kvr_emu_store_add(struct kvr_emu_store *store, const char *id, struct kvr_slice conversation)
{
    if (store->capacity == 0 || conversation.len > KVR_EMU_STORED_BYTES_MAX)
        return;
    struct kvr_emu_stored *item = &store->items[store->next];
    store->next = (store->next + 1) % store->capacity;
    if (store->len < store->capacity)
        store->len++;
    snprintf(item->id, sizeof item->id, "%s", id);
    item->conversation.len = 0;
    kvr_buffer_append_slice(&item->conversation, conversation);
}

static bool put_items(struct kvr_slice list, bool comma, struct kvr_buffer *out)
{
    struct kvr_slice inside = kvr_slice_trim(kvr_slice_make(list.data + 1, list.len - 2));
    if (inside.len == 0)
        return comma;
    if (comma)
        kvr_buffer_append(out, ",", 1);
    kvr_buffer_append_slice(out, inside);
    return true;
}

static void put_message(const char *role, struct kvr_slice content, struct kvr_buffer *out)
{
    struct kvr_json_writer json = {.out = out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "role", role);
    kvr_json_raw(&json, "content", content);
    kvr_json_object_end(&json);
}

void kvr_emu_store_join(struct kvr_slice before, struct kvr_slice input, struct kvr_slice answer,
                        struct kvr_buffer *out)
{
    bool comma = false;
    kvr_buffer_append(out, "[", 1);
    if (before.len)
        comma = put_items(before, comma, out);
    if (input.len && input.data[0] == '[') {
        comma = put_items(input, comma, out);
    } else if (input.len) {
        if (comma)
            kvr_buffer_append(out, ",", 1);
        put_message("user", input, out);
        comma = true;
    }
    if (answer.len) {
        struct kvr_buffer quoted = {0};
        struct kvr_json_writer json = {.out = &quoted};
        kvr_json_string(&json, NULL, answer);
        if (comma)
            kvr_buffer_append(out, ",", 1);
        put_message("assistant", kvr_buffer_slice(&quoted), out);
        kvr_buffer_deinit(&quoted);
    }
    kvr_buffer_append(out, "]", 1);
}
