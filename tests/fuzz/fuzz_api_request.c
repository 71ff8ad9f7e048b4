/* The scan of request bodies, for every API. Input: one byte for the API, one of options,
 * one for a header, a body.
 *
 * A body is good when the slow JSON reader says so and it is an object; what is read of it does not
 * depend on what was scanned before, nor on blanks or a byte-order mark around it; the chain is
 * that of the canonical text; and the session does not change from one reading to the next. */
#include "fuzz.h"

#include "api_reply.h"
#include "api_request.h"
#include "naive_json.h"
#include "session.h"

enum choices {
    SESSION_FIELD = 1,
    TENANT_FIELD = 2,
    MEDIA = 4,
    SMALL_BLOCKS = 8,
    WIDE = 16,
    FEW = 32
};

/* Headers that may name a session, and some that look like it. */
static const char *const names[] = {
    "X-Session-Id",      "session-id", "session_id", "x-conversation-id", "conversation_id",
    "x-acme-session-id", "X-Acme",     "user",       "metadata.tenant",   "helicone-session-id",
};

static const char *header_name;
static const char *header_value;
static struct kvr_api_options options;
static struct kvr_prompt_options prompt_options;

static void choose(unsigned choices)
{
    options = (struct kvr_api_options){
        .session_field = kvr_slice_of(choices & SESSION_FIELD ? "user" : ""),
        .tenant_field = kvr_slice_of(choices & TENANT_FIELD ? "metadata.tenant" : ""),
        .routing_field = kvr_slice_of(choices & TENANT_FIELD ? "conversation_id" : ""),
        .media_tokens = choices & MEDIA ? 7 : 0,
    };
    prompt_options = (struct kvr_prompt_options){
        .block_bytes = choices & SMALL_BLOCKS ? KVR_PROMPT_BLOCK_BYTES_MIN : 0,
        .wide_after = choices & WIDE ? 100 : 0,
        .max_blocks = choices & FEW ? 3 : 0,
    };
}

static void note_session(struct kvr_buffer *log, const struct kvr_api_request *request)
{
    const struct kvr_header headers[] = {
        {kvr_slice_of(header_name), kvr_slice_of(header_value)},
        {kvr_slice_of("x-unrelated"), kvr_slice_of("1")},
    };
    const struct kvr_session_options session_options = {options.session_field,
                                                        options.tenant_field};
    struct kvr_session session = kvr_session_derive(&session_options, headers, 2, request);
    FUZZ_CHECK((session.key == 0) == (session.source == KVR_SESSION_NONE));
    kvr_buffer_printf(log, "session %llx tenant %llx by %s\n", (unsigned long long)session.key,
                      (unsigned long long)session.tenant, kvr_session_source_name(session.source));
}

static void note_request(struct kvr_buffer *log, const struct kvr_api_request *request)
{
    kvr_buffer_printf(log, "stream %d n %u prompts %u priority %g max %lld messages %u turn %u\n",
                      request->stream, request->n, request->prompts, request->priority,
                      (long long)request->max_tokens, request->messages, request->turn);
    kvr_buffer_printf(log, "media %u extra %llu bytes %llu tokens %lld others %llu %llu\n",
                      request->media, (unsigned long long)request->extra_tokens,
                      (unsigned long long)request->prompt_bytes, (long long)request->prompt_tokens,
                      (unsigned long long)request->other_bytes,
                      (unsigned long long)request->other_tokens);
    fuzz_note_slice(log, "model", request->model);
    fuzz_note_slice(log, "lora", request->lora);
    fuzz_note_slice(log, "salt", request->cache_salt);
    fuzz_note_slice(log, "user", request->user);
    for (int i = 0; i < KVR_IDENTITY_COUNT; i++)
        kvr_buffer_printf(log, "%llx ", (unsigned long long)request->identities[i]);
    kvr_buffer_printf(log, "scope %llx opening %zu %llx\n", (unsigned long long)request->scope,
                      request->opening_bytes, (unsigned long long)request->opening);
}

/* The canonical text, whole and in one piece, has the chain that was made of its parts. */
static void check_chain(const struct kvr_api_request *request, const struct kvr_prompt *prompt)
{
    struct kvr_buffer text = {0};
    struct kvr_prompt again;
    kvr_prompt_init(&again, &prompt_options);
    for (size_t i = 0; i < 3; i++)
        if (request->canonical[i].len)
            kvr_buffer_append_slice(&text, request->canonical[i]);
    FUZZ_CHECK(request->opening_bytes <= text.len);
    FUZZ_CHECK(prompt->first_block == 0);
    uint32_t full = prompt->chain_len;
    FUZZ_CHECK(prompt->bytes == text.len || full == 0);
    FUZZ_CHECK(full <= text.len / prompt->options.block_bytes);
    /* Template arguments make another seed; without them it is the scope. */
    kvr_prompt_begin(&again, request->scope);
    kvr_prompt_add(&again, text.data, text.len);
    FUZZ_CHECK(again.chain_len == full);
    bool same = full == 0 || memcmp(again.chain, prompt->chain, full * sizeof *prompt->chain) == 0;
    bool other = full && again.chain[0] != prompt->chain[0] &&
                 again.chain[full - 1] != prompt->chain[full - 1];
    FUZZ_CHECK(same || other);
    kvr_prompt_deinit(&again);
    kvr_buffer_deinit(&text);
}

/* The reply goes on where the prompt ended. */
static void note_reply(struct kvr_buffer *log, const struct kvr_prompt *prompt)
{
    struct kvr_prompt next;
    kvr_prompt_init(&next, &prompt_options);
    kvr_prompt_resume(&next, &prompt->tail);
    kvr_api_add_reply(&next, kvr_slice_of("a reply that is long enough for a block or two of 16"));
    for (uint32_t i = 0; i < next.chain_len; i++)
        kvr_buffer_printf(log, "reply %llx\n", (unsigned long long)next.chain[i]);
    kvr_prompt_deinit(&next);
}

static struct kvr_buffer understand(enum kvr_api api, struct kvr_slice body,
                                    struct kvr_prompt *prompt)
{
    struct kvr_buffer log = {0};
    struct kvr_api_request request;
    struct kvr_error error = {0};
    int rc = kvr_api_request_scan(&request, api, body, &options, prompt, &error);
    FUZZ_CHECK((rc == 0) == (error.text[0] == '\0'));
    enum naive_verdict verdict = naive_json(body, true);
    FUZZ_CHECK((rc == 0) == (verdict == NAIVE_GOOD));
    FUZZ_CHECK(verdict != NAIVE_DEEP || rc == KVR_E_LIMIT);
    if (rc) {
        kvr_buffer_append_text(&log, "refused\n");
        return log;
    }
    note_request(&log, &request);
    for (uint32_t i = 0; i < prompt->chain_len; i++)
        kvr_buffer_printf(&log, "block %llx\n", (unsigned long long)prompt->chain[i]);
    for (size_t i = 0; i < 3; i++)
        fuzz_note_slice(&log, "canonical", request.canonical[i]);
    FUZZ_CHECK(prompt->text.len <= 2 * body.len + 1024);
    check_chain(&request, prompt);
    note_session(&log, &request);
    note_reply(&log, prompt);
    return log;
}

/* The same body with a byte-order mark and blanks around it. */
static struct kvr_buffer understand_wrapped(enum kvr_api api, struct kvr_slice body,
                                            struct kvr_prompt *prompt)
{
    struct kvr_buffer text = {0};
    kvr_buffer_append_text(&text, "\xef\xbb\xbf \r\n");
    kvr_buffer_append_slice(&text, body);
    kvr_buffer_append_text(&text, "\t ");
    struct kvr_buffer log = understand(api, kvr_buffer_slice(&text), prompt);
    kvr_buffer_deinit(&text);
    return log;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct kvr_prompt reused;
    static unsigned reused_choices = ~0u;
    struct fuzz_input input = {data, size};
    enum kvr_api api = (enum kvr_api)(KVR_API_CHAT + fuzz_byte(&input) % KVR_API_GENERATE);
    unsigned choices = fuzz_byte(&input) % 64;
    choose(choices);
    unsigned header = fuzz_byte(&input);
    header_name = names[header % (sizeof names / sizeof *names)];
    header_value = header < 128 ? " " : "a value";
    if (choices != reused_choices) {
        if (reused_choices != ~0u)
            kvr_prompt_deinit(&reused);
        kvr_prompt_init(&reused, &prompt_options);
        reused_choices = choices;
    }
    char *bytes = fuzz_rest(&input);
    struct kvr_slice body = {bytes, input.left};
    struct kvr_prompt fresh;
    kvr_prompt_init(&fresh, &prompt_options);
    struct kvr_buffer one = understand(api, body, &fresh);
    struct kvr_buffer other = understand(api, body, &reused);
    fuzz_same(&one, &other);
    kvr_buffer_deinit(&other);
    if (body.len < 3 || memcmp(bytes, "\xef\xbb\xbf", 3) != 0) {
        other = understand_wrapped(api, body, &fresh);
        fuzz_same(&one, &other);
        kvr_buffer_deinit(&other);
    }
    kvr_buffer_deinit(&one);
    kvr_prompt_deinit(&fresh);
    free(bytes);
    return 0;
}
