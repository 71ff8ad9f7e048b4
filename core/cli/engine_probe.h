/* Times an OpenAI-compatible endpoint from outside, for `kvroute calibrate`: requests are sent one
 * after another or a few at once, and the loop turns until they have ended. Everything waits.
 *
 * Prompts are made of common short words and begin with a number of their own, so that no cache has
 * seen them. How long one is in tokens is the engine's word, from its usage. */
#ifndef KVR_ENGINE_PROBE_H
#define KVR_ENGINE_PROBE_H

#include "calibration.h"
#include "load_client.h"

struct kvr_probe_options {
    struct kvr_load_target target;
    const char *model;
    const char *key;     /* NULL: none */
    bool completions;    /* /v1/completions; else /v1/chat/completions */
    double time_scale;   /* engine seconds a wall second, of an emulated engine */
    uint32_t prompt_max; /* tokens of the longest prompt */
    uint32_t batch_max;  /* streams at once */
    uint32_t repeats;    /* of each first token and spike; the median counts */
    uint64_t timeout_ns; /* of one request */
};

#define KVR_PROBE_TIMINGS_MAX 128

/* What was found. */
struct kvr_probe_report {
    struct kvr_timing timings[KVR_PROBE_TIMINGS_MAX];
    size_t len;
    bool cached_told;       /* by the endpoint's usage */
    double bytes_per_token; /* of its tokenizer, of the text that was sent */
    double head_tokens;     /* of a prompt without text: the chat's template */
    double jitter;          /* of single gaps, as a share of their median */
};

/* One request. */
struct kvr_probe_call {
    struct kvr_load_call call;
    struct kvr_probe *probe;
    uint64_t text; /* names its prompt */
    uint32_t words;
    uint32_t max_tokens;
    uint32_t prompt_bytes; /* of the text, once it was written */
    bool done;
};

struct kvr_probe {
    struct kvr_loop *loop;
    const struct kvr_probe_options *options;
    struct kvr_load_client client;
    struct kvr_buffer text; /* scratch */
    uint64_t nonce;         /* of this run */
    uint64_t texts;         /* made so far */
    double words_per_token;
    bool closed;
};

/* KVR_E_INVALID: a key that no head may hold. */
int kvr_probe_open(struct kvr_probe *probe, struct kvr_loop *loop,
                   const struct kvr_probe_options *options, struct kvr_error *error) KVR_MUST_USE;
void kvr_probe_close(struct kvr_probe *probe);

/* A prompt of about so many tokens that was never sent. */
void kvr_probe_call_init(struct kvr_probe *probe, struct kvr_probe_call *call, uint32_t tokens,
                         uint32_t max_tokens);
void kvr_probe_start(struct kvr_probe *probe, struct kvr_probe_call *call);
/* Turns the loop until it has ended. KVR_E_IO, or KVR_E_INVALID for a 4xx, says how it failed. */
int kvr_probe_wait(struct kvr_probe *probe, struct kvr_probe_call *call, struct kvr_error *error);
/* Turns it until the stream has so many events with content, or has ended. */
void kvr_probe_wait_events(struct kvr_probe *probe, const struct kvr_probe_call *call,
                           uint32_t events);

/* Measures everything (engine_timings.c); lines of progress go to stderr. */
int kvr_probe_measure(struct kvr_probe *probe, struct kvr_probe_report *report,
                      struct kvr_error *error) KVR_MUST_USE;

#endif
