#include "gate_file.h"

#include <stdio.h>

#include "check.h"
#include "file.h"
#include "gate.h"
#include "ingress.h"
#include "log.h"
#include "memory.h"

/* The thread's from uv_queue_work until on_read. */
struct kvr_gate_reading {
    uv_work_t work;
    struct kvr_ingress *ingress;
    struct kvr_envelope_options options;
    char path[KVR_GATE_PATH_MAX];
    struct kvr_envelope *envelope; /* NULL: see `error` */
    struct kvr_error error;
    void *context;
    void (*on_done)(void *context, const struct kvr_error *error); /* NULL: nobody asks any more */
    bool unwanted;
};

/* ---- in a thread of the pool ---- */

static void read_envelope(struct kvr_gate_reading *reading)
{
    struct kvr_buffer text = {0};
    struct kvr_error why = {0};
    if (kvr_file_read(reading->path, KVR_GATE_FILE_BYTES_MAX, &text, &reading->error) == 0) {
        reading->envelope = kvr_envelope_create(kvr_buffer_slice(&text), &reading->options, &why);
        if (!reading->envelope)
            kvr_error_set(&reading->error, why.code, "%s: %s", reading->path, why.text);
    }
    kvr_buffer_deinit(&text);
}

static void on_work(uv_work_t *work)
{
    read_envelope(work->data);
}

/* ---- on the loop ---- */

/* Takes the envelope. */
static int put_in_force(struct kvr_ingress *ingress, struct kvr_gate_reading *reading,
                        struct kvr_error *error)
{
    struct kvr_envelope *envelope = reading->envelope;
    const struct kvr_router *router = &ingress->router;
    const char *baseline = ingress->options.gate.baseline;
    char words[KVR_GATE_WORDS_MAX];
    reading->envelope = NULL;
    if (!baseline || !*baseline)
        baseline = envelope->against.name;
    int rc = kvr_script_store_choose(&ingress->scripts, KVR_ROLE_BASELINE, kvr_slice_of(baseline),
                                     NULL, 0, error);
    if (rc) {
        kvr_envelope_destroy(envelope);
        return kvr_script_store_blame(rc, "baseline", error);
    }
    kvr_envelope_destroy(kvr_router_install_envelope(&ingress->router, envelope));
    snprintf(ingress->gate.path, sizeof ingress->gate.path, "%s", reading->path);
    ingress->gate.since_ns = kvr_loop_now();
    struct kvr_gate_cover cover = kvr_gate_cover(router);
    kvr_gate_cover_words(router, &cover, words);
    kvr_log(cover.covers ? KVR_LOG_INFO : KVR_LOG_WARN,
            "the gate of %s is in force: %u keys, baseline %s, %s%s%s", envelope->candidate.name,
            envelope->keys_len, baseline, reading->path,
            cover.covers ? "" : "; what acts is not what was judged: ", words);
    return 0;
}

static int conclude(struct kvr_gate_reading *reading, struct kvr_error *error)
{
    if (!reading->envelope)
        return kvr_error_set(error, reading->error.code, "%s", reading->error.text);
    if (reading->unwanted)
        return kvr_error_set(error, KVR_E_STATE, "%s: the gate was turned off while it was read",
                             reading->path);
    return put_in_force(reading->ingress, reading, error);
}

static void free_reading(struct kvr_gate_reading *reading)
{
    kvr_envelope_destroy(reading->envelope);
    kvr_free(reading);
}

static void on_read(uv_work_t *work, int status)
{
    struct kvr_gate_reading *reading = work->data;
    struct kvr_gate *gate = &reading->ingress->gate;
    struct kvr_error error = {0};
    KVR_CHECK(status == 0); /* it is never cancelled */
    gate->reading = NULL;
    if (gate->on_closed) {
        free_reading(reading);
        gate->on_closed(gate->closed_context);
        return;
    }
    int rc = conclude(reading, &error);
    if (reading->on_done)
        reading->on_done(reading->context, rc ? &error : NULL);
    free_reading(reading);
}

static struct kvr_gate_reading *make_reading(struct kvr_ingress *ingress, struct kvr_slice path,
                                             struct kvr_error *error)
{
    if (path.len >= KVR_GATE_PATH_MAX || memchr(path.data, '\0', path.len)) {
        kvr_error_set(error, KVR_E_INVALID, "a path has at most %d bytes, and no zero",
                      KVR_GATE_PATH_MAX - 1);
        return NULL;
    }
    struct kvr_gate_reading *reading = kvr_alloc_zero(1, sizeof *reading);
    reading->work.data = reading;
    reading->ingress = ingress;
    reading->options = ingress->options.gate.envelope;
    memcpy(reading->path, path.data, path.len);
    return reading;
}

/* ---- what others call ---- */

int kvr_gate_load_first(struct kvr_ingress *ingress, struct kvr_slice path, struct kvr_error *error)
{
    struct kvr_gate_reading *reading = make_reading(ingress, path, error);
    if (!reading)
        return KVR_E_INVALID;
    read_envelope(reading);
    int rc = conclude(reading, error);
    free_reading(reading);
    return rc;
}

int kvr_gate_ask(struct kvr_ingress *ingress, const struct kvr_gate_wish *wish,
                 struct kvr_error *error)
{
    struct kvr_gate *gate = &ingress->gate;
    KVR_CHECK(!gate->on_closed);
    if (gate->reading)
        return kvr_error_set(error, KVR_E_STATE, "another gate is being read: %s",
                             gate->reading->path);
    struct kvr_gate_reading *reading = make_reading(ingress, wish->path, error);
    if (!reading)
        return KVR_E_INVALID;
    reading->context = wish->context;
    reading->on_done = wish->on_done;
    gate->reading = reading;
    KVR_CHECK(uv_queue_work(ingress->loop->uv, &reading->work, on_work, on_read) == 0);
    return 0;
}

void kvr_gate_forget(struct kvr_ingress *ingress, const void *context)
{
    struct kvr_gate_reading *reading = ingress->gate.reading;
    if (reading && reading->context == context)
        reading->on_done = NULL;
}

void kvr_gate_drop(struct kvr_ingress *ingress)
{
    struct kvr_error error = {0};
    if (ingress->gate.reading)
        ingress->gate.reading->unwanted = true;
    if (!ingress->router.envelope)
        return;
    kvr_envelope_destroy(kvr_router_install_envelope(&ingress->router, NULL));
    int rc = kvr_script_store_choose(&ingress->scripts, KVR_ROLE_BASELINE, kvr_slice_of(""), NULL,
                                     0, &error);
    KVR_CHECK(rc == 0);
    ingress->gate.path[0] = '\0';
    ingress->gate.since_ns = 0;
    kvr_log(KVR_LOG_INFO, "no gate is in force, by the operator");
}

void kvr_gate_close(struct kvr_ingress *ingress, void *context, void (*on_closed)(void *context))
{
    struct kvr_gate *gate = &ingress->gate;
    KVR_CHECK(!gate->on_closed);
    gate->on_closed = on_closed;
    gate->closed_context = context;
    if (!gate->reading)
        on_closed(context);
}
