/* One scan of a request body under way: shared by the files that read its parts (api_request.c,
 * api_message.c, api_content.c, api_prompt.c, api_identity.c) and by nobody else.
 *
 * Canonical text is written to `out`, which runs through the prompt's scratch. The scratch is sized
 * before the scan, for twice the body: no part may write more than two bytes for each byte of the
 * body it has read, and so nothing moves while slices point into it. kvr_api_room checks that. */
#ifndef KVR_API_SCAN_H
#define KVR_API_SCAN_H

#include "api_request.h"
#include "json_reader.h"

/* Beyond twice the body: what one step may write ahead of what it has read. */
#define KVR_API_SLACK 128

/* The bytes between the texts of a canonical prompt; api_request.h shows where they stand. */
enum kvr_tag {
    KVR_TAG_ROLE = 1,
    KVR_TAG_CONTENT = 2,
    KVR_TAG_END = 3,
    KVR_TAG_MEDIA = 4,
    KVR_TAG_NAME = 5,
    KVR_TAG_CALLS = 6,
    KVR_TAG_CALL_ID = 7,
    KVR_TAG_REASONING = 8,
};

/* chat_template, chat_template_kwargs, reasoning_effort, documents. */
#define KVR_API_ARGUMENTS 4

struct kvr_api_scan {
    struct kvr_json_reader json;
    const struct kvr_api_options *options;
    struct kvr_api_request *request;
    struct kvr_prompt *prompt;
    char *out;                             /* next byte to write */
    const char *limit;                     /* end of the scratch */
    struct kvr_slice tools, system, body;  /* parts of the canonical prompt */
    const char *opening;                   /* in body: end of the first user message, or NULL */
    uint64_t media_bytes;                  /* of body: placeholders that are no text */
    uint64_t arguments[KVR_API_ARGUMENTS]; /* hashes of what else changes the rendering; 0 none */
    int64_t max_tokens[2]; /* by the plain names, and by those that win over them; -1 none */
    bool spoke;            /* content just read had text or media of its own */
};

static inline void kvr_api_room(const struct kvr_api_scan *scan)
{
    size_t unread = (size_t)(scan->json.end - scan->json.at);
    KVR_CHECK((size_t)(scan->limit - scan->out) >= 2 * unread + KVR_JSON_SLACK);
}

static inline void kvr_api_put(struct kvr_api_scan *scan, char byte)
{
    kvr_api_room(scan);
    *scan->out++ = byte;
}

/* A key to compare with names: decoded into `room` if it has escapes. What is too long for that is
 * no name that anybody looks for, and comes back empty. */
#define KVR_API_KEY_ROOM (6 * KVR_IDENTITY_BYTES_MAX + KVR_JSON_SLACK)
struct kvr_slice kvr_api_key(struct kvr_json_span key, char room[KVR_API_KEY_ROOM]);

/* These take the value that comes next, and write it to the canonical text. */

/* A string, decoded; of another kind nothing is written, and the answer is false. */
bool kvr_api_put_string(struct kvr_api_scan *scan);
/* Any value as canonical JSON. */
void kvr_api_put_compact(struct kvr_api_scan *scan);
/* A string as it is, another value as canonical JSON, null and empty lists as nothing. */
void kvr_api_put_any(struct kvr_api_scan *scan);
/* The content of a message in any of its shapes. Sets scan->spoke when there is some. */
void kvr_api_put_content(struct kvr_api_scan *scan);

/* These take the value that comes next as one part of the prompt. */
void kvr_api_take_tools(struct kvr_api_scan *scan);    /* tools or functions */
void kvr_api_take_system(struct kvr_api_scan *scan);   /* system or instructions */
void kvr_api_take_messages(struct kvr_api_scan *scan); /* a list of messages, or a user's text */
void kvr_api_take_prompt(struct kvr_api_scan *scan);   /* text, token ids, or a list of either */
void kvr_api_take_load(struct kvr_api_scan *scan);     /* the same, counted only */

/* These take the value that comes next for what it identifies; hashes, 0 when it does not. */
uint64_t kvr_api_take_identity(struct kvr_api_scan *scan);     /* a string or a number */
uint64_t kvr_api_take_conversation(struct kvr_api_scan *scan); /* the same, or an object's `id` */
void kvr_api_take_metadata(struct kvr_api_scan *scan);

/* Notes the value, `raw` as it stands in the body, if its key is a configured one; `prefix` is
 * where the key stands: nothing at the top level, or "metadata.". */
void kvr_api_note_configured(struct kvr_api_scan *scan, struct kvr_slice prefix,
                             struct kvr_slice key, struct kvr_slice raw);

#endif
