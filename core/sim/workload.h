/* What clients ask for, and when: the one source of requests of the simulator and of the live load
 * driver. Pure: the same options give the same requests on any machine, and whatever is decided
 * about a request changes nothing of what is asked next. So all policies see equal bytes at one
 * load point; another `epoch` gives bytes that no other epoch has.
 *
 * A request is a conversation in pieces, each {id, bytes}: equal ids are equal text, as far as both
 * reach. The text itself is kvr_workload_text(id, offset), JSON-safe ASCII; a simulation needs only
 * the lengths, and tokens follow from bytes by the tokenizer of the profile.
 *
 *   kind SESSIONS   conversations of some turns, drawn by popularity from a pool. A user draws one,
 *                   goes through its turns, and draws the next: that is a visit. The replies that
 *                   a turn quotes are made up here, not by an engine.
 *   kind KEYS       independent requests, each [template][context of a key][one of the key's
 *                   variants][something new], keys drawn by weight. The key is the session.
 *                   With `thread_more`, RATE: threads of turns about one key, which begin at
 *                   random, one user each; [something new] is what its turns before said and were
 *                   answered, and what this one says.
 *   kind LIST       requests given one by one by kvr_workload_add: a trace.
 *
 *   arrivals CLOSED each user sends its next turn `think_ms` after the answer to the one before:
 *                     for each user u: at kvr_workload_start_ns(u) turn 0, then 1, 2, ... by
 *                     kvr_workload_turn(u, n) until it returns false
 *   otherwise OPEN  kvr_workload_next(&arrival) gives {due, user, turn} in order of time, and
 *                   kvr_workload_turn(arrival.user, arrival.turn) what is sent then, whatever has
 *                   become of the requests before.
 *
 * This header is also read by LuaJIT as it stands (kvr_sim_declarations): lines that start with '#'
 * are dropped, and of macros only KVR_EXPORT and KVR_MUST_USE may be used below. */
#ifndef KVR_WORKLOAD_H
#define KVR_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "error.h"

enum kvr_workload_kind { KVR_WORKLOAD_SESSIONS, KVR_WORKLOAD_KEYS, KVR_WORKLOAD_LIST };

enum kvr_arrival_kind {
    KVR_ARRIVALS_CLOSED,
    KVR_ARRIVALS_RATE,      /* at `rate` a second, with gaps of variation `gap_cv` */
    KVR_ARRIVALS_TIMES,     /* at the times of the list, or at those in `times_ms` */
    KVR_ARRIVALS_BOOTSTRAP, /* blocks of successive gaps of these, drawn anew at random */
};

enum kvr_speaker { KVR_SYSTEM, KVR_USER, KVR_ASSISTANT, KVR_TOOL };

struct kvr_piece {
    uint64_t id;       /* equal ids: equal text */
    uint32_t bytes;    /* of that text, from its start */
    uint8_t speaker;   /* enum kvr_speaker */
    uint8_t continues; /* 1: goes on in the message of the piece before, which has that speaker */
};

/* One request. Everything below `output_tokens` is for the engine alone: no policy may see it. */
struct kvr_workload_request {
    uint64_t user;    /* who sends it, from 0; of a list: its session, in order of appearance */
    uint64_t turn;    /* of that user, from 0, over all its visits */
    uint64_t session; /* number of the conversation, from 1; 0: none */
    uint64_t key;     /* number of the routing key, from 1; 0: none, the session is */
    uint64_t tenant;  /* from 1; 0: none */
    uint64_t tag;     /* hash that names this request among all of the workload */
    const struct kvr_piece *pieces; /* the workload's, until the next call of kvr_workload_turn */
    uint32_t pieces_len;
    uint32_t session_turn;  /* user turn within the conversation, from 1; 0: unknown */
    uint32_t session_turns; /* the conversation will have so many; 0: unknown */
    uint32_t prompt_bytes;  /* of all pieces */
    uint32_t max_tokens;    /* asked for; 0: not stated */
    uint32_t output_tokens; /* what the model says before it stops, > 0, <= max_tokens */
    uint32_t stops;         /* 1: by itself (finish reason stop); 0: at max_tokens (length) */
};

struct kvr_arrival {
    uint64_t due_ns; /* since the start */
    uint64_t user;
    uint64_t turn; /* of that user */
};

/* Zero is a value here, so start from kvr_workload_defaults, which is the study's workload. */
struct kvr_workload_options {
    uint64_t seed;
    uint64_t epoch;         /* of the text alone: not of who asks what when */
    uint32_t kind;          /* enum kvr_workload_kind */
    uint32_t arrivals;      /* enum kvr_arrival_kind */
    double bytes_per_token; /* of the profile, for lengths that are given in tokens */

    /* CLOSED */
    uint32_t users;  /* 32; of SESSIONS and KEYS. Of a list each session is a user */
    double think_ms; /* 1: from the end of an answer to the next turn; of a list its own */
    double think_cv; /* 0: variation of it; 1 exponential */
    double start_ms; /* 0: users start evenly spread over this time; 0 all at once */

    /* RATE: a Gamma renewal process in the time that the rate makes */
    double rate;     /* requests a second */
    double gap_cv;   /* 0: even spacing; 1: Poisson; 1.9: bursts */
    double rate_end; /* 0: constant; else the rate goes there in a line ... */
    double ramp_ms;  /* ... within this time, and stays */
    double pool_s;   /* 5, SESSIONS: rate x pool_s users take their turns in rounds, each round in
                        an order of its own */

    /* TIMES and BOOTSTRAP: due times. Borrowed until create returns */
    const double *times_ms;
    uint64_t times_len;    /* 0: those of the list */
    double time_scale;     /* 1: stretches all gaps; of BOOTSTRAP `rate` > 0 sets it instead */
    uint32_t block_len;    /* BOOTSTRAP: successive gaps drawn together; 0: cube root of all */
    uint64_t arrivals_max; /* 0: no end; of TIMES one for each time */

    /* SESSIONS. Bytes are of text; four bytes were meant to be a token */
    uint32_t sessions;        /* in the pool; 0: from working_set */
    uint32_t turns;           /* 4: of a conversation */
    double working_set;       /* 1: nominal tokens of all sessions over capacity_tokens */
    double capacity_tokens;   /* 629,760: KV of the fleet */
    double skew;              /* 0: uniform; popularity of the i-th is i^-skew */
    uint32_t user_bytes;      /* 1,792: of a user's message */
    uint32_t assistant_bytes; /* 256: of a quoted reply */
    uint32_t system_bytes;    /* 512: of the system prompt; the last user message is so much less */
    double system_share;      /* 0.3 of the sessions have it */
    double branch_share;      /* 0.3 of the sessions begin as others of their family do */
    uint32_t branch_families; /* 8 */
    uint32_t branch_turns;    /* 1: so many turns are the family's */
    uint32_t max_tokens;      /* 64 */
    double early_share;       /* 0.2: so many answers stop by themselves, uniform in 1 .. max - 1 */

    /* KEYS. Lengths in tokens */
    uint32_t keys;          /* 128 */
    double template_tokens; /* 4,400: the same for all; a system message */
    double context_tokens;  /* 180: of the key */
    double variant_tokens;  /* 2,400: of one of the key's variants */
    uint32_t variants;      /* 42: of each key, drawn uniformly */
    uint32_t whales;        /* 0: so many first keys ... */
    double whale_share;     /* ... share this much of the traffic evenly */
    double unique_tokens;   /* 400: new in each request ... */
    double unique_spread;   /* 0.5: ... times uniform in 1 - spread .. 1 + spread */
    double weight_shift;    /* 20: weight of the r-th key is (r + shift)^-power */
    double weight_power;    /* 0.85 */
    uint32_t population;    /* 0; else `keys` are the most frequent of so many, whose rates are
                               lognormal, and the law above does not count */
    double weight_sigma;    /* 1.6476: their deviation, for a Gini coefficient of 0.756 */
    double weight_cap;      /* 0.0029: the most of all traffic that one of them has */
    double drift_sigma;     /* 0: they stay; else each is multiplied by exp(sigma x normal) ... */
    double drift_requests;  /* ... every so many requests: a random walk of all keys' rates */
    double length_sigma;    /* 0: alike; a key's own texts are exp(sigma x normal) times as long */
    double thread_more;     /* 0: each request stands alone; else that part of all threads has two
                               turns or more. RATE, constant, no drift ... */
    double thread_end;     /* ... 0.3: from the second on, the chance that a turn is the last ... */
    double thread_gap_ms;  /* ... 30,000: mean of the exponential gap between two turns */
    const double *weights; /* by key, instead of any law; borrowed until create */
    uint32_t weights_len;  /* 0: by a law; else the number of keys */
    uint32_t output_tokens; /* 48: mean, or each */
    double output_cv;       /* 0: fixed; else lognormal, at most output_max */
    uint32_t output_max;    /* 0: 16 x output_tokens */

    /* CLOSED, all but LIST */
    uint64_t turns_max; /* 0: none; a user sends no more than so many */
};

struct kvr_workload;

/* One request of a list. */
struct kvr_list_request {
    uint64_t session; /* any number; 0: a conversation of its own */
    uint64_t key;     /* 0: none */
    uint64_t tenant;  /* 0: none */
    double due_ms;    /* since the start; never falls from one request to the next of a session */
    double think_ms;  /* CLOSED: from the end of the session's answer before to this one */
    const struct kvr_piece *pieces; /* copied */
    uint32_t pieces_len;            /* > 0 */
    uint32_t session_turn;          /* from 1; 0: counted */
    uint32_t max_tokens;            /* 0: not stated */
    uint32_t output_tokens;         /* 0: as max_tokens */
};

KVR_EXPORT void kvr_workload_defaults(struct kvr_workload_options *options);
/* NULL with the reason in `error`. */
KVR_EXPORT struct kvr_workload *kvr_workload_create(const struct kvr_workload_options *options,
                                                    struct kvr_error *error);
KVR_EXPORT void kvr_workload_destroy(struct kvr_workload *workload);
/* LIST: appends one; before the first request is taken. KVR_E_INVALID without pieces or out of
 * order. */
KVR_EXPORT int kvr_workload_add(struct kvr_workload *workload,
                                const struct kvr_list_request *request) KVR_MUST_USE;

/* Every option that the requests depend on, as "sessions(n=307,skew=0,...)+closed(users=32,...)".
 * Lists and times are named by their hash. Valid until the next call. */
KVR_EXPORT const char *kvr_workload_name(struct kvr_workload *workload);
/* What is in force, with what was derived filled in (sessions, keys, users). */
KVR_EXPORT const struct kvr_workload_options *
kvr_workload_options(const struct kvr_workload *workload);

/* The n-th turn of a user. A function of the two alone: it may be asked in any order and again.
 * False: that user sends no more. */
KVR_EXPORT bool kvr_workload_turn(struct kvr_workload *workload, uint64_t user, uint64_t turn,
                                  struct kvr_workload_request *request);

/* CLOSED: how many users there are, when each begins, and how long it waits before its n-th turn,
 * from the end of its answer before; 0 behind the last one of a list. */
KVR_EXPORT uint64_t kvr_workload_users(const struct kvr_workload *workload);
KVR_EXPORT uint64_t kvr_workload_start_ns(const struct kvr_workload *workload, uint64_t user);
KVR_EXPORT uint64_t kvr_workload_think_ns(const struct kvr_workload *workload, uint64_t user,
                                          uint64_t turn);

/* OPEN: the next arrival, in order of time; false: there are no more. */
KVR_EXPORT bool kvr_workload_next(struct kvr_workload *workload, struct kvr_arrival *arrival);
/* KEYS: the part of all requests that is about the key-th, from 0, whose session is key + 1; as the
 * weights are when the request last asked for is sent. */
KVR_EXPORT double kvr_workload_key_share(const struct kvr_workload *workload, uint32_t key);
/* KEYS: tokens of all prefixes of that key, and those that one request begins with; without the
 * template, which all keys share. */
void kvr_workload_key_tokens(const struct kvr_workload *workload, uint32_t key, double *all,
                             double *one);
/* Begins the arrivals anew. */
KVR_EXPORT void kvr_workload_rewind(struct kvr_workload *workload);

/* Bytes [offset, offset + len) of the text of a piece: lower-case letters, no escapes in JSON. */
KVR_EXPORT void kvr_workload_text(uint64_t id, uint64_t offset, size_t len, char *out);
/* "system", "user", "assistant", "tool". */
KVR_EXPORT const char *kvr_speaker_name(uint32_t speaker);
/* What the header x-session-id says of a session; `out` has room for 32 bytes. Returns the length.
 */
KVR_EXPORT size_t kvr_workload_session_name(const struct kvr_workload *workload, uint64_t session,
                                            char *out);

#endif
