/* What a client of bench_chaos will do next, drawn from the seed and the number of its request: the
 * text of one request or of several in a row, and where it gives up. */
#ifndef KVR_BENCH_CHAOS_PLAN_H
#define KVR_BENCH_CHAOS_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"

#define PIPELINE_MAX  4
#define LIKE_SESSIONS 16  /* whose prompts begin alike */
#define LONG_FACTOR   200 /* how much longer the long prompts are */

enum phase {
    CONNECTED,
    HEAD_HALF,
    HEAD_SENT,
    BODY_HALF,
    REQUEST_SENT,
    FIRST_BYTE,
    MIDWAY,
    STOPS_READING,
    VANISHES,
    TRICKLES,
    NEVER,
    PHASES
};
static const char *const phase_names[PHASES] = {
    "connected", "head_half",     "head_sent", "body_half", "request_sent", "first_byte",
    "midway",    "stops_reading", "vanishes",  "trickles",  "never"};

struct request {
    uint64_t number;
    enum phase phase;
};

struct chaos_options {
    uint64_t requests, seed;
    double abort; /* share of those that give up */
    size_t bytes; /* of a prompt, on average */
    double longs; /* share of prompts that are LONG_FACTOR as long */
    bool hostile;
};

struct chaos_plan {
    struct kvr_rng rng;
    struct request requests[PIPELINE_MAX]; /* not answered yet, in their order */
    unsigned count;
    char *text; /* of all of them */
    size_t len, capacity;
    size_t stop;     /* of text that will be sent at all */
    size_t step;     /* bytes a piece */
    uint64_t enough; /* body bytes after which MIDWAY gives up */
    bool keep;       /* the connection, for more */
};

static inline bool chaos_chance(struct chaos_plan *plan, double share)
{
    return kvr_rng_double(&plan->rng) < share;
}

static inline void chaos_add(struct chaos_plan *plan, const char *text, size_t len)
{
    if (plan->len + len > plan->capacity) {
        plan->capacity = 2 * (plan->len + len);
        plan->text = realloc(plan->text, plan->capacity);
        if (!plan->text)
            abort();
    }
    memcpy(plan->text + plan->len, text, len);
    plan->len += len;
}

static inline size_t chaos_body(struct chaos_plan *plan, const struct chaos_options *options,
                                enum phase phase, char *to, size_t room)
{
    static const char *const words[] = {"the ", "router ", "keeps ", "prompt ", "cache ", "of ",
                                        "a ",   "warm ",   "card ",  "and ",    "sends ", "next "};
    uint64_t like = kvr_rng_below(&plan->rng, LIKE_SESSIONS);
    bool stream = phase == MIDWAY || chaos_chance(plan, 0.6);
    uint64_t tokens = phase == MIDWAY || phase == FIRST_BYTE ? 200 : 1;
    tokens += kvr_rng_below(&plan->rng, tokens > 1 ? 200 : 24);
    size_t len = options->bytes / 4 + kvr_rng_below(&plan->rng, options->bytes * 3 / 2 + 1);
    if (chaos_chance(plan, options->longs))
        len *= LONG_FACTOR;
    size_t at = (size_t)snprintf(to, room,
                                 "{\"model\":\"test-model\",\"stream\":%s,\"max_tokens\":%llu,"
                                 "\"messages\":[{\"role\":\"user\",\"content\":\"%s",
                                 stream ? "true" : "false", (unsigned long long)tokens,
                                 phase == STOPS_READING ? "HUGE " : "");
    struct kvr_rng text;
    kvr_rng_init(&text, like); /* the first half of a prompt is that of its like */
    for (size_t begin = at, half = len / 2; at < begin + len && at + 16 < room;) {
        const char *word = words[kvr_rng_below(at < begin + half ? &text : &plan->rng, 12)];
        size_t n = strlen(word);
        memcpy(to + at, word, n);
        at += n;
    }
    return at + (size_t)snprintf(to + at, room - at, "\"}]}");
}

static inline void chaos_add_chunks(struct chaos_plan *plan, const char *body, size_t len)
{
    char size[32];
    for (size_t from = 0; from < len;) {
        size_t n = 1 + kvr_rng_below(&plan->rng, len - from);
        chaos_add(plan, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
        chaos_add(plan, body + from, n);
        chaos_add(plan, "\r\n", 2);
        from += n;
    }
    chaos_add(plan, "0\r\n\r\n", 5);
}

/* Appends one request and says where its head ends. */
static inline size_t chaos_request(struct chaos_plan *plan, const struct chaos_options *options,
                                   const struct request *request, bool last)
{
    static char body[1 << 20];
    char head[512], length[64];
    size_t body_len = chaos_body(plan, options, request->phase, body, sizeof body);
    bool chunked = chaos_chance(plan, 0.1), old = last && !chunked && chaos_chance(plan, 0.03);
    plan->keep = !old && (!last || chaos_chance(plan, 0.7));
    snprintf(length, sizeof length, "Content-Length: %zu", body_len);
    int head_len = snprintf(
        head, sizeof head,
        "POST /v1/chat/completions HTTP/1.%d\r\nHost: chaos\r\n"
        "X-Request-Id: c%llu-%llu\r\nX-Session-Id: s%llu\r\n"
        "Content-Type: application/json\r\n%s%s\r\n\r\n",
        !old, (unsigned long long)options->seed, (unsigned long long)request->number,
        (unsigned long long)kvr_rng_below(&plan->rng, 200),
        plan->keep ? "" : "Connection: close\r\n", chunked ? "Transfer-Encoding: chunked" : length);
    chaos_add(plan, head, (size_t)head_len);
    size_t head_end = plan->len;
    if (chunked)
        chaos_add_chunks(plan, body, body_len);
    else
        chaos_add(plan, body, body_len);
    return head_end;
}

static inline enum phase chaos_phase(struct chaos_plan *plan, const struct chaos_options *options)
{
    if (options->hostile)
        return STOPS_READING + (enum phase)kvr_rng_below(&plan->rng, 3);
    return chaos_chance(plan, options->abort) ? (enum phase)kvr_rng_below(&plan->rng, MIDWAY + 1)
                                              : NEVER;
}

/* Draws what comes next, from request number `*number` on, which moves on by as many as it is. */
static inline void chaos_draw(struct chaos_plan *plan, const struct chaos_options *options,
                              uint64_t *number)
{
    kvr_rng_init(&plan->rng, kvr_mix64(options->seed) ^ *number);
    unsigned wanted = !options->hostile && chaos_chance(plan, 0.08) ? PIPELINE_MAX : 1;
    plan->len = 0;
    enum phase phase = NEVER;
    size_t head_start = 0, head_end = 0;
    for (plan->count = 0; plan->count < wanted && *number < options->requests; plan->count++) {
        bool last = plan->count + 1 == wanted || *number + 1 == options->requests;
        phase = last ? chaos_phase(plan, options) : NEVER; /* of several, the last gives up */
        plan->requests[plan->count] = (struct request){(*number)++, phase};
        head_start = plan->len;
        head_end = chaos_request(plan, options, &plan->requests[plan->count], last);
    }
    size_t head_len = head_end - head_start, body_len = plan->len - head_end;
    size_t stops[PHASES] = {
        [CONNECTED] = head_start,
        [HEAD_HALF] = head_start + 1 + kvr_rng_below(&plan->rng, head_len - 1),
        [HEAD_SENT] = head_end,
        [BODY_HALF] = head_end + 1 + kvr_rng_below(&plan->rng, body_len - 1),
        [VANISHES] = head_end + body_len / 2,
    };
    plan->stop = phase <= BODY_HALF || phase == VANISHES ? stops[phase] : plan->len;
    plan->enough = 1 + kvr_rng_below(&plan->rng, 20000);
    plan->step = plan->len;
    if (phase == TRICKLES)
        plan->step = 1;
    else if (chaos_chance(plan, 0.2))
        plan->step = 1 + plan->stop / (1 + kvr_rng_below(&plan->rng, 4));
}

#endif
