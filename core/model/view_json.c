#include "view_json.h"

#include <stddef.h>

enum kind { NUMBER, COUNT, TRUTH };

struct field {
    const char *name;
    size_t at;
    enum kind kind;
};

#define REQUEST(member) #member, offsetof(struct kvr_request_view, member)
#define VIEW(member)    #member, offsetof(struct kvr_view, member)
#define ROW(member)     #member, offsetof(struct kvr_replica_view, member)

/* All that abi.h has, in its order, but pointers. */
static const struct field request_fields[] = {
    {REQUEST(now_ms), NUMBER},        {REQUEST(prompt_bytes), NUMBER},
    {REQUEST(prompt_tokens), NUMBER}, {REQUEST(max_tokens), NUMBER},
    {REQUEST(priority), NUMBER},      {REQUEST(slo_ttft_ms), NUMBER},
    {REQUEST(chain_len), COUNT},      {REQUEST(block_bytes), COUNT},
    {REQUEST(serial), COUNT},         {REQUEST(model), COUNT},
    {REQUEST(session), COUNT},        {REQUEST(tenant), COUNT},
    {REQUEST(routing_key), COUNT},    {REQUEST(turn), COUNT},
    {REQUEST(attempt), COUNT},        {REQUEST(stream), COUNT},
};

static const struct field view_fields[] = {
    {VIEW(count), COUNT},
    {VIEW(available), COUNT},
    {VIEW(max_match_blocks), COUNT},
    {VIEW(planned), COUNT},
    {VIEW(total_in_flight), NUMBER},
    {VIEW(min_in_flight), NUMBER},
    {VIEW(max_in_flight), NUMBER},
    {VIEW(mean_in_flight), NUMBER},
    {VIEW(min_load), NUMBER},
    {VIEW(mean_load), NUMBER},
    {VIEW(total_weight), NUMBER},
    {VIEW(max_prefill_tokens_per_s), NUMBER},
};

static const struct field row_fields[] = {
    {ROW(weight), NUMBER},
    {ROW(ramp), NUMBER},
    {ROW(load), NUMBER},
    {ROW(in_flight), NUMBER},
    {ROW(capacity), NUMBER},
    {ROW(uncached_tokens), NUMBER},
    {ROW(prefill_tokens), NUMBER},
    {ROW(active_tokens), NUMBER},
    {ROW(remote_in_flight), NUMBER},
    {ROW(remote_age_ms), NUMBER},
    {ROW(age_ms), NUMBER},
    {ROW(running), NUMBER},
    {ROW(waiting), NUMBER},
    {ROW(kv_usage), NUMBER},
    {ROW(engine_hit_rate), NUMBER},
    {ROW(signals_age_ms), NUMBER},
    {ROW(match_tokens), NUMBER},
    {ROW(resident_tokens), NUMBER},
    {ROW(ttft_ms), NUMBER},
    {ROW(error_rate), NUMBER},
    {ROW(prefill_tokens_per_s), NUMBER},
    {ROW(output_tokens), NUMBER},
    {ROW(token_ms), NUMBER},
    {ROW(recent_uncached_tokens), NUMBER},
    {ROW(key_age_ms), NUMBER},
    {ROW(id), COUNT},
    {ROW(name), COUNT},
    {ROW(match_blocks), COUNT},
    {ROW(resident_blocks), COUNT},
    {ROW(active_blocks), COUNT},
    {ROW(active_match_blocks), COUNT},
    {ROW(assigned), COUNT},
    {ROW(operational), COUNT},
    {ROW(administrative), COUNT},
    {ROW(available), TRUTH},
};

static void write_fields(struct kvr_json_writer *json, const struct field *fields, size_t count,
                         const void *from)
{
    for (size_t i = 0; i < count; i++) {
        const char *at = (const char *)from + fields[i].at;
        if (fields[i].kind == NUMBER)
            kvr_json_double(json, fields[i].name, *(const double *)(const void *)at);
        else if (fields[i].kind == COUNT)
            kvr_json_uint(json, fields[i].name, *(const uint32_t *)(const void *)at);
        else
            kvr_json_bool(json, fields[i].name, *(const bool *)at);
    }
}

#define WRITE_FIELDS(json, fields, from)                                                           \
    write_fields(json, fields, sizeof(fields) / sizeof *(fields), from)

void kvr_view_write_request(struct kvr_json_writer *json, const struct kvr_request_view *request)
{
    WRITE_FIELDS(json, request_fields, request);
}

void kvr_view_write_totals(struct kvr_json_writer *json, const struct kvr_view *view)
{
    WRITE_FIELDS(json, view_fields, view);
}

void kvr_view_write_row(struct kvr_json_writer *json, const struct kvr_replica_view *row)
{
    WRITE_FIELDS(json, row_fields, row);
}
