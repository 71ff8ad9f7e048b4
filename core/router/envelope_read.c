/* The part of envelope.h that reads the file of a gate (scripts/kvroute/gate_file.lua writes it).
 */
#include <string.h>

#include "envelope.h"
#include "json_number.h"
#include "json_reader.h"
#include "memory.h"
#include "rng.h"

#define FORMAT        "kvroute-gate-2"
#define TIME_MS_MAX   1e9
#define WINDOW_NS_MIN UINT64_C(10000000)

struct reading {
    struct kvr_json_reader json;
    struct kvr_envelope *envelope;
    double ttft_ms, token_ms;
    bool format, enabled;
    bool spills; /* the candidate's spill rule is told of, or that it had none */
};

static double read_number(struct reading *r, double high, const char *reason)
{
    struct kvr_slice raw;
    double value = -1;
    if (kvr_json_read_number(&r->json, &raw))
        value = kvr_json_number_value(raw);
    if (value >= 0 && value <= high)
        return value;
    kvr_json_fail(&r->json, KVR_E_INVALID, reason);
    return 0;
}

static struct kvr_slice read_text(struct reading *r, const char *reason)
{
    struct kvr_json_span span = {0};
    if (!kvr_json_read_string(&r->json, &span) || span.escaped) {
        kvr_json_fail(&r->json, KVR_E_INVALID, reason);
        return kvr_slice_of("");
    }
    return span.raw;
}

/* 16 hexadecimal digits, as rows have keys and hashes. */
static uint64_t read_hex(struct reading *r, const char *reason)
{
    struct kvr_slice text = read_text(r, reason);
    uint64_t value = 0;
    bool good = text.len == 16;
    for (size_t i = 0; good && i < text.len; i++) {
        char c = text.data[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        good = digit >= 0;
        value = value << 4 | (uint64_t)(digit & 15);
    }
    if (!good)
        kvr_json_fail(&r->json, KVR_E_INVALID, reason);
    return good ? value : 0;
}

static void read_name(struct reading *r, char out[KVR_SCRIPT_NAME_MAX])
{
    struct kvr_slice name = read_text(r, "a script's name is needed");
    if (name.len == 0 || name.len >= KVR_SCRIPT_NAME_MAX) {
        kvr_json_fail(&r->json, KVR_E_INVALID, "a script's name is needed");
        return;
    }
    memcpy(out, name.data, name.len);
    out[name.len] = '\0';
}

/* A member that a script may have; false: it is no such member, and still to be read. */
static bool read_script_member(struct reading *r, struct kvr_slice key,
                               struct kvr_envelope_script *script)
{
    if (kvr_slice_is(key, "name"))
        read_name(r, script->name);
    else if (kvr_slice_is(key, "hash"))
        script->hash = read_hex(r, "a hash has 16 hexadecimal digits");
    else if (kvr_slice_is(key, "params_hash"))
        script->params_hash = read_hex(r, "a hash has 16 hexadecimal digits");
    else
        return false;
    return true;
}

static void read_script(struct reading *r, struct kvr_envelope_script *script)
{
    struct kvr_json_span key;
    if (!kvr_json_enter_object(&r->json))
        kvr_json_fail(&r->json, KVR_E_INVALID, "a script is an object");
    while (kvr_json_next_key(&r->json, &key))
        if (!read_script_member(r, key.raw, script))
            kvr_json_skip(&r->json, NULL);
}

/* With its spill rule; null: it had none. True: it is told of. */
static bool read_policy(struct reading *r, struct kvr_envelope_script *policy,
                        struct kvr_envelope_script *rule)
{
    bool told = false;
    struct kvr_json_span key;
    struct kvr_slice nothing;
    if (!kvr_json_enter_object(&r->json))
        kvr_json_fail(&r->json, KVR_E_INVALID, "a script is an object");
    while (kvr_json_next_key(&r->json, &key)) {
        if (read_script_member(r, key.raw, policy))
            continue;
        bool spill = kvr_slice_is(key.raw, "spill");
        told |= spill;
        if (spill && kvr_json_peek(&r->json) == KVR_JSON_OBJECT)
            read_script(r, rule);
        else if (kvr_json_skip(&r->json, &nothing) && spill && !kvr_slice_is(nothing, "null"))
            kvr_json_fail(&r->json, KVR_E_INVALID, "a spill rule is an object or null");
    }
    return told;
}

static void read_bounds(struct reading *r)
{
    struct kvr_json_span key;
    if (!kvr_json_enter_object(&r->json))
        kvr_json_fail(&r->json, KVR_E_INVALID, "bounds is an object");
    while (kvr_json_next_key(&r->json, &key)) {
        if (kvr_slice_is(key.raw, "active_share"))
            r->envelope->active_share = read_number(r, 1, "active_share is a share from 0 to 1");
        else if (kvr_slice_is(key.raw, "ttft_p99_ms"))
            r->ttft_ms = read_number(r, TIME_MS_MAX, "ttft_p99_ms is a time above 0");
        else if (kvr_slice_is(key.raw, "token_ms"))
            r->token_ms = read_number(r, TIME_MS_MAX, "token_ms is a time of 0 or more");
        else
            kvr_json_skip(&r->json, NULL);
    }
}

static void grow(struct kvr_envelope *envelope)
{
    uint64_t *before = envelope->keys;
    uint32_t places = envelope->keys_mask + 1;
    envelope->keys_mask = places * 2 - 1;
    envelope->keys = kvr_alloc_zero((size_t)places * 2, sizeof *envelope->keys);
    for (uint32_t i = 0; i < places; i++) {
        uint32_t at = (uint32_t)kvr_mix64(before[i]) & envelope->keys_mask;
        while (before[i] && envelope->keys[at])
            at = (at + 1) & envelope->keys_mask;
        if (before[i])
            envelope->keys[at] = before[i];
    }
    kvr_free(before);
}

static void add_key(struct kvr_envelope *envelope, uint64_t key)
{
    if (key == 0 || kvr_envelope_has(envelope, key))
        return;
    if (envelope->keys_len * 2 > envelope->keys_mask)
        grow(envelope);
    uint32_t at = (uint32_t)kvr_mix64(key) & envelope->keys_mask;
    while (envelope->keys[at])
        at = (at + 1) & envelope->keys_mask;
    envelope->keys[at] = key;
    envelope->keys_len++;
}

/* [["16 digits", rate], ...] */
static void read_keys(struct reading *r)
{
    static const char reason[] = "keys is a list of pairs of a key and its rate";
    if (!kvr_json_enter_array(&r->json))
        kvr_json_fail(&r->json, KVR_E_INVALID, reason);
    while (kvr_json_next_item(&r->json)) {
        if (!kvr_json_enter_array(&r->json) || !kvr_json_next_item(&r->json))
            kvr_json_fail(&r->json, KVR_E_INVALID, reason);
        add_key(r->envelope, read_hex(r, "a key has 16 hexadecimal digits"));
        while (kvr_json_next_item(&r->json))
            kvr_json_skip(&r->json, NULL);
        if (r->envelope->keys_len > KVR_ENVELOPE_KEYS_MAX)
            kvr_json_fail(&r->json, KVR_E_LIMIT, "too many keys");
    }
}

static void read_member(struct reading *r, struct kvr_slice key)
{
    if (kvr_slice_is(key, "format"))
        r->format = kvr_slice_is(read_text(r, "format is a text"), FORMAT);
    else if (kvr_slice_is(key, "verdict"))
        r->enabled = kvr_slice_is(read_text(r, "verdict is a text"), "enable");
    else if (kvr_slice_is(key, "candidate"))
        r->spills = read_policy(r, &r->envelope->candidate, &r->envelope->spill);
    else if (kvr_slice_is(key, "against"))
        (void)read_policy(r, &r->envelope->against, &r->envelope->against_spill);
    else if (kvr_slice_is(key, "bounds"))
        read_bounds(r);
    else if (kvr_slice_is(key, "keys"))
        read_keys(r);
    else
        kvr_json_skip(&r->json, NULL);
}

/* What is missing, or speaks against it; NULL: nothing. */
static const char *find_fault(const struct reading *r)
{
    if (r->envelope->options.window_ns < WINDOW_NS_MIN)
        return "a window is 10 ms or more";
    if (!r->format)
        return "is no file of kvroute gate (format " FORMAT ")";
    if (!r->enabled)
        return "the verdict of this gate is not enable";
    if (!r->envelope->candidate.name[0] || !r->envelope->against.name[0])
        return "candidate and against are needed";
    if (!r->envelope->candidate.params_hash || !r->spills)
        return "params_hash and spill of the candidate are needed";
    if (r->envelope->spill.name[0] && !r->envelope->spill.params_hash)
        return "params_hash of the spill rule is needed";
    if (!(r->ttft_ms > 0))
        return "bounds.ttft_p99_ms is a time above 0";
    if (!(r->token_ms >= 0))
        return "bounds.token_ms is needed";
    if (r->envelope->keys_len == 0)
        return "keys are needed";
    return NULL;
}

static void fill_defaults(struct kvr_envelope_options *options)
{
    if (options->window_ns == 0)
        options->window_ns = KVR_ENVELOPE_WINDOW_DEFAULT_NS;
    if (options->requests_min == 0)
        options->requests_min = KVR_ENVELOPE_REQUESTS_MIN_DEFAULT;
}

struct kvr_envelope *kvr_envelope_create(struct kvr_slice text,
                                         const struct kvr_envelope_options *options,
                                         struct kvr_error *error)
{
    struct reading r = {.envelope = kvr_alloc_zero(1, sizeof *r.envelope), .token_ms = -1};
    struct kvr_json_span key;
    r.envelope->options = options ? *options : (struct kvr_envelope_options){0};
    fill_defaults(&r.envelope->options);
    r.envelope->keys_mask = 15;
    r.envelope->keys = kvr_alloc_zero(16, sizeof *r.envelope->keys);
    kvr_json_reader_init(&r.json, text);
    if (!kvr_json_enter_object(&r.json))
        kvr_json_fail(&r.json, KVR_E_INVALID, "a gate is a JSON object");
    while (kvr_json_next_key(&r.json, &key))
        read_member(&r, key.raw);
    const char *fault = kvr_json_finish(&r.json) ? find_fault(&r) : r.json.reason;
    if (fault) {
        kvr_error_set(error, KVR_E_INVALID, "%s", fault);
        kvr_envelope_destroy(r.envelope);
        return NULL;
    }
    r.envelope->ttft_ns = (uint64_t)(r.ttft_ms * 1e6);
    r.envelope->token_ns = (uint64_t)(r.token_ms * 1e6);
    return r.envelope;
}
