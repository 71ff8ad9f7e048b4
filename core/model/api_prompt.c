/* Prompts that are no conversation: a text, a list of texts, token ids, a list of such lists. */
#include <math.h>

#include "api_scan.h"
#include "json_number.h"

/* An id in any other form than a few digits: its value, kept within 32 bits. */
static uint32_t odd_token_id(struct kvr_slice number)
{
    return (uint32_t)(int64_t)fmin(fmax(kvr_json_number_value(number), INT32_MIN), UINT32_MAX);
}

static uint32_t token_id(struct kvr_slice number)
{
    uint32_t id = 0;
    if (number.len > 9)
        return odd_token_id(number);
    for (size_t i = 0; i < number.len; i++) {
        unsigned digit = (unsigned char)number.data[i] - (unsigned)'0';
        if (digit > 9)
            return odd_token_id(number);
        id = id * 10 + digit;
    }
    return id;
}

/* Takes the id that comes next to the canonical text; what is no number is passed over. */
static bool put_token(struct kvr_api_scan *scan)
{
    struct kvr_slice number;
    if (!kvr_json_read_number(&scan->json, &number)) {
        kvr_json_skip(&scan->json, NULL);
        return false;
    }
    uint32_t id = token_id(number);
    kvr_api_room(scan);
    for (unsigned shift = 0; shift < 32; shift += 8)
        *scan->out++ = (char)(id >> shift);
    return true;
}

/* What one prompt amounts to. */
struct amount {
    uint64_t bytes;
    uint64_t tokens;
    bool ids; /* tokens is exact */
};

/* The prompt that comes next: a text or a list of token ids. Written to the canonical text if it is
 * the one to hash, else only measured, as it stands in the body. */
static struct amount take_one(struct kvr_api_scan *scan, bool hashed)
{
    struct kvr_json_reader *json = &scan->json;
    struct amount amount = {0};
    struct kvr_json_span span = {.escaped = false};
    if (kvr_json_enter_array(json)) {
        amount.ids = true;
        while (kvr_json_next_item(json)) {
            struct kvr_slice number;
            if (hashed ? put_token(scan) : kvr_json_read_number(json, &number))
                amount.tokens++;
            else if (!hashed)
                kvr_json_skip(json, NULL);
        }
    } else if (hashed) {
        kvr_api_put_string(scan);
    } else if (kvr_json_read_string(json, &span)) {
        amount.bytes = span.raw.len;
    } else {
        kvr_json_skip(json, &span.raw);
        amount.bytes = span.raw.len;
    }
    return amount;
}

/* A list, entered: of token ids, which is one prompt, or of prompts. */
static struct amount take_list(struct kvr_api_scan *scan, bool hashed)
{
    struct kvr_json_reader *json = &scan->json;
    struct kvr_api_request *request = scan->request;
    struct amount first = {0};
    bool bare = false; /* the list itself holds ids */
    while (kvr_json_next_item(json)) {
        struct kvr_slice number;
        if (kvr_json_peek(json) == KVR_JSON_NUMBER && (bare || request->prompts == 0)) {
            request->prompts = 1;
            bare = first.ids = true;
            if (hashed ? put_token(scan) : kvr_json_read_number(json, &number))
                first.tokens++;
        } else if (request->prompts++ == 0) {
            first = take_one(scan, hashed);
        } else {
            struct amount other = take_one(scan, false);
            request->other_bytes += other.bytes;
            request->other_tokens += other.tokens;
        }
    }
    return first;
}

static struct amount take(struct kvr_api_scan *scan, bool hashed)
{
    struct kvr_json_reader *json = &scan->json;
    struct kvr_api_request *request = scan->request;
    struct amount first = {0};
    request->prompts = 0;
    request->prompt_tokens = -1;
    request->other_bytes = request->other_tokens = 0;
    enum kvr_json_kind kind = kvr_json_peek(json);
    if (kind == KVR_JSON_ARRAY && kvr_json_enter_array(json)) {
        first = take_list(scan, hashed);
    } else if (kind == KVR_JSON_STRING) {
        request->prompts = 1;
        first = take_one(scan, hashed);
    } else {
        kvr_json_skip(json, NULL);
    }
    if (first.ids)
        request->prompt_tokens = (int64_t)first.tokens;
    return first;
}

void kvr_api_take_prompt(struct kvr_api_scan *scan)
{
    char *start = scan->out;
    scan->opening = NULL;
    take(scan, true);
    scan->body = kvr_slice_make(start, (size_t)(scan->out - start));
}

void kvr_api_take_load(struct kvr_api_scan *scan)
{
    scan->request->prompt_bytes = take(scan, false).bytes;
}
