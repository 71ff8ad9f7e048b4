#include "emu_output.h"

#include <string.h>

#define NO_GATE UINT64_MAX

static void on_due(struct kvr_emu_delay *delay);

static uint64_t made(const struct kvr_emu_output *output)
{
    return output->sent + (output->wire.len - output->wire_at);
}

static uint64_t next_gate(const struct kvr_emu_output *output)
{
    uint64_t gate = NO_GATE;
    if (output->gates.len)
        memcpy(&gate, output->gates.data, sizeof gate);
    return gate;
}

static void add_gate(struct kvr_emu_output *output, uint64_t at)
{
    kvr_buffer_append(&output->gates, &at, sizeof at);
}

/* A status that was ordered may come late, which is all that the bytes know of it. */
static bool is_of_bytes(const struct kvr_emu_fault *fault)
{
    return (fault->kind >= KVR_EMU_FAULT_STALL && fault->kind <= KVR_EMU_FAULT_DRIP) ||
           (fault->kind == KVR_EMU_FAULT_STATUS && fault->ms > 0);
}

void kvr_emu_output_init(struct kvr_emu_output *output, struct kvr_client *client,
                         struct kvr_emu_delays *delays, struct kvr_buffer *spare,
                         const struct kvr_emu_fault *fault,
                         void (*on_end)(struct kvr_emu_output *output, enum kvr_emu_ending ending))
{
    memset(output, 0, sizeof *output);
    output->client = client;
    output->delays = delays;
    output->spare = spare;
    output->on_end = on_end;
    output->keep = client->keep_alive;
    kvr_emu_delay_init(&output->delay, on_due);
    if (!fault || !is_of_bytes(fault))
        return;
    output->fault = fault;
    if (fault->place == KVR_EMU_AT_HEAD)
        add_gate(output, 0);
    if (fault->place == KVR_EMU_AFTER_TOKENS && fault->after == 0)
        output->aiming = true;
}

/* ---- making bytes ---- */

/* One piece of memory serves all outputs that have nothing waiting, and stays in the cache. */
static struct kvr_buffer *wire_of(struct kvr_emu_output *output)
{
    if (!output->wire.data) {
        output->wire = *output->spare;
        *output->spare = (struct kvr_buffer){0};
    }
    return &output->wire;
}

static void give_back(struct kvr_emu_output *output)
{
    output->wire.len = output->wire_at = 0;
    if (output->spare->data)
        kvr_buffer_deinit(output->spare);
    *output->spare = output->wire;
    output->wire = (struct kvr_buffer){0};
}

void kvr_emu_output_head(struct kvr_emu_output *output, uint16_t status, struct kvr_slice headers,
                         struct kvr_slice content_type, int64_t length)
{
    struct kvr_buffer *wire = wire_of(output);
    struct kvr_client *client = output->client;
    output->framing = length >= 0 ? KVR_EMU_SIZED : client->http10 ? KVR_EMU_BARE : KVR_EMU_CHUNKED;
    if (output->framing == KVR_EMU_BARE)
        output->keep = client->keep_alive = false;
    kvr_buffer_printf(wire, "HTTP/1.1 %u %s\r\n", status, kvr_http_phrase(status));
    if (content_type.len)
        kvr_buffer_printf(wire, "Content-Type: %.*s\r\n", (int)content_type.len, content_type.data);
    kvr_buffer_append_slice(wire, headers);
    if (!client->keep_alive)
        kvr_buffer_append_text(wire, "Connection: close\r\n");
    else if (client->http10)
        kvr_buffer_append_text(wire, "Connection: keep-alive\r\n");
    if (output->framing == KVR_EMU_SIZED)
        kvr_buffer_printf(wire, "Content-Length: %lld\r\n\r\n", (long long)length);
    else
        kvr_buffer_append_text(wire, output->framing == KVR_EMU_CHUNKED
                                         ? "Transfer-Encoding: chunked\r\n\r\n"
                                         : "\r\n");
    output->started = true;
    const struct kvr_emu_fault *fault = output->fault;
    if (fault && (fault->place == KVR_EMU_AT_BODY ||
                  (output->aiming && fault->inside == KVR_EMU_IN_NOTHING))) {
        add_gate(output, made(output));
        output->aiming = false;
    }
}

/* Where in a frame `inside` is; 0: nowhere. `payload_at` bytes of framing come before it. */
static size_t offset_inside(enum kvr_emu_inside inside, struct kvr_slice payload, size_t payload_at)
{
    switch (inside) {
    case KVR_EMU_IN_SIZE:
        return payload_at ? 1 : 0;
    case KVR_EMU_IN_DATA:
        return payload.len > 3 ? payload_at + 3 : 0;
    case KVR_EMU_IN_UTF8:
        for (size_t i = 0; i + 1 < payload.len; i++)
            if ((unsigned char)payload.data[i] >= 0xc0)
                return payload_at + i + 1;
        return 0;
    case KVR_EMU_IN_NEWLINE:
        return payload.len > 1 ? payload_at + payload.len - 1 : 0;
    case KVR_EMU_IN_DONE: {
        const char *done = memmem(payload.data, payload.len, "[DONE]", 6);
        return done ? payload_at + (size_t)(done - payload.data) + 3 : 0;
    }
    case KVR_EMU_IN_NOTHING:
        break;
    }
    return 0;
}

/* Sets the gate if the fault is to act in or right after the frame that ends the wire. */
static void aim(struct kvr_emu_output *output, struct kvr_slice payload, uint32_t tokens,
                uint64_t frame_at, size_t payload_at)
{
    const struct kvr_emu_fault *fault = output->fault;
    if (fault->place == KVR_EMU_AFTER_BYTES && fault->bytes > output->body_bytes &&
        fault->bytes <= output->body_bytes + payload.len)
        add_gate(output, frame_at + payload_at + (fault->bytes - output->body_bytes));
    if (fault->place != KVR_EMU_AFTER_TOKENS)
        return;
    if (output->aiming && fault->inside) {
        size_t offset = offset_inside(fault->inside, payload, payload_at);
        if (offset) {
            add_gate(output, frame_at + offset);
            output->aiming = fault->every;
        }
        return;
    }
    bool reached = output->tokens < fault->after && output->tokens + tokens >= fault->after;
    /* A whole answer has no events: the middle of its body stands for all of them. */
    if (output->framing == KVR_EMU_SIZED && fault->after && output->body_bytes == 0)
        add_gate(output, frame_at + payload.len / 2);
    else if (reached && fault->inside)
        output->aiming = true;
    else if (reached)
        add_gate(output, made(output));
}

static size_t put_size(struct kvr_buffer *wire, size_t size)
{
    char line[24];
    size_t at = sizeof line;
    line[--at] = '\n';
    line[--at] = '\r';
    for (; size; size >>= 4)
        line[--at] = "0123456789abcdef"[size & 15];
    kvr_buffer_append(wire, line + at, sizeof line - at);
    return sizeof line - at;
}

void kvr_emu_output_frame(struct kvr_emu_output *output, struct kvr_slice payload, uint32_t tokens)
{
    if (payload.len == 0)
        return;
    uint64_t frame_at = made(output);
    bool chunked = output->framing == KVR_EMU_CHUNKED;
    struct kvr_buffer *wire = wire_of(output);
    size_t payload_at = chunked ? put_size(wire, payload.len) : 0;
    kvr_buffer_append_slice(wire, payload);
    if (chunked)
        kvr_buffer_append(wire, "\r\n", 2);
    if (output->fault)
        aim(output, payload, tokens, frame_at, payload_at);
    output->body_bytes += payload.len;
    output->tokens += tokens;
}

void kvr_emu_output_finish(struct kvr_emu_output *output)
{
    if (output->framing == KVR_EMU_CHUNKED)
        kvr_buffer_append(wire_of(output), "0\r\n\r\n", 5);
    output->complete = true;
}

/* ---- sending them ---- */

static void end(struct kvr_emu_output *output, enum kvr_emu_ending ending)
{
    struct kvr_client *client = output->client;
    bool keep = output->keep;
    bool reset = ending == KVR_EMU_BROKEN && output->fault->kind == KVR_EMU_FAULT_RESET;
    client->user = NULL;
    void (*on_end)(struct kvr_emu_output *, enum kvr_emu_ending) = output->on_end;
    kvr_emu_output_drop(output);
    on_end(output, ending);
    /* The owner is gone by now; the next request may come in from here. */
    if (reset)
        kvr_client_abort(client);
    else
        kvr_client_relayed(client, keep && ending == KVR_EMU_SENT);
}

static void send_up_to(struct kvr_emu_output *output, uint64_t limit)
{
    size_t n = (size_t)(limit - output->sent);
    if (n == 0)
        return;
    uv_buf_t buf = uv_buf_init(output->wire.data + output->wire_at, (unsigned)n);
    kvr_client_relay(output->client, &buf, 1);
    output->sent += n;
    output->wire_at += n;
    if (output->wire_at == output->wire.len)
        give_back(output);
}

/* What happens at the gate once its time has come. False: the output has ended. */
static bool act(struct kvr_emu_output *output)
{
    const struct kvr_emu_fault *fault = output->fault;
    kvr_buffer_consume(&output->gates, sizeof(uint64_t));
    switch (fault->kind) {
    case KVR_EMU_FAULT_STALL:
        output->held = fault->ms < 0;
        return true;
    case KVR_EMU_FAULT_RESET:
    case KVR_EMU_FAULT_CLOSE:
        end(output, KVR_EMU_BROKEN);
        return false;
    case KVR_EMU_FAULT_DRIP:
        add_gate(output, output->sent + fault->bytes);
        return true;
    default:
        return true;
    }
}

void kvr_emu_output_flush(struct kvr_emu_output *output)
{
    while (!output->held && !output->waiting) {
        uint64_t total = made(output);
        uint64_t gate = next_gate(output);
        send_up_to(output, gate < total ? gate : total);
        if (output->sent == gate) {
            if (output->fault->ms > 0) {
                output->waiting = true;
                kvr_emu_delay_start(output->delays, &output->delay, output->fault->ms);
                return;
            }
            if (!act(output))
                return;
        } else {
            if (output->complete && output->sent == total)
                end(output, KVR_EMU_SENT);
            return;
        }
    }
}

static void on_due(struct kvr_emu_delay *delay)
{
    struct kvr_emu_output *output = KVR_LIST_ENTRY(delay, struct kvr_emu_output, delay);
    output->waiting = false;
    if (act(output))
        kvr_emu_output_flush(output);
}

size_t kvr_emu_output_unsent(const struct kvr_emu_output *output)
{
    return output->wire.len - output->wire_at + kvr_client_unsent(output->client);
}

void kvr_emu_output_drop(struct kvr_emu_output *output)
{
    kvr_emu_delay_stop(&output->delay);
    kvr_buffer_deinit(&output->wire);
    kvr_buffer_deinit(&output->gates);
    output->client = NULL;
}
