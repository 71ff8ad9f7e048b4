#include "time_limits.h"

#define HEADER_PREFIX     "x-kvroute-"
#define HEADER_PREFIX_LEN (sizeof HEADER_PREFIX - 1)
#define DIGITS_MAX        9 /* eleven days */

static const struct {
    const char *code, *setting, *header; /* without its prefix */
} texts[KVR_TIME_LIMITS] = {
    [KVR_TIME_CONNECT] = {"connect_timeout", "timeouts.connect_ms", "connect-timeout-ms"},
    [KVR_TIME_FIRST_BYTE] = {"first_byte_timeout", "timeouts.first_byte_ms",
                             "first-byte-timeout-ms"},
    [KVR_TIME_IDLE] = {"idle_timeout", "timeouts.idle_ms", "idle-timeout-ms"},
    [KVR_TIME_TOTAL] = {"total_timeout", "timeouts.total_ms", "timeout-ms"},
};

const char *kvr_time_limit_code(enum kvr_time_limit limit)
{
    return texts[limit].code;
}

const char *kvr_time_limit_setting(enum kvr_time_limit limit)
{
    return texts[limit].setting;
}

/* Whole milliseconds above 0, or 0 for what is none. */
static uint32_t read_ms(struct kvr_slice value)
{
    uint32_t ms = 0;
    if (value.len > DIGITS_MAX)
        return 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return 0;
        ms = ms * 10 + (uint32_t)(value.data[i] - '0');
    }
    return ms;
}

static int take(const struct kvr_time_limits_options *options, int limit, struct kvr_slice value,
                struct kvr_time_limits *limits, struct kvr_error *error)
{
    uint32_t ms = read_ms(value);
    uint32_t configured = options->limits.ms[limit];
    if (ms == 0)
        return kvr_error_set(error, KVR_E_INVALID,
                             HEADER_PREFIX "%s: a number of milliseconds is expected, not \"%.*s\"",
                             texts[limit].header, value.len < 40 ? (int)value.len : 40, value.data);
    uint32_t most = configured > options->by_header_max_ms ? configured : options->by_header_max_ms;
    limits->ms[limit] = configured && ms > most ? most : ms;
    return 0;
}

int kvr_time_limits_read(const struct kvr_time_limits_options *options,
                         const struct kvr_http_head *head, struct kvr_time_limits *limits,
                         struct kvr_error *error)
{
    *limits = options->limits;
    for (uint32_t i = 0; i < head->count; i++) {
        struct kvr_slice name = head->headers[i].name;
        /* Nearly every name is sorted out by its third byte. */
        if (name.len <= HEADER_PREFIX_LEN || (name.data[2] | 0x20) != 'k' ||
            strncasecmp(name.data, HEADER_PREFIX, HEADER_PREFIX_LEN) != 0)
            continue;
        name = kvr_slice_make(name.data + HEADER_PREFIX_LEN, name.len - HEADER_PREFIX_LEN);
        for (int limit = 0; limit < KVR_TIME_LIMITS; limit++) {
            if (!kvr_slice_is_nocase(name, texts[limit].header))
                continue;
            int rc = take(options, limit, head->headers[i].value, limits, error);
            if (rc)
                return rc;
        }
    }
    return 0;
}
