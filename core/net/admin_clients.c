/* The part of GET /metrics about clients with keys: by name, of which the file has few. */
#include "admin_call.h"

static void begin(struct kvr_prom_writer *prom, const struct kvr_client_key *key)
{
    kvr_prom_label(prom, "client", kvr_slice_of(key->name));
}

static void write_limits(const struct kvr_client_keys *keys, struct kvr_prom_writer *prom)
{
    kvr_prom_family(prom, "client_key_limited_total", KVR_PROM_COUNTER,
                    "Requests refused for a limit of their client; no sample: none were.");
    for (uint32_t i = 0; i < keys->count; i++) {
        const struct kvr_client_key *key = keys->items[i];
        for (int limit = 0; limit < KVR_QUOTA_LIMITS; limit++) {
            if (key->quota.refused[limit] == 0)
                continue;
            begin(prom, key);
            kvr_prom_label(prom, "limit",
                           kvr_slice_of(kvr_quota_limit_name((enum kvr_quota_limit)limit)));
            kvr_prom_uint(prom, key->quota.refused[limit]);
        }
    }
}

void kvr_admin_write_clients(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom)
{
    const struct kvr_client_keys *keys = &ingress->client_keys;
    if (!kvr_client_keys_on(keys))
        return;
    kvr_prom_family(prom, "client_key_requests_total", KVR_PROM_COUNTER,
                    "Requests let in, by client.");
    for (uint32_t i = 0; i < keys->count; i++) {
        begin(prom, keys->items[i]);
        kvr_prom_uint(prom, keys->items[i]->quota.entered);
    }
    kvr_prom_family(prom, "client_key_prompt_tokens_total", KVR_PROM_COUNTER,
                    "Prompt tokens let in, as estimated on arrival, by client.");
    for (uint32_t i = 0; i < keys->count; i++) {
        begin(prom, keys->items[i]);
        kvr_prom_uint(prom, keys->items[i]->quota.entered_tokens);
    }
    kvr_prom_family(prom, "client_key_requests_open", KVR_PROM_GAUGE,
                    "Requests let in that have not ended, by client.");
    for (uint32_t i = 0; i < keys->count; i++) {
        begin(prom, keys->items[i]);
        kvr_prom_uint(prom, keys->items[i]->quota.open);
    }
    write_limits(keys, prom);
    kvr_prom_family(prom, "client_key_denied_total", KVR_PROM_COUNTER,
                    "Requests refused for want of a key, or for one that nobody has.");
    kvr_prom_label(prom, "key", kvr_slice_of("absent"));
    kvr_prom_uint(prom, keys->absent);
    kvr_prom_label(prom, "key", kvr_slice_of("unknown"));
    kvr_prom_uint(prom, keys->unknown);
    kvr_prom_counter(prom, "client_key_file_loads_total", keys->loads,
                     "Times the file of client keys was put in force.");
    kvr_prom_counter(prom, "client_key_file_refusals_total", keys->refusals,
                     "Times it was refused and what was in force stayed.");
}
