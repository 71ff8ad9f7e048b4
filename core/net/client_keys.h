/* The keys of clients: who may ask, by what name, and how much.
 *
 * They stand in a Lua file of their own, which is read again when it changes and at SIGHUP:
 *
 *   keys = {
 *     { name = "team-a", key = env("TEAM_A_KEY"), concurrency = 8, requests_per_minute = 600 },
 *     { name = "batch", key = "sk-...", prompt_tokens_per_minute = 200000 },
 *   }
 *
 * A name is the identity: a new key or new limits under an old name go on with its counts. A file
 * that is refused changes nothing. A key that is gone serves nobody from then on; what it has open
 * goes on, and its entry stays until that has ended.
 *
 * Keys never leave this file: rows, metrics, logs and errors have names. */
#ifndef KVR_CLIENT_KEYS_H
#define KVR_CLIENT_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "credential.h"
#include "error.h"
#include "http.h"
#include "quota.h"
#include "reloader.h"

#define KVR_CLIENT_KEYS_MAX 1000
#define KVR_CLIENT_FILE_MAX (4 << 20) /* bytes of a file */

struct kvr_client_key {
    char *name;
    char *key;
    struct kvr_quota quota;
    bool listed; /* in the file in force */
};

struct kvr_client_keys {
    char *path; /* NULL: off, every client is served */
    struct kvr_client_key **items;
    struct kvr_digest *digests; /* in step */
    uint32_t count;
    uint64_t seed; /* of digests */
    struct kvr_reloader reloader;
    uint64_t absent, unknown; /* requests without a key, with one that is none */
    uint64_t loads, refusals; /* of the file */
};

/* Reads the file, which must be good, and watches it. */
int kvr_client_keys_open(struct kvr_client_keys *keys, struct kvr_loop *loop, const char *path,
                         struct kvr_error *error) KVR_MUST_USE;
/* Reads it again; what is wrong with it is logged, and what was in force stays. */
void kvr_client_keys_reload(struct kvr_client_keys *keys);
/* Stops watching; calls back from the loop. */
void kvr_client_keys_close(struct kvr_client_keys *keys, void *context,
                           void (*on_closed)(void *context));
/* After that, and after every request has left. */
void kvr_client_keys_deinit(struct kvr_client_keys *keys);

static inline bool kvr_client_keys_on(const struct kvr_client_keys *keys)
{
    return keys->path != NULL;
}

/* Whose key the head has: the bearer token of Authorization, or X-Api-Key. NULL: nobody's, which is
 * counted; `*given` tells whether it had one. */
struct kvr_client_key *kvr_client_keys_find(struct kvr_client_keys *keys,
                                            const struct kvr_http_head *head, bool *given);
/* A request that was let in by kvr_quota_enter has ended. */
void kvr_client_key_leave(struct kvr_client_key *key);

#endif
