/* Configuration files and single settings. Input: one byte, odd for a file of client keys; the text
 * of a file; behind a NUL, names and
 * values of settings, each ended by a NUL.
 *
 * Reading ends, within memory; a refusal says why and names the file; what is accepted answers for
 * every setting with a value of its kind and range; a setting that is refused changes nothing. */
#include "fuzz.h"

#include "config.h"

static const struct {
    const char *name;
    double min, max;
} numbers[] = {
    {"moves", 0, 16},
    {"canary.share", 0, 1},
    {"health.interval_ms", 10, 3600000},
    {"limits.body_bytes", 1024, 2147483648.0},
};

/* All that was read, as text. */
static struct kvr_buffer understand(const struct kvr_config *config)
{
    struct kvr_buffer log = {0};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double value = kvr_config_number(config, numbers[i].name);
        FUZZ_CHECK(value >= numbers[i].min && value <= numbers[i].max);
        kvr_buffer_printf(&log, "%s %.17g\n", numbers[i].name, value);
    }
    static const char *const texts[] = {"policy", "listen", "admin.listen", "admin.token"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *value = kvr_config_text(config, texts[i]);
        FUZZ_CHECK(!value || *value);
        kvr_buffer_printf(&log, "%s %s\n", texts[i], value ? value : "");
    }
    kvr_buffer_printf(&log, "scrape %d\n", kvr_config_bool(config, "scrape.enabled"));
    uint32_t replicas = kvr_config_count(config, "replicas");
    for (uint32_t i = 1; i <= replicas; i++) {
        char name[64];
        snprintf(name, sizeof name, "replicas.%u.url", i);
        const char *url = kvr_config_text(config, name);
        FUZZ_CHECK(url && strncmp(url, "http://", 7) == 0);
        snprintf(name, sizeof name, "replicas.%u.weight", i);
        double weight = kvr_config_number(config, name);
        FUZZ_CHECK(weight >= 0.001 && weight <= 1000);
        kvr_buffer_printf(&log, "%s %g\n", url, weight);
    }
    static const char *const tables[] = {"params", "spill_params", "canary.params"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        uint32_t count = kvr_config_count(config, tables[i]);
        for (uint32_t k = 0; k < count; k++) {
            struct kvr_buffer name = {0};
            const char *key = kvr_config_key(config, tables[i], k);
            FUZZ_CHECK(key);
            kvr_buffer_printf(&name, "%s.%s", tables[i], key);
            kvr_buffer_append(&name, "", 1);
            const char *value = kvr_config_text(config, name.data);
            kvr_buffer_printf(&log, "%s %s\n", name.data, value ? value : "");
            kvr_buffer_deinit(&name);
        }
        FUZZ_CHECK(!kvr_config_key(config, tables[i], count));
    }
    return log;
}

/* Takes the bytes up to the next NUL off the input. */
static struct kvr_slice take_part(struct kvr_slice *rest)
{
    const char *nul = rest->len ? memchr(rest->data, '\0', rest->len) : NULL;
    size_t len = nul ? (size_t)(nul - rest->data) : rest->len;
    struct kvr_slice part = kvr_slice_make(rest->data, len);
    rest->data += nul ? len + 1 : len;
    rest->len -= nul ? len + 1 : len;
    return part;
}

static void set_all(struct kvr_config *config, struct kvr_slice rest)
{
    while (rest.len) {
        struct kvr_slice name = take_part(&rest), value = take_part(&rest);
        struct kvr_error error = {0};
        char *copy = strndup(name.data, name.len);
        struct kvr_buffer before = understand(config);
        int rc = kvr_config_set(config, copy, value, &error);
        struct kvr_buffer after = understand(config);
        FUZZ_CHECK((rc == 0) == (error.text[0] == '\0'));
        if (rc)
            fuzz_same(&before, &after);
        kvr_buffer_deinit(&before);
        kvr_buffer_deinit(&after);
        free(copy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    bool clients = fuzz_byte(&input) % 2;
    char *bytes = fuzz_rest(&input);
    struct kvr_slice rest = {bytes, input.left};
    struct kvr_slice text = take_part(&rest);
    struct kvr_error error = {0};
    if (text.len == 0)
        text.data = NULL; /* the defaults */
    struct kvr_config *config = clients ? kvr_config_read_clients("fuzz.lua", text, &error)
                                        : kvr_config_read("fuzz.lua", text, &error);
    FUZZ_CHECK(!config == (error.text[0] != '\0'));
    if (config && clients) {
        uint32_t count = kvr_config_count(config, "keys");
        FUZZ_CHECK(count <= size);
    } else if (config) {
        struct kvr_buffer log = understand(config);
        if (text.len == 0)
            kvr_config_describe(&log);
        kvr_buffer_deinit(&log);
        set_all(config, rest);
    }
    kvr_config_destroy(config);
    free(bytes);
    return 0;
}
