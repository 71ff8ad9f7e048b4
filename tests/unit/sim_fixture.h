/* What the tests of the simulator share: scripts from policies/, and a request of a workload as a
 * client would put it on the wire. */
#ifndef KVR_SIM_FIXTURE_H
#define KVR_SIM_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "sim.h"

static inline char *read_script(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/policies/%s%s.lua", KVR_SOURCE_DIR, folder, name);
    FILE *file = fopen(path, "rb");
    KVR_CHECK(file);
    char *text = calloc(1, 1 << 16);
    KVR_CHECK(text && fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

static inline void load_script(struct kvr_sim *sim, const char *role, const char *folder,
                               const char *name)
{
    struct kvr_error error = {0};
    char *text = read_script(folder, name);
    int failed = kvr_sim_load(sim, role, name, text, NULL, 0, &error);
    if (failed)
        fprintf(stderr, "%s: %s\n", name, error.text);
    KVR_CHECK(!failed);
    free(text);
}

/* The body of a chat completion with the texts of the pieces. */
static inline void write_body(const struct kvr_workload_request *request, const char *model,
                              struct kvr_buffer *body)
{
    body->len = 0;
    kvr_buffer_printf(body, "{\"model\":\"%s\",\"stream\":true,\"max_tokens\":%u,\"messages\":[",
                      model, request->max_tokens);
    for (uint32_t i = 0; i < request->pieces_len; i++) {
        const struct kvr_piece *piece = &request->pieces[i];
        if (!piece->continues)
            kvr_buffer_printf(body, "%s{\"role\":\"%s\",\"content\":\"", i ? "\"}," : "",
                              kvr_speaker_name(piece->speaker));
        char *text = kvr_buffer_reserve(body, piece->bytes);
        kvr_workload_text(piece->id, 0, piece->bytes, text);
        body->len += piece->bytes;
    }
    kvr_buffer_append_text(body, "\"}]}");
}

#endif
