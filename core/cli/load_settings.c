#include "load_settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum type { U64, U32, F64, KIND, ARRIVALS };

static const char *const kinds[] = {"sessions", "keys", NULL}; /* a list is a trace's */
static const char *const arrivals[] = {"closed", "rate", "times", "bootstrap", NULL};

static const struct field {
    const char *name;
    enum type type;
    size_t at;
    const char *help;
} fields[] = {
#define FIELD(name, type, help)                                                                    \
    {                                                                                              \
#name, type, offsetof(struct kvr_workload_options, name), help                             \
    }
    FIELD(kind, KIND, "sessions or keys"),
    FIELD(seed, U64, "who asks what when"),
    FIELD(epoch, U64, "of the text: no two epochs share any"),
    FIELD(bytes_per_token, F64, "of the engine's tokenizer"),
    FIELD(users, U32, "closed loop"),
    FIELD(think_ms, F64, "closed loop: from an answer to the next turn"),
    FIELD(think_cv, F64, "variation of it; 1: exponential"),
    FIELD(start_ms, F64, "closed loop: users begin spread over this time"),
    FIELD(arrivals, ARRIVALS, "closed, rate, times, bootstrap"),
    FIELD(rate, F64, "open loop: requests a second"),
    FIELD(gap_cv, F64, "open loop: 0 even, 1 Poisson, more: bursts"),
    FIELD(rate_end, F64, "open loop: the rate goes there in a line"),
    FIELD(ramp_ms, F64, "... within this time"),
    FIELD(pool_s, F64, "open loop: rate x this many users take turns"),
    FIELD(time_scale, F64, "of recorded times: stretches gaps"),
    FIELD(block_len, U32, "bootstrap: gaps drawn together"),
    FIELD(arrivals_max, U64, "open loop: 0 no end"),
    FIELD(sessions, U32, "in the pool; 0: by the working set"),
    FIELD(working_set, F64, "nominal tokens of all sessions over capacity_tokens"),
    FIELD(capacity_tokens, F64, "KV of the fleet"),
    FIELD(skew, F64, "popularity of the i-th is i^-skew"),
    FIELD(turns, U32, "of a conversation"),
    FIELD(user_bytes, U32, "of a user's message"),
    FIELD(assistant_bytes, U32, "of a quoted reply"),
    FIELD(system_bytes, U32, "of the system prompt"),
    FIELD(system_share, F64, "of the sessions that have it"),
    FIELD(branch_share, F64, "of the sessions that begin as their family"),
    FIELD(branch_families, U32, "families"),
    FIELD(branch_turns, U32, "turns that are the family's"),
    FIELD(max_tokens, U32, "asked for"),
    FIELD(early_share, F64, "of answers that stop by themselves: the simulator's"),
    FIELD(keys, U32, "kind keys: routing keys"),
    FIELD(template_tokens, F64, "the same for all"),
    FIELD(context_tokens, F64, "of the key"),
    FIELD(variant_tokens, F64, "of one of its variants"),
    FIELD(variants, U32, "of each key"),
    FIELD(whales, U32, "so many first keys ..."),
    FIELD(whale_share, F64, "... share this much of the traffic"),
    FIELD(unique_tokens, F64, "new in each request"),
    FIELD(unique_spread, F64, "times uniform in 1 - spread .. 1 + spread"),
    FIELD(weight_shift, F64, "weight of the r-th key: (r + shift)^-power"),
    FIELD(weight_power, F64, "power"),
    FIELD(drift_sigma, F64, "weights walk at random: times exp(sigma x normal) ..."),
    FIELD(drift_requests, F64, "... every so many requests"),
    FIELD(length_sigma, F64, "a key's own texts are exp(sigma x normal) times as long"),
    FIELD(thread_more, F64, "0; else this part of all threads has two turns or more"),
    FIELD(thread_end, F64, "from the second on, the chance that a turn is the last"),
    FIELD(thread_gap_ms, F64, "mean gap between two turns"),
    FIELD(output_tokens, U32, "mean, or each"),
    FIELD(output_cv, F64, "0: fixed; else lognormal"),
    FIELD(output_max, U32, "0: 16 x output_tokens"),
#undef FIELD
};
#define FIELDS (sizeof fields / sizeof fields[0])

static bool set_word(const char *const *words, const char *text, uint32_t *value)
{
    for (uint32_t i = 0; words[i]; i++) {
        if (strcmp(words[i], text) != 0)
            continue;
        *value = i;
        return true;
    }
    return false;
}

static bool set_field(const struct field *field, char *at, const char *text)
{
    char *end = NULL;
    errno = 0;
    double number = strtod(text, &end);
    bool numeric = end != text && *end == '\0' && errno == 0;
    bool whole =
        numeric && text[0] >= '0' && text[0] <= '9' && strspn(text, "0123456789") == strlen(text);
    switch (field->type) {
    case U64:
        if (whole)
            *(uint64_t *)(void *)at = strtoull(text, NULL, 10);
        return whole && errno == 0;
    case U32:
        if (!whole || number > UINT32_MAX)
            return false;
        *(uint32_t *)(void *)at = (uint32_t)number;
        return true;
    case F64:
        if (numeric)
            *(double *)(void *)at = number;
        return numeric;
    case KIND:
        return set_word(kinds, text, (uint32_t *)(void *)at);
    case ARRIVALS:
        return set_word(arrivals, text, (uint32_t *)(void *)at);
    }
    return false;
}

int kvr_load_set(struct kvr_workload_options *options, const char *setting, struct kvr_error *error)
{
    const char *equals = strchr(setting, '=');
    size_t len = equals ? (size_t)(equals - setting) : 0;
    if (!equals)
        return kvr_error_set(error, KVR_E_INVALID, "--set takes NAME=VALUE, got \"%s\"", setting);
    for (size_t i = 0; i < FIELDS; i++) {
        if (strlen(fields[i].name) != len || memcmp(fields[i].name, setting, len) != 0)
            continue;
        if (set_field(&fields[i], (char *)options + fields[i].at, equals + 1))
            return 0;
        return kvr_error_set(error, KVR_E_INVALID, "%s cannot be \"%s\"", fields[i].name,
                             equals + 1);
    }
    return kvr_error_set(error, KVR_E_INVALID, "there is no setting \"%.*s\" (see --help-workload)",
                         (int)len, setting);
}

void kvr_load_print_settings(const struct kvr_workload_options *options, FILE *out)
{
    for (size_t i = 0; i < FIELDS; i++) {
        const char *at = (const char *)options + fields[i].at;
        char value[32];
        switch (fields[i].type) {
        case U64:
            snprintf(value, sizeof value, "%llu",
                     (unsigned long long)*(const uint64_t *)(const void *)at);
            break;
        case U32:
            snprintf(value, sizeof value, "%u", *(const uint32_t *)(const void *)at);
            break;
        case F64:
            snprintf(value, sizeof value, "%g", *(const double *)(const void *)at);
            break;
        default:
            snprintf(
                value, sizeof value, "%s",
                (fields[i].type == KIND ? kinds : arrivals)[*(const uint32_t *)(const void *)at]);
        }
        fprintf(out, "%-17s = %-10s %s\n", fields[i].name, value, fields[i].help);
    }
}
