/* What `kvroute gate` vouched for, and whether live traffic is still of that kind: the live guard
 * of CacheRoute ("the router would fall back to Flat-LB when the active set or measured p99 leaves
 * that envelope").
 *
 *   of the gate      the routing keys that had traffic when it was made (the active set), the least
 *                    share of requests that they must have, the most p99 of the first token
 *   of live traffic  over the last window: requests and how many had such a key; answers of guarded
 *                    policies and how many came too late
 *
 *   window  |s|s|s|s|s|s|s|s|s|s|   10 slices; looked at whenever one ends, and left for good when
 *                          now ^    of at least requests_min
 *
 *     active_set   less than the share of the requests have a key of the set
 *     ttft_p99     over a hundredth of the answers are late: their p99 is beyond the bound
 *
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
#define KVR_ENVELOPE_NEVER                UINT64_MAX

/* Zeros are defaults. */
struct kvr_envelope_options {
    uint64_t window_ns;    /* 20 s */
    uint32_t requests_min; /* 100: of a window, to say anything of it */
};

enum kvr_envelope_left {
    KVR_ENVELOPE_KEPT, /* not left */
    KVR_ENVELOPE_ACTIVE_SET,
    KVR_ENVELOPE_TTFT_P99,
};

struct kvr_envelope_counts {
    uint64_t requests; /* routed by policy */
    uint64_t active;   /* of these, of a key of the active set */
    uint64_t answers;  /* first tokens, and requests that ended without one */
    uint64_t late;     /* of these, after the bound */
};

struct kvr_envelope {
    char candidate[KVR_SCRIPT_NAME_MAX]; /* what was gated */
    char against[KVR_SCRIPT_NAME_MAX];   /* the baseline of the gate */
    uint64_t candidate_hash;             /* of its text */
    double active_share;                 /* 0..1 */
    uint64_t ttft_ns;                    /* bound of p99 */
    uint64_t *keys;                      /* owned; open addressing, 0: free */
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

/* A request came, or one of a guarded policy has its first token after `ttft_ns`, or ended without
 * one (KVR_ENVELOPE_NEVER). Time does not run backwards. True: it has been left just now. */
bool kvr_envelope_arrived(struct kvr_envelope *envelope, uint64_t now_ns, uint64_t key);
bool kvr_envelope_answered(struct kvr_envelope *envelope, uint64_t now_ns, uint64_t ttft_ns);
/* The same without news: for when nothing comes. */
bool kvr_envelope_tick(struct kvr_envelope *envelope, uint64_t now_ns);

/* Over the window that ends now. */
struct kvr_envelope_counts kvr_envelope_window(const struct kvr_envelope *envelope,
                                               uint64_t now_ns);
/* Constant: "kept", "active_set", "ttft_p99". */
const char *kvr_envelope_left_name(enum kvr_envelope_left left);

#endif
