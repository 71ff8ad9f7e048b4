#include "profile_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "config.h"

/* The numbers of a profile, in the order that they are written in. */
enum place { WHOLE, REAL };

struct number {
    const char *key;
    enum place kind;
    size_t offset;
};

#define REAL_AT(field)                                                                             \
    {                                                                                              \
#field, REAL, offsetof(struct kvr_profile, field)                                          \
    }
#define WHOLE_AT(field)                                                                            \
    {                                                                                              \
#field, WHOLE, offsetof(struct kvr_profile, field)                                         \
    }

static const struct number numbers[] = {
    REAL_AT(step_floor_ms),
    REAL_AT(weights_ms),
    REAL_AT(prefill_step_ms),
    REAL_AT(prefill_token_ms),
    REAL_AT(prefill_context_ms),
    REAL_AT(decode_seq_ms),
    REAL_AT(decode_seq_squared_ms),
    REAL_AT(decode_context_ms),
    REAL_AT(jitter),
    REAL_AT(overhead_ms),
    REAL_AT(startup_ms),
    REAL_AT(bytes_per_token),
    WHOLE_AT(blocks),
    WHOLE_AT(max_num_batched_tokens),
    WHOLE_AT(max_num_seqs),
    WHOLE_AT(max_model_len),
    WHOLE_AT(chat_head_tokens),
    WHOLE_AT(chat_system_head_tokens),
    WHOLE_AT(replicas),
};

#define NUMBERS (sizeof numbers / sizeof numbers[0])

static void fill(const struct kvr_config *config, struct kvr_profile *profile)
{
    *profile = (struct kvr_profile){.cache_generated = kvr_config_bool(config, "cache_generated")};
    snprintf(profile->name, sizeof profile->name, "%s", kvr_config_text(config, "name"));
    if (strcmp(kvr_config_text(config, "form"), "roofline") == 0)
        profile->form = KVR_STEP_ROOFLINE;
    for (size_t i = 0; i < NUMBERS; i++) {
        double value = kvr_config_number(config, numbers[i].key);
        char *at = (char *)profile + numbers[i].offset;
        uint32_t whole = (uint32_t)value;
        if (numbers[i].kind == REAL)
            memcpy(at, &value, sizeof value);
        else
            memcpy(at, &whole, sizeof whole);
    }
}

int kvr_profile_text_read(const char *path, struct kvr_slice text, struct kvr_profile *profile,
                          struct kvr_error *error)
{
    struct kvr_config *config = kvr_config_read_profile(path, text, error);
    if (!config)
        return KVR_E_INVALID;
    struct kvr_error why = {0};
    int code = 0;
    fill(config, profile);
    const char *name = kvr_config_text(config, "name");
    if (strlen(name) >= sizeof profile->name) {
        code =
            kvr_error_set(error, KVR_E_INVALID, "%smust be of at most %zu characters, got %zu",
                          kvr_config_text(config, "@name"), sizeof profile->name - 1, strlen(name));
    } else if (profile->max_num_batched_tokens < profile->max_num_seqs) {
        code = kvr_error_set(error, KVR_E_INVALID, "%smust be at least max_num_seqs, %u, got %u",
                             kvr_config_text(config, "@max_num_batched_tokens"),
                             profile->max_num_seqs, profile->max_num_batched_tokens);
    } else if (kvr_profile_check(profile, &why)) {
        code = kvr_error_set(error, KVR_E_INVALID, "%s: %s", path, why.text);
    }
    kvr_config_destroy(config);
    return code;
}

/* As short as it can be and still read back the same. */
static void put_real(struct kvr_buffer *out, const char *key, double value)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    kvr_buffer_printf(out, "%s = %s\n", key, text);
}

void kvr_profile_text_write(const struct kvr_profile *profile, struct kvr_buffer *out)
{
    kvr_buffer_printf(out, "name = \"%s\"\n", profile->name);
    if (profile->form == KVR_STEP_ROOFLINE)
        kvr_buffer_append_text(out, "form = \"roofline\"\n");
    for (size_t i = 0; i < NUMBERS; i++) {
        const char *at = (const char *)profile + numbers[i].offset;
        double value;
        uint32_t whole;
        memcpy(&whole, at, sizeof whole);
        if (numbers[i].kind == REAL)
            memcpy(&value, at, sizeof value);
        else
            value = whole;
        bool is_default = value == (strcmp(numbers[i].key, "replicas") == 0 ? 1.0 : 0.0);
        bool needed = strcmp(numbers[i].key, "step_floor_ms") == 0 ||
                      strcmp(numbers[i].key, "prefill_token_ms") == 0;
        if (numbers[i].kind == WHOLE && !is_default)
            kvr_buffer_printf(out, "%s = %u\n", numbers[i].key, whole);
        else if (!is_default || needed)
            put_real(out, numbers[i].key, value);
    }
    if (!profile->cache_generated)
        kvr_buffer_append_text(out, "cache_generated = false\n");
}
