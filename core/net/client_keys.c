#include "client_keys.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "config.h"
#include "file.h"
#include "log.h"
#include "memory.h"

/* ---- entries ---- */

static void free_key(struct kvr_client_key *key)
{
    size_t len = strlen(key->key);
    for (volatile char *at = key->key; len--; at++)
        *at = 0; /* a secret does not lie about in freed memory */
    kvr_free(key->key);
    kvr_free(key->name);
    kvr_free(key);
}

/* It is in no file any more. */
static void drop(struct kvr_client_key *key)
{
    key->listed = false;
    if (key->quota.open == 0)
        free_key(key);
}

void kvr_client_key_leave(struct kvr_client_key *key)
{
    kvr_quota_leave(&key->quota);
    if (!key->listed && key->quota.open == 0)
        free_key(key);
}

/* ---- the file ---- */

struct list {
    struct kvr_client_key *items[KVR_CLIENT_KEYS_MAX];
    uint32_t count;
};

static const char *text_of(const struct kvr_config *config, uint32_t i, const char *field)
{
    char name[64];
    snprintf(name, sizeof name, "keys.%u.%s", i, field);
    return kvr_config_text(config, name);
}

static uint64_t number_of(const struct kvr_config *config, uint32_t i, const char *field)
{
    char name[64];
    snprintf(name, sizeof name, "keys.%u.%s", i, field);
    return (uint64_t)kvr_config_number(config, name);
}

/* No two have one name or one key; the message shows no key. */
static int check_unique(const struct kvr_client_keys *keys, const struct list *list, uint32_t i,
                        struct kvr_error *error)
{
    for (uint32_t j = 0; j < i; j++) {
        if (strcmp(list->items[j]->name, list->items[i]->name) == 0)
            return kvr_error_set(error, KVR_E_INVALID, "%s: keys.%u.name: \"%s\" is keys.%u, too",
                                 keys->path, i + 1, list->items[i]->name, j + 1);
        if (strcmp(list->items[j]->key, list->items[i]->key) == 0)
            return kvr_error_set(error, KVR_E_INVALID, "%s: keys.%u.key: is that of keys.%u, too",
                                 keys->path, i + 1, j + 1);
    }
    return 0;
}

static struct kvr_client_key *make_key(const struct kvr_config *config, uint32_t i)
{
    struct kvr_client_key *key = kvr_alloc_zero(1, sizeof *key);
    const char *name = text_of(config, i, "name"), *secret = text_of(config, i, "key");
    key->name = kvr_strndup(name, strlen(name));
    key->key = kvr_strndup(secret, strlen(secret));
    for (int limit = 0; limit < KVR_QUOTA_LIMITS; limit++)
        key->quota.most[limit] =
            number_of(config, i, kvr_quota_limit_name((enum kvr_quota_limit)limit));
    return key;
}

static int read_list(const struct kvr_client_keys *keys, const struct kvr_config *config,
                     struct list *list, struct kvr_error *error)
{
    uint32_t count = kvr_config_count(config, "keys");
    if (count > KVR_CLIENT_KEYS_MAX)
        return kvr_error_set(error, KVR_E_LIMIT, "%s: keys: %u of them, at most %d are taken",
                             keys->path, count, KVR_CLIENT_KEYS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        list->items[list->count++] = make_key(config, i + 1);
        int rc = check_unique(keys, list, i, error);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_file(const struct kvr_client_keys *keys, struct list *list, struct kvr_error *error)
{
    struct kvr_buffer text = {0};
    int rc = kvr_file_read(keys->path, KVR_CLIENT_FILE_MAX, &text, error);
    if (rc == 0) {
        struct kvr_config *config =
            kvr_config_read_clients(keys->path, kvr_buffer_slice(&text), error);
        rc = config ? read_list(keys, config, list, error) : KVR_E_INVALID;
        kvr_config_destroy(config);
    }
    kvr_buffer_deinit(&text);
    return rc;
}

/* ---- putting it in force ---- */

static struct kvr_client_key *take_named(struct kvr_client_keys *keys, const char *name)
{
    for (uint32_t i = 0; i < keys->count; i++) {
        struct kvr_client_key *key = keys->items[i];
        if (!key || strcmp(key->name, name) != 0)
            continue;
        keys->items[i] = NULL;
        return key;
    }
    return NULL;
}

/* An entry of the same name stays, with what it has counted; the new one gives it the rest. */
static struct kvr_client_key *merge(struct kvr_client_keys *keys, struct kvr_client_key *fresh)
{
    struct kvr_client_key *old = take_named(keys, fresh->name);
    if (!old)
        return fresh;
    char *key = old->key;
    old->key = fresh->key;
    fresh->key = key;
    memcpy(old->quota.most, fresh->quota.most, sizeof old->quota.most);
    free_key(fresh);
    return old;
}

static void put_in_force(struct kvr_client_keys *keys, const struct list *list)
{
    struct kvr_client_key **items = kvr_alloc_zero(list->count + 1, sizeof *items);
    struct kvr_digest *digests = kvr_alloc_zero(list->count + 1, sizeof *digests);
    for (uint32_t i = 0; i < list->count; i++) {
        items[i] = merge(keys, list->items[i]);
        items[i]->listed = true;
        digests[i] = kvr_credential_digest(keys->seed, kvr_slice_of(items[i]->key));
    }
    for (uint32_t i = 0; i < keys->count; i++)
        if (keys->items[i])
            drop(keys->items[i]);
    kvr_free(keys->items);
    kvr_free(keys->digests);
    keys->items = items;
    keys->digests = digests;
    keys->count = list->count;
    keys->loads++;
    kvr_log(KVR_LOG_INFO, "client keys in force: %u of %s", keys->count, keys->path);
}

static int load(struct kvr_client_keys *keys, struct kvr_error *error)
{
    struct list *list = kvr_alloc_zero(1, sizeof *list);
    int rc = read_file(keys, list, error);
    if (rc == 0) {
        put_in_force(keys, list);
    } else {
        keys->refusals++;
        for (uint32_t i = 0; i < list->count; i++)
            free_key(list->items[i]);
    }
    kvr_free(list);
    return rc;
}

void kvr_client_keys_reload(struct kvr_client_keys *keys)
{
    struct kvr_error error = {0};
    if (kvr_client_keys_on(keys) && load(keys, &error))
        kvr_log(KVR_LOG_WARN, "client keys refused, the ones in force stay: %s", error.text);
}

static void on_changed(void *context, const char *path)
{
    (void)path;
    kvr_client_keys_reload(context);
}

int kvr_client_keys_open(struct kvr_client_keys *keys, struct kvr_loop *loop, const char *path,
                         struct kvr_error *error)
{
    *keys = (struct kvr_client_keys){.path = kvr_strndup(path, strlen(path))};
    KVR_CHECK(uv_random(NULL, NULL, &keys->seed, sizeof keys->seed, 0, NULL) == 0);
    kvr_reloader_init(&keys->reloader, loop, NULL, keys, on_changed);
    int rc = kvr_reloader_add(&keys->reloader, path, error);
    return rc ? rc : load(keys, error);
}

void kvr_client_keys_close(struct kvr_client_keys *keys, void *context,
                           void (*on_closed)(void *context))
{
    kvr_reloader_close(&keys->reloader, context, on_closed);
}

void kvr_client_keys_deinit(struct kvr_client_keys *keys)
{
    for (uint32_t i = 0; i < keys->count; i++) {
        KVR_CHECK(keys->items[i]->quota.open == 0);
        free_key(keys->items[i]);
    }
    kvr_free(keys->items);
    kvr_free(keys->digests);
    kvr_free(keys->path);
    *keys = (struct kvr_client_keys){0};
}

/* ---- asking ---- */

static struct kvr_slice secret_of(const struct kvr_http_head *head)
{
    static const char scheme[] = "bearer ";
    struct kvr_slice value = kvr_http_header(head, "authorization");
    if (value.len >= sizeof scheme && strncasecmp(value.data, scheme, sizeof scheme - 1) == 0)
        return kvr_slice_trim(
            kvr_slice_make(value.data + sizeof scheme - 1, value.len - (sizeof scheme - 1)));
    return kvr_http_header(head, "x-api-key");
}

struct kvr_client_key *kvr_client_keys_find(struct kvr_client_keys *keys,
                                            const struct kvr_http_head *head, bool *given)
{
    struct kvr_slice secret = secret_of(head);
    *given = secret.len > 0;
    if (!*given) {
        keys->absent++;
        return NULL;
    }
    struct kvr_digest digest = kvr_credential_digest(keys->seed, secret);
    uint32_t i = kvr_credential_find(keys->digests, keys->count, digest);
    if (i != KVR_NO_CREDENTIAL && kvr_credential_equal(kvr_slice_of(keys->items[i]->key), secret))
        return keys->items[i];
    keys->unknown++;
    return NULL;
}
