#include "row.h"

#include <math.h>
#include <string.h>

#include "digits.h"
#include "json_writer.h"
#include "memory.h"

/* A row is written at every request's end, so keys are copied as literals and numbers are formatted
 * here; only texts from outside go through the JSON writer. */

/* Longest row without its texts and blocks; reserved once, so that the puts need no checks. */
#define ROW_FIXED_MAX 4096
/* Longest answer of a shadow: two scripts, two replicas, a reason, a number and the keys. */
#define SHADOW_MAX                                                                                 \
    (2 * sizeof(((struct kvr_script_record *)0)->row) + 2 * (size_t)KVR_REPLICA_NAME_MAX +         \
     KVR_REASON_LEN_MAX + 256)

struct row {
    char *at;
};

#define PUT(row, literal) put_bytes(row, literal, sizeof(literal) - 1)

static void put_bytes(struct row *row, const char *data, size_t len)
{
    memcpy(row->at, data, len);
    row->at += len;
}

static void put_uint(struct row *row, uint64_t value)
{
    row->at = kvr_put_uint(row->at, value);
}

static void put_hex(struct row *row, uint64_t value)
{
    *row->at++ = '"';
    row->at = kvr_put_hex64(row->at, value);
    *row->at++ = '"';
}

/* Thousandths as a decimal: microseconds become milliseconds. */
static void put_thousandths(struct row *row, uint64_t value)
{
    put_uint(row, value / 1000);
    uint64_t rest = value % 1000;
    if (rest == 0)
        return;
    *row->at++ = '.';
    row->at = kvr_put_three(row->at, (uint32_t)rest);
}

#define UINT_FIELD(row, key, value) (PUT(row, ",\"" key "\":"), put_uint(row, value))
#define HEX_FIELD(row, key, value)                                                                 \
    if (value)                                                                                     \
    (PUT(row, ",\"" key "\":"), put_hex(row, value))
#define TRUE_FIELD(row, key, value)                                                                \
    if (value)                                                                                     \
    PUT(row, ",\"" key "\":true")

/* A duration from the request's arrival, in ms; left out when it did not come to that. */
static void put_since(struct row *row, const char *key, size_t len, uint64_t from_ns,
                      uint64_t to_ns)
{
    if (to_ns == 0)
        return;
    put_bytes(row, key, len);
    put_thousandths(row, (to_ns > from_ns ? to_ns - from_ns : 0) / 1000);
}

#define SINCE_FIELD(row, key, from, to)                                                            \
    put_since(row, ",\"" key "\":", sizeof(",\"" key "\":") - 1, from, to)

static void put_double(struct row *row, double value)
{
    if (value < 0) {
        *row->at++ = '-';
        value = -value;
    }
    if (value < 1e12 && (double)(uint64_t)value == value) {
        put_uint(row, (uint64_t)value); /* most are whole: counts, as scripts see them */
        return;
    }
    put_thousandths(row, value < 1e15 ? (uint64_t)(value * 1000 + 0.5) : 0);
}

#define DOUBLE_FIELD(row, key, value)                                                              \
    if (!isnan(value))                                                                             \
    (PUT(row, ",\"" key "\":"), put_double(row, value))

static void put_constant(struct row *row, const char *text)
{
    *row->at++ = '"';
    put_bytes(row, text, strlen(text));
    *row->at++ = '"';
}

#define TEXT_FIELD(row, key, value) (PUT(row, ",\"" key "\":"), put_constant(row, value))

static void put_times(struct row *row, const struct kvr_router *router, uint64_t now_ns,
                      const struct kvr_request_record *record)
{
    uint64_t unix_us =
        (uint64_t)((int64_t)record->received_ns + router->options.wall_offset_ns) / 1000;
    PUT(row, "{\"started_ms\":");
    put_thousandths(row, unix_us);
    UINT_FIELD(row, "sequence", record->sequence);
    if (record->waited_ns) {
        PUT(row, ",\"waited_ms\":");
        put_thousandths(row, record->waited_ns / 1000);
    }
    SINCE_FIELD(row, "decided_ms", record->received_ns, record->decided_ns);
    SINCE_FIELD(row, "overhead_ms", record->received_ns, record->sent_ns);
    SINCE_FIELD(row, "first_byte_ms", record->received_ns, record->first_byte_ns);
    SINCE_FIELD(row, "ttft_ms", record->received_ns, record->first_token_ns);
    SINCE_FIELD(row, "total_ms", record->received_ns, now_ns);
}

/* The same in every row that a generation decides: written once. */
void kvr_row_describe(struct kvr_script_record *script)
{
    struct row row = {.at = script->row};
    PUT(&row, "{\"name\":");
    put_constant(&row, script->info.name);
    PUT(&row, ",\"hash\":");
    put_hex(&row, script->info.hash);
    UINT_FIELD(&row, "generation", script->info.generation);
    PUT(&row, ",\"params\":");
    put_hex(&row, script->info.params_hash);
    *row.at++ = '}';
    script->row_len = (uint32_t)(row.at - script->row);
    KVR_CHECK(script->row_len <= sizeof script->row);
}

static void put_script(struct row *row, const struct kvr_script_record *script)
{
    put_bytes(row, script->row, script->row_len);
}

/* Of a text that ends at a zero: what stands in JSON as it is. */
static const bool is_plain[256] = {
    [' ' ... '!'] = true, ['#' ... '['] = true, [']' ... '~'] = true};

/* A text from outside. Nearly all need no escapes, and then it is one copy. */
static void append_text(struct kvr_buffer *out, const char *key, size_t key_len, const char *text)
{
    size_t len = 0;
    while (is_plain[(unsigned char)text[len]])
        len++;
    struct row row = {.at = kvr_buffer_reserve(out, key_len + len + 2)};
    put_bytes(&row, key, key_len);
    if (text[len] == '\0') {
        *row.at++ = '"';
        put_bytes(&row, text, len);
        *row.at++ = '"';
    }
    out->len = (size_t)(row.at - out->data);
    if (text[len]) {
        struct kvr_json_writer json = {.out = out};
        kvr_json_text(&json, NULL, text);
    }
}

#define APPEND_TEXT(out, key, text)                                                                \
    append_text(out, ",\"" key "\":", sizeof(",\"" key "\":") - 1, text)

static void put_candidates(struct row *row, const struct kvr_request_record *record)
{
    UINT_FIELD(row, "candidates", record->candidates);
    UINT_FIELD(row, "available", record->available);
    uint32_t shown =
        record->candidates < KVR_CANDIDATES_MAX ? record->candidates : KVR_CANDIDATES_MAX;
    PUT(row, ",\"loads\":[");
    for (uint32_t i = 0; i < shown; i++) {
        if (i)
            *row->at++ = ',';
        put_uint(row, record->candidate_loads[i]);
    }
    *row->at++ = ']';
}

static void put_decision(struct row *row, const struct kvr_router *router,
                         const struct kvr_request_record *record)
{
    const struct kvr_replica *slots = router->replicas.slots;
    if (record->policy) {
        PUT(row, ",\"policy\":");
        put_script(row, record->policy);
    }
    if (record->spill) {
        PUT(row, ",\"spill\":");
        put_script(row, record->spill);
    }
    TRUE_FIELD(row, "canary", record->canary);
    if (record->baseline)
        TEXT_FIELD(row, "baseline",
                   kvr_envelope_left_name((enum kvr_envelope_left)record->baseline));
    TRUE_FIELD(row, "fallback", record->fallback);
    put_candidates(row, record);
    if (record->moves || record->excluded_count) {
        UINT_FIELD(row, "moves", record->moves);
        PUT(row, ",\"failed_on\":[");
        for (uint32_t i = 0; i < record->excluded_count; i++) {
            if (i)
                *row->at++ = ',';
            put_constant(row, slots[record->excluded[i]].name);
        }
        *row->at++ = ']';
    }
    if (record->replica == KVR_NO_REPLICA)
        return;
    TEXT_FIELD(row, "replica", slots[record->replica].name);
    TEXT_FIELD(row, "reason", kvr_reason_text(record->reason));
    DOUBLE_FIELD(row, "in_flight", (double)record->chosen_in_flight);
    DOUBLE_FIELD(row, "min_in_flight", (double)record->min_in_flight);
    DOUBLE_FIELD(row, "mean_in_flight", (double)record->mean_in_flight);
    UINT_FIELD(row, "match_blocks", record->match_blocks);
    UINT_FIELD(row, "uncached_tokens", record->uncached_tokens);
    if (record->preferred == KVR_NO_REPLICA)
        return;
    TEXT_FIELD(row, "preferred", slots[record->preferred].name);
    TEXT_FIELD(row, "preferred_reason", kvr_reason_text(record->preferred_reason));
    UINT_FIELD(row, "declined_match_blocks", record->declined_match_blocks);
    DOUBLE_FIELD(row, "declined_in_flight", (double)record->declined_in_flight);
}

/* What a shadow would have done: its script's own members, then its answer. */
static void put_shadow(struct row *row, const struct kvr_replica *slots,
                       const struct kvr_shadow_answer *answer)
{
    put_bytes(row, answer->policy->row, answer->policy->row_len - 1); /* without its brace */
    if (answer->failed)
        PUT(row, ",\"verdict\":\"failed\"");
    else if (answer->verdict != KVR_VERDICT_PICK)
        TEXT_FIELD(row, "verdict", kvr_verdict_name(answer->verdict));
    if (answer->replica != KVR_NO_REPLICA) {
        TEXT_FIELD(row, "replica", slots[answer->replica].name);
        TEXT_FIELD(row, "reason", kvr_reason_text(answer->reason));
        UINT_FIELD(row, "match_blocks", answer->match_blocks);
        if (answer->preferred == KVR_NO_REPLICA)
            PUT(row, ",\"spilled\":false");
        else
            PUT(row, ",\"spilled\":true");
    }
    if (answer->preferred != KVR_NO_REPLICA)
        TEXT_FIELD(row, "preferred", slots[answer->preferred].name);
    if (answer->spill) {
        PUT(row, ",\"spill\":");
        put_script(row, answer->spill);
    }
    *row->at++ = '}';
}

static void put_shadows(struct row *row, const struct kvr_router *router,
                        const struct kvr_shadow_answers *answers)
{
    PUT(row, ",\"shadow\":[");
    for (uint32_t i = 0; i < answers->count; i++) {
        if (i)
            *row->at++ = ',';
        put_shadow(row, router->replicas.slots, &answers->items[i]);
    }
    *row->at++ = ']';
}

static void put_request(struct row *row, const struct kvr_request_record *record)
{
    TEXT_FIELD(row, "endpoint", record->endpoint);
    HEX_FIELD(row, "session", record->session);
    if (record->session_source)
        TEXT_FIELD(row, "session_source", record->session_source);
    HEX_FIELD(row, "tenant", record->tenant);
    if (record->client)
        TEXT_FIELD(row, "client", record->client);
    HEX_FIELD(row, "routing_key", record->routing_key);
    if (record->turn)
        UINT_FIELD(row, "turn", record->turn);
    TRUE_FIELD(row, "stream", record->stream);
    if (record->choices > 1)
        UINT_FIELD(row, "choices", record->choices);
    UINT_FIELD(row, "blocks", record->chain_len);
    DOUBLE_FIELD(row, "prompt_bytes", (double)record->prompt_bytes);
    DOUBLE_FIELD(row, "estimated_tokens", (double)record->prompt_tokens);
    DOUBLE_FIELD(row, "max_tokens", (double)record->max_tokens);
}

static void put_ending(struct row *row, const struct kvr_ending *ending)
{
    TEXT_FIELD(row, "outcome", kvr_outcome_name(ending->outcome));
    if (ending->error)
        TEXT_FIELD(row, "error", ending->error);
    if (ending->status)
        UINT_FIELD(row, "status", ending->status);
    if (ending->upstream_status)
        UINT_FIELD(row, "upstream_status", ending->upstream_status);
    UINT_FIELD(row, "bytes_in", ending->bytes_in);
    UINT_FIELD(row, "bytes_out", ending->bytes_out);
    if (ending->events)
        UINT_FIELD(row, "events", ending->events);
    TRUE_FIELD(row, "done_seen", ending->done_seen);
    if (ending->prompt_tokens >= 0)
        UINT_FIELD(row, "prompt_tokens", (uint64_t)ending->prompt_tokens);
    if (ending->output_tokens >= 0)
        UINT_FIELD(row, "output_tokens", (uint64_t)ending->output_tokens);
    if (ending->cached_tokens >= 0)
        UINT_FIELD(row, "cached_tokens", (uint64_t)ending->cached_tokens);
    else
        PUT(row, ",\"cached_tokens\":null");
    TRUE_FIELD(row, "cached_inferred", ending->cached_inferred);
    DOUBLE_FIELD(row, "gap_mean_ms", ending->gap_mean_ms);
    DOUBLE_FIELD(row, "gap_p50_ms", ending->gap_p50_ms);
    DOUBLE_FIELD(row, "gap_max_ms", ending->gap_max_ms);
}

/* The chain as runs of block numbers; a row can then be replayed without its text. What a block is
 * goes with it, where that is no default. */
static void append_chain(struct kvr_router *router, const uint64_t *chain, uint32_t len)
{
    struct kvr_block_run *runs = kvr_alloc((len ? len : 1) * sizeof *runs);
    uint32_t count = kvr_block_ids_runs(&router->block_ids, chain, len, runs);
    struct row row = {.at = kvr_buffer_reserve(&router->rows, 100 + (size_t)count * 36)};
    PUT(&row, ",\"chain\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i)
            *row.at++ = ',';
        *row.at++ = '[';
        put_uint(&row, runs[i].first);
        *row.at++ = ',';
        put_uint(&row, runs[i].count);
        *row.at++ = ']';
    }
    *row.at++ = ']';
    if (router->options.block_bytes != KVR_PROMPT_BLOCK_BYTES)
        UINT_FIELD(&row, "block_bytes", router->options.block_bytes);
    if (router->options.wide_after)
        UINT_FIELD(&row, "wide_after", router->options.wide_after);
    router->rows.len = (size_t)(row.at - router->rows.data);
    kvr_free(runs);
}

void kvr_row_write(struct kvr_router *router, uint64_t now_ns,
                   const struct kvr_request_record *record, const struct kvr_ending *ending)
{
    struct kvr_buffer *out = &router->rows;
    /* Names of replicas are at most 256 bytes; five of them and two of scripts. */
    size_t room = ROW_FIXED_MAX + (size_t)(KVR_MOVES_MAX + 3) * KVR_REPLICA_NAME_MAX;
    if (record->shadows)
        room += (size_t)record->shadows->count * SHADOW_MAX;
    struct row row = {.at = kvr_buffer_reserve(out, room)};
    put_times(&row, router, now_ns, record);
    put_request(&row, record);
    put_decision(&row, router, record);
    if (record->shadows)
        put_shadows(&row, router, record->shadows);
    put_ending(&row, ending);
    out->len = (size_t)(row.at - out->data);
    APPEND_TEXT(out, "model", kvr_request_model_name(record));
    APPEND_TEXT(out, "request_id", record->id);
    if (record->tag)
        APPEND_TEXT(out, "tag", record->tag);
    if (router->options.row_blocks && ending->chain)
        append_chain(router, ending->chain, ending->chain_len);
    kvr_buffer_append(out, "}\n", 2);
}
