#include "engine_probe.h"

#include <string.h>

#include "check.h"
#include "json_writer.h"
#include "rng.h"

static const char *const words[] = {
    "time",  "year", "people", "way",  "day",   "man",   "thing", "woman", "life", "child", "world",
    "hand",  "part", "place",  "week", "case",  "point", "home",  "water", "room", "area",  "money",
    "story", "fact", "month",  "lot",  "right", "study", "book",  "eye",   "job",  "word",
};

#define WORDS (sizeof words / sizeof words[0])

/* ---- bodies ---- */

static void write_text(struct kvr_probe *probe, const struct kvr_probe_call *call)
{
    struct kvr_rng rng;
    uint64_t seed = kvr_mix64(probe->nonce + call->text);
    kvr_rng_init(&rng, seed);
    probe->text.len = 0;
    kvr_buffer_printf(&probe->text, "%08x", (unsigned)(seed >> 32));
    for (uint32_t i = 0; i < call->words; i++) {
        kvr_buffer_append_text(&probe->text, " ");
        kvr_buffer_append_text(&probe->text, words[kvr_rng_below(&rng, WORDS)]);
    }
}

static void on_write(void *context, struct kvr_load_call *load, struct kvr_load_message *message)
{
    struct kvr_probe *probe = context;
    struct kvr_probe_call *call = KVR_LIST_ENTRY(load, struct kvr_probe_call, call);
    struct kvr_json_writer json = {.out = message->body};
    write_text(probe, call);
    call->prompt_bytes = (uint32_t)probe->text.len;
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "model", probe->options->model);
    if (probe->options->completions) {
        kvr_json_string(&json, "prompt", kvr_buffer_slice(&probe->text));
    } else {
        kvr_json_array_begin(&json, "messages");
        kvr_json_object_begin(&json, NULL);
        kvr_json_text(&json, "role", "user");
        kvr_json_string(&json, "content", kvr_buffer_slice(&probe->text));
        kvr_json_object_end(&json);
        kvr_json_array_end(&json);
    }
    kvr_json_uint(&json, "max_tokens", call->max_tokens);
    kvr_json_uint(&json, "temperature", 0);
    kvr_json_bool(&json, "ignore_eos", true);
    kvr_json_bool(&json, "stream", true);
    kvr_json_raw(&json, "stream_options", kvr_slice_of("{\"include_usage\":true}"));
    kvr_json_object_end(&json);
}

static void on_done(void *context, struct kvr_load_call *load)
{
    (void)context;
    KVR_LIST_ENTRY(load, struct kvr_probe_call, call)->done = true;
}

/* ---- the client ---- */

static const struct kvr_load_client_events events = {.on_write = on_write, .on_done = on_done};

int kvr_probe_open(struct kvr_probe *probe, struct kvr_loop *loop,
                   const struct kvr_probe_options *options, struct kvr_error *error)
{
    *probe = (struct kvr_probe){
        .loop = loop,
        .options = options,
        .nonce = kvr_loop_now(),
        .words_per_token = 1,
    };
    const struct kvr_load_client_options client = {
        .target = &options->target,
        .path = options->completions ? "/v1/completions" : "/v1/chat/completions",
        .key = options->key,
        .timeout_ns = options->timeout_ns,
    };
    return kvr_load_client_open(&probe->client, loop, &client, &events, probe, error);
}

static void on_closed(void *context)
{
    struct kvr_probe *probe = context;
    probe->closed = true;
}

void kvr_probe_close(struct kvr_probe *probe)
{
    kvr_load_client_cancel(&probe->client);
    kvr_load_client_close(&probe->client, probe, on_closed);
    while (!probe->closed)
        uv_run(probe->loop->uv, UV_RUN_ONCE);
    kvr_buffer_deinit(&probe->text);
}

/* ---- one request ---- */

void kvr_probe_call_init(struct kvr_probe *probe, struct kvr_probe_call *call, uint32_t tokens,
                         uint32_t max_tokens)
{
    *call = (struct kvr_probe_call){
        .probe = probe,
        .text = ++probe->texts,
        .words = (uint32_t)(tokens * probe->words_per_token),
        .max_tokens = max_tokens,
    };
}

void kvr_probe_start(struct kvr_probe *probe, struct kvr_probe_call *call)
{
    call->done = false;
    if (!kvr_load_client_start(&probe->client, &call->call))
        call->done = true;
}

int kvr_probe_wait(struct kvr_probe *probe, struct kvr_probe_call *call, struct kvr_error *error)
{
    while (!call->done)
        uv_run(probe->loop->uv, UV_RUN_ONCE);
    const struct kvr_load_call *load = &call->call;
    if (load->failure == KVR_LOAD_STATUS)
        return kvr_error_set(error, load->status < 500 ? KVR_E_INVALID : KVR_E_IO,
                             "a prompt of %u bytes was answered with status %u", call->prompt_bytes,
                             load->status);
    if (load->failure != KVR_LOAD_OK)
        return kvr_error_set(error, KVR_E_IO, "a prompt of %u bytes failed: %s", call->prompt_bytes,
                             kvr_load_failure_name(load->failure));
    if (load->usage.usage.prompt_tokens <= 0)
        return kvr_error_set(error, KVR_E_IO,
                             "the endpoint does not tell usage when it streams, and without that "
                             "nobody knows how long a prompt is");
    return KVR_OK;
}

void kvr_probe_wait_events(struct kvr_probe *probe, const struct kvr_probe_call *call,
                           uint32_t count)
{
    while (!call->done && (!call->call.reading || call->call.usage.content_events < count))
        uv_run(probe->loop->uv, UV_RUN_ONCE);
}
