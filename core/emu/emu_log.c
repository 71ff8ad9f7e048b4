#include "emu_log.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "json_writer.h"
#include "memory.h"

int kvr_emu_log_init(struct kvr_emu_log *log, const char *path, uint32_t lines_max,
                     struct kvr_error *error)
{
    *log = (struct kvr_emu_log){.lines_max = lines_max, .origin_ns = kvr_loop_now()};
    kvr_list_init(&log->open);
    kvr_list_init(&log->closed);
    if (!path)
        return 0;
    log->file = fopen(path, "ae");
    if (!log->file)
        return kvr_error_set(error, KVR_E_IO, "cannot write \"%s\": %s", path, strerror(errno));
    return 0;
}

static void free_entry(struct kvr_emu_entry *entry)
{
    kvr_list_remove(&entry->link);
    kvr_buffer_deinit(&entry->text);
    kvr_free(entry);
}

static void drop_closed(struct kvr_emu_log *log, uint32_t keep)
{
    while (log->closed_len > keep) {
        free_entry(KVR_LIST_ENTRY(log->closed.next, struct kvr_emu_entry, link));
        log->closed_len--;
    }
}

void kvr_emu_log_clear(struct kvr_emu_log *log)
{
    drop_closed(log, 0);
}

void kvr_emu_log_deinit(struct kvr_emu_log *log)
{
    kvr_emu_log_clear(log);
    KVR_CHECK(kvr_list_empty(&log->open));
    if (log->file)
        fclose(log->file);
    log->file = NULL;
}

static void put_headers(struct kvr_json_writer *json, const struct kvr_http_head *head)
{
    size_t bytes = 0;
    kvr_json_array_begin(json, "headers");
    for (uint32_t i = 0; i < head->count; i++) {
        const struct kvr_header *header = &head->headers[i];
        bytes += header->name.len + header->value.len;
        if (bytes > KVR_EMU_LOG_HEADER_BYTES)
            break;
        kvr_json_array_begin(json, NULL);
        kvr_json_string(json, NULL, header->name);
        kvr_json_string(json, NULL, header->value);
        kvr_json_array_end(json);
    }
    kvr_json_array_end(json);
}

static double milliseconds(uint64_t from_ns, uint64_t to_ns)
{
    uint64_t whole_us = (to_ns - from_ns) / 1000;
    return (double)whole_us / 1e3;
}

struct kvr_emu_entry *kvr_emu_log_open(struct kvr_emu_log *log, const struct kvr_emu_origin *origin,
                                       const struct kvr_request *request)
{
    if (log->lines_max == 0 && !log->file)
        return NULL;
    struct kvr_emu_entry *entry = kvr_alloc_zero(1, sizeof *entry);
    entry->replica = origin->replica;
    entry->since_ns = kvr_loop_now();
    kvr_list_append(&log->open, &entry->link);
    struct kvr_json_writer json = {.out = &entry->text};
    kvr_json_object_begin(&json, NULL);
    kvr_json_uint(&json, "seq", ++log->seq);
    kvr_json_uint(&json, "replica", origin->replica);
    kvr_json_double(&json, "t_ms", milliseconds(log->origin_ns, entry->since_ns));
    kvr_json_uint(&json, "connection", origin->connection);
    kvr_json_uint(&json, "nth", origin->nth);
    kvr_json_string(&json, "method", request->head->method);
    kvr_json_string(&json, "target", request->head->target);
    kvr_json_text(&json, "version", request->head->minor ? "1.1" : "1.0");
    put_headers(&json, request->head);
    kvr_json_uint(&json, "body_bytes", request->body.len);
    kvr_json_hex64(&json, "body_xxh64", XXH64(request->body.data, request->body.len, 0));
    return entry;
}

void kvr_emu_log_close(struct kvr_emu_log *log, struct kvr_emu_entry *entry,
                       const struct kvr_emu_close *close)
{
    if (!entry)
        return;
    struct kvr_json_writer json = {.out = &entry->text, .comma = true};
    if (close->status)
        kvr_json_uint(&json, "status", close->status);
    kvr_json_text(&json, "outcome", close->outcome);
    kvr_json_double(&json, "ms", milliseconds(entry->since_ns, kvr_loop_now()));
    if (close->model && close->model[0])
        kvr_json_text(&json, "model", close->model);
    if (close->prompt_tokens) {
        kvr_json_uint(&json, "prompt_tokens", close->prompt_tokens);
        kvr_json_uint(&json, "cached_tokens", close->cached_tokens);
        kvr_json_uint(&json, "tokens", close->tokens);
    }
    if (close->fault.len)
        kvr_json_string(&json, "fault", close->fault);
    kvr_list_remove(&entry->link);
    if (log->file) {
        fprintf(log->file, "%.*s}\n", (int)entry->text.len, entry->text.data);
        fflush(log->file);
    }
    kvr_list_append(&log->closed, &entry->link);
    log->closed_len++;
    drop_closed(log, log->lines_max);
}

void kvr_emu_log_write(const struct kvr_emu_log *log, uint32_t replica, uint32_t last,
                       struct kvr_buffer *out)
{
    const struct kvr_list *from = &log->closed;
    for (const struct kvr_list *link = log->closed.prev; last && link != &log->closed;
         link = link->prev) {
        from = link;
        if (replica == UINT32_MAX ||
            KVR_LIST_ENTRY(link, struct kvr_emu_entry, link)->replica == replica)
            last--;
    }
    for (const struct kvr_list *link = from; link != &log->closed; link = link->next) {
        const struct kvr_emu_entry *entry = KVR_LIST_ENTRY(link, struct kvr_emu_entry, link);
        if (replica == UINT32_MAX || entry->replica == replica)
            kvr_buffer_printf(out, "%.*s}\n", (int)entry->text.len, entry->text.data);
    }
    for (const struct kvr_list *link = log->open.next; link != &log->open; link = link->next) {
        const struct kvr_emu_entry *entry = KVR_LIST_ENTRY(link, struct kvr_emu_entry, link);
        if (replica == UINT32_MAX || entry->replica == replica)
            kvr_buffer_printf(out, "%.*s,\"outcome\":\"open\"}\n", (int)entry->text.len,
                              entry->text.data);
    }
}
