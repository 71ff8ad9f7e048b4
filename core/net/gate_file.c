#include "gate_file.h"

#include <stdio.h>

#include "file.h"
#include "ingress.h"
#include "log.h"

static int read_file(const char *path, struct kvr_buffer *text, struct kvr_error *error)
{
    FILE *file;
    int rc = kvr_file_open(path, &file, error);
    if (rc)
        return rc;
    size_t got;
    do {
        char *at = kvr_buffer_reserve(text, 65536);
        got = fread(at, 1, 65536, file);
        text->len += got;
    } while (got > 0 && text->len <= KVR_GATE_FILE_BYTES_MAX);
    if (ferror(file))
        rc = kvr_error_set(error, KVR_E_IO, "%s cannot be read", path);
    else if (text->len > KVR_GATE_FILE_BYTES_MAX)
        rc = kvr_error_set(error, KVR_E_LIMIT, "%s is over 64 MiB", path);
    fclose(file);
    return rc;
}

static struct kvr_envelope *
read_envelope(const char *path, const struct kvr_envelope_options *options, struct kvr_error *error)
{
    struct kvr_buffer text = {0};
    struct kvr_envelope *envelope = NULL;
    struct kvr_error why = {0};
    if (read_file(path, &text, error) == 0) {
        envelope = kvr_envelope_create(kvr_buffer_slice(&text), options, &why);
        if (!envelope)
            kvr_error_set(error, why.code, "%s: %s", path, why.text);
    }
    kvr_buffer_deinit(&text);
    return envelope;
}

enum kvr_script_role kvr_gate_covers(const struct kvr_ingress *ingress)
{
    const struct kvr_router *router = &ingress->router;
    static const enum kvr_script_role roles[] = {KVR_ROLE_POLICY, KVR_ROLE_CANARY};
    for (size_t i = 0; router->envelope && i < sizeof roles / sizeof roles[0]; i++) {
        const struct kvr_script_record *record = router->records[roles[i]];
        if (record && record->info.hash == router->envelope->candidate_hash)
            return roles[i];
    }
    return KVR_ROLES;
}

int kvr_gate_load(struct kvr_ingress *ingress, struct kvr_slice path, struct kvr_error *error)
{
    const struct kvr_gate_options *options = &ingress->options.gate;
    struct kvr_gate *gate = &ingress->gate;
    char name[KVR_GATE_PATH_MAX];
    if (path.len >= sizeof name)
        return kvr_error_set(error, KVR_E_LIMIT, "a path has at most %zu bytes", sizeof name - 1);
    snprintf(name, sizeof name, "%.*s", (int)path.len, path.data);
    struct kvr_envelope *envelope = read_envelope(name, &options->envelope, error);
    if (!envelope)
        return error->code;
    const char *baseline =
        options->baseline && *options->baseline ? options->baseline : envelope->against;
    int rc = kvr_script_store_choose(&ingress->scripts, KVR_ROLE_BASELINE, kvr_slice_of(baseline),
                                     NULL, 0, error);
    if (rc) {
        kvr_envelope_destroy(envelope);
        return kvr_script_store_blame(rc, "baseline", error);
    }
    kvr_envelope_destroy(kvr_router_install_envelope(&ingress->router, envelope));
    snprintf(gate->path, sizeof gate->path, "%s", name);
    gate->since_ns = kvr_loop_now();
    bool covers = kvr_gate_covers(ingress) != KVR_ROLES;
    kvr_log(covers ? KVR_LOG_INFO : KVR_LOG_WARN,
            "the gate of %s is in force: %u keys, baseline %s, %s%s", envelope->candidate,
            envelope->keys_len, baseline, gate->path,
            covers ? "" : "; no policy that acts is the text that was gated");
    return 0;
}

void kvr_gate_drop(struct kvr_ingress *ingress)
{
    struct kvr_error error = {0};
    if (!ingress->router.envelope)
        return;
    kvr_envelope_destroy(kvr_router_install_envelope(&ingress->router, NULL));
    int rc = kvr_script_store_choose(&ingress->scripts, KVR_ROLE_BASELINE, kvr_slice_of(""), NULL,
                                     0, &error);
    KVR_CHECK(rc == 0);
    ingress->gate = (struct kvr_gate){0};
    kvr_log(KVR_LOG_INFO, "no gate is in force, by the operator");
}
