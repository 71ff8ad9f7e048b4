#include "envelope.h"

#include <string.h>

#include "check.h"
#include "memory.h"
#include "rng.h"

const char *kvr_envelope_left_name(enum kvr_envelope_left left)
{
    static const char *const names[] = {[KVR_ENVELOPE_KEPT] = "kept",
                                        [KVR_ENVELOPE_ACTIVE_SET] = "active_set",
                                        [KVR_ENVELOPE_TTFT_P99] = "ttft_p99",
                                        [KVR_ENVELOPE_TOTAL_P99] = "total_p99"};
    return names[left];
}

uint32_t kvr_envelope_compare(const struct kvr_envelope_script *judged,
                              const struct kvr_script_info *info)
{
    if (!info || !judged->name[0])
        return !info == !judged->name[0] ? 0 : KVR_ENVELOPE_NAME;
    return (strcmp(judged->name, info->name) != 0 ? KVR_ENVELOPE_NAME : 0u) |
           (judged->hash != info->hash ? KVR_ENVELOPE_TEXT : 0u) |
           (judged->params_hash != info->params_hash ? KVR_ENVELOPE_PARAMS : 0u);
}

void kvr_envelope_destroy(struct kvr_envelope *envelope)
{
    if (!envelope)
        return;
    kvr_free(envelope->keys);
    kvr_free(envelope);
}

bool kvr_envelope_has(const struct kvr_envelope *envelope, uint64_t key)
{
    uint32_t at = (uint32_t)kvr_mix64(key) & envelope->keys_mask;
    while (envelope->keys[at] && envelope->keys[at] != key)
        at = (at + 1) & envelope->keys_mask;
    return key && envelope->keys[at] == key;
}

/* Slices are numbered from 1, so that none is 0. */
static uint64_t slice_of(const struct kvr_envelope *envelope, uint64_t now_ns)
{
    return now_ns / (envelope->options.window_ns / KVR_ENVELOPE_SLICES) + 1;
}

struct kvr_envelope_counts kvr_envelope_window(const struct kvr_envelope *envelope, uint64_t now_ns)
{
    struct kvr_envelope_counts sum = {0};
    uint64_t now = slice_of(envelope, now_ns);
    for (uint64_t back = 0; back < KVR_ENVELOPE_SLICES && back < envelope->slice; back++) {
        uint64_t number = envelope->slice - back;
        if (number + KVR_ENVELOPE_SLICES <= now)
            break;
        const struct kvr_envelope_counts *slice = &envelope->slices[number % KVR_ENVELOPE_SLICES];
        sum.requests += slice->requests;
        sum.active += slice->active;
        for (int kind = 0; kind < KVR_ENVELOPE_KINDS; kind++) {
            sum.answers[kind].count += slice->answers[kind].count;
            sum.answers[kind].late += slice->answers[kind].late;
        }
    }
    return sum;
}

static bool is_late(const struct kvr_envelope_answers *answers, uint64_t least)
{
    return answers->count >= least && answers->late * 100 > answers->count;
}

static enum kvr_envelope_left judge(const struct kvr_envelope *envelope,
                                    const struct kvr_envelope_counts *saw)
{
    uint64_t least = envelope->options.requests_min;
    if (saw->requests >= least &&
        (double)saw->active < envelope->active_share * (double)saw->requests)
        return KVR_ENVELOPE_ACTIVE_SET;
    if (is_late(&saw->answers[KVR_ENVELOPE_STREAMS], least))
        return KVR_ENVELOPE_TTFT_P99;
    if (is_late(&saw->answers[KVR_ENVELOPE_WHOLES], least))
        return KVR_ENVELOPE_TOTAL_P99;
    return KVR_ENVELOPE_KEPT;
}

bool kvr_envelope_tick(struct kvr_envelope *envelope, uint64_t now_ns)
{
    uint64_t now = slice_of(envelope, now_ns);
    if (now <= envelope->slice)
        return false;
    bool before = envelope->left != KVR_ENVELOPE_KEPT;
    if (!before && envelope->slice) {
        /* As of the end of the slice that is over. */
        uint64_t ended_ns =
            envelope->slice * (envelope->options.window_ns / KVR_ENVELOPE_SLICES) - 1;
        struct kvr_envelope_counts saw = kvr_envelope_window(envelope, ended_ns);
        envelope->left = judge(envelope, &saw);
        if (envelope->left) {
            envelope->left_ns = now_ns;
            envelope->saw = saw;
        }
    }
    uint64_t first =
        now - envelope->slice > KVR_ENVELOPE_SLICES ? now - KVR_ENVELOPE_SLICES : envelope->slice;
    for (uint64_t number = first + 1; number <= now; number++)
        envelope->slices[number % KVR_ENVELOPE_SLICES] = (struct kvr_envelope_counts){0};
    envelope->slice = now;
    return !before && envelope->left;
}

bool kvr_envelope_arrived(struct kvr_envelope *envelope, uint64_t now_ns, uint64_t key)
{
    bool left = kvr_envelope_tick(envelope, now_ns);
    struct kvr_envelope_counts *slice = &envelope->slices[envelope->slice % KVR_ENVELOPE_SLICES];
    slice->requests++;
    slice->active += kvr_envelope_has(envelope, key);
    return left;
}

bool kvr_envelope_answered(struct kvr_envelope *envelope, uint64_t now_ns,
                           enum kvr_envelope_kind kind, bool late)
{
    bool left = kvr_envelope_tick(envelope, now_ns);
    struct kvr_envelope_counts *slice = &envelope->slices[envelope->slice % KVR_ENVELOPE_SLICES];
    slice->answers[kind].count++;
    slice->answers[kind].late += late;
    return left;
}

uint64_t kvr_envelope_most_ns(const struct kvr_envelope *envelope, uint64_t tokens)
{
    uint64_t others = tokens > 1 ? tokens - 1 : 0;
    /* Bounds are below 2^50 ns each (envelope_read.c): only a count out of all reason overflows. */
    if (envelope->token_ns && others > (UINT64_MAX - envelope->ttft_ns) / envelope->token_ns)
        return UINT64_MAX;
    return envelope->ttft_ns + others * envelope->token_ns;
}
