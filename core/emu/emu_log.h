/* What reached the emulated replicas of this process, byte for byte: one JSON object a request,
 * with its head as it was sent and the hash of its body, closed when its answer has ended.
 *
 *   {"seq":7,"replica":0,"t_ms":512.3,"connection":3,"nth":2,"method":"POST","target":"/v1/...",
 *    "version":"1.1","headers":[["Host","127.0.0.1:8000"],...],"body_bytes":183,
 *    "body_xxh64":"91c2...","status":200,"outcome":"done","ms":41.2,"model":"m",
 *    "prompt_tokens":31,"cached_tokens":16,"tokens":64,"fault":"..."}
 *
 * `nth` counts the requests of its connection from 1. `outcome` is `open` until the answer has
 * ended, then `done`, `aborted` (the client went away) or `broken` (by a fault). The latest lines
 * stay in memory, and all go to a file where there is one. For tests: whatever was in a head is in
 * the log, keys too. */
#ifndef KVR_EMU_LOG_H
#define KVR_EMU_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client.h"
#include "error.h"
#include "list.h"

#define KVR_EMU_LOG_LINES 1024 /* kept in memory by default */
#define KVR_EMU_LOG_HEADER_BYTES                                                                   \
    ((size_t)16 * 1024) /* of one request; further headers are left out */

/* One request; closed ones are kept in the log's list. */
struct kvr_emu_entry {
    struct kvr_list link;
    struct kvr_buffer text; /* JSON without its last brace */
    uint64_t since_ns;      /* of the loop's clock, at its arrival */
    uint32_t replica;       /* index in the process */
};

/* What is known when the answer has ended; zero and NULL are left out. */
struct kvr_emu_close {
    uint16_t status;
    const char *outcome;
    const char *model;
    uint64_t prompt_tokens;
    uint64_t cached_tokens;
    uint64_t tokens;        /* of the output */
    struct kvr_slice fault; /* as written */
};

struct kvr_emu_origin {
    uint32_t replica;
    uint64_t connection; /* number of the connection, of this replica */
    uint32_t nth;        /* request of it */
};

struct kvr_emu_log {
    FILE *file; /* NULL: none */
    struct kvr_list open;
    struct kvr_list closed; /* oldest first */
    uint32_t closed_len;
    uint32_t lines_max;
    uint64_t seq; /* requests seen */
    uint64_t origin_ns;
};

/* `path` NULL: no file. Without lines and file nothing is kept at all. KVR_E_IO. */
int kvr_emu_log_init(struct kvr_emu_log *log, const char *path, uint32_t lines_max,
                     struct kvr_error *error) KVR_MUST_USE;
void kvr_emu_log_deinit(struct kvr_emu_log *log);

/* NULL when nothing is kept; then closing it does nothing. */
struct kvr_emu_entry *kvr_emu_log_open(struct kvr_emu_log *log, const struct kvr_emu_origin *origin,
                                       const struct kvr_request *request);
void kvr_emu_log_close(struct kvr_emu_log *log, struct kvr_emu_entry *entry,
                       const struct kvr_emu_close *close);

/* The last `last` closed ones of that replica (UINT32_MAX: all), then those that are open. */
void kvr_emu_log_write(const struct kvr_emu_log *log, uint32_t replica, uint32_t last,
                       struct kvr_buffer *out);
void kvr_emu_log_clear(struct kvr_emu_log *log);

#endif
