#include "emu_call.h"

#include "check.h"
#include "memory.h"
#include "replica_server.h"

/* ---- its life ---- */

static void free_call(struct kvr_emu_call *call, const char *outcome)
{
    struct kvr_replica_server *server = call->server;
    struct kvr_emu_usage usage = {0};
    if (call->shape)
        usage = kvr_emu_answer_usage(&call->answer);
    struct kvr_buffer fault = {0};
    if (call->fault.kind)
        kvr_emu_fault_write(&call->fault, &fault);
    if (call->status)
        kvr_emu_metrics_http(&server->metrics, call->handler, call->status);
    kvr_emu_log_close(server->options.log, call->entry,
                      &(struct kvr_emu_close){
                          .status = call->status,
                          .outcome = outcome,
                          .model = call->answer.model,
                          .prompt_tokens = usage.prompt_tokens,
                          .cached_tokens = usage.cached_tokens,
                          .tokens = usage.completion_tokens,
                          .fault = kvr_buffer_slice(&fault),
                      });
    kvr_buffer_deinit(&fault);
    for (uint32_t i = 0; i < call->jobs_len; i++) {
        kvr_live_engine_abort(&server->live, &call->jobs[i].live);
        kvr_free(call->jobs[i].blocks);
    }
    if (call->jobs_len > 1)
        kvr_free(call->jobs);
    else
        call->answer.choices = NULL; /* it is in the call */
    kvr_emu_huge_stop(&call->huge);
    kvr_buffer_deinit(&call->conversation);
    kvr_emu_answer_deinit(&call->answer);
    kvr_list_remove(&call->link);
    server->calls_len--;
    kvr_free(call);
}

static void on_end(struct kvr_emu_output *output, enum kvr_emu_ending ending)
{
    struct kvr_emu_call *call = KVR_LIST_ENTRY(output, struct kvr_emu_call, output);
    free_call(call, ending == KVR_EMU_SENT ? "done" : "broken");
}

struct kvr_emu_call *kvr_emu_call_new(struct kvr_replica_server *server,
                                      const struct kvr_emu_visit *visit)
{
    struct kvr_emu_call *call = kvr_alloc_zero(1, sizeof *call);
    call->server = server;
    call->entry = visit->entry;
    call->handler = kvr_emu_metrics_handler(visit->request->head->path);
    call->fault = visit->fault ? *visit->fault : (struct kvr_emu_fault){0};
    call->fails_at_a_token = call->fault.kind == KVR_EMU_FAULT_ERROR;
    kvr_list_append(&server->calls, &call->link);
    server->calls_len++;
    kvr_emu_output_init(&call->output, visit->client, &server->delays, &server->wire, &call->fault,
                        on_end);
    kvr_emu_huge_init(&call->huge, &call->output);
    uint32_t most = server->options.requests_per_connection;
    call->output.keep = call->output.keep && (most == 0 || visit->nth < most);
    visit->client->user = call;
    return call;
}

void kvr_emu_call_drop(struct kvr_emu_call *call, const char *outcome)
{
    kvr_emu_output_drop(&call->output);
    free_call(call, outcome);
}

void kvr_emu_call_head(struct kvr_emu_call *call, uint16_t status, struct kvr_slice headers,
                       const char *content_type, int64_t length)
{
    KVR_CHECK(call->status == 0);
    call->status = status;
    kvr_emu_output_head(&call->output, status, headers, kvr_slice_of(content_type), length);
}

/* ---- plain answers ---- */

void kvr_emu_call_page(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                       uint16_t status, struct kvr_slice headers, struct kvr_slice content_type,
                       struct kvr_slice body)
{
    struct kvr_emu_call *call = kvr_emu_call_new(server, visit);
    call->status = status;
    kvr_emu_output_head(&call->output, status, headers, content_type, (int64_t)body.len);
    if (!visit->client->head_only)
        kvr_emu_output_frame(&call->output, body, 0);
    kvr_emu_output_finish(&call->output);
    kvr_emu_output_flush(&call->output);
}

void kvr_emu_call_problem(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                          enum kvr_api api, const struct kvr_emu_problem *problem)
{
    struct kvr_buffer body = {0};
    struct kvr_buffer headers = {0};
    if (visit->fault && visit->fault->retry_after_s)
        kvr_buffer_printf(&headers, "Retry-After: %u\r\n", visit->fault->retry_after_s);
    kvr_emu_error_body(server->options.flavour, api, problem, &body);
    kvr_emu_call_page(server, visit, kvr_emu_error_status(server->options.flavour, problem),
                      kvr_buffer_slice(&headers), kvr_slice_of("application/json"),
                      kvr_buffer_slice(&body));
    kvr_buffer_deinit(&headers);
    kvr_buffer_deinit(&body);
}

void kvr_emu_call_huge(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    struct kvr_emu_call *call = kvr_emu_call_new(server, visit);
    kvr_emu_call_head(call, 200, kvr_slice_of(""), "text/event-stream; charset=utf-8",
                      call->fault.sized ? (int64_t)call->fault.bytes : -1);
    kvr_emu_huge_start(&call->huge, call->fault.bytes);
}

void kvr_emu_call_drained(struct kvr_emu_call *call)
{
    if (call->huge.left)
        kvr_emu_huge_pump(&call->huge);
}

/* ---- when it cannot be answered ---- */

void kvr_emu_call_fail(struct kvr_emu_call *call, const struct kvr_emu_problem *problem)
{
    struct kvr_replica_server *server = call->server;
    for (uint32_t i = 0; i < call->jobs_len; i++)
        kvr_live_engine_abort(&server->live, &call->jobs[i].live);
    if (call->status) {
        server->sink.context = call;
        kvr_emu_shape_failed(&call->answer, problem, &server->sink);
    } else {
        struct kvr_buffer body = {0};
        kvr_emu_error_body(server->options.flavour, call->answer.api, problem, &body);
        kvr_emu_call_head(call, kvr_emu_error_status(server->options.flavour, problem),
                          kvr_slice_of(""), "application/json", (int64_t)body.len);
        kvr_emu_output_frame(&call->output, kvr_buffer_slice(&body), 0);
        kvr_buffer_deinit(&body);
    }
    kvr_emu_output_finish(&call->output);
    kvr_emu_output_flush(&call->output);
}
