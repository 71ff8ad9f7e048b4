/* What `kvroute gate` vouched for, and whether live traffic is still of that kind: the live guard
 * of CacheRoute ("the router would fall back to Flat-LB when the active set or measured p99 leaves
 * that envelope").
 *
 *   of the gate      what was judged: a policy and its spill rule, with their params; the routing
 *                    keys that had traffic when it was made (the active set), the least share of
 *                    requests that they must have, the most p99 of the first token, and the time
 *                    that each further token may take
 *   of live traffic  over the last window: requests and how many had such a key; of guarded
 *                    policies streams and whole answers, each for itself, and how many were late
 *
 *   window  |s|s|s|s|s|s|s|s|s|s|   10 slices; looked at whenever one ends, and left for good when
 *                          now ^    of at least requests_min
 *
 *     active_set   less than the share of the requests have a key of the set
 *     ttft_p99     over a hundredth of the streams have their first token after the bound
 *     total_p99    over a hundredth of the answers that come whole end later than a stream of as
 *                  many tokens may: after the bound of its first and the time of the others.
 *                  Nobody sees their first token, and long ones take long
 *
 * Streams and whole answers are judged apart: many good ones of one kind do not hide the other.
 * A window slides, so traffic that is all other is seen before one window is over. What is left
 * stays left: a new gate has to vouch again. Memory is 16 to 32 bytes a key. */
#ifndef KVR_ENVELOPE_H
#define KVR_ENVELOPE_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "slice.h"
#include "slot.h"

#define KVR_ENVELOPE_SLICES               10u
#define KVR_ENVELOPE_KEYS_MAX             (1u << 20)
#define KVR_ENVELOPE_WINDOW_DEFAULT_NS    (UINT64_C(20) * 1000000000u)
#define KVR_ENVELOPE_REQUESTS_MIN_DEFAULT 100u

/* Zeros are defaults. */
struct kvr_envelope_options {
    uint64_t window_ns;    /* 20 s */
    uint32_t requests_min; /* 100: of a window, to say anything of it */
};

enum kvr_envelope_left {
    KVR_ENVELOPE_KEPT, /* not left */
    KVR_ENVELOPE_ACTIVE_SET,
    KVR_ENVELOPE_TTFT_P99,
    KVR_ENVELOPE_TOTAL_P99,
    KVR_ENVELOPE_LEFTS,
};

enum kvr_envelope_kind { KVR_ENVELOPE_STREAMS, KVR_ENVELOPE_WHOLES, KVR_ENVELOPE_KINDS };

struct kvr_envelope_answers {
    uint64_t count; /* first tokens, or ends, of guarded policies; and failures */
    uint64_t late;  /* of these, after the bound */
};

struct kvr_envelope_counts {
    uint64_t requests; /* routed by policy */
    uint64_t active;   /* of these, of a key of the active set */
    struct kvr_envelope_answers answers[KVR_ENVELOPE_KINDS];
};

/* A script as rows name it. */
struct kvr_envelope_script {
    char name[KVR_SCRIPT_NAME_MAX]; /* empty: none */
    uint64_t hash;                  /* of its text */
    uint64_t params_hash;           /* of all params, its own and those set over them */
};

/* In what a script differs from the one that was judged; bits. */
enum kvr_envelope_difference {
    KVR_ENVELOPE_NAME = 1,
    KVR_ENVELOPE_TEXT = 2,
    KVR_ENVELOPE_PARAMS = 4,
};

struct kvr_envelope {
    struct kvr_envelope_script candidate; /* what was gated, ... */
    struct kvr_envelope_script spill;     /* ... and beside it */
    struct kvr_envelope_script against;   /* the baseline of the gate, ... */
    struct kvr_envelope_script against_spill;
    bool covers;         /* what acts is what was gated, when it was last looked at */
    double active_share; /* 0..1 */
    uint64_t ttft_ns;    /* bound of p99 of streams' first tokens */
    uint64_t token_ns;   /* of each further token of a whole answer */
    uint64_t *keys;      /* owned; open addressing, 0: free */
    uint32_t keys_mask;
    uint32_t keys_len;
    struct kvr_envelope_options options;
    struct kvr_envelope_counts slices[KVR_ENVELOPE_SLICES]; /* at slice number % 10 */
    uint64_t slice;                                         /* number of the newest; 0: none yet */
    enum kvr_envelope_left left;
    uint64_t left_ns;               /* when it was seen */
    struct kvr_envelope_counts saw; /* the window that it was seen in */
};

/* Reads the file of a gate. NULL with the reason in `error`: no such file, a gate that says `keep`,
 * a number out of its range. The caller's, to destroy. */
KVR_EXPORT struct kvr_envelope *kvr_envelope_create(struct kvr_slice text,
                                                    const struct kvr_envelope_options *options,
                                                    struct kvr_error *error);
KVR_EXPORT void kvr_envelope_destroy(struct kvr_envelope *envelope); /* NULL is allowed */

bool kvr_envelope_has(const struct kvr_envelope *envelope, uint64_t key);

/* A request came, or one of a guarded policy has been answered: a stream has its first token, a
 * whole answer its end. Time does not run backwards. True: it has been left just now. */
bool kvr_envelope_arrived(struct kvr_envelope *envelope, uint64_t now_ns, uint64_t key);
bool kvr_envelope_answered(struct kvr_envelope *envelope, uint64_t now_ns,
                           enum kvr_envelope_kind kind, bool late);
/* The longest that a whole answer of so many tokens may take; one without any is as a first token
 * is. */
uint64_t kvr_envelope_most_ns(const struct kvr_envelope *envelope, uint64_t tokens);
/* The same without news: for when nothing comes. */
bool kvr_envelope_tick(struct kvr_envelope *envelope, uint64_t now_ns);

/* Over the window that ends now. */
struct kvr_envelope_counts kvr_envelope_window(const struct kvr_envelope *envelope,
                                               uint64_t now_ns);
/* Constant: "kept", "active_set", "ttft_p99", "total_p99". */
const char *kvr_envelope_left_name(enum kvr_envelope_left left);

/* KVR_ENVELOPE_*; 0: it is the same. `info` may be NULL: none is in force. */
uint32_t kvr_envelope_compare(const struct kvr_envelope_script *judged,
                              const struct kvr_script_info *info);

#endif
