/* What the engine says about a call's outputs, put into the words of its API and sent: event by
 * event when it streams, whole when the last output is finished. */
#include <stddef.h>

#include "check.h"
#include "emu_call.h"
#include "memory.h"
#include "prefetch.h"
#include "replica_server.h"

static void fail_with(struct kvr_emu_call *call, enum kvr_emu_refusal refusal, const char *message)
{
    struct kvr_emu_problem problem = {0};
    kvr_emu_refuse(&problem, refusal, NULL, "%s", message);
    kvr_emu_call_fail(call, &problem);
}

/* ---- the stream ---- */

static void start_stream(struct kvr_emu_call *call)
{
    enum kvr_emu_flavour flavour = call->server->options.flavour;
    struct kvr_buffer headers = {0};
    if (flavour == KVR_EMU_LLAMACPP)
        kvr_buffer_append_text(&headers, "X-Accel-Buffering: no\r\n");
    if (call->server->options.echo_request_id)
        kvr_buffer_printf(&headers, "X-Request-Id: %s\r\n", call->answer.request_id);
    kvr_emu_call_head(
        call, 200, kvr_buffer_slice(&headers),
        flavour == KVR_EMU_LLAMACPP ? "text/event-stream" : "text/event-stream; charset=utf-8", -1);
    kvr_buffer_deinit(&headers);
}

/* Before the first event of any choice. */
static void open_stream(struct kvr_emu_call *call)
{
    if (call->answer.opened)
        return;
    call->answer.opened = true;
    if (!call->status)
        start_stream(call);
    call->shape->opened(&call->answer, &call->server->sink);
}

void kvr_emu_call_on_event(void *context, struct kvr_slice event, uint32_t tokens)
{
    struct kvr_emu_call *call = context;
    kvr_emu_output_frame(&call->output, event, tokens);
}

static void send_whole(struct kvr_emu_call *call)
{
    struct kvr_buffer body = {0};
    struct kvr_buffer headers = {0};
    if (call->server->options.echo_request_id)
        kvr_buffer_printf(&headers, "X-Request-Id: %s\r\n", call->answer.request_id);
    call->shape->whole(&call->answer, &body);
    kvr_emu_call_head(call, 200, kvr_buffer_slice(&headers), "application/json", (int64_t)body.len);
    kvr_emu_output_frame(&call->output, kvr_buffer_slice(&body), 0);
    kvr_buffer_deinit(&headers);
    kvr_buffer_deinit(&body);
}

/* A reader that takes nothing must not make us hold everything. */
static bool cut_if_stuck(struct kvr_emu_call *call)
{
    if (kvr_emu_output_unsent(&call->output) <= KVR_EMU_UNSENT_MAX)
        return false;
    struct kvr_client *client = call->output.client;
    client->user = NULL;
    kvr_emu_call_drop(call, "aborted");
    kvr_client_abort(client);
    return true;
}

/* ---- what the engine says ---- */

static struct kvr_emu_job *job_of(struct kvr_live_request *live)
{
    return KVR_LIST_ENTRY(live, struct kvr_emu_job, live);
}

static struct kvr_emu_choice *choice_of(const struct kvr_emu_job *job)
{
    return &job->call->answer.choices[job - job->call->jobs];
}

static void on_accepted(void *context, struct kvr_live_request *live)
{
    (void)context;
    struct kvr_emu_job *job = job_of(live);
    struct kvr_emu_call *call = job->call;
    kvr_free(job->blocks);
    job->blocks = NULL;
    if (++call->accepted < call->jobs_len)
        return;
    /* As vLLM does: the head goes out when the request is in, long before the first token. */
    if (call->answer.stream && !call->server->options.late_head) {
        start_stream(call);
        kvr_emu_output_flush(&call->output);
    }
}

/* SGLang tells a streamed client that the queue is full by a stream that ends at once. */
static void end_as_aborted(struct kvr_emu_call *call)
{
    struct kvr_emu_sink *sink = &call->server->sink;
    for (uint32_t i = 0; i < call->jobs_len; i++)
        kvr_live_engine_abort(&call->server->live, &call->jobs[i].live);
    sink->context = call;
    open_stream(call);
    for (uint32_t i = 0; i < call->answer.choices_len; i++) {
        call->answer.choices[i].finished = true;
        call->answer.choices[i].reason = KVR_FINISH_ABORT;
        call->shape->finished(&call->answer, &call->answer.choices[i], sink);
    }
    call->shape->closed(&call->answer, sink);
    kvr_emu_output_finish(&call->output);
    kvr_emu_output_flush(&call->output);
}

static void on_refused(void *context, struct kvr_live_request *live, int code)
{
    (void)context;
    struct kvr_emu_call *call = job_of(live)->call;
    if (code == KVR_E_LIMIT && call->answer.flavour == KVR_EMU_SGLANG && call->answer.stream)
        end_as_aborted(call);
    else if (code == KVR_E_LIMIT)
        fail_with(call, KVR_EMU_FULL, "The request queue is full. Try again later.");
    else if (code == KVR_E_STATE)
        fail_with(call, KVR_EMU_NOT_READY, "Loading model");
    else
        fail_with(call, KVR_EMU_TOO_LONG,
                  "The request does not fit into the KV cache of this engine.");
}

static void note_token(struct kvr_emu_call *call, struct kvr_emu_choice *choice,
                       const struct kvr_engine_event *event)
{
    struct kvr_replica_server *server = call->server;
    uint64_t time_ns = event->time_ns + server->live.after_ns;
    if (!choice->started) {
        choice->cached_tokens = event->cached_tokens;
        choice->admitted_ns = event->admitted_ns;
        choice->first_token_ns = time_ns;
    }
    kvr_emu_metrics_token(&server->metrics, choice, time_ns);
    choice->started = true;
    choice->last_token_ns = time_ns;
    choice->tokens = event->token + 1;
    choice->bytes = kvr_emu_text_cut(call->answer.alphabet, choice->seed,
                                     kvr_tokens_cut(&server->tokens, choice->tokens));
}

static void on_token(void *context, struct kvr_live_request *live,
                     const struct kvr_engine_event *event)
{
    struct kvr_replica_server *server = context;
    struct kvr_emu_call *call = job_of(live)->call;
    struct kvr_emu_choice *choice = choice_of(job_of(live));
    size_t from = choice->bytes;
    note_token(call, choice, event);
    if (!call->answer.stream)
        return;
    char text[(size_t)KVR_BYTES_PER_TOKEN_MAX + 16];
    size_t len = choice->bytes - from;
    KVR_CHECK(len <= sizeof text);
    kvr_emu_text_bytes(call->answer.alphabet, choice->seed, from, len, text);
    server->sink.context = call;
    open_stream(call);
    call->shape->token(&call->answer, choice, kvr_slice_make(text, len), &server->sink);
    if (call->fails_at_a_token && call->output.tokens >= call->fault.after) {
        fail_with(call, KVR_EMU_DIED, "EngineCore encountered an issue.");
        return;
    }
    /* The last token goes out together with the end that follows it. */
    if (choice->tokens < choice->output_tokens && !cut_if_stuck(call))
        kvr_emu_output_flush(&call->output);
}

static void remember_response(struct kvr_emu_call *call)
{
    struct kvr_replica_server *server = call->server;
    if (call->answer.api != KVR_API_RESPONSES || server->options.stored_responses == 0)
        return;
    struct kvr_buffer text = {0};
    struct kvr_buffer whole = {0};
    kvr_emu_choice_text(&call->answer, &call->answer.choices[0], &text);
    kvr_emu_store_join(kvr_buffer_slice(&call->conversation), (struct kvr_slice){0},
                       kvr_buffer_slice(&text), &whole);
    kvr_emu_store_add(&server->store, call->answer.id, kvr_buffer_slice(&whole));
    kvr_buffer_deinit(&text);
    kvr_buffer_deinit(&whole);
}

static void on_finished(void *context, struct kvr_live_request *live,
                        const struct kvr_engine_event *event)
{
    struct kvr_replica_server *server = context;
    struct kvr_emu_call *call = job_of(live)->call;
    struct kvr_emu_answer *answer = &call->answer;
    struct kvr_emu_choice *choice = choice_of(job_of(live));
    bool ordered = call->fault.kind == KVR_EMU_FAULT_ERROR && !answer->stream;
    if (event->reason == KVR_FINISH_ERROR || ordered) {
        fail_with(call, KVR_EMU_DIED, "EngineCore encountered an issue.");
        return;
    }
    choice->finished = true;
    choice->reason = event->reason;
    answer->choices_done++;
    kvr_emu_metrics_finished(&server->metrics, choice);
    bool last = answer->choices_done == answer->choices_len;
    server->sink.context = call;
    if (answer->stream)
        call->shape->finished(answer, choice, &server->sink);
    if (last) {
        remember_response(call);
        if (answer->stream)
            call->shape->closed(answer, &server->sink);
        else
            send_whole(call);
        kvr_emu_output_finish(&call->output);
    }
    kvr_emu_output_flush(&call->output);
}

/* A token's event, and its client's stream but for the handle of libuv in it. */
static void on_soon(void *context, const struct kvr_live_request *live)
{
    (void)context;
    const struct kvr_emu_call *call = KVR_LIST_ENTRY(live, struct kvr_emu_job, live)->call;
    const struct kvr_stream *stream = &call->output.client->stream;
    kvr_prefetch_all(call->answer.token.data, call->answer.token.len);
    kvr_prefetch_all(&stream->loop, sizeof *stream - offsetof(struct kvr_stream, loop));
}

const struct kvr_live_handler kvr_emu_call_events = {
    .on_accepted = on_accepted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_finished = on_finished,
    .owner_bytes = offsetof(struct kvr_emu_call, answer.created_s),
    .on_soon = on_soon,
};
