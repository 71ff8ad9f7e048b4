/* The public headers as LuaJIT reads them: preprocessor lines dropped, macros left out. */
#include <stdio.h>
#include <string.h>

#include "buffer.h"
#include "kvr_plan_change_h.h"
#include "kvr_plan_h.h"
#include "kvr_profile_h.h"
#include "kvr_sim_h.h"
#include "kvr_trace_h.h"
#include "kvr_workload_h.h"
#include "sim.h"

/* Appends `text` without the lines of the preprocessor, a header's guard among them. */
static void append_header(struct kvr_buffer *out, const char *text)
{
    bool continued = false; /* a directive goes on */
    while (*text) {
        size_t len = strcspn(text, "\n");
        bool directive = continued || text[0] == '#';
        continued = directive && len > 0 && text[len - 1] == '\\';
        if (!directive) {
            kvr_buffer_append(out, text, len);
            kvr_buffer_append(out, "\n", 1);
        }
        text += len + (text[len] == '\n');
    }
}

static void blank_out(struct kvr_buffer *out, const char *word)
{
    size_t len = strlen(word);
    for (char *at = out->data; (at = strstr(at, word)); at += len)
        memset(at, ' ', len);
}

const char *kvr_sim_declarations(void)
{
    static struct kvr_buffer text;
    if (text.len)
        return text.data;
    kvr_buffer_printf(&text,
                      "struct kvr_slice { const char *data; size_t len; };\n"
                      "struct kvr_error { int code; char text[%d]; };\n"
                      "enum { KVR_PROFILE_NAME_MAX = %d };\n",
                      KVR_ERROR_TEXT_MAX, KVR_PROFILE_NAME_MAX);
    append_header(&text, kvr_plan_h);
    append_header(&text, kvr_plan_change_h);
    append_header(&text, kvr_profile_h);
    append_header(&text, kvr_workload_h);
    append_header(&text, kvr_trace_h);
    append_header(&text, kvr_sim_h);
    kvr_buffer_append(&text, "", 1);
    blank_out(&text, "KVR_EXPORT");
    blank_out(&text, "KVR_MUST_USE");
    return text.data;
}

void kvr_sim_sizes(uint32_t sizes[4])
{
    sizes[0] = sizeof(struct kvr_sim_options);
    sizes[1] = sizeof(struct kvr_sim_record);
    sizes[2] = sizeof(struct kvr_sim_result);
    sizes[3] = sizeof(struct kvr_workload_request);
}
